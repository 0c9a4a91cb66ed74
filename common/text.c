/* SPDX-License-Identifier: Apache-2.0
 *
 * Cleaning and cutting of text that others have written. Works in place and needs no memory.
 */
#include "common/text.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Unwanted are control characters (ASCII's and U+0080 to U+009F), line and paragraph separators,
 * and characters that change the direction of writing, which make a name look like another. */
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
    bool general = p[0] == 0xe2 && p[1] == 0x80;  /* U+200E, U+200F, U+2028 to U+202E */
    bool isolates = p[0] == 0xe2 && p[1] == 0x81; /* U+2066 to U+2069 */
    if ((general && (p[2] == 0x8e || p[2] == 0x8f || (p[2] >= 0xa8 && p[2] <= 0xae))) ||
        (isolates && p[2] >= 0xa6 && p[2] <= 0xa9)) {
        return 3;
    }
    return 0;
}

void ct_text_clean(char *text)
{
    for (char *p = text; *p != '\0'; p++) {
        size_t len = ct_text_unwanted(p);
        if (len > 0) {
            memset(p, '?', len);
            p += len - 1;
        }
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
