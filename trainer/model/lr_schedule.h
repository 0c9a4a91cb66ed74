/* SPDX-License-Identifier: Apache-2.0
 *
 * The learning rate during a training. It depends only on how much of the training is done, so a
 * resumed run continues exactly without further state.
 *
 *     full |      ____
 *          |    /      \__          warm-up: a line from zero, then the schedule over what is left
 *        0 |__/___________\__
 */
#ifndef CT_TRAINER_MODEL_LR_SCHEDULE_H
#define CT_TRAINER_MODEL_LR_SCHEDULE_H

#include <stddef.h>

enum ct_schedule {
    CT_SCHEDULE_COSINE, /* from the full rate to zero along half a cosine (Loshchilov and Hutter) */
    CT_SCHEDULE_CONSTANT, /* the full rate throughout */
};

/* How the rate depends on the global batch size, given the batch size that it was found for. */
enum ct_rate_scale {
    CT_RATE_SCALE_OFF,
    CT_RATE_SCALE_LINEAR, /* proportional (Goyal et al., arXiv 1706.02677) */
    CT_RATE_SCALE_SQRT, /* by the square root, for batches that are too large for the linear rule */
};

struct ct_rate {
    enum ct_schedule schedule;
    double full;           /* the highest rate */
    double warmup, epochs; /* 0 <= warmup < epochs */
};

/* Returns the full rate for `batch` samples per step if `lr` was found with `base` >= 1. */
double ct_lr_schedule_scaled(enum ct_rate_scale scale, double lr, size_t batch, size_t base);

/* Returns the rate of a step that starts after `done` epochs and takes `step` of an epoch. */
double ct_lr_schedule_rate(const struct ct_rate *rate, double done, double step);

#endif
