/* SPDX-License-Identifier: Apache-2.0
 *
 * What an agent reads of what the preflight's process has written.
 */
#include "tests/lib/ct_test.h"

#include "launcher/preflight/preflight_probe.h"

#define TABLE "{\"broken\":\"\",\"unfit\":\"no room\",\"table\":\"rows\"}\n"

static void expect(const char *text, const char *broken, const char *table)
{
    struct ct_preflight_outcome outcome;
    struct ct_err err = {0};
    assert_int_equal(ct_preflight_outcome_read(text, &outcome, &err), 0);
    assert_string_equal(outcome.broken, broken);
    assert_string_equal(outcome.table, table);
    ct_preflight_outcome_fini(&outcome);
}

static void test_the_last_whole_line_counts(void **state)
{
    (void)state;
    expect(TABLE, "", "rows");
    expect("a library complains\n" TABLE, "", "rows");
    expect(TABLE "{\"broken\":\"the store is gone\"}\n", "the store is gone", "");
    expect(TABLE "{\"broken\":\"the sto", "", "rows"); /* it was killed */
}

static void test_without_a_line_there_is_no_result(void **state)
{
    static const char *const texts[] = {"", "\n", "{\"broken\":", "{\"broken\":\"\"\n", "[]\n"};
    struct ct_preflight_outcome outcome;
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct ct_err err = {0};
        assert_int_equal(ct_preflight_outcome_read(texts[i], &outcome, &err), CT_EFORMAT);
        assert_string_equal(err.text, "it has written no result");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_last_whole_line_counts),
        cmocka_unit_test(test_without_a_line_there_is_no_result),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
