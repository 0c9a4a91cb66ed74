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
        /* U+009B, and what would write the rest from right to left. */
        {"\xc2\x9b[31m", "??[31m"},
        {"\xe2\x80\xaegnp.exe", "???gnp.exe"},
        {"\xe2\x81\xa6x\xe2\x81\xa9\xd8\x9c", "???x?????"},
        {"\xe2\x80\xa6 \xe2\x82\xac \xe2\x80", "\xe2\x80\xa6 \xe2\x82\xac \xe2\x80"},
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

static void thousands_are_set_apart(void **state)
{
    static const struct {
        uint64_t number;
        const char *text;
    } rows[] = {
        {0, "0"},
        {999, "999"},
        {1000, "1,000"},
        {1234567, "1,234,567"},
        {UINT64_MAX, "18,446,744,073,709,551,615"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[CT_TEXT_THOUSANDS_MAX];
        ct_text_thousands(rows[i].number, text);
        assert_string_equal(text, rows[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thousands_are_set_apart),
        cmocka_unit_test(test_clean),
    };
    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
