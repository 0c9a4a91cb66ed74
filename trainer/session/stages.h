/* SPDX-License-Identifier: Apache-2.0
 *
 * A trainer whose model is divided into the stages of a pipeline: which rank has which parameters.
 *
 * On CPUs a machine's ranks share parameters and optimizer state of the whole model (group.h), and
 * each reads and updates the layers of its stage. If every machine has ranks of all stages, each
 * has the whole model at any time; otherwise the layers of other stages are out of date. A GPU has
 * only the layers of its stage. Steps, evaluation and hashes need no more. A checkpoint does, so if
 * the model is scattered like this, all ranks collect it.
 */
#ifndef CT_TRAINER_SESSION_STAGES_H
#define CT_TRAINER_SESSION_STAGES_H

#include "trainer/session/trainer.h"

/* CT_EINVAL, with a message for the user, if workers or layers do not fit --pipeline-stages. */
CT_MUST_CHECK int ct_stages_check(const struct ct_trainer *t, struct ct_err *err);

/* Returns the range of the model that this rank needs memory for; without stages all of it. */
struct ct_span ct_stages_held(const struct ct_trainer *t);

/* Collective. Opens t->pipe for steps of at most `rows` samples per replica. */
CT_MUST_CHECK int ct_stages_open(struct ct_trainer *t, size_t rows, struct ct_err *err);

/* Collective, between steps: ct_trainer_copy_state() for a scattered model. */
CT_MUST_CHECK int ct_stages_copy_state(struct ct_trainer *t, float *out, struct ct_err *err);

#endif
