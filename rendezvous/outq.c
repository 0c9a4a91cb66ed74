/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/outq.h"

#include "common/alloc.h"
#include "rendezvous/limits.h"

#include <string.h>

/* First array of marks: one MULTI_GET of a few large values. */
#define MARKS_MIN 16

struct ct_outq_mark {
    struct ct_blob *blob;
    uint64_t at; /* it goes before the copied byte of this number */
};

void ct_outq_fini(struct ct_outq *q)
{
    for (size_t i = 0; i < q->count; i++) {
        ct_blob_unref(q->marks[q->first + i].blob);
    }
    ct_free(q->marks);
    ct_buf_fini(&q->bytes);
    memset(q, 0, sizeof(*q));
}

int ct_outq_reserve(struct ct_outq *q, size_t len)
{
    return ct_buf_reserve(&q->bytes, len);
}

int ct_outq_put(struct ct_outq *q, const void *bytes, size_t len)
{
    int rc = ct_buf_append(&q->bytes, bytes, len);
    if (rc == 0) {
        q->total += len;
    }
    return rc;
}

static int marks_reserve(struct ct_outq *q)
{
    if (q->first + q->count < q->cap) {
        return 0;
    }
    /* Sliding down only when it frees half keeps the cost per mark constant. */
    if (q->first > q->cap / 2) {
        memmove(q->marks, q->marks + q->first, q->count * sizeof(*q->marks));
        q->first = 0;
        return 0;
    }
    size_t cap = q->cap > 0 ? q->cap * 2 : MARKS_MIN;
    struct ct_outq_mark *marks = ct_realloc(q->marks, cap * sizeof(*marks));
    if (marks == NULL) {
        return CT_ENOMEM;
    }
    q->marks = marks;
    q->cap = cap;
    return 0;
}

int ct_outq_put_blob(struct ct_outq *q, struct ct_blob *blob)
{
    if (blob->len <= CT_OUT_COPY_MAX) {
        return ct_outq_put(q, blob->bytes, blob->len);
    }
    int rc = marks_reserve(q);
    if (rc != 0) {
        return rc;
    }
    q->marks[q->first + q->count] = (struct ct_outq_mark){
        .blob = ct_blob_ref(blob),
        .at = q->taken + q->bytes.len,
    };
    q->count++;
    q->total += blob->len;
    return 0;
}

size_t ct_outq_iov(const struct ct_outq *q, struct iovec *iov, size_t max)
{
    size_t used = 0;
    uint64_t pos = q->taken;
    unsigned char *copied = ct_buf_bytes(&q->bytes);
    for (size_t i = 0; i < q->count && used < max; i++) {
        const struct ct_outq_mark *mark = &q->marks[q->first + i];
        if (mark->at > pos) {
            iov[used++] = (struct iovec){copied + (pos - q->taken), (size_t)(mark->at - pos)};
            pos = mark->at;
        }
        if (used < max) {
            size_t skip = i == 0 ? q->sent : 0;
            iov[used++] = (struct iovec){mark->blob->bytes + skip, mark->blob->len - skip};
        }
    }
    uint64_t end = q->taken + q->bytes.len;
    if (used < max && pos < end) {
        iov[used++] = (struct iovec){copied + (pos - q->taken), (size_t)(end - pos)};
    }
    return used;
}

/* The first mark's value is what comes next: takes up to `len` bytes of it. */
static size_t consume_blob(struct ct_outq *q, size_t len)
{
    struct ct_outq_mark *mark = &q->marks[q->first];
    size_t left = mark->blob->len - q->sent;
    if (len < left) {
        q->sent += len;
        return len;
    }
    ct_blob_unref(mark->blob);
    q->sent = 0;
    q->count--;
    q->first = q->count > 0 ? q->first + 1 : 0;
    return left;
}

/* Copied bytes up to the first mark come next. */
static size_t consume_bytes(struct ct_outq *q, size_t len)
{
    size_t run = q->count > 0 ? (size_t)(q->marks[q->first].at - q->taken) : q->bytes.len;
    size_t take = len < run ? len : run;
    ct_buf_consume(&q->bytes, take);
    q->taken += take;
    return take;
}

void ct_outq_consume(struct ct_outq *q, size_t len)
{
    CT_ASSERT(len <= q->total);
    q->total -= len;
    while (len > 0) {
        bool blob_next = q->count > 0 && q->marks[q->first].at == q->taken;
        len -= blob_next ? consume_blob(q, len) : consume_bytes(q, len);
    }
    if (q->total == 0 && (q->bytes.cap > CT_KEEP_BUF_BYTES || q->cap > MARKS_MIN)) {
        ct_outq_fini(q);
    }
}
