/* SPDX-License-Identifier: Apache-2.0
 *
 * Time as a parameter: pure cores take `now` or a struct ct_clock, so tests run on virtual time.
 */
#ifndef CT_COMMON_CLOCK_H
#define CT_COMMON_CLOCK_H

#include <stdint.h>

#define CT_NS_PER_MS INT64_C(1000000)
#define CT_NS_PER_S INT64_C(1000000000)

struct ct_clock {
    int64_t (*now_ns)(void *data); /* monotonic nanoseconds, never negative */
    void *data;
};

/* CLOCK_MONOTONIC. */
extern const struct ct_clock ct_clock_monotonic;

/* NULL means ct_clock_monotonic. */
int64_t ct_clock_now(const struct ct_clock *clock);

/* Deadline helpers in monotonic nanoseconds. A negative timeout means "never". */
int64_t ct_deadline_in(const struct ct_clock *clock, int64_t timeout_ms);

/* Milliseconds left, rounded up, clamped to what poll(2) takes; -1 for "never", 0 when past. */
int ct_deadline_left_ms(const struct ct_clock *clock, int64_t deadline_ns);

#define CT_DEADLINE_NEVER INT64_MAX

#endif
