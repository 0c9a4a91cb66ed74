/* SPDX-License-Identifier: Apache-2.0
 *
 * Between two steps the model is complete and no rank changes it. So this is the place for
 * checkpoints, and for an early end.
 */
#ifndef CT_TRAINER_LOOP_BETWEEN_STEPS_H
#define CT_TRAINER_LOOP_BETWEEN_STEPS_H

#include "trainer/loop/train.h"

/* Outcome: because of a notice of preemption all ranks stop here, and the state is saved. */
enum { CT_BETWEEN_STEPS_E_STOP = 1 };

/* If checkpoints are asked for, rank 0 starts the saver. Refuses a folder with checkpoints that
 * would be mixed up with those of this training; see ct_checkpoint_dir_start(). */
CT_MUST_CHECK int ct_between_steps_open(struct ct_trainer *t, struct ct_err *err);
void ct_between_steps_close(struct ct_saving *saving); /* waits for the write under way */

/* Called once at the start of the run. */
void ct_between_steps_start(struct ct_trainer *t, const struct ct_train_events *events);

/* Returns a number of steps, at least 1, of which only the last must be followed by
 * ct_between_steps_step(). */
size_t ct_between_steps_free(const struct ct_trainer *t);

/* Collective. The first is called after `steps` such steps that do not end the epoch, the second
 * after an epoch. */
CT_MUST_CHECK int ct_between_steps_step(struct ct_trainer *t, const struct ct_train_events *events,
                                        size_t steps, struct ct_err *err);
CT_MUST_CHECK int ct_between_steps_epoch(struct ct_trainer *t, const struct ct_train_events *events,
                                         struct ct_err *err);

/* Called after the last step: waits for the last checkpoint. Its failure is that of the training,
 * because nothing writes it later. */
CT_MUST_CHECK int ct_between_steps_end(struct ct_saving *saving, struct ct_err *err);

#endif
