/* SPDX-License-Identifier: Apache-2.0
 *
 * How much a JSON text will cost.
 */
#include "common/json_count.h"
#include "tests/lib/ct_test.h"

#include <string.h>

static void values_are_counted_and_strings_are_not_looked_into(void **state)
{
    static const struct {
        const char *text;
        size_t count;
    } rows[] = {
        {"", 0},
        {"7", 0},
        {"[1]", 1},
        {"[1,2,3]", 3},
        {"{\"a\":1,\"b\":[2,3]}", 4},
        {"[\",[{\"]", 1},
        {"[\"\\\",\",2]", 2},
        {"[\"\\\\\",2]", 2},
        {"[\"cut,", 1},
        {"[\"\\", 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t count = ct_json_count_values(rows[i].text, strlen(rows[i].text));
        if (count != rows[i].count) {
            fail_msg("%s: %zu, expected %zu", rows[i].text, count, rows[i].count);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_counted_and_strings_are_not_looked_into),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
