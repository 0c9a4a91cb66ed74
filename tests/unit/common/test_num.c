/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks which texts are numbers, and that a number outside of its range, or a sum or product that
 * overflows, is refused.
 */
#include "common/num.h"
#include "tests/lib/ct_test.h"

#include <limits.h>

static void test_i64_reads_decimal_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } cases[] = {
        {"0", 0},
        {"-0", 0},
        {"7", 7},
        {"-7", -7},
        {"007", 7},
        {"0000000000000000000000000000000000000001", 1},
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775808", INT64_MIN},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t value = 99;
        assert_int_equal(ct_parse_i64(cases[i].text, INT64_MIN, INT64_MAX, &value), 0);
        assert_true(value == cases[i].value);
    }
}

static void test_i64_refuses_what_is_no_number(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "",
        "-",
        "--1",
        "+1",
        " 1",
        "1 ",
        "1\n",
        "\t1",
        "12abc",
        "0x10",
        "1e3",
        "1.0",
        "1,000",
        "1_000",
        "nan",
        "\xd9\xa1",
        "99999999999999999999x",
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t value = 99;
        if (ct_parse_i64(cases[i], INT64_MIN, INT64_MAX, &value) != CT_EFORMAT) {
            fail_msg("'%s' was not refused", cases[i]);
        }
        assert_true(value == 99);
    }
}

static void test_i64_out_of_range_is_refused(void **state)
{
    (void)state;
    int64_t value = 99;
    assert_int_equal(ct_parse_i64("9223372036854775808", INT64_MIN, INT64_MAX, &value), CT_ELIMIT);
    assert_int_equal(ct_parse_i64("-9223372036854775809", INT64_MIN, INT64_MAX, &value), CT_ELIMIT);
    assert_int_equal(ct_parse_i64("18446744073709551617", INT64_MIN, INT64_MAX, &value), CT_ELIMIT);
    assert_int_equal(ct_parse_i64("0", 1, 8, &value), CT_ELIMIT);
    assert_int_equal(ct_parse_i64("9", 1, 8, &value), CT_ELIMIT);
    assert_true(value == 99);
    assert_int_equal(ct_parse_i64("1", 1, 8, &value), 0);
    assert_int_equal(ct_parse_i64("8", 1, 8, &value), 0);
    assert_true(value == 8);
}

static void test_an_int_does_not_wrap(void **state)
{
    (void)state;
    int value = 99;
    assert_int_equal(ct_parse_int("2147483647", INT_MIN, INT_MAX, &value), 0);
    assert_int_equal(value, INT_MAX);
    assert_int_equal(ct_parse_int("-2147483648", INT_MIN, INT_MAX, &value), 0);
    assert_int_equal(value, INT_MIN);
    /* Must not wrap to a small value. */
    assert_int_equal(ct_parse_int("4294967297", INT_MIN, INT_MAX, &value), CT_ELIMIT);
    assert_int_equal(ct_parse_int("2147483648", INT_MIN, INT_MAX, &value), CT_ELIMIT);
    assert_int_equal(ct_parse_int("x", INT_MIN, INT_MAX, &value), CT_EFORMAT);
    assert_int_equal(value, INT_MIN);
}

static void test_double_reads_decimal_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double value;
    } cases[] = {
        {"0", 0.0},  {"0.1", 0.1}, {"1e-3", 1e-3},  {"-2", -2.0},
        {".5", 0.5}, {"1.", 1.0},  {"1E+2", 100.0}, {"1e-400", 0.0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        double value = 99;
        assert_int_equal(ct_parse_double(cases[i].text, -1000, 1000, &value), 0);
        assert_true(value == cases[i].value);
    }
}

static void test_double_refuses_what_is_no_finite_decimal(void **state)
{
    (void)state;
    static const char *const words[] = {
        "",    " 1",  "1 ",  "+1",  "-",    ".",        "e",     "1e",  "1e+", "1.2.3", "1-2",
        "--1", "+-1", "nan", "inf", "-inf", "infinity", "0x1p3", "1,5", "1f",  "1\n",
    };
    double value = 99;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (ct_parse_double(words[i], -1e308, 1e308, &value) != CT_EFORMAT) {
            fail_msg("'%s' was not refused", words[i]);
        }
    }
    assert_int_equal(ct_parse_double("1e400", -1e308, 1e308, &value), CT_ELIMIT);
    assert_int_equal(ct_parse_double("-1e400", -1e308, 1e308, &value), CT_ELIMIT);
    assert_int_equal(ct_parse_double("1.01", 0, 1, &value), CT_ELIMIT);
    assert_int_equal(ct_parse_double("-0.01", 0, 1, &value), CT_ELIMIT);
    assert_true(value == 99);
}

static void test_sizes_that_overflow_are_refused(void **state)
{
    (void)state;
    size_t out = 99;
    assert_true(ct_mul_size(SIZE_MAX, 1, &out) && out == SIZE_MAX);
    assert_true(ct_mul_size(0, SIZE_MAX, &out) && out == 0);
    assert_true(ct_add_size(SIZE_MAX, 0, &out) && out == SIZE_MAX);
    out = 99;
    assert_false(ct_mul_size(SIZE_MAX, 2, &out));
    assert_false(ct_mul_size((size_t)1 << 32, (size_t)1 << 32, &out));
    assert_false(ct_add_size(SIZE_MAX, 1, &out));
    assert_true(out == 99);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_i64_reads_decimal_numbers),
        cmocka_unit_test(test_i64_refuses_what_is_no_number),
        cmocka_unit_test(test_i64_out_of_range_is_refused),
        cmocka_unit_test(test_an_int_does_not_wrap),
        cmocka_unit_test(test_double_reads_decimal_numbers),
        cmocka_unit_test(test_double_refuses_what_is_no_finite_decimal),
        cmocka_unit_test(test_sizes_that_overflow_are_refused),
    };
    return cmocka_run_group_tests_name("num", tests, NULL, NULL);
}
