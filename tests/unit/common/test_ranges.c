/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of numbers as text.
 */
#include "tests/lib/ct_test.h"

#include "common/ranges.h"

#include <limits.h>

/* A set is a text of '1' and '0'. */
static bool has(const void *set, int number)
{
    return ((const char *)set)[number] == '1';
}

static struct ct_ranges ranges_of(const char *set, int first)
{
    return (struct ct_ranges){.has = has, .set = set, .count = (int)strlen(set), .first = first};
}

static void test_members_that_follow_each_other_are_joined(void **state)
{
    (void)state;
    static const struct {
        const char *set, *text;
        int first;
    } cases[] = {
        {"", "", 0},
        {"000", "", 0},
        {"1", "0", 0},
        {"0001", "3", 0},
        {"11", "0-1", 0},
        {"1111", "0-3", 0},
        {"1001", "0, 3", 0},
        {"10111111", "0, 2-7", 0},
        {"1101100", "8-9, 11-12", 8},
        {"01010", "1, 3", 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ct_buf out = CT_BUF_INIT;
        const struct ct_ranges ranges = ranges_of(cases[i].set, cases[i].first);
        ct_ranges_add(&ranges, ", ", &out);
        assert_string_equal(ct_buf_cstr(&out), cases[i].text);
        ct_buf_fini(&out);
    }
}

static void test_ranks_are_counted_and_one_is_a_rank(void **state)
{
    (void)state;
    struct ct_buf out = CT_BUF_INIT;
    const struct ct_ranges one = ranges_of("0010", 4), many = ranges_of("10111", 4);
    assert_int_equal(ct_ranges_add_ranks(&one, &out), 1);
    ct_buf_addf(&out, "; ");
    assert_int_equal(ct_ranges_add_ranks(&many, &out), 4);
    assert_string_equal(ct_buf_cstr(&out), "rank 6; ranks 4, 6-8");
    ct_buf_fini(&out);
}

static void test_ranks_that_have_no_room_are_counted(void **state)
{
    (void)state;
    const struct ct_ranges all = ranges_of("1010101110111", 0);
    static const struct {
        size_t room;
        const char *text;
    } cases[] = {
        {100, "ranks 0, 2, 4, 6-8, 10-12"},
        {19, "ranks 0, 2, 4, 6-8, 10-12"},
        {18, "ranks 0, 2, 4, 6-8 and 3 more"},
        {4, "ranks 0, 2 and 7 more"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ct_buf out = CT_BUF_INIT;
        assert_int_equal(ct_ranges_add_some_ranks(&all, cases[i].room, &out), 9);
        assert_string_equal(ct_buf_cstr(&out), cases[i].text);
        ct_buf_fini(&out);
    }
}

static void test_a_machine_has_one_rank_or_several(void **state)
{
    (void)state;
    char out[CT_RANGES_MACHINE_MAX];
    assert_string_equal(ct_ranges_machine(3, 1, out), "rank 3");
    assert_string_equal(ct_ranges_machine(0, 2, out), "ranks 0-1");
    assert_string_equal(ct_ranges_machine(INT_MAX - 9, 10, out), "ranks 2147483638-2147483647");
}

static int add(void *data)
{
    struct ct_buf out = CT_BUF_INIT;
    (void)ct_ranges_add_ranks(data, &out);
    int rc = ct_buf_status(&out);
    ct_buf_fini(&out);
    return rc;
}

static void test_a_list_without_memory_is_noticed(void **state)
{
    (void)state;
    struct ct_ranges ranges = ranges_of("10111", 0);
    assert_true(ct_fault_sweep(add, &ranges, 0) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_members_that_follow_each_other_are_joined),
        cmocka_unit_test(test_ranks_are_counted_and_one_is_a_rank),
        cmocka_unit_test(test_ranks_that_have_no_room_are_counted),
        cmocka_unit_test(test_a_machine_has_one_rank_or_several),
        cmocka_unit_test(test_a_list_without_memory_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
