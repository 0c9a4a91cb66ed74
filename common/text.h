/* SPDX-License-Identifier: Apache-2.0
 *
 * Text for a person's terminal.
 */
#ifndef CT_COMMON_TEXT_H
#define CT_COMMON_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the character at `text` that no message may show, 0 = it may stay. */
size_t ct_text_unwanted(const char *text);

/* Replaces every byte of a control character (line breaks, escape sequences, DEL, and what turns
 * the direction of writing) by '?', in place: messages quote file names, keys and host names that
 * came from strangers. Other UTF-8 stays as it is. */
void ct_text_clean(char *text);

/* Writes what a message may quote of a stranger's word: its beginning, cut between two characters
 * of UTF-8 with "..." behind it, made harmless by ct_text_clean(). Returns `out`. */
#define CT_TEXT_EXCERPT_MAX 68
const char *ct_text_excerpt(const char *text, char out[CT_TEXT_EXCERPT_MAX]);

/* Writes 1234567 as "1,234,567". */
#define CT_TEXT_THOUSANDS_MAX 28
void ct_text_thousands(uint64_t number, char out[CT_TEXT_THOUSANDS_MAX]);

#endif
