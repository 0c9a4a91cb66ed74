/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts line ends from the end of the text.
 */
#include "launcher/detach/console_tail.h"

size_t ct_console_tail(const char *text, size_t len, int lines)
{
    size_t at = len;
    if (lines <= 0) {
        return len;
    }
    if (at > 0 && text[at - 1] == '\n') {
        at--; /* it ends the last line, and begins none */
    }
    while (at > 0) {
        if (text[at - 1] == '\n' && --lines == 0) {
            break;
        }
        at--;
    }
    return at;
}
