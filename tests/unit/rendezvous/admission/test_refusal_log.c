/* SPDX-License-Identifier: Apache-2.0
 *
 * How many lines a peer can cause by being refused.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/admission/refusal_log.h"

static void test_the_first_refusal_is_reported_at_once(void **state)
{
    struct ct_refusal_log log = {0};
    (void)state;
    assert_int_equal(ct_refusal_log_add(&log, 0), 1);
    assert_int_equal(log.total, 1);
}

static void test_refusals_of_the_quiet_time_are_in_the_next_line(void **state)
{
    struct ct_refusal_log log = {0};
    (void)state;
    assert_int_equal(ct_refusal_log_add(&log, 500), 1);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(ct_refusal_log_add(&log, 500 + CT_REFUSAL_QUIET_MS - 1), 0);
    }
    assert_int_equal(ct_refusal_log_add(&log, 500 + CT_REFUSAL_QUIET_MS), 8);
    assert_int_equal(ct_refusal_log_add(&log, 500 + CT_REFUSAL_QUIET_MS), 0);
    assert_int_equal(ct_refusal_log_add(&log, 500 + 2 * CT_REFUSAL_QUIET_MS), 2);
    assert_int_equal(log.total, 11);
}

static void test_a_line_counts_the_others(void **state)
{
    char text[CT_REFUSALS_TEXT_MAX];
    (void)state;
    assert_string_equal(ct_refusals_others(0, text), "");
    assert_string_equal(ct_refusals_others(1, text), "");
    assert_string_equal(ct_refusals_others(2, text), " (and 1 other like it)");
    assert_string_equal(ct_refusals_others(3, text), " (and 2 others like it)");
    assert_string_equal(ct_refusals_others(UINT64_MAX, text),
                        " (and 18446744073709551614 others like it)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_refusal_is_reported_at_once),
        cmocka_unit_test(test_refusals_of_the_quiet_time_are_in_the_next_line),
        cmocka_unit_test(test_a_line_counts_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
