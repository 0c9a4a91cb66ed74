/* SPDX-License-Identifier: Apache-2.0
 *
 * The update rule and its state. It can be applied to any range of the flat parameter array, so
 * that each rank can update just its own share.
 */
#ifndef CT_TRAINER_MODEL_OPTIMIZER_H
#define CT_TRAINER_MODEL_OPTIMIZER_H

#include "common/err.h"
#include "kernels/device/device.h"

#include <stddef.h>
#include <stdint.h>

enum ct_optimizer_kind { CT_OPTIMIZER_SGD, CT_OPTIMIZER_ADAMW };

/* Returns "sgd" or "adamw", as on the command line and in checkpoints. */
const char *ct_optimizer_name(enum ct_optimizer_kind kind);

#define CT_OPTIMIZER_STATES_MAX 2

/* Returns the name of state array `i` in checkpoints (torch.optim's); NULL after the last one. */
const char *ct_optimizer_state_name(enum ct_optimizer_kind kind, size_t i);

struct ct_optimizer {
    enum ct_optimizer_kind kind;
    float lr; /* of the next update */
    float momentum, weight_decay;
    int64_t step; /* number of updates done */
    /* Each is as long as the parameters and zero at the start; device memory, borrowed. */
    float *state[CT_OPTIMIZER_STATES_MAX];
    uint16_t *narrow; /* borrowed: the parameters in bfloat16; NULL = there is no such copy */
    const struct ct_step_cursor *cursor; /* borrowed; if not NULL, it replaces lr and step */
    bool beside;                         /* as in struct ct_sgd */
};

/* Returns the scalars of update number `step` (from 1), for a cursor. */
struct ct_update_scalars ct_optimizer_scalars(const struct ct_optimizer *opt, float lr,
                                              int64_t step);

/* Updates params[begin, end) by grads[begin, end) as update number step + 1. The caller raises
 * `step` after the last range. */
CT_MUST_CHECK int ct_optimizer_apply(const struct ct_optimizer *opt, struct ct_device *dev,
                                     float *params, const float *grads, size_t begin, size_t end,
                                     struct ct_err *err);

#endif
