/* SPDX-License-Identifier: Apache-2.0
 *
 * A NULL-terminated list of strings for execve(2). It borrows some of them and owns the others.
 */
#ifndef CT_LAUNCHER_UTIL_STRLIST_H
#define CT_LAUNCHER_UTIL_STRLIST_H

#include "common/buf.h"
#include "common/err.h"

#include <stddef.h>

/* Zeroed memory is an empty list. */
struct ct_strlist {
    char **list;        /* NULL-terminated after ct_strlist_close() */
    size_t count;       /* entries in `list` */
    size_t cap;         /* room in `list`, the terminator included */
    struct ct_buf text; /* the strings made here, each with its NUL */
};

void ct_strlist_fini(struct ct_strlist *strlist);

/* Borrows `string` until the list is freed. */
CT_MUST_CHECK int ct_strlist_borrow(struct ct_strlist *strlist, const char *string);

/* Begins a string that the list owns. The caller then appends it to `text`, with its NUL. */
CT_MUST_CHECK int ct_strlist_begin(struct ct_strlist *strlist);

/* Adds a string that the list owns, such as "name=value". */
CT_MUST_CHECK int ct_strlist_printf(struct ct_strlist *strlist, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Ends the list: sets the pointers to the strings that it owns. Until then these may move. */
CT_MUST_CHECK int ct_strlist_close(struct ct_strlist *strlist);

#endif
