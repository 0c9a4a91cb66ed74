/* SPDX-License-Identifier: Apache-2.0
 *
 * What messages may quote of strangers' words, and how numbers are written for people.
 */
#include "common/text.h"
#include "tests/lib/ct_test.h"

static void test_control_characters_become_question_marks(void **state)
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

static void an_excerpt_is_short_and_harmless(void **state)
{
    static const struct {
        const char *before, *after;
    } rows[] = {
        {"", ""},
        {"layers.0.weight", "layers.0.weight"},
        {"a\x1b[31m\nb", "a?[31m?b"},
        {"x\xe2\x80\xae"
         "y\xc2\x9b"
         "z\xe2\x81\xa6\xe2\x80\x8f",
         "x???y??z??????"},
        {"caf\xc3\xa9 \xe2\x82\xac", "caf\xc3\xa9 \xe2\x82\xac"},
        {"ends within \xe2\x80", "ends within \xe2\x80"},
    };
    char out[CT_TEXT_EXCERPT_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_string_equal(ct_text_excerpt(rows[i].before, out), rows[i].after);
    }
    char word[4 * CT_TEXT_EXCERPT_MAX + 1];
    memset(word, 'a', sizeof(word) - 1);
    word[sizeof(word) - 1] = '\0';
    assert_int_equal(strlen(ct_text_excerpt(word, out)), CT_TEXT_EXCERPT_MAX - 1);
    assert_string_equal(out + CT_TEXT_EXCERPT_MAX - 5, "a...");
    word[CT_TEXT_EXCERPT_MAX - 1] = '\0'; /* what just fits is shown whole */
    assert_string_equal(ct_text_excerpt(word, out), word);

    word[CT_TEXT_EXCERPT_MAX - 1] = 'a';
    for (size_t at = CT_TEXT_EXCERPT_MAX - 8; at < CT_TEXT_EXCERPT_MAX; at++) {
        memset(word, 'a', sizeof(word) - 1);
        memcpy(word + at, "\xe2\x82\xac", 3);
        size_t shown = strlen(ct_text_excerpt(word, out)) - strlen("...");
        assert_string_equal(out + shown, "...");
        assert_true(shown <= at || shown >= at + 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thousands_are_set_apart),
        cmocka_unit_test(test_control_characters_become_question_marks),
        cmocka_unit_test(an_excerpt_is_short_and_harmless),
    };
    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
