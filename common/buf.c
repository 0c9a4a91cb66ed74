/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes are moved to the front of the block before it grows, and the block grows by doubling, so an
 * append costs constant time on average. A failure leaves the bytes as they were.
 */
#include "common/buf.h"

#include "common/alloc.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Smallest allocation: most buffers hold one request or one line. */
#define BUF_MIN_CAP 64

void ct_buf_fini(struct ct_buf *buf)
{
    if (buf == NULL) {
        return;
    }
    ct_free(buf->data);
    *buf = (struct ct_buf)CT_BUF_INIT;
}

int ct_buf_reserve(struct ct_buf *buf, size_t more)
{
    if (more <= buf->cap - buf->off - buf->len) {
        return 0;
    }
    if (more > SIZE_MAX / 2 - buf->len) {
        return CT_ENOMEM;
    }
    size_t need = buf->len + more;
    /* Moves the bytes to the front if that is enough and moves at most half of the block. */
    if (need <= buf->cap && buf->len <= buf->cap / 2) {
        memmove(buf->data, buf->data + buf->off, buf->len);
        buf->off = 0;
        return 0;
    }
    /* The new block is at most half full. Otherwise a buffer that stays nearly full would be copied
     * whole for every few bytes that pass through it. */
    size_t cap = buf->cap > BUF_MIN_CAP ? buf->cap : BUF_MIN_CAP;
    while (cap < need || cap / 2 < buf->len) {
        cap *= 2;
    }
    /* For a large block realloc() remaps pages, which is cheaper than a new block and a copy. */
    if (buf->off > 0) {
        memmove(buf->data, buf->data + buf->off, buf->len);
        buf->off = 0;
    }
    unsigned char *data = ct_realloc(buf->data, cap);
    if (data == NULL) {
        return CT_ENOMEM;
    }
    buf->data = data;
    buf->cap = cap;
    return 0;
}

int ct_buf_append(struct ct_buf *buf, const void *bytes, size_t len)
{
    if (len == 0) {
        return 0;
    }
    int rc = ct_buf_reserve(buf, len);
    if (rc != 0) {
        return rc;
    }
    memcpy(ct_buf_tail(buf), bytes, len);
    buf->len += len;
    return 0;
}

__attribute__((format(printf, 2, 0))) static int append_text(struct ct_buf *buf, const char *fmt,
                                                             va_list args)
{
    va_list again;
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    if (len < 0) {
        return CT_EINVAL;
    }
    int rc = ct_buf_reserve(buf, (size_t)len + 1);
    if (rc != 0) {
        return rc;
    }
    (void)vsnprintf((char *)ct_buf_tail(buf), (size_t)len + 1, fmt, args);
    buf->len += (size_t)len;
    return 0;
}

int ct_buf_printf(struct ct_buf *buf, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int rc = append_text(buf, fmt, args);
    va_end(args);
    return rc;
}

void ct_buf_add(struct ct_buf *buf, const void *bytes, size_t len)
{
    buf->failed = buf->failed || ct_buf_append(buf, bytes, len) != 0;
}

void ct_buf_addf(struct ct_buf *buf, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    buf->failed = buf->failed || append_text(buf, fmt, args) != 0;
    va_end(args);
}

void ct_buf_consume(struct ct_buf *buf, size_t len)
{
    CT_ASSERT(len <= buf->len);
    buf->off += len;
    buf->len -= len;
    if (buf->len == 0) {
        buf->off = 0;
    }
}

void ct_buf_reset(struct ct_buf *buf)
{
    buf->off = 0;
    buf->len = 0;
    buf->failed = false;
}

const char *ct_buf_cstr(struct ct_buf *buf)
{
    if (ct_buf_reserve(buf, 1) != 0) {
        return NULL;
    }
    *ct_buf_tail(buf) = '\0';
    return (const char *)ct_buf_bytes(buf);
}
