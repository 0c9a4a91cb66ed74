/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks in which order and at which times a stop sends its signals, on an imagined clock.
 */
#include "launcher/process/stop.h"

#include "common/clock.h"
#include "tests/lib/ct_test.h"

#define MS CT_NS_PER_MS

static const int64_t start = 1000 * CT_NS_PER_S;

static void test_leader_first_group_at_80_percent(void **state)
{
    (void)state;
    struct ct_stop stop;
    struct ct_stop_target worker = {0};
    ct_stop_begin(&stop, 30000, start);
    assert_int_equal(ct_stop_step(&stop, &worker, true, true, start), CT_STOP_ASK_LEADER);
    assert_int_equal(ct_stop_next(&stop, &worker, true), start + 24000 * MS);
    assert_int_equal(ct_stop_step(&stop, &worker, true, true, start + 23999 * MS), CT_STOP_NOTHING);
    assert_int_equal(ct_stop_step(&stop, &worker, true, true, start + 24000 * MS),
                     CT_STOP_TERM_GROUP);
    assert_int_equal(ct_stop_next(&stop, &worker, true), start + 30000 * MS);
    /* A living leader has all of its time, however long ago the group was told. */
    assert_int_equal(ct_stop_step(&stop, &worker, true, true, start + 29999 * MS), CT_STOP_NOTHING);
    assert_int_equal(ct_stop_step(&stop, &worker, true, true, start + 30000 * MS),
                     CT_STOP_KILL_GROUP);
    assert_int_equal(ct_stop_step(&stop, &worker, true, true, start + 30001 * MS),
                     CT_STOP_KILL_GROUP);
    assert_int_equal(ct_stop_step(&stop, &worker, false, false, start + 30002 * MS),
                     CT_STOP_NOTHING);
}

static void test_group_is_told_when_its_leader_is_gone(void **state)
{
    (void)state;
    struct ct_stop stop;
    struct ct_stop_target worker = {0};
    ct_stop_begin(&stop, 30000, start);
    assert_int_equal(ct_stop_step(&stop, &worker, true, true, start), CT_STOP_ASK_LEADER);
    assert_int_equal(ct_stop_step(&stop, &worker, false, true, start + 10 * MS),
                     CT_STOP_TERM_GROUP);
    int64_t kill_at = start + (10 + CT_STOP_STRAY_MS) * MS;
    assert_int_equal(ct_stop_next(&stop, &worker, false), kill_at);
    assert_int_equal(ct_stop_step(&stop, &worker, false, true, kill_at - 1), CT_STOP_NOTHING);
    assert_int_equal(ct_stop_step(&stop, &worker, false, true, kill_at), CT_STOP_KILL_GROUP);
}

static void test_strays_never_outlast_the_grace_time(void **state)
{
    (void)state;
    struct ct_stop stop;
    struct ct_stop_target strays = {0};
    ct_stop_begin(&stop, 500, start);
    assert_int_equal(ct_stop_step(&stop, &strays, false, true, start + 5 * MS), CT_STOP_TERM_GROUP);
    assert_int_equal(ct_stop_next(&stop, &strays, false), start + 500 * MS);
    assert_int_equal(ct_stop_step(&stop, &strays, false, true, start + 500 * MS),
                     CT_STOP_KILL_GROUP);
}

static void test_nothing_to_do_when_all_are_gone(void **state)
{
    (void)state;
    struct ct_stop stop;
    struct ct_stop_target worker = {0};
    ct_stop_begin(&stop, 0, start);
    assert_int_equal(ct_stop_step(&stop, &worker, false, false, start), CT_STOP_NOTHING);
}

static void test_no_grace_kills_at_once(void **state)
{
    (void)state;
    struct ct_stop stop;
    struct ct_stop_target worker = {0};
    ct_stop_begin(&stop, -5, start);
    assert_int_equal(ct_stop_step(&stop, &worker, true, true, start), CT_STOP_KILL_GROUP);
}

static void test_second_request_only_hastens(void **state)
{
    (void)state;
    struct ct_stop stop;
    struct ct_stop_target worker = {0};
    ct_stop_begin(&stop, 30000, start);
    assert_int_equal(ct_stop_step(&stop, &worker, true, true, start), CT_STOP_ASK_LEADER);
    ct_stop_shorten(&stop, 90000, start + 1000 * MS);
    assert_int_equal(stop.kill_ns, start + 30000 * MS);
    ct_stop_shorten(&stop, 0, start + 2000 * MS);
    assert_int_equal(ct_stop_step(&stop, &worker, true, true, start + 2000 * MS),
                     CT_STOP_KILL_GROUP);
}

static void test_huge_grace_does_not_overflow(void **state)
{
    (void)state;
    struct ct_stop stop;
    ct_stop_begin(&stop, INT64_MAX, start);
    assert_true(stop.kill_ns > start && stop.group_ns > start && stop.group_ns < stop.kill_ns);
}

static void test_a_worker_counts_as_unkillable_after_five_seconds(void **state)
{
    (void)state;
    struct ct_stop stop;
    struct ct_stop_target worker = {0};
    ct_stop_begin(&stop, 0, start);
    assert_false(ct_stop_unkillable(&worker, start + 100000 * MS));
    (void)ct_stop_step(&stop, &worker, true, true, start);
    (void)ct_stop_step(&stop, &worker, true, true, start + 100 * MS); /* does not begin anew */
    assert_false(ct_stop_unkillable(&worker, start + CT_STOP_GIVE_UP_MS * MS - 1));
    assert_true(ct_stop_unkillable(&worker, start + CT_STOP_GIVE_UP_MS * MS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leader_first_group_at_80_percent),
        cmocka_unit_test(test_group_is_told_when_its_leader_is_gone),
        cmocka_unit_test(test_strays_never_outlast_the_grace_time),
        cmocka_unit_test(test_nothing_to_do_when_all_are_gone),
        cmocka_unit_test(test_no_grace_kills_at_once),
        cmocka_unit_test(test_second_request_only_hastens),
        cmocka_unit_test(test_huge_grace_does_not_overflow),
        cmocka_unit_test(test_a_worker_counts_as_unkillable_after_five_seconds),
    };
    return cmocka_run_group_tests_name("stop", tests, NULL, NULL);
}
