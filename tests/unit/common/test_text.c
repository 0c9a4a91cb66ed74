/* SPDX-License-Identifier: Apache-2.0
 *
 * What messages may quote of strangers' words, and how numbers are written for people.
 */
#include "common/text.h"

#include "tests/lib/ct_test.h"
#include <stdio.h>

#include <stdbool.h>

/* Writes a character beyond U+07FF and an x. Returns the length of the character. */
static size_t put_utf8(uint32_t c, char out[8])
{
    size_t len = c < 0x10000 ? 3 : 4;
    (void)memset(out, 0, 8);
    for (size_t i = len - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (c & 0x3f));
        c >>= 6;
    }
    out[0] = (char)((len == 3 ? 0xe0 : 0xf0) | c);
    out[len] = 'x';
    return len;
}

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

/* Each, and its neighbours, which stay. */
static void test_characters_that_show_nothing_or_turn_the_text_are_replaced(void **state)
{
    static const struct {
        uint32_t first, last;
    } unwanted[] = {{0x200b, 0x200f}, {0x2028, 0x202e}, {0x2066, 0x2069}, {0xe0000, 0xe007f}};
    (void)state;
    for (size_t i = 0; i < sizeof(unwanted) / sizeof(unwanted[0]); i++) {
        for (uint32_t c = unwanted[i].first - 1; c <= unwanted[i].last + 1; c++) {
            bool stays = c < unwanted[i].first || c > unwanted[i].last;
            char text[8], before[8];
            size_t len = put_utf8(c, text);
            (void)memcpy(before, text, sizeof(text));
            uint32_t read;
            assert_int_equal(ct_text_decode(text, &read), len);
            assert_int_equal(read, c);
            assert_int_equal(ct_text_unwanted(text), stays ? 0 : len);
            ct_text_clean(text);
            assert_string_equal(text, stays ? before : len == 3 ? "???x" : "????x");
            before[len] = '\0';
            assert_int_equal(ct_text_fit(before, 1, text, sizeof(text)), 1);
            assert_string_equal(text, stays ? before : "?");
        }
    }
}

/* Any bytes: no byte is read after the NUL, and what is left is UTF-8 without unwanted ones. */
static void test_any_bytes_become_harmless(void **state)
{
    uint32_t random = 1;
    (void)state;
    for (int round = 0; round < 20000; round++) {
        static const unsigned char often[] = {0xe2, 0x80, 0x8b, 0xae, 0x81,
                                              0xa6, 0xf3, 0xa0, 0xbf, 'x'};
        size_t len = (size_t)round % 7;
        char text[8];
        for (size_t i = 0; i < len; i++) {
            random = random * 1664525 + 1013904223;
            unsigned char any = (unsigned char)(random >> 16 | 1); /* no NUL */
            text[i] = (char)(random >> 31 != 0 ? any : often[(random >> 24) % sizeof(often)]);
        }
        text[len] = '\0';
        ct_text_clean(text);
        assert_int_equal(strlen(text), len);
        for (const char *p = text; *p != '\0';) {
            uint32_t c;
            size_t took = ct_text_decode(p, &c);
            assert_true(took > 0 && ct_text_unwanted(p) == 0);
            p += took;
        }
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

static void test_bytes_that_are_no_utf8_are_replaced(void **state)
{
    static const char *const cases[][2] = {
        {"", ""},
        {"a\n\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "a\n\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"\xff\xc3", "??"},
        {"\xc0\xaf", "??"},           /* overlong */
        {"\xed\xa0\x80", "???"},      /* a surrogate */
        {"\xe2\x82z", "??z"},         /* cut off */
        {"\xf4\x90\x80\x80", "????"}, /* beyond U+10FFFF */
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[32];
        (void)snprintf(text, sizeof(text), "%s", cases[i][0]);
        ct_text_make_utf8(text);
        assert_string_equal(text, cases[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_that_are_no_utf8_are_replaced),
        cmocka_unit_test(thousands_are_set_apart),
        cmocka_unit_test(test_control_characters_become_question_marks),
        cmocka_unit_test(test_characters_that_show_nothing_or_turn_the_text_are_replaced),
        cmocka_unit_test(test_any_bytes_become_harmless),
        cmocka_unit_test(an_excerpt_is_short_and_harmless),
        cmocka_unit_test(a_text_fits_into_columns),
        cmocka_unit_test(a_text_that_is_cut_ends_with_a_mark),
    };
    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
