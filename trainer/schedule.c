/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/schedule.h"

#include <math.h>

#define PI 3.14159265358979323846

double ct_schedule_rate(enum ct_schedule schedule, double full, double done)
{
    return schedule == CT_SCHEDULE_CONSTANT ? full : full * 0.5 * (1.0 + cos(PI * done));
}
