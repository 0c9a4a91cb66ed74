/* SPDX-License-Identifier: Apache-2.0
 *
 * Text for a person's terminal.
 */
#ifndef CT_COMMON_TEXT_H
#define CT_COMMON_TEXT_H

#include <stdint.h>

/* Replaces every byte of a control character (line breaks, escape sequences, DEL, and what turns
 * the direction of writing) by '?', in place: messages quote file names, keys and host names that
 * came from strangers. Other UTF-8 stays as it is. */
void ct_text_clean(char *text);

/* Writes 1234567 as "1,234,567". */
#define CT_TEXT_THOUSANDS_MAX 28
void ct_text_thousands(uint64_t number, char out[CT_TEXT_THOUSANDS_MAX]);

#endif
