/* SPDX-License-Identifier: Apache-2.0 */
#include "common/text.h"

#include <inttypes.h>
#include <stdio.h>

void ct_text_clean(char *text)
{
    for (unsigned char *p = (unsigned char *)text; *p != '\0'; p++) {
        if (*p < 0x20 || *p == 0x7f) {
            *p = '?';
        }
    }
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
