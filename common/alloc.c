/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of libc's functions, and the calls that go through the present table. A size of 0 gives
 * a block of one byte, so that NULL always means that memory is out.
 */
#include "common/alloc.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *libc_malloc(size_t size, void *data)
{
    (void)data;
    return malloc(size);
}

static void *libc_realloc(void *ptr, size_t size, void *data)
{
    (void)data;
    return realloc(ptr, size);
}

static void libc_free(void *ptr, void *data)
{
    (void)data;
    free(ptr);
}

static const struct ct_allocator libc_table = {libc_malloc, libc_realloc, libc_free, NULL};
static const struct ct_allocator *current = &libc_table;

void ct_alloc_install(const struct ct_allocator *table)
{
    current = table != NULL ? table : &libc_table;
}

void *ct_malloc(size_t size)
{
    return current->malloc(size > 0 ? size : 1, current->data);
}

void *ct_calloc(size_t count, size_t size)
{
    if (size != 0 && count > SIZE_MAX / size) {
        return NULL;
    }
    void *ptr = ct_malloc(count * size);
    if (ptr != NULL) {
        memset(ptr, 0, count * size);
    }
    return ptr;
}

void *ct_realloc(void *ptr, size_t size)
{
    return current->realloc(ptr, size > 0 ? size : 1, current->data);
}

void ct_free(void *ptr)
{
    if (ptr != NULL) {
        current->free(ptr, current->data);
    }
}

char *ct_strndup(const char *s, size_t len)
{
    size_t have = strnlen(s, len);
    char *copy = ct_malloc(have + 1);
    if (copy != NULL) {
        memcpy(copy, s, have);
        copy[have] = '\0';
    }
    return copy;
}

char *ct_strdup(const char *s)
{
    return ct_strndup(s, strlen(s));
}

char *ct_asprintf(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int len = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (len < 0) {
        return NULL;
    }
    char *text = ct_malloc((size_t)len + 1);
    if (text == NULL) {
        return NULL;
    }
    va_start(ap, fmt);
    (void)vsnprintf(text, (size_t)len + 1, fmt, ap);
    va_end(ap);
    return text;
}
