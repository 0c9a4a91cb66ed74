/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that the clock goes forward, and how deadlines are made, rounded and put off.
 */
#include "common/clock.h"
#include "tests/lib/ct_test.h"

#include <limits.h>

static int64_t fake_now(void *data)
{
    return *(const int64_t *)data;
}

static void test_monotonic_goes_forward(void **state)
{
    (void)state;
    int64_t a = ct_clock_now(NULL);
    int64_t b = ct_clock_now(&ct_clock_monotonic);
    assert_true(a >= 0);
    assert_true(b >= a);
}

static void test_a_deadline_is_now_and_the_timeout_or_never(void **state)
{
    (void)state;
    int64_t now = 5 * CT_NS_PER_S;
    const struct ct_clock clock = {fake_now, &now};
    assert_true(ct_deadline_in(&clock, 0) == now);
    assert_true(ct_deadline_in(&clock, 250) == now + 250 * CT_NS_PER_MS);
    assert_true(ct_deadline_in(&clock, -1) == CT_DEADLINE_NEVER);
    assert_true(ct_deadline_in(&clock, INT64_MIN) == CT_DEADLINE_NEVER);
    /* Too far to count is never, not the past. */
    assert_true(ct_deadline_in(&clock, INT64_MAX) == CT_DEADLINE_NEVER);
    assert_true(ct_deadline_in(&clock, INT64_MAX / CT_NS_PER_MS) == CT_DEADLINE_NEVER);
}

static void test_time_left_is_rounded_up_and_clamped(void **state)
{
    (void)state;
    int64_t now = 1000;
    const struct ct_clock clock = {fake_now, &now};
    assert_int_equal(ct_deadline_left_ms(&clock, CT_DEADLINE_NEVER), -1);
    assert_int_equal(ct_deadline_left_ms(&clock, 1000), 0);
    assert_int_equal(ct_deadline_left_ms(&clock, 999), 0);
    assert_int_equal(ct_deadline_left_ms(&clock, 0), 0);
    /* Rounded up: a poll must not wake before the deadline and spin. */
    assert_int_equal(ct_deadline_left_ms(&clock, 1001), 1);
    assert_int_equal(ct_deadline_left_ms(&clock, 1000 + CT_NS_PER_MS), 1);
    assert_int_equal(ct_deadline_left_ms(&clock, 1001 + CT_NS_PER_MS), 2);
    assert_int_equal(ct_deadline_left_ms(&clock, 1000 + CT_NS_PER_S), 1000);
    /* Clamped to what poll(2) takes, without overflow on the way. */
    now = 0;
    assert_int_equal(ct_deadline_left_ms(&clock, CT_DEADLINE_NEVER - 1), INT_MAX);
}

static void test_time_left_shrinks_as_time_passes(void **state)
{
    (void)state;
    int64_t now = 0;
    const struct ct_clock clock = {fake_now, &now};
    int64_t deadline = ct_deadline_in(&clock, 10);
    now += 4 * CT_NS_PER_MS;
    assert_int_equal(ct_deadline_left_ms(&clock, deadline), 6);
    now += 7 * CT_NS_PER_MS;
    assert_int_equal(ct_deadline_left_ms(&clock, deadline), 0);
}

static void test_a_deadline_is_put_off_by_the_time_in_which_nothing_ran(void **state)
{
    (void)state;
    int64_t deadline = 10 * CT_NS_PER_S;
    ct_deadline_put_off(&deadline, 5 * CT_NS_PER_S, 6 * CT_NS_PER_S);
    assert_int_equal(deadline, 10 * CT_NS_PER_S);
    ct_deadline_put_off(&deadline, 5 * CT_NS_PER_S, 65 * CT_NS_PER_S);
    assert_int_equal(deadline, 70 * CT_NS_PER_S);
    deadline = CT_DEADLINE_NEVER;
    ct_deadline_put_off(&deadline, 5 * CT_NS_PER_S, 65 * CT_NS_PER_S);
    assert_int_equal(deadline, CT_DEADLINE_NEVER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_monotonic_goes_forward),
        cmocka_unit_test(test_a_deadline_is_now_and_the_timeout_or_never),
        cmocka_unit_test(test_time_left_is_rounded_up_and_clamped),
        cmocka_unit_test(test_time_left_shrinks_as_time_passes),
        cmocka_unit_test(test_a_deadline_is_put_off_by_the_time_in_which_nothing_ran),
    };
    return cmocka_run_group_tests_name("clock", tests, NULL, NULL);
}
