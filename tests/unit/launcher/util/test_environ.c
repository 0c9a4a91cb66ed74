/* SPDX-License-Identifier: Apache-2.0
 *
 * Variables of an environment that is not the process's own.
 */
#include "tests/lib/ct_test.h"

#include "launcher/util/environ.h"

static void test_a_variable_is_found_by_its_whole_name(void **state)
{
    char *const env[] = {(char *)"PATHS=1", (char *)"PATH",   (char *)"PATH=/bin",
                         (char *)"PATH=/x", (char *)"EMPTY=", NULL};
    (void)state;
    assert_string_equal(ct_environ_get(env, "PATH"), "/bin");
    assert_string_equal(ct_environ_get(env, "EMPTY"), "");
    assert_null(ct_environ_get(env, "PAT"));
    assert_null(ct_environ_get(env + 5, "PATH"));
}

static void test_a_log_level_that_is_none_is_a_warning(void **state)
{
    static const struct {
        const char *text;
        enum ct_log_level want;
    } cases[] = {
        {"LOGLEVEL=INFO", CT_LOG_INFO},    {"LOGLEVEL=error", CT_LOG_ERROR},
        {"LOGLEVEL=loud", CT_LOG_WARNING}, {"LOGLEVEL=", CT_LOG_WARNING},
        {"OTHER=INFO", CT_LOG_WARNING},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *const env[] = {(char *)cases[i].text, NULL};
        assert_int_equal(ct_environ_log_level(env), cases[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_variable_is_found_by_its_whole_name),
        cmocka_unit_test(test_a_log_level_that_is_none_is_a_warning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
