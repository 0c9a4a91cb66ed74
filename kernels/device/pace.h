/* SPDX-License-Identifier: Apache-2.0
 *
 * What AdamW's step number gives: made once per step on the host, in double, so that every kernel
 * and every device updates with the same numbers.
 */
#ifndef CT_KERNELS_DEVICE_PACE_H
#define CT_KERNELS_DEVICE_PACE_H

#include "kernels/device/device.h"

#include <math.h>

/* `step` counts from 1. */
static inline struct ct_pace ct_pace_adamw(float lr, float beta1, float beta2, float weight_decay,
                                           int64_t step)
{
    double correction1 = 1.0 - pow((double)beta1, (double)step);
    double correction2 = 1.0 - pow((double)beta2, (double)step);
    struct ct_pace pace;
    pace.lr = lr;
    pace.keep = (float)(1.0 - (double)lr * (double)weight_decay);
    pace.step_size = (float)((double)lr / correction1);
    pace.denom_scale = (float)(1.0 / sqrt(correction2));
    return pace;
}

#endif
