/* SPDX-License-Identifier: Apache-2.0
 *
 * Text for a person's terminal.
 */
#ifndef CT_COMMON_TEXT_H
#define CT_COMMON_TEXT_H

/* Replaces every control character (line breaks, escape sequences, DEL) by '?', in place: messages
 * quote file names, keys and host names that came from strangers. UTF-8 stays as it is. */
void ct_text_clean(char *text);

#endif
