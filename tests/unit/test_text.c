/* SPDX-License-Identifier: Apache-2.0 */
#include "common/text.h"
#include "tests/lib/ct_test.h"

static void test_clean(void **state)
{
    (void)state;
    static const struct {
        const char *before, *after;
    } cases[] = {
        {"", ""},
        {"plain text: 100 %", "plain text: 100 %"},
        {"a\nb\r\tc", "a?b??c"},
        {"\x1b[31mred\x1b[0m", "?[31mred?[0m"},
        {"\x01\x1f\x7f", "???"},
        {"Gr\xc3\xbc\xc3\x9f"
         "e",
         "Gr\xc3\xbc\xc3\x9f"
         "e"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[64];
        (void)strncpy(text, cases[i].before, sizeof(text) - 1);
        text[sizeof(text) - 1] = '\0';
        ct_text_clean(text);
        assert_string_equal(text, cases[i].after);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clean),
    };
    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
