/* SPDX-License-Identifier: Apache-2.0
 *
 * A trainer whose model is cut into the stages of a pipeline: what the rest of the trainer asks
 * because of that.
 *
 * Parameters and optimizer state have room for the whole model on every rank, and are whole when
 * training begins. From then on a rank updates its stage's layers only. What a rank sees is
 * whole again where all stages work on one block, which is where each machine has all of them on
 * its CPUs; with stages on several machines, and on GPUs, the layers of other stages stay behind
 * until ct_stages_collect(). Steps, evaluation and hashes do not need them, checkpoints do.
 */
#ifndef CT_TRAINER_STAGES_H
#define CT_TRAINER_STAGES_H

#include "trainer/trainer.h"

/* CT_EINVAL with one line for the user when workers or layers do not suit --pipeline-stages. */
CT_MUST_CHECK int ct_stages_check(const struct ct_trainer *t, struct ct_err *err);

/* Collective. Opens t->pipe for steps of at most `rows` samples of a lane. */
CT_MUST_CHECK int ct_stages_open(struct ct_trainer *t, size_t rows, struct ct_err *err);

/* Collective, between steps. Brings parameters and optimizer state together where this rank sees
 * only a part of them; returns at once without stages. */
CT_MUST_CHECK int ct_stages_collect(struct ct_trainer *t, struct ct_err *err);

#endif
