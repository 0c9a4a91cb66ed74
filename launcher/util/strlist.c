/* SPDX-License-Identifier: Apache-2.0
 *
 * Strings that the list owns lie one after the other in `text`. Because `text` moves as it grows,
 * the entries of these strings are NULL until ct_strlist_close() sets them.
 */
#include "launcher/util/strlist.h"

#include "common/alloc.h"
#include "common/num.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FIRST_CAP 64

void ct_strlist_fini(struct ct_strlist *strlist)
{
    if (strlist == NULL) {
        return;
    }
    ct_free(strlist->list);
    ct_buf_fini(&strlist->text);
    *strlist = (struct ct_strlist){0};
}

static int push(struct ct_strlist *strlist, char *entry)
{
    if (strlist->count == strlist->cap) {
        size_t cap = strlist->cap == 0 ? FIRST_CAP : strlist->cap * 2, bytes;
        if (cap < strlist->cap || !ct_mul_size(cap, sizeof(*strlist->list), &bytes)) {
            return CT_ENOMEM;
        }
        char **grown = ct_realloc(strlist->list, bytes);
        if (grown == NULL) {
            return CT_ENOMEM;
        }
        strlist->list = grown;
        strlist->cap = cap;
    }
    strlist->list[strlist->count++] = entry;
    return 0;
}

int ct_strlist_borrow(struct ct_strlist *strlist, const char *string)
{
    /* execve's arrays are not const; nobody writes through them. */
    return push(strlist, (char *)(uintptr_t)string);
}

int ct_strlist_begin(struct ct_strlist *strlist)
{
    return push(strlist, NULL);
}

int ct_strlist_printf(struct ct_strlist *strlist, const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    int len = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    int rc = len < 0 ? CT_EINVAL : ct_strlist_begin(strlist);
    if (rc == 0) {
        rc = ct_buf_reserve(&strlist->text, (size_t)len + 1);
    }
    if (rc != 0) {
        return rc;
    }
    text = (char *)ct_buf_tail(&strlist->text);
    va_start(ap, fmt);
    (void)vsnprintf(text, (size_t)len + 1, fmt, ap);
    va_end(ap);
    strlist->text.len += (size_t)len + 1;
    return 0;
}

int ct_strlist_close(struct ct_strlist *strlist)
{
    char *own = (char *)ct_buf_bytes(&strlist->text);
    for (size_t i = 0; i < strlist->count; i++) {
        if (strlist->list[i] == NULL) {
            strlist->list[i] = own;
            own += strlen(own) + 1;
        }
    }
    int rc = push(strlist, NULL);
    strlist->count -= rc == 0;
    return rc;
}
