/* SPDX-License-Identifier: Apache-2.0
 *
 * --checkpoint-dir: a folder of checkpoints named by their step (step-000000001200.safetensors), of
 * which the last few are kept. Only rank 0 changes the folder; all ranks look for where to resume.
 */
#ifndef CT_TRAINER_RECOVERY_CHECKPOINT_DIR_H
#define CT_TRAINER_RECOVERY_CHECKPOINT_DIR_H

#include "common/buf.h"
#include "common/err.h"
#include "trainer/recovery/checkpoint.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Path of the checkpoint after `step` updates, to be freed with ct_free(); NULL without memory. */
char *ct_checkpoint_dir_path(const char *dir, int64_t step);

/* Steps of the checkpoints that are there, newest first, to be freed with ct_free(). A folder that
 * is not there holds none. Text names the folder. */
CT_MUST_CHECK int ct_checkpoint_dir_list(const char *dir, int64_t **steps, size_t *count,
                                         struct ct_err *err);

/* Makes the folder if need be and checks that files can be made there. */
CT_MUST_CHECK int ct_checkpoint_dir_probe(const char *dir, struct ct_err *err);

/* Outcome of ct_checkpoint_dir_newest(). */
enum { CT_CHECKPOINT_DIR_E_NONE = 1 };

/* Opens the newest whole checkpoint. Torn and damaged ones are passed over with a line each in
 * `warnings`. CT_CHECKPOINT_DIR_E_NONE when there is no whole one; CT_EINVAL when the newest whole
 * one belongs to another model. */
CT_MUST_CHECK int ct_checkpoint_dir_newest(const char *dir, const struct ct_layout *layout,
                                           enum ct_optimizer_kind optimizer,
                                           struct ct_safetensors *file,
                                           struct ct_progress_point *point, struct ct_buf *warnings,
                                           struct ct_err *err);

/* Makes the folder ready for a training that starts at `step`: what a killed writer left half
 * written goes. Checkpoints beyond `step` would be taken for this training's later: with
 * `torn_beyond` they are known to be torn and get ".torn" behind their names, else CT_EINVAL tells
 * what to do. */
CT_MUST_CHECK int ct_checkpoint_dir_start(const char *dir, int64_t step, bool torn_beyond,
                                          struct ct_err *err);

/* Removes all but the `keep` newest up to `step`. What cannot be removed stays. */
void ct_checkpoint_dir_prune(const char *dir, int64_t step, int keep);

#endif
