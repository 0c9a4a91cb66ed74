/* SPDX-License-Identifier: Apache-2.0 */
#include "common/text.h"

void ct_text_clean(char *text)
{
    for (unsigned char *p = (unsigned char *)text; *p != '\0'; p++) {
        if (*p < 0x20 || *p == 0x7f) {
            *p = '?';
        }
    }
}
