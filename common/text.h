/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes text that others have written safe to show on a terminal.
 */
#ifndef CT_COMMON_TEXT_H
#define CT_COMMON_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Returns the bytes of the character at `text`, which *c gets, or 0 if it is no UTF-8. Reads no
 * byte after a NUL. */
size_t ct_text_decode(const char *text, uint32_t *c);

/* Replaces every byte that is no UTF-8 by '?', in place. JSON that has such a byte is refused by
 * readers, and cJSON copies bytes unchanged. */
void ct_text_make_utf8(char *text);

/* Returns the length of the character at `text` if no message may show it, else 0. */
size_t ct_text_unwanted(const char *text);

/* Replaces every byte of a control character (line breaks, escape sequences, DEL, those that change
 * the direction of writing, and those that show nothing), and every byte that is no UTF-8, by '?',
 * in place. Messages quote file names, keys and host names that come from strangers. Other UTF-8
 * stays as it is. */
void ct_text_clean(char *text);

/* Writes what a message may quote of a stranger's text: its beginning, cleaned by ct_text_clean().
 * A text that is too long is cut between two characters and ends with "...". Returns `out`. */
#define CT_TEXT_EXCERPT_MAX 68
const char *ct_text_excerpt(const char *text, char out[CT_TEXT_EXCERPT_MAX]);

/* Copies the beginning of a stranger's text, as much as fits into `columns` of a terminal and
 * `size` bytes with the NUL. East Asian characters take two columns, combining ones none. What
 * ct_text_clean() replaces, and bytes that are no UTF-8, become '?'. Returns the columns taken. */
size_t ct_text_fit(const char *text, size_t columns, char *out, size_t size);

/* As ct_text_fit(), but the copy of a text that does not fit ends with "...". `columns` is at least
 * 3, `size` at least 4. */
size_t ct_text_cut(const char *text, size_t columns, char *out, size_t size);

/* Writes 1234567 as "1,234,567". */
#define CT_TEXT_THOUSANDS_MAX 28
void ct_text_thousands(uint64_t number, char out[CT_TEXT_THOUSANDS_MAX]);

#endif
