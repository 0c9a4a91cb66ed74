/* SPDX-License-Identifier: Apache-2.0
 *
 * A private folder for one test. Every function fails the calling cmocka test instead of returning
 * an error. Texts are given to the caller, who frees them with free(3).
 */
#ifndef CT_TESTS_LIB_TMPDIR_H
#define CT_TESTS_LIB_TMPDIR_H

#include <stddef.h>

/* Makes an empty folder under $TMPDIR (or /tmp) and gives its path. */
char *ct_tmpdir_new(void);

/* Removes the folder with all it holds and frees `dir`. NULL is allowed. */
void ct_tmpdir_free(char *dir);

/* Gives "<dir>/<name>". */
char *ct_tmpdir_path(const char *dir, const char *name);

/* Writes the file and gives its path. */
char *ct_tmpdir_write(const char *dir, const char *name, const void *bytes, size_t len);

#endif
