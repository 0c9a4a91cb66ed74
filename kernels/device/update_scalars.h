/* SPDX-License-Identifier: Apache-2.0
 *
 * What AdamW's step number gives: made once per step on the host, in double, so that every kernel
 * and every device updates with the same numbers.
 */
#ifndef CT_KERNELS_DEVICE_UPDATE_SCALARS_H
#define CT_KERNELS_DEVICE_UPDATE_SCALARS_H

#include "kernels/device/device.h"

#include <math.h>

/* `step` counts from 1. */
static inline struct ct_update_scalars ct_update_scalars_adamw(float lr, float beta1, float beta2,
                                                               float weight_decay, int64_t step)
{
    double correction1 = 1.0 - pow((double)beta1, (double)step);
    double correction2 = 1.0 - pow((double)beta2, (double)step);
    struct ct_update_scalars scalars;
    scalars.lr = lr;
    scalars.keep = (float)(1.0 - (double)lr * (double)weight_decay);
    scalars.step_size = (float)((double)lr / correction1);
    scalars.denom_scale = (float)(1.0 / sqrt(correction2));
    return scalars;
}

#endif
