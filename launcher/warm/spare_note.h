/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a program that is not Python offers a warm form of itself: it says so by an ELF note
 * (CTW_OFFERS_SPARES in worker/ctworker.h), which is read without running it.
 */
#ifndef CT_LAUNCHER_WARM_SPARE_NOTE_H
#define CT_LAUNCHER_WARM_SPARE_NOTE_H

#include <stdbool.h>

/* Returns false for anything that is not such a program, also for a file that cannot be read. */
bool ct_spare_note_in(const char *path);

#endif
