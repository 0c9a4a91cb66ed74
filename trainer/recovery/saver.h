/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes checkpoints behind the training: the caller copies the state into the saver's memory, and
 * a thread writes it while the next steps run. There is one such memory, so that a model is held
 * twice and never more often; who comes before it is free may wait or leave it out.
 *
 * A file is replaced whole or not at all, so that whatever happens while one is written (a full
 * disk, a kill, a crash) the one before stays.
 */
#ifndef CT_TRAINER_RECOVERY_SAVER_H
#define CT_TRAINER_RECOVERY_SAVER_H

#include "common/err.h"
#include "trainer/recovery/checkpoint.h"

#include <stdbool.h>
#include <stdint.h>

struct ct_saver;

/* Texts and layout are borrowed. At least one of file and dir. */
struct ct_saver_options {
    const char *file; /* replaced each time; NULL = none */
    const char *dir;  /* gets a file per step; NULL = none */
    int keep;         /* files that stay in dir, at least 1 */
    const struct ct_layout *layout;
    enum ct_optimizer_kind optimizer;
};

struct ct_saver_counts {
    uint64_t written, failed, skipped;
};

/* Starts the thread. Gives *out. */
CT_MUST_CHECK int ct_saver_open(const struct ct_saver_options *options, struct ct_saver **out,
                                struct ct_err *err);

/* Waits for the write under way, drops what was not committed. NULL is allowed. */
void ct_saver_free(struct ct_saver *saver);

/* Memory for a snapshot: parameters, then each optimizer state, layout->count floats each. While
 * one is being written: NULL, counted as skipped, or with `wait` when that is done. */
float *ct_saver_begin(struct ct_saver *saver, bool wait);

/* Hands what was copied there to the thread. */
void ct_saver_commit(struct ct_saver *saver, const struct ct_progress_point *point);

/* Waits until everything committed is written. The failure of the last one, else 0. */
CT_MUST_CHECK int ct_saver_wait(struct ct_saver *saver, struct ct_err *err);

/* True once per series of failures, with its reason: what was written before is still there. Never
 * blocks. */
bool ct_saver_news(struct ct_saver *saver, struct ct_err *reason);

struct ct_saver_counts ct_saver_count(struct ct_saver *saver);

#endif
