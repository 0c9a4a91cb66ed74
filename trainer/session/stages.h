/* SPDX-License-Identifier: Apache-2.0
 *
 * A trainer whose model is cut into the stages of a pipeline: whose parameters are where.
 *
 * On CPUs a machine's ranks share parameters and optimizer state of the whole model (team.h), of
 * which each reads and updates its stage's layers. Where all machines have ranks of all stages,
 * each has the whole model at any time; elsewhere the layers of other stages stay behind. A GPU has
 * no more than its stage's layers. Steps, evaluation and hashes need no others; a checkpoint does,
 * and where the model is scattered like this, all ranks bring it together for that.
 */
#ifndef CT_TRAINER_SESSION_STAGES_H
#define CT_TRAINER_SESSION_STAGES_H

#include "trainer/session/trainer.h"

/* CT_EINVAL with one line for the user when workers or layers do not suit --pipeline-stages. */
CT_MUST_CHECK int ct_stages_check(const struct ct_trainer *t, struct ct_err *err);

/* What this rank needs room for: the whole model without stages. */
struct ct_span ct_stages_held(const struct ct_trainer *t);

/* Collective. Opens t->pipe for steps of at most `rows` samples of a lane. */
CT_MUST_CHECK int ct_stages_open(struct ct_trainer *t, size_t rows, struct ct_err *err);

/* Collective, between steps: ct_trainer_copy_state() of a scattered model. */
CT_MUST_CHECK int ct_stages_copy_state(struct ct_trainer *t, float *out, struct ct_err *err);

#endif
