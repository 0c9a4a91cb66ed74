/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of exit codes and signals as --no-restart-on takes them, and wrong ones.
 */
#include "tests/lib/ct_test.h"

#include "launcher/util/code_set.h"

static void test_codes_ranges_and_signals_are_read(void **state)
{
    struct ct_code_set set;
    struct ct_err err = {0};
    (void)state;
    assert_int_equal(ct_code_set_parse(" 1,64-66 , 255,SIGSEGV", &set, &err), 0);
    static const int in[] = {1, 64, 65, 66, 255, 139};
    int count = 0;
    for (int code = -1; code < 300; code++) {
        count += ct_code_set_has(&set, code);
    }
    assert_int_equal(count, 6);
    for (size_t i = 0; i < sizeof(in) / sizeof(in[0]); i++) {
        assert_true(ct_code_set_has(&set, in[i]));
    }
}

static void test_bad_parts_are_named(void **state)
{
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"", "there is no exit code and no signal"},
        {"1,", "nothing between two commas, or before or behind one"},
        {",1", "nothing between two commas, or before or behind one"},
        {"3,,4", "nothing between two commas, or before or behind one"},
        {"0", "'0'"},
        {"256", "'256'"},
        {"1-", "'1-'"},
        {"9-3", "'9-3'"},
        {"1-256", "'1-256'"},
        {"-3", "'-3'"},
        {"1 2", "'1 2'"},
        {"SIGNOPE", "'SIGNOPE'"},
        {"segv", "'segv' is no signal; did you mean SIGSEGV?"},
        {"SEGV", "'SEGV' is no signal; did you mean SIGSEGV?"},
        {"3,sigkill", "'sigkill' is no signal; did you mean SIGKILL?"},
        {"3,99999999999999999999999999", "'99999999999999999999999999'"},
        {"\xff\xfe", "'?\?'"},
    };
    struct ct_code_set set = {{7}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ct_err err = {0};
        assert_int_equal(ct_code_set_parse(rows[i].text, &set, &err), CT_EINVAL);
        assert_non_null(strstr(err.text, rows[i].part));
        assert_true(set.bits[0] == 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes_ranges_and_signals_are_read),
        cmocka_unit_test(test_bad_parts_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
