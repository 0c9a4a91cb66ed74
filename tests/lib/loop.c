/* SPDX-License-Identifier: Apache-2.0
 *
 * A timer ends a wait that lasts too long. A prepare handle ends the wait as soon as a timer has
 * set the flag, before the loop polls for another event.
 */
#include "tests/lib/loop.h"

#include "tests/lib/ct_test.h"

/* Generous: a loaded machine under a sanitizer must pass, a hang must still end. */
#define LIMIT_MS 20000

struct guard {
    uv_timer_t timer;
    bool expired;
    bool closed;
};

static void on_guard_expired(uv_timer_t *timer)
{
    struct guard *guard = timer->data;
    guard->expired = true;
    uv_stop(timer->loop);
}

static void on_guard_closed(uv_handle_t *handle)
{
    struct guard *guard = handle->data;
    guard->closed = true;
}

static void guard_start(struct guard *guard, uv_loop_t *loop)
{
    *guard = (struct guard){.expired = false};
    assert_int_equal(uv_timer_init(loop, &guard->timer), 0);
    guard->timer.data = guard;
    assert_int_equal(uv_timer_start(&guard->timer, on_guard_expired, LIMIT_MS, 0), 0);
}

static void guard_stop(struct guard *guard, uv_loop_t *loop)
{
    uv_close((uv_handle_t *)&guard->timer, on_guard_closed);
    while (!guard->closed) {
        (void)uv_run(loop, UV_RUN_NOWAIT);
    }
}

void ct_loop_begin(uv_loop_t *loop)
{
    assert_int_equal(uv_loop_init(loop), 0);
}

/* Between timers and poll: what a timer has just fulfilled must not wait for the next event. */
static void on_before_poll(uv_prepare_t *prepare)
{
    const bool *flag = prepare->data;
    if (*flag) {
        uv_stop(prepare->loop);
    }
}

void ct_loop_run_until(uv_loop_t *loop, const bool *flag)
{
    struct guard guard;
    guard_start(&guard, loop);
    uv_prepare_t prepare;
    assert_int_equal(uv_prepare_init(loop, &prepare), 0);
    prepare.data = (void *)(uintptr_t)flag;
    assert_int_equal(uv_prepare_start(&prepare, on_before_poll), 0);
    while (!*flag && !guard.expired) {
        (void)uv_run(loop, UV_RUN_ONCE);
    }
    /* One run of the loop closes both. */
    uv_close((uv_handle_t *)&prepare, NULL);
    guard_stop(&guard, loop);
    if (!*flag) {
        fail_msg("the awaited event did not happen within %d ms", LIMIT_MS);
    }
}

static void print_handle(uv_handle_t *handle, void *data)
{
    (void)data;
    print_error("alive: %s%s%s%s\n", uv_handle_type_name(uv_handle_get_type(handle)),
                uv_is_active(handle) ? " active" : "", uv_has_ref(handle) ? " referenced" : "",
                uv_is_closing(handle) ? " closing" : "");
}

void ct_loop_end(uv_loop_t *loop)
{
    struct guard guard;
    guard_start(&guard, loop);
    /* The guard must not keep the loop alive by itself. */
    uv_unref((uv_handle_t *)&guard.timer);
    (void)uv_run(loop, UV_RUN_DEFAULT);
    guard_stop(&guard, loop);
    if (uv_loop_close(loop) != 0) {
        uv_walk(loop, print_handle, NULL);
        fail_msg("the loop still has handles or requests");
    }
}
