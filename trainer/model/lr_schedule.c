/* SPDX-License-Identifier: Apache-2.0
 *
 * The schedules. Each is a pure function of the part of the training that is done.
 */
#include "trainer/model/lr_schedule.h"

#include <math.h>

#define PI 3.14159265358979323846

double ct_lr_schedule_scaled(enum ct_rate_scale scale, double lr, size_t batch, size_t base)
{
    switch (scale) {
    case CT_RATE_SCALE_OFF:
        break;
    case CT_RATE_SCALE_LINEAR:
        return lr * (double)batch / (double)base;
    case CT_RATE_SCALE_SQRT:
        return lr * sqrt((double)batch / (double)base);
    }
    return lr;
}

double ct_lr_schedule_rate(const struct ct_rate *rate, double done, double step)
{
    if (done < rate->warmup) {
        /* The rate at the step's end is used: the first step would learn nothing at rate 0. */
        double part = (done + step) / rate->warmup;
        return part < 1 ? rate->full * part : rate->full;
    }
    if (rate->schedule == CT_SCHEDULE_CONSTANT) {
        return rate->full;
    }
    double part = (done - rate->warmup) / (rate->epochs - rate->warmup);
    return rate->full * 0.5 * (1.0 + cos(PI * part));
}
