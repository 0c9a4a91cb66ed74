/* SPDX-License-Identifier: Apache-2.0
 *
 * Each value comes after a comma or an opening bracket, so these are counted, outside of strings.
 */
#include "common/json_count.h"

#include <stdbool.h>

size_t ct_json_count_values(const char *text, size_t len)
{
    size_t count = 0;
    bool quoted = false;
    for (size_t i = 0; i < len; i++) {
        if (quoted && text[i] == '\\') {
            i++; /* the escaped character does not end the string */
        } else if (quoted) {
            quoted = text[i] != '"';
        } else if (text[i] == '"') {
            quoted = true;
        } else {
            count += text[i] == ',' || text[i] == '[' || text[i] == '{';
        }
    }
    return count;
}
