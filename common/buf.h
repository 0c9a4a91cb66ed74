/* SPDX-License-Identifier: Apache-2.0
 *
 * A growable byte buffer: bytes are appended at the end and consumed from the front.
 *
 *     data          data+off            data+off+len        data+cap
 *      | consumed     | ct_buf_bytes()    | room              |
 */
#ifndef CT_COMMON_BUF_H
#define CT_COMMON_BUF_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>

struct ct_buf {
    unsigned char *data;
    size_t off; /* bytes consumed from the front */
    size_t len; /* bytes held after `off` */
    size_t cap;
    bool failed; /* ct_buf_add() or ct_buf_addf() has lost a piece */
};

/* Zeroed memory is a valid empty buffer. */
#define CT_BUF_INIT          \
    {                        \
        NULL, 0, 0, 0, false \
    }

/* Frees the memory and leaves an empty, usable buffer. NULL is allowed. */
void ct_buf_fini(struct ct_buf *buf);

/* First held byte; may be NULL when the buffer is empty. Valid until the next append. */
static inline unsigned char *ct_buf_bytes(const struct ct_buf *buf)
{
    return buf->data != NULL ? buf->data + buf->off : NULL;
}

/* Makes room for `more` bytes after the held ones. CT_ENOMEM also when the size would overflow. */
CT_MUST_CHECK int ct_buf_reserve(struct ct_buf *buf, size_t more);

/* Where the next byte goes; valid for as many bytes as were reserved. */
static inline unsigned char *ct_buf_tail(const struct ct_buf *buf)
{
    return buf->data + buf->off + buf->len;
}

/* Copies. `bytes` may be NULL when `len` is 0. */
CT_MUST_CHECK int ct_buf_append(struct ct_buf *buf, const void *bytes, size_t len);

/* Appends formatted text without its terminating NUL. */
CT_MUST_CHECK int ct_buf_printf(struct ct_buf *buf, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Drops the first `len` held bytes; `len` must not exceed what is held. */
void ct_buf_consume(struct ct_buf *buf, size_t len);

/* For a text of many pieces. Without memory the buffer takes no further pieces and remembers that,
 * so the caller needs only one check at the end: ct_buf_status(). */
void ct_buf_add(struct ct_buf *buf, const void *bytes, size_t len);
void ct_buf_addf(struct ct_buf *buf, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* 0, or CT_ENOMEM when a piece was lost since the buffer was empty or reset. */
static inline int ct_buf_status(const struct ct_buf *buf)
{
    return buf->failed ? CT_ENOMEM : 0;
}

/* Forgets the held bytes, keeps the memory. */
void ct_buf_reset(struct ct_buf *buf);

/* Makes sure a NUL stands behind the held bytes (not counted in len) and returns them as text, or
 * NULL when memory is out. */
const char *ct_buf_cstr(struct ct_buf *buf);

#endif
