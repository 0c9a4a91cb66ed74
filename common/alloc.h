/* SPDX-License-Identifier: Apache-2.0
 *
 * The one allocation table. All libraries allocate through it, so that a test can make the n-th
 * allocation fail and sweep n over a whole constructor.
 *
 * The table is global state, the only one in the libraries. Passing an allocator to every function
 * would add a parameter to each of them that only tests need.
 */
#ifndef CT_COMMON_ALLOC_H
#define CT_COMMON_ALLOC_H

#include <stddef.h>

struct ct_allocator {
    void *(*malloc)(size_t size, void *data);
    void *(*realloc)(void *ptr, size_t size, void *data);
    void (*free)(void *ptr, void *data);
    void *data;
};

/* Borrows `table` until the next call; NULL restores libc's. Call before any thread starts and only
 * while nothing allocated by the previous table is alive (or while both share one heap). */
void ct_alloc_install(const struct ct_allocator *table);

/* As malloc and friends; a size of 0 gives a unique pointer. NULL when memory is out. */
void *ct_malloc(size_t size) __attribute__((malloc, warn_unused_result));
void *ct_calloc(size_t count, size_t size) __attribute__((malloc, warn_unused_result));
void *ct_realloc(void *ptr, size_t size) __attribute__((warn_unused_result));
char *ct_strdup(const char *s) __attribute__((malloc, warn_unused_result));
/* Copies at most `len` bytes and stops at a NUL. */
char *ct_strndup(const char *s, size_t len) __attribute__((malloc, warn_unused_result));
char *ct_asprintf(const char *fmt, ...)
    __attribute__((malloc, warn_unused_result, format(printf, 1, 2)));

/* NULL is allowed. */
void ct_free(void *ptr);

#endif
