/* SPDX-License-Identifier: Apache-2.0
 *
 * What a GPU's process keeps of the training beyond the end of a generation: a copy of the newest
 * state that is known to be good, in memory of the device.
 *
 * A GPU computes ahead of the host, and what it computes after a collective that was aborted is
 * nothing: when a peer dies, nobody can tell what the parameters hold. So the state is copied where
 * the host has just waited and found all well, before anything else is queued, and not so often
 * that it costs more than a fiftieth of the time. Where workers compute on CPUs,
 * trainer/session/step_resume.h does better.
 */
#ifndef CT_TRAINER_SESSION_GPU_BACKUP_H
#define CT_TRAINER_SESSION_GPU_BACKUP_H

#include "trainer/session/trainer.h"

/* Makes room for the copy on a GPU; where there is none, warns and keeps nothing. */
void ct_gpu_backup_open(struct ct_trainer *t);

/* `dev` is NULL where the device was never opened. */
void ct_gpu_backup_close(struct ct_gpu_backup *backup, struct ct_device *dev);

/* All that was queued is done, or needs no peer. Copies the state, at once if it `must` be. */
CT_MUST_CHECK int ct_gpu_backup_point(struct ct_trainer *t, bool must, struct ct_err *err);

/* Collective on GPUs, when each rank stands where its checkpoint says: takes over the position of
 * the newest state that any rank has kept, unless the checkpoints are newer. */
CT_MUST_CHECK int ct_gpu_backup_agree(struct ct_trainer *t, struct ct_err *err);

/* Collective: fills the model with that state. Only when there is one. */
CT_MUST_CHECK int ct_gpu_backup_fill(struct ct_trainer *t, struct ct_err *err);

#endif
