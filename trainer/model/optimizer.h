/* SPDX-License-Identifier: Apache-2.0
 *
 * The update rule and its state, applied to any range of the flat parameter arena, so that each
 * rank can update just its own share.
 */
#ifndef CT_TRAINER_MODEL_OPTIMIZER_H
#define CT_TRAINER_MODEL_OPTIMIZER_H

#include "common/err.h"
#include "kernels/device/device.h"

#include <stddef.h>
#include <stdint.h>

enum ct_optimizer_kind { CT_OPTIMIZER_SGD, CT_OPTIMIZER_ADAMW };

/* "sgd", "adamw": on the command line and in checkpoints. */
const char *ct_optimizer_name(enum ct_optimizer_kind kind);

#define CT_OPTIMIZER_STATES_MAX 2

/* Name of state array `i` in checkpoints (torch.optim's words), NULL past the last one. */
const char *ct_optimizer_state_name(enum ct_optimizer_kind kind, size_t i);

struct ct_optimizer {
    enum ct_optimizer_kind kind;
    float lr; /* of the next update */
    float momentum, weight_decay;
    int64_t step; /* updates done so far */
    /* Each as long as the parameters, zero at the start; device memory, borrowed. */
    float *state[CT_OPTIMIZER_STATES_MAX];
    uint16_t *narrow;               /* likewise: the parameters in bfloat16; NULL = not kept */
    const struct ct_course *course; /* borrowed; NULL, or what counts in place of lr and step */
    bool beside;                    /* as in struct ct_sgd */
};

/* What update number `step` (from 1) takes from a course. */
struct ct_pace ct_optimizer_pace(const struct ct_optimizer *opt, float lr, int64_t step);

/* Updates params[begin, end) by grads[begin, end) as update number step + 1. The caller counts
 * `step` up after the last range. */
CT_MUST_CHECK int ct_optimizer_apply(const struct ct_optimizer *opt, struct ct_device *dev,
                                     float *params, const float *grads, size_t begin, size_t end,
                                     struct ct_err *err);

#endif
