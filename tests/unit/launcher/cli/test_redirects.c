/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks which ranks' streams -r and -t choose, and which values are refused.
 */
#include "tests/lib/ct_test.h"

#include "launcher/cli/redirects.h"

static void one_digit_is_for_all(void **state)
{
    (void)state;
    for (unsigned v = 0; v <= 3; v++) {
        const char text[] = {(char)('0' + v), '\0'};
        struct ct_redirects r;
        assert_int_equal(ct_redirects_parse(text, &r, NULL), 0);
        assert_int_equal(ct_redirects_of(&r, 0), v);
        assert_int_equal(ct_redirects_of(&r, 4095), v);
        assert_int_equal(ct_redirects_any(&r), v != 0);
    }
}

static void map_is_by_rank(void **state)
{
    struct ct_redirects r;
    (void)state;
    assert_int_equal(ct_redirects_parse("0:1,9:3,2:0,0:2", &r, NULL), 0);
    assert_int_equal(ct_redirects_of(&r, 0), CT_STREAMS_STDERR); /* the last one counts */
    assert_int_equal(ct_redirects_of(&r, 1), CT_STREAMS_NONE);
    assert_int_equal(ct_redirects_of(&r, 2), CT_STREAMS_NONE);
    assert_int_equal(ct_redirects_of(&r, 9), CT_STREAMS_BOTH);
    assert_int_equal(ct_redirects_of(&r, 10), CT_STREAMS_NONE);
    assert_true(ct_redirects_any(&r));
    assert_int_equal(ct_redirects_parse("3:0", &r, NULL), 0);
    assert_false(ct_redirects_any(&r));
}

static void anything_else_is_refused(void **state)
{
    static const char *const bad[] = {"",      "4",     "-1",   "33",    "3,",   "0:1,", "0:4",
                                      "10:1",  "0:1 ",  " 0:1", "0:1,,", ",0:1", "a:1",  "0:1;1",
                                      "0:1,1", "0:1,3", "0:",   "0:11",  ":1",   "0x1"};
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct ct_redirects r = {.all = 7};
        struct ct_err err = {0};
        if (ct_redirects_parse(bad[i], &r, &err) != CT_EFORMAT) {
            fail_msg("'%s' was accepted", bad[i]);
        }
        assert_int_equal(r.all, 7);
        assert_non_null(strstr(err.text, bad[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_digit_is_for_all),
        cmocka_unit_test(map_is_by_rank),
        cmocka_unit_test(anything_else_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
