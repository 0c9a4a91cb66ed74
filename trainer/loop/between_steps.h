/* SPDX-License-Identifier: Apache-2.0
 *
 * Between two steps the model is whole and nobody changes it: the place for checkpoints, and for
 * ending before the end.
 */
#ifndef CT_TRAINER_LOOP_BETWEEN_STEPS_H
#define CT_TRAINER_LOOP_BETWEEN_STEPS_H

#include "trainer/loop/train.h"

/* Outcome: a notice of preemption came; all ranks stop here and the state is saved. */
enum { CT_BETWEEN_STEPS_E_STOP = 1 };

/* Rank 0 starts the saver, when checkpoints are asked for. Checkpoints that a resumed training
 * would be mixed up with are refused; see ct_checkpoint_dir_start(). */
CT_MUST_CHECK int ct_between_steps_open(struct ct_trainer *t, struct ct_err *err);
void ct_between_steps_close(struct ct_saving *saving); /* waits for the write under way */

/* Once at the start of the run. */
void ct_between_steps_start(struct ct_trainer *t, const struct ct_train_events *events);

/* Steps from here on of which only the last one needs what ct_between_steps_step() does; at
 * least 1. */
size_t ct_between_steps_free(const struct ct_trainer *t);

/* Collective. After `steps` such steps that do not end the epoch, and after an epoch. */
CT_MUST_CHECK int ct_between_steps_step(struct ct_trainer *t, const struct ct_train_events *events,
                                        size_t steps, struct ct_err *err);
CT_MUST_CHECK int ct_between_steps_epoch(struct ct_trainer *t, const struct ct_train_events *events,
                                         struct ct_err *err);

/* After the last step: waits for the last checkpoint. Its failure is the training's, since nothing
 * will write it later. */
CT_MUST_CHECK int ct_between_steps_end(struct ct_saving *saving, struct ct_err *err);

#endif
