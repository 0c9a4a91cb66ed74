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

/* The deadline in `timeout_ms` from now, in monotonic nanoseconds. A negative timeout gives
 * CT_DEADLINE_NEVER. */
int64_t ct_deadline_in(const struct ct_clock *clock, int64_t timeout_ms);

/* Milliseconds until the deadline for poll(2): rounded up, at most INT_MAX, 0 when it has passed,
 * -1 for CT_DEADLINE_NEVER. */
int ct_deadline_left_ms(const struct ct_clock *clock, int64_t deadline_ns);

#define CT_DEADLINE_NEVER INT64_MAX

/* For a loop that waits for some milliseconds at a time. If it was longer than a second from
 * `began_ns` to `now_ns`, this process did not run, as when a scheduler has suspended the job: that
 * time does not count, so the deadline is put off by it. If the wait may last longer, `began_ns` is
 * the time at which it should have ended. */
void ct_deadline_put_off(int64_t *deadline_ns, int64_t began_ns, int64_t now_ns);

#endif
