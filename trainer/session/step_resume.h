/* SPDX-License-Identifier: Apache-2.0
 *
 * Restart from the snapshot of the last step: connects the trainer and
 * trainer/recovery/step_snapshot.h. Nothing is kept without a launcher that restarts workers, on
 * GPUs, over several machines, and with --snapshot off. A failure adds a warning, and training
 * continues without snapshots.
 */
#ifndef CT_TRAINER_SESSION_STEP_RESUME_H
#define CT_TRAINER_SESSION_STEP_RESUME_H

#include "trainer/session/trainer.h"

/* Called before the ranks check that they agree: looks for a snapshot at least as new as the
 * trainer's position, and takes over its position. `fingerprint` is of everything that decides how
 * training continues. */
void ct_step_resume_open(struct ct_trainer *trainer, const struct ctw_env *env,
                         uint64_t fingerprint);

/* On rank 0, between two barriers of the ranks: prepares the memory for this generation and fills
 * the model from the snapshot. False if there was none. */
bool ct_step_resume_fill(struct ct_trainer *trainer);

/* On every rank, after the second of these barriers. */
void ct_step_resume_start(struct ct_step_snapshot *snapshot, struct ct_buf *warnings);

/* Adds to the totals what earlier generations have summed in the current epoch. Returns the number
 * of samples in those sums, the same on every rank. */
size_t ct_step_resume_epoch(struct ct_trainer *trainer);

/* Called when a rank has updated its share [begin, end) of the model in the current step. */
void ct_step_resume_step(struct ct_trainer *trainer, size_t begin, size_t end);

#endif
