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
        {"\xe2\x80\xa6 \xe2\x82\xac \xe2\x80", "\xe2\x80\xa6 \xe2\x82\xac ??"},
        {"\x9bx\xff\xc0\xafy\xed\xa0\x80", "?x???y???"},
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
        {"ends within \xe2\x80", "ends within ??"},
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

static void a_text_fits_into_columns(void **state)
{
    static const struct {
        const char *before;
        size_t columns, size;
        const char *after;
        size_t taken;
    } rows[] = {
        {"plain", 10, 32, "plain", 5},
        {"plain", 3, 32, "pla", 3},
        {"plain", 10, 4, "pla", 3},
        {"plain", 0, 32, "", 0},
        {"caf\xc3\xa9s", 4, 32, "caf\xc3\xa9", 4},
        {"caf\xc3\xa9", 9, 5, "caf", 3},                               /* no half character */
        {"\xe6\xbc\xa2\xe5\xad\x97", 3, 32, "\xe6\xbc\xa2", 2},        /* a wide one */
        {"\xf0\x9f\x98\x80!", 3, 32, "\xf0\x9f\x98\x80!", 3},          /* an emoji */
        {"e\xcc\x81x", 2, 32, "e\xcc\x81x", 2},                        /* a combining accent */
        {"a\x1b[31m\r\nb", 32, 32, "a?[31m??b", 9},                    /* an escape sequence */
        {"\xe2\x80\xaex", 32, 32, "?x", 2},                            /* changes the direction */
        {"\xff\xc0\x80\xed\xa0\x80|\xe6\xbc", 32, 32, "??????|??", 9}, /* no UTF-8 */
        {"\xf4\x90\x80\x80", 32, 32, "????", 4},                       /* beyond Unicode */
    };
    char out[32];
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(ct_text_fit(rows[i].before, rows[i].columns, out, rows[i].size),
                         rows[i].taken);
        assert_string_equal(out, rows[i].after);
    }
}

static void a_text_that_is_cut_ends_with_a_mark(void **state)
{
    static const struct {
        const char *before;
        size_t columns, size;
        const char *after;
        size_t taken;
    } rows[] = {
        {"", 3, 4, "", 0},
        {"fits", 4, 5, "fits", 4},
        {"too long", 7, 32, "too ...", 7},
        {"too long", 32, 8, "too ...", 7},
        {"abcd", 3, 32, "...", 3},
        {"abcd", 32, 4, "...", 3},
        {"\xe6\xbc\xa2\xe5\xad\x97!", 4, 32, "...", 3}, /* no half of a wide one */
        {"a\x1b[31mb", 5, 32, "a?...", 5},
    };
    char out[32];
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(ct_text_cut(rows[i].before, rows[i].columns, out, rows[i].size),
                         rows[i].taken);
        assert_string_equal(out, rows[i].after);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thousands_are_set_apart),
        cmocka_unit_test(test_control_characters_become_question_marks),
        cmocka_unit_test(an_excerpt_is_short_and_harmless),
        cmocka_unit_test(a_text_fits_into_columns),
        cmocka_unit_test(a_text_that_is_cut_ends_with_a_mark),
    };
    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
