/* SPDX-License-Identifier: Apache-2.0
 *
 * What a process on a GPU keeps of the training beyond the end of a generation: a copy of the
 * newest state that is known to be good, in device memory.
 *
 * A GPU computes later than the host queues, and after an aborted collective with undefined
 * numbers. So when a peer dies, the parameters cannot be trusted. The state is therefore copied
 * when the host has waited for the device without an error, before anything else is queued, and so
 * seldom that it costs at most a fiftieth of the time. For workers on CPUs,
 * trainer/session/step_resume.h does better.
 */
#ifndef CT_TRAINER_SESSION_GPU_BACKUP_H
#define CT_TRAINER_SESSION_GPU_BACKUP_H

#include "trainer/session/trainer.h"

/* Allocates the copy on a GPU. Without memory it adds a warning and keeps nothing. */
void ct_gpu_backup_open(struct ct_trainer *t);

/* `dev` is NULL if the device was never opened. */
void ct_gpu_backup_close(struct ct_gpu_backup *backup, struct ct_device *dev);

/* Copies the state, if it is time or if `must`. All queued work must be done, or need no peer. */
CT_MUST_CHECK int ct_gpu_backup_point(struct ct_trainer *t, bool must, struct ct_err *err);

/* Collective on GPUs, when each rank has the position of its checkpoint: takes over the position of
 * the newest state that any rank has kept, unless the checkpoints are newer. */
CT_MUST_CHECK int ct_gpu_backup_agree(struct ct_trainer *t, struct ct_err *err);

/* Collective: fills the model with that state, if there is one. */
CT_MUST_CHECK int ct_gpu_backup_fill(struct ct_trainer *t, struct ct_err *err);

#endif
