/* SPDX-License-Identifier: Apache-2.0
 *
 * Means over a part of an epoch.
 */
#include "common/clock.h"
#include "tests/lib/ct_test.h"
#include "trainer/session/rates.h"

static void means_are_of_what_came_between_two_points(void **state)
{
    (void)state;
    const struct ct_rates_point from = {
        .ns = 3 * CT_NS_PER_S,
        .comm_ns = CT_NS_PER_S,
        .loss = 7,
        .hits = 5,
        .samples = 100,
        .trained = 60,
    };
    const struct ct_rates_point to = {
        .ns = 7 * CT_NS_PER_S,
        .comm_ns = 2 * CT_NS_PER_S,
        .loss = 17,
        .hits = 20,
        .samples = 120,
        .trained = 68,
    };
    struct ct_step_report report = {.epoch = 9};
    ct_rates_means(&from, &to, &report);
    assert_true(report.loss == 0.5);
    assert_true(report.accuracy == 0.75);
    assert_true(report.samples_per_s == 2);
    assert_true(report.comm_share == 0.25);
    assert_int_equal(report.epoch, 9); /* the rest is left alone */
}

static void nothing_between_two_points_makes_no_nan(void **state)
{
    (void)state;
    const struct ct_rates_point at = {.ns = 5, .comm_ns = 3, .loss = 7, .hits = 5, .samples = 9};
    struct ct_step_report report = {0};
    ct_rates_means(&at, &at, &report);
    assert_true(report.loss == 0 && report.accuracy == 0);
    assert_true(report.samples_per_s == 0 && report.comm_share == 0);
}

static void an_epoch_begins_with_nothing_summed(void **state)
{
    (void)state;
    struct ct_rates rates = {.start = {.loss = 1, .samples = 2}, .line = {.hits = 3}};
    ct_rates_start(&rates, 17, 4);
    const struct ct_rates_point want = {.ns = 17, .comm_ns = 4};
    assert_memory_equal(&rates.start, &want, sizeof want);
    assert_memory_equal(&rates.line, &want, sizeof want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(means_are_of_what_came_between_two_points),
        cmocka_unit_test(nothing_between_two_points_makes_no_nan),
        cmocka_unit_test(an_epoch_begins_with_nothing_summed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
