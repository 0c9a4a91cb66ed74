/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine's monotonic clock, and deadlines on it.
 */
#include "common/clock.h"

#include <limits.h>
#include <stddef.h>
#include <time.h>

static int64_t monotonic_now(void *data)
{
    (void)data;
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * CT_NS_PER_S + ts.tv_nsec;
}

const struct ct_clock ct_clock_monotonic = {monotonic_now, NULL};

int64_t ct_clock_now(const struct ct_clock *clock)
{
    const struct ct_clock *use = clock != NULL ? clock : &ct_clock_monotonic;
    return use->now_ns(use->data);
}

int64_t ct_deadline_in(const struct ct_clock *clock, int64_t timeout_ms)
{
    if (timeout_ms < 0) {
        return CT_DEADLINE_NEVER;
    }
    int64_t now = ct_clock_now(clock);
    if (timeout_ms > (CT_DEADLINE_NEVER - 1 - now) / CT_NS_PER_MS) {
        return CT_DEADLINE_NEVER;
    }
    return now + timeout_ms * CT_NS_PER_MS;
}

int ct_deadline_left_ms(const struct ct_clock *clock, int64_t deadline_ns)
{
    if (deadline_ns == CT_DEADLINE_NEVER) {
        return -1;
    }
    int64_t left = deadline_ns - ct_clock_now(clock);
    if (left <= 0) {
        return 0;
    }
    int64_t ms = left / CT_NS_PER_MS + (left % CT_NS_PER_MS != 0);
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

void ct_deadline_put_off(int64_t *deadline_ns, int64_t began_ns, int64_t now_ns)
{
    int64_t gap = now_ns - began_ns;
    if (gap > CT_NS_PER_S && *deadline_ns < CT_DEADLINE_NEVER - gap) {
        *deadline_ns += gap;
    }
}
