/* SPDX-License-Identifier: Apache-2.0
 *
 * The learning rate over a training, as a function of how much of it is done, so that a resumed run
 * needs no state to go on exactly.
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

/* How the rate follows the global batch, given the batch that it was found for. */
enum ct_rate_scale {
    CT_RATE_SCALE_OFF,
    CT_RATE_SCALE_LINEAR, /* in proportion (Goyal et al., arXiv 1706.02677) */
    CT_RATE_SCALE_SQRT,   /* with the square root: beyond the batch where the line breaks down */
};

struct ct_rate {
    enum ct_schedule schedule;
    double full;           /* the highest rate */
    double warmup, epochs; /* 0 <= warmup < epochs */
};

/* The full rate for `batch` samples per step where `lr` was found with `base`, >= 1. */
double ct_lr_schedule_scaled(enum ct_rate_scale scale, double lr, size_t batch, size_t base);

/* Of the step that starts when `done` epochs are done and takes `step` of one. */
double ct_lr_schedule_rate(const struct ct_rate *rate, double done, double step);

#endif
