/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes checkpoints while training continues: the caller copies the state into the saver's memory,
 * and a thread writes it during the next steps. There is only one such memory, so at most one copy
 * of the model exists. A caller for whom it is not free can wait or skip the checkpoint.
 *
 * A file is replaced whole or not at all, so the previous one stays if a write fails (a full disk,
 * a kill, a crash).
 */
#ifndef CT_TRAINER_RECOVERY_SAVER_H
#define CT_TRAINER_RECOVERY_SAVER_H

#include "common/err.h"
#include "trainer/recovery/checkpoint.h"

#include <stdbool.h>
#include <stdint.h>

struct ct_saver;

/* Texts and layout are borrowed. At least one of file and dir is not NULL. */
struct ct_saver_options {
    const char *file; /* replaced each time; NULL = none */
    const char *dir;  /* gets one file per step; NULL = none */
    int keep;         /* number of files that are kept in dir, at least 1 */
    const struct ct_layout *layout;
    enum ct_optimizer_kind optimizer;
};

struct ct_saver_counts {
    uint64_t written, failed, skipped;
};

/* Starts the thread. Gives *out. */
CT_MUST_CHECK int ct_saver_open(const struct ct_saver_options *options, struct ct_saver **out,
                                struct ct_err *err);

/* Waits for the write under way, and drops a snapshot that was not committed. NULL is allowed. */
void ct_saver_free(struct ct_saver *saver);

/* Returns memory for a snapshot: parameters, then each optimizer state, layout->count floats each.
 * During a write: waits with `wait`, else counts one skipped and returns NULL. */
float *ct_saver_begin(struct ct_saver *saver, bool wait);

/* Gives the snapshot to the thread. */
void ct_saver_commit(struct ct_saver *saver, const struct ct_progress_point *point);

/* Waits until every committed snapshot is written. Returns the failure of the last one, else 0. */
CT_MUST_CHECK int ct_saver_wait(struct ct_saver *saver, struct ct_err *err);

/* Returns true once per series of failures, with the reason. Earlier checkpoints still exist. Never
 * blocks. */
bool ct_saver_news(struct ct_saver *saver, struct ct_err *reason);

struct ct_saver_counts ct_saver_count(struct ct_saver *saver);

#endif
