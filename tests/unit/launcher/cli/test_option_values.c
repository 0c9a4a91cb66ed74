/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of options that are words, times, or numbers with blanks around them.
 */
#include "tests/lib/ct_test.h"

#include "launcher/cli/option_values.h"

static void test_blanks_around_a_number_are_dropped(void **state)
{
    static const struct {
        const char *value, *want;
    } cases[] = {
        {"7", "7"}, {" 7", "7"}, {"\t7 \n", "7"}, {"", ""}, {"  ", ""}, {"1 2", "1 2"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char out[CT_OPTION_NUMBER_MAX];
        assert_string_equal(ct_option_trim(cases[i].value, out), cases[i].want);
    }
}

static void test_what_is_longer_than_any_number_is_left_as_it_is(void **state)
{
    char value[CT_OPTION_NUMBER_MAX + 2], out[CT_OPTION_NUMBER_MAX];
    (void)state;
    memset(value, '1', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    value[sizeof(value) - 2] = ' ';
    assert_ptr_equal(ct_option_trim(value, out), value);
    value[sizeof(value) - 3] = ' '; /* one byte less has room */
    assert_ptr_equal(ct_option_trim(value, out), out);
    assert_int_equal(strlen(out), CT_OPTION_NUMBER_MAX - 1);
}

static void test_a_word_is_found_or_all_are_named(void **state)
{
    static const char *const words[] = {"report", "restart", "abort", NULL};
    static const char *const alone[] = {"off", NULL};
    struct ct_err err = {0};
    int out = -1;
    (void)state;
    assert_int_equal(ct_option_word("--on-hang", "abort", words, &out, &err), 0);
    assert_int_equal(out, 2);
    assert_int_equal(ct_option_word("--on-hang", "Abort", words, &out, &err), CT_EINVAL);
    assert_string_equal(err.text, "--on-hang: 'Abort' is not report, restart or abort");
    assert_int_equal(ct_option_word("--x", "", alone, &out, &err), CT_EINVAL);
    assert_string_equal(err.text, "--x: '' is not off");
    assert_int_equal(out, 2);
}

static void test_a_restart_budget_is_a_number_in_a_time(void **state)
{
    static const struct {
        const char *value;
        int restarts;
        int64_t ms; /* 0 = refused */
    } cases[] = {
        {"10/24h", 10, 86400000},
        {"10/24", 10, 86400000},
        {"3/30m", 3, 1800000},
        {"1/1s", 1, 1000},
        {"256/365d", 256, 31536000000},
        {"2/0.5h", 2, 1800000},
        {"", 0, 0},
        {"10", 0, 0},
        {"10/", 0, 0},
        {"/24h", 0, 0},
        {"0/24h", 0, 0},
        {"257/1h", 0, 0},
        {"1/0h", 0, 0},
        {"1/366d", 0, 0},
        {"1/-1h", 0, 0},
        {"1/nanh", 0, 0},
        {"1/infh", 0, 0},
        {"1/1w", 0, 0},
        {"1/1hh", 0, 0},
        {"a/b", 0, 0},
        {"1/2/3", 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ct_restart_limits out = {.window_ms = 0};
        struct ct_err err = {0};
        int rc = ct_option_restart_budget("--restart-budget", cases[i].value, &out, &err);
        assert_int_equal(rc, cases[i].ms > 0 ? 0 : CT_EINVAL);
        assert_int_equal(out.window_restarts, cases[i].restarts);
        assert_int_equal(out.window_ms, cases[i].ms);
        assert_true(rc == 0 || strstr(err.text, "--restart-budget: '") != NULL);
        bool has_no_time = strcmp(cases[i].value, "10") == 0;
        assert_int_equal(strstr(err.text, "write 10/24h for so many") != NULL, has_no_time);
    }
}

static void test_a_hang_timeout_is_seconds_auto_or_off(void **state)
{
    static const struct {
        const char *value;
        int64_t want;
    } cases[] = {
        {"auto", 0},
        {"off", -1},
        {"0.5", 500000000},
        {" 30 ", INT64_C(30000000000)},
        {"604800", INT64_C(604800000000000)},
    };
    static const char *const refused[] = {"0.4", "604801", "0", "-1", "nan", "Auto", "3s", ""};
    struct ct_err err = {0};
    int64_t out = 7;
    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        assert_int_equal(ct_option_hang_timeout("--hang-timeout", refused[i], &out, &err),
                         CT_EINVAL);
        assert_non_null(strstr(err.text, "is neither auto, off nor a number of seconds from 0.5"));
        assert_true(out == 7);
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(ct_option_hang_timeout("--hang-timeout", cases[i].value, &out, &err), 0);
        assert_true(out == cases[i].want);
    }
}

static void test_the_time_for_stacks_is_seconds_or_off(void **state)
{
    static const struct {
        const char *value;
        int want;
    } cases[] = {{"off", 0}, {"0.1", 100}, {" 5 ", 5000}, {"60", 60000}};
    static const char *const refused[] = {"0", "0.05", "60.1", "-1", "nan", "auto", "Off", ""};
    struct ct_err err = {0};
    int out = 7;
    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        assert_int_equal(ct_option_hang_stacks("--hang-stacks", refused[i], &out, &err), CT_EINVAL);
        assert_non_null(strstr(err.text, "is neither off nor a number of seconds from 0.1 to 60"));
        assert_int_equal(out, 7);
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(ct_option_hang_stacks("--hang-stacks", cases[i].value, &out, &err), 0);
        assert_int_equal(out, cases[i].want);
    }
}

static void test_a_slow_factor_is_a_number_or_off(void **state)
{
    static const struct {
        const char *value;
        double want;
    } cases[] = {{"off", 0}, {"1.5", 1.5}, {" 3 ", 3}, {"50", 50}};
    static const char *const refused[] = {"0",   "1",   "1.4", "51", "-3",
                                          "nan", "inf", "Off", "3x", ""};
    struct ct_err err = {0};
    double out = 7;
    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        assert_int_equal(ct_option_slow_factor("--slow-factor", refused[i], &out, &err), CT_EINVAL);
        assert_non_null(strstr(err.text, "is neither off nor a number from 1.5 to 50"));
        assert_true(out == 7);
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(ct_option_slow_factor("--slow-factor", cases[i].value, &out, &err), 0);
        assert_true(out == cases[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blanks_around_a_number_are_dropped),
        cmocka_unit_test(test_what_is_longer_than_any_number_is_left_as_it_is),
        cmocka_unit_test(test_a_word_is_found_or_all_are_named),
        cmocka_unit_test(test_a_restart_budget_is_a_number_in_a_time),
        cmocka_unit_test(test_a_hang_timeout_is_seconds_auto_or_off),
        cmocka_unit_test(test_the_time_for_stacks_is_seconds_or_off),
        cmocka_unit_test(test_a_slow_factor_is_a_number_or_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
