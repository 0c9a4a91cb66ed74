/* SPDX-License-Identifier: Apache-2.0
 *
 * The last lines of what a job has written. Pure.
 */
#ifndef CT_LAUNCHER_DETACH_CONSOLE_TAIL_H
#define CT_LAUNCHER_DETACH_CONSOLE_TAIL_H

#include <stddef.h>

/* Returns where the last `lines` lines of the text begin. A line that has not ended counts. */
size_t ct_console_tail(const char *text, size_t len, int lines);

#endif
