/* SPDX-License-Identifier: Apache-2.0
 *
 * --checkpoint-dir: a folder of checkpoints named by their step (step-000000001200.safetensors), of
 * which the last few are kept. Only rank 0 changes the folder; all ranks look for the checkpoint to
 * resume from.
 */
#ifndef CT_TRAINER_RECOVERY_CHECKPOINT_DIR_H
#define CT_TRAINER_RECOVERY_CHECKPOINT_DIR_H

#include "common/buf.h"
#include "common/err.h"
#include "trainer/recovery/checkpoint.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the path of the checkpoint after `step` updates, which the caller must ct_free(), or NULL
 * without memory. */
char *ct_checkpoint_dir_path(const char *dir, int64_t step);

/* Gives the steps of all checkpoints in the folder, newest first, which the caller must ct_free().
 * A missing folder counts as empty. The message names the folder. */
CT_MUST_CHECK int ct_checkpoint_dir_list(const char *dir, int64_t **steps, size_t *count,
                                         struct ct_err *err);

/* Creates the folder if needed, so that it also outlives a loss of power, and checks that files can
 * be created there. */
CT_MUST_CHECK int ct_checkpoint_dir_probe(const char *dir, struct ct_err *err);

/* Outcome of ct_checkpoint_dir_newest(). */
enum { CT_CHECKPOINT_DIR_E_NONE = 1 };

/* Opens the newest complete checkpoint. Torn and damaged ones are skipped, with a line each in
 * `warnings`, and so is one that has been removed meanwhile, without a line.
 * CT_CHECKPOINT_DIR_E_NONE if there is no complete one; CT_EINVAL if the newest complete one is of
 * another model. */
CT_MUST_CHECK int ct_checkpoint_dir_newest(const char *dir, const struct ct_layout *layout,
                                           enum ct_optimizer_kind optimizer,
                                           struct ct_safetensors *file,
                                           struct ct_progress_point *point, struct ct_buf *warnings,
                                           struct ct_err *err);

/* Prepares the folder for a training that starts at `step`: removes what a killed writer left
 * half-written. Checkpoints beyond `step` would be taken for later ones of this training. With
 * `torn_beyond` they are known to be torn and get the suffix ".torn"; otherwise the result is
 * CT_EINVAL, and the message says what to do. */
CT_MUST_CHECK int ct_checkpoint_dir_start(const char *dir, int64_t step, bool torn_beyond,
                                          struct ct_err *err);

/* Removes all checkpoints up to `step` but the newest `keep`. Ignores failures to remove one. */
void ct_checkpoint_dir_prune(const char *dir, int64_t step, int keep);

#endif
