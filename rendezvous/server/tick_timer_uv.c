/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: ct_tick_timer_arm() starts the timer, on_timer() calls `tick`, which arms it again.
 *
 * Other paths: a timer that is late is put off by CATCH_UP_MS. on_timer() may notice that, or
 * ct_tick_timer_arm(), if the first of the messages that wait is read before the timer is looked
 * at. While it is put off, nothing else moves it: else messages that come often enough would keep
 * it from ticking at all. For the same reason a deadline that was past when it was set is not late.
 *
 * Failure modes: none. Who frees: the owner.
 */
#include "rendezvous/server/tick_timer_uv.h"

#include "common/clock.h"
#include "common/err.h"
#include "common/list.h"

/* A timer that is so late was not kept waiting by other work alone: this process did not run. */
#define LATE_NS (100 * CT_NS_PER_MS)
#define CATCH_UP_MS 20

static void on_timer(uv_timer_t *handle);

static void start(struct ct_tick_timer *timer, int64_t wait_ms)
{
    uv_update_time(timer->handle.loop);
    (void)uv_timer_start(&timer->handle, on_timer, (uint64_t)wait_ms, 0);
}

/* Puts the deadline off if it is late, and returns whether it has done so. */
static bool put_off(struct ct_tick_timer *timer, int64_t now_ns)
{
    if (now_ns - timer->armed_ns <= LATE_NS) {
        return false;
    }
    timer->catching_up = true;
    timer->armed_ns = now_ns + CATCH_UP_MS * CT_NS_PER_MS;
    start(timer, CATCH_UP_MS);
    return true;
}

static void on_timer(uv_timer_t *handle)
{
    struct ct_tick_timer *timer = CT_CONTAINER_OF(handle, struct ct_tick_timer, handle);
    int64_t now_ns = ct_clock_now(NULL);
    if (timer->catching_up || !put_off(timer, now_ns)) {
        timer->catching_up = false;
        timer->armed_ns = INT64_MAX;
        timer->tick(timer, now_ns);
    }
}

void ct_tick_timer_init(struct ct_tick_timer *timer, uv_loop_t *loop,
                        void (*tick)(struct ct_tick_timer *timer, int64_t now_ns))
{
    *timer = (struct ct_tick_timer){.armed_ns = INT64_MAX, .tick = tick};
    CT_ASSERT(uv_timer_init(loop, &timer->handle) == 0); /* cannot fail */
}

void ct_tick_timer_arm(struct ct_tick_timer *timer, int64_t due_ns)
{
    int64_t now_ns = ct_clock_now(NULL);
    if (timer->catching_up || put_off(timer, now_ns)) {
        return;
    }
    if (due_ns == INT64_MAX) {
        timer->armed_ns = INT64_MAX;
        (void)uv_timer_stop(&timer->handle);
        return;
    }
    timer->armed_ns = due_ns > now_ns ? due_ns : now_ns;
    /* The time is rounded up, because a tick that comes early would find nothing to do. */
    start(timer, (timer->armed_ns - now_ns + CT_NS_PER_MS - 1) / CT_NS_PER_MS);
}
