/* SPDX-License-Identifier: Apache-2.0
 *
 * The limit of open files: raised as far as it goes, and refused where that is too little.
 */
#include "tests/lib/ct_test.h"

#include "common/open_files.h"

#include <stdio.h>

static void test_the_soft_limit_is_raised(void **state)
{
    (void)state;
    struct rlimit before, original, now;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit low = {.rlim_cur = 64, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    assert_int_equal(ct_open_files_raise(65, &original, NULL), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    assert_int_equal(now.rlim_cur, before.rlim_max);
    assert_int_equal(original.rlim_cur, 64);
    assert_int_equal(original.rlim_max, before.rlim_max);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

static void test_too_few_are_named(void **state)
{
    (void)state;
    struct rlimit before;
    struct ct_err err = {0};
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(ct_open_files_raise((size_t)before.rlim_max, NULL, &err), 0);
    assert_int_equal(ct_open_files_raise((size_t)before.rlim_max + 1, NULL, &err), CT_ELIMIT);
    char want[128];
    (void)snprintf(want, sizeof(want),
                   "only %llu files may be open at once (ulimit -Hn), and %llu are needed",
                   (unsigned long long)before.rlim_max, (unsigned long long)before.rlim_max + 1);
    assert_string_equal(err.text, want);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_soft_limit_is_raised),
        cmocka_unit_test(test_too_few_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
