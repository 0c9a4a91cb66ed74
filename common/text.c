/* SPDX-License-Identifier: Apache-2.0
 *
 * Cleaning and cutting of text that others have written. Works in place and needs no memory.
 */
#include "common/text.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

size_t ct_text_decode(const char *text, uint32_t *c)
{
    const unsigned char *p = (const unsigned char *)text;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t len = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (len == 0 || p[0] > 0xf4) {
        return 0;
    }
    *c = len == 1 ? p[0] : p[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
        *c = *c << 6 | (p[i] & 0x3f);
    }
    bool valid = *c >= least[len] && *c <= 0x10ffff && (*c < 0xd800 || *c > 0xdfff);
    return valid ? len : 0;
}

/* Unwanted are control characters (ASCII's and U+0080 to U+009F), line and paragraph separators,
 * characters that change the direction of writing, which make a name look like another, and those
 * that show nothing (zero width, and tags), which make two names look the same or hide words. */
size_t ct_text_unwanted(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    if (p[0] < 0x20 || p[0] == 0x7f) {
        return 1;
    }
    if (p[0] == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f) {
        return 2;
    }
    if (p[0] == 0xd8 && p[1] == 0x9c) { /* U+061C */
        return 2;
    }
    bool general = p[0] == 0xe2 && p[1] == 0x80;  /* U+200B to U+200F, U+2028 to U+202E */
    bool isolates = p[0] == 0xe2 && p[1] == 0x81; /* U+2066 to U+2069 */
    if ((general && ((p[2] >= 0x8b && p[2] <= 0x8f) || (p[2] >= 0xa8 && p[2] <= 0xae))) ||
        (isolates && p[2] >= 0xa6 && p[2] <= 0xa9)) {
        return 3;
    }
    /* U+E0000 to U+E007F */
    bool tag = p[0] == 0xf3 && p[1] == 0xa0 && (p[2] == 0x80 || p[2] == 0x81);
    return tag && p[3] >= 0x80 && p[3] <= 0xbf ? 4 : 0;
}

void ct_text_make_utf8(char *text)
{
    while (*text != '\0') {
        uint32_t c;
        size_t len = ct_text_decode(text, &c);
        if (len == 0) {
            *text = '?';
            len = 1;
        }
        text += len;
    }
}

void ct_text_clean(char *text)
{
    for (char *p = text; *p != '\0';) {
        uint32_t c;
        size_t len = ct_text_decode(p, &c);
        size_t unwanted = len > 0 ? ct_text_unwanted(p) : 1;
        memset(p, '?', unwanted);
        p += unwanted > 0 ? unwanted : len;
    }
}

const char *ct_text_excerpt(const char *text, char out[CT_TEXT_EXCERPT_MAX])
{
    size_t len = strnlen(text, CT_TEXT_EXCERPT_MAX);
    bool cut = len == CT_TEXT_EXCERPT_MAX;
    if (cut) {
        len = CT_TEXT_EXCERPT_MAX - sizeof("...");
        while (len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80) {
            len--;
        }
    }
    memcpy(out, text, len);
    memcpy(out + len, cut ? "..." : "", cut ? sizeof("...") : 1);
    ct_text_clean(out);
    return out;
}

/* ---- columns -------------------------------------------------------------------------------- */

struct range {
    uint32_t first, last;
};

static bool is_in(uint32_t c, const struct range *ranges, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (c >= ranges[i].first && c <= ranges[i].last) {
            return true;
        }
    }
    return false;
}

/* The columns of a character by Unicode's blocks (EastAsianWidth.txt: W and F). libc's wcwidth()
 * knows only the characters of the locale, which a launcher does not set. */
static size_t columns_of(uint32_t c)
{
    static const struct range wide[] = {
        {0x1100, 0x115f},   {0x231a, 0x231b},   {0x2e80, 0x303e},   {0x3041, 0xa4cf},
        {0xa960, 0xa97f},   {0xac00, 0xd7a3},   {0xf900, 0xfaff},   {0xfe30, 0xfe6f},
        {0xff00, 0xff60},   {0xffe0, 0xffe6},   {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff},
        {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd},
    };
    static const struct range none[] = {
        {0x0300, 0x036f}, {0x0483, 0x0489}, {0x0591, 0x05bd},   {0x064b, 0x065f}, {0x0e34, 0x0e3a},
        {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff}, {0x20d0, 0x20ff},   {0x302a, 0x302d}, {0xfe00, 0xfe0f},
        {0xfe20, 0xfe2f}, {0xfeff, 0xfeff}, {0xe0100, 0xe01ef},
    };
    if (c < 0x300) {
        return 1;
    }
    if (is_in(c, none, sizeof(none) / sizeof(none[0]))) {
        return 0;
    }
    return is_in(c, wide, sizeof(wide) / sizeof(wide[0])) ? 2 : 1;
}

/* As ct_text_fit(); *rest is the part that does not fit. */
static size_t fit(const char *text, size_t columns, char *out, size_t size, const char **rest)
{
    size_t used = 0, at = 0;
    while (*text != '\0') {
        uint32_t c;
        size_t len = ct_text_decode(text, &c);
        size_t unwanted = len > 0 ? ct_text_unwanted(text) : 1;
        size_t wide = unwanted > 0 ? 1 : columns_of(c);
        size_t bytes = unwanted > 0 ? 1 : len;
        if (used + wide > columns || at + bytes >= size) {
            break;
        }
        memcpy(out + at, unwanted > 0 ? "?" : text, bytes);
        at += bytes;
        used += wide;
        text += unwanted > 0 ? unwanted : len;
    }
    out[at] = '\0';
    *rest = text;
    return used;
}

size_t ct_text_fit(const char *text, size_t columns, char *out, size_t size)
{
    const char *rest;
    return fit(text, columns, out, size, &rest);
}

size_t ct_text_cut(const char *text, size_t columns, char *out, size_t size)
{
    const char *rest;
    size_t used = fit(text, columns, out, size, &rest);
    if (*rest == '\0') {
        return used;
    }
    used = fit(text, columns - 3, out, size - 3, &rest);
    memcpy(out + strlen(out), "...", sizeof("..."));
    return used + 3;
}

/* ---- numbers -------------------------------------------------------------------------------- */

void ct_text_thousands(uint64_t number, char out[CT_TEXT_THOUSANDS_MAX])
{
    char digits[CT_TEXT_THOUSANDS_MAX];
    int len = snprintf(digits, sizeof(digits), "%" PRIu64, number);
    char *to = out;
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0) {
            *to++ = ',';
        }
        *to++ = digits[i];
    }
    *to = '\0';
}
