/* SPDX-License-Identifier: Apache-2.0
 *
 * The timer for deadlines: when it ticks, and when it first lets messages be read. That it is late
 * is played by a deadline that is moved into the past.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/loop.h"

#include "common/clock.h"
#include "common/list.h"
#include "rendezvous/server/tick_timer_uv.h"

struct fixture {
    uv_loop_t loop;
    uv_timer_t messages; /* each of them arms the timer again */
    struct ct_tick_timer timer;
    int64_t due_ns;
    bool ticked;
};

static void on_tick(struct ct_tick_timer *timer, int64_t now_ns)
{
    struct fixture *f = CT_CONTAINER_OF(timer, struct fixture, timer);
    assert_true(now_ns >= f->due_ns);
    f->ticked = true;
}

static void on_message(uv_timer_t *handle)
{
    struct fixture *f = CT_CONTAINER_OF(handle, struct fixture, messages);
    ct_tick_timer_arm(&f->timer, f->due_ns);
}

static void set_up(struct fixture *f)
{
    *f = (struct fixture){.due_ns = 0};
    ct_loop_begin(&f->loop);
    ct_tick_timer_init(&f->timer, &f->loop, on_tick);
    assert_int_equal(uv_timer_init(&f->loop, &f->messages), 0);
}

static void tear_down(struct fixture *f)
{
    uv_close((uv_handle_t *)&f->timer.handle, NULL);
    uv_close((uv_handle_t *)&f->messages, NULL);
    ct_loop_end(&f->loop);
}

static void arm_in(struct fixture *f, int64_t ms)
{
    f->due_ns = ct_clock_now(NULL) + ms * CT_NS_PER_MS;
    ct_tick_timer_arm(&f->timer, f->due_ns);
}

static void test_it_ticks_once_at_the_last_time_given(void **state)
{
    struct fixture f;
    (void)state;
    set_up(&f);
    arm_in(&f, 600000);
    arm_in(&f, 10);
    ct_loop_run_until(&f.loop, &f.ticked);
    assert_int_equal(uv_is_active((uv_handle_t *)&f.timer.handle), 0);
    arm_in(&f, 600000);
    ct_tick_timer_arm(&f.timer, INT64_MAX);
    assert_int_equal(uv_is_active((uv_handle_t *)&f.timer.handle), 0);
    tear_down(&f);
}

static void test_a_deadline_that_was_past_when_set_is_not_late(void **state)
{
    struct fixture f;
    (void)state;
    set_up(&f);
    arm_in(&f, -3600000);
    assert_false(f.timer.catching_up);
    ct_loop_run_until(&f.loop, &f.ticked);
    tear_down(&f);
}

/* Messages come without a pause, and each plans the same deadline again. */
static void run_with_messages(struct fixture *f)
{
    assert_int_equal(uv_timer_start(&f->messages, on_message, 0, 1), 0);
    ct_loop_run_until(&f->loop, &f->ticked);
    assert_false(f->timer.catching_up);
}

static void test_messages_keep_no_deadline_from_coming(void **state)
{
    struct fixture f;
    (void)state;
    set_up(&f);
    arm_in(&f, -3600000);
    run_with_messages(&f);
    tear_down(&f);
}

/* The process did not run for an hour. The timer notices that, or the first message does. */
static void test_messages_are_read_first_if_it_is_late(void **state)
{
    (void)state;
    for (int message_first = 0; message_first < 2; message_first++) {
        struct fixture f;
        set_up(&f);
        arm_in(&f, 0);
        f.timer.armed_ns -= 3600 * CT_NS_PER_S;
        if (message_first) {
            ct_tick_timer_arm(&f.timer, f.due_ns);
        } else {
            (void)uv_run(&f.loop, UV_RUN_NOWAIT);
        }
        assert_false(f.ticked);
        assert_true(f.timer.catching_up);
        ct_tick_timer_arm(&f.timer, INT64_MAX); /* this does not stop it either */
        run_with_messages(&f);
        tear_down(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_ticks_once_at_the_last_time_given),
        cmocka_unit_test(test_a_deadline_that_was_past_when_set_is_not_late),
        cmocka_unit_test(test_messages_keep_no_deadline_from_coming),
        cmocka_unit_test(test_messages_are_read_first_if_it_is_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
