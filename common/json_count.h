/* SPDX-License-Identifier: Apache-2.0
 *
 * How much a JSON text will cost, before it is parsed.
 */
#ifndef CT_COMMON_JSON_COUNT_H
#define CT_COMMON_JSON_COUNT_H

#include <stddef.h>

/* Counts the values of the text, and a few too many. cJSON keeps 64 bytes for each, so that a text
 * of two bytes per value takes 32 times its length. A text that is no JSON is counted, too,
 * and the parser refuses it. */
size_t ct_json_count_values(const char *text, size_t len);

#endif
