/* SPDX-License-Identifier: Apache-2.0
 *
 * Means over the samples and the time between two points. Pure.
 */
#include "trainer/session/rates.h"

#include "common/clock.h"

void ct_rates_start(struct ct_rates *watch, int64_t ns, int64_t comm_ns)
{
    watch->start = (struct ct_rates_point){.ns = ns, .comm_ns = comm_ns};
    watch->line = watch->start;
}

void ct_rates_means(const struct ct_rates_point *from, const struct ct_rates_point *to,
                    struct ct_step_report *report)
{
    double samples = to->samples > from->samples ? (double)(to->samples - from->samples) : 1;
    double ns = to->ns > from->ns ? (double)(to->ns - from->ns) : 1;
    report->loss = (to->loss - from->loss) / samples;
    report->accuracy = (to->hits - from->hits) / samples;
    report->samples_per_s = (double)(to->trained - from->trained) * (double)CT_NS_PER_S / ns;
    report->comm_share = (double)(to->comm_ns - from->comm_ns) / ns;
}
