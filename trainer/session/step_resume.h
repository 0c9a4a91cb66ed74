/* SPDX-License-Identifier: Apache-2.0
 *
 * How a training survives its workers: between the trainer and trainer/recovery/step_snapshot.h.
 * Everything here does nothing where there is no memory for it: without a launcher that would
 * restart workers, on GPUs, over several machines, and with --snapshot off. What fails warns and is
 * done without.
 */
#ifndef CT_TRAINER_SESSION_STEP_RESUME_H
#define CT_TRAINER_SESSION_STEP_RESUME_H

#include "trainer/session/trainer.h"

/* Before the ranks check that they agree: looks for a snapshot at least as new as where the trainer
 * stands, and takes over its position. `fingerprint` is of all that decides how training goes on.
 */
void ct_step_resume_open(struct ct_trainer *trainer, const struct ctw_env *env,
                         uint64_t fingerprint);

/* On rank 0, between two barriers of the ranks: makes the memory ready for this generation and
 * fills the model from what was found. False when nothing was. */
bool ct_step_resume_fill(struct ct_trainer *trainer);

/* On every rank, after the second of those barriers. */
void ct_step_resume_start(struct ct_step_snapshot *snapshot, struct ct_buf *warnings);

/* Puts into the totals what earlier generations summed up in the epoch that begins or goes on. The
 * number of samples behind that, the same on every rank. */
size_t ct_step_resume_epoch(struct ct_trainer *trainer);

/* When a rank has updated its share [begin, end) of the model in the step under way. */
void ct_step_resume_step(struct ct_trainer *trainer, size_t begin, size_t end);

#endif
