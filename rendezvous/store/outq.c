/* SPDX-License-Identifier: Apache-2.0
 *
 * The queue is one buffer of copied bytes, and marks that say where a referenced value belongs
 * between them. An empty queue has neither (struct ct_outq_body).
 */
#include "rendezvous/store/outq.h"

#include "common/alloc.h"
#include "rendezvous/wire/limits.h"

#include <string.h>

/* The first array of marks. It is enough for a MULTI_GET of a few large values. */
#define MARKS_MIN 16

struct ct_outq_mark {
    struct ct_blob *blob;
    uint64_t at; /* the value goes before the copied byte of this number */
};

struct ct_outq_body {
    struct ct_buf bytes;        /* the copied pieces, back to back */
    uint64_t taken;             /* copied bytes ever consumed: the position of bytes' front */
    struct ct_outq_mark *marks; /* where the referenced values belong, in order */
    size_t first, count, cap;   /* marks[first .. first + count) are waiting */
    size_t sent;                /* bytes of the first mark's value already consumed */
};

/* Frees what a body holds and leaves an empty, usable body. */
static void body_clear(struct ct_outq_body *body)
{
    for (size_t i = 0; i < body->count; i++) {
        ct_blob_unref(body->marks[body->first + i].blob);
    }
    ct_free(body->marks);
    ct_buf_fini(&body->bytes);
    memset(body, 0, sizeof(*body));
}

void ct_outq_body_free(struct ct_outq_body *body)
{
    if (body != NULL) {
        body_clear(body);
        ct_free(body);
    }
}

void ct_outq_fini(struct ct_outq *q)
{
    ct_outq_body_free(q->body);
    *q = (struct ct_outq){0};
}

size_t ct_outq_memory(const struct ct_outq *q)
{
    const struct ct_outq_body *body = q->body;
    return body == NULL ? 0
                        : sizeof(*body) + body->bytes.cap + body->cap * sizeof(*body->marks) +
                              3 * CT_BLOCK_COST;
}

void ct_outq_lend(struct ct_outq *q, struct ct_outq_body **spare)
{
    if (q->body == NULL) {
        q->body = *spare;
        *spare = NULL;
    }
}

void ct_outq_take_back(struct ct_outq *q, struct ct_outq_body **spare)
{
    if (q->total > 0) {
        return;
    }
    if (*spare == NULL) {
        *spare = q->body;
    } else {
        ct_outq_body_free(q->body);
    }
    q->body = NULL;
}

static int body_need(struct ct_outq *q)
{
    if (q->body == NULL) {
        q->body = ct_calloc(1, sizeof(*q->body));
    }
    return q->body != NULL ? 0 : CT_ENOMEM;
}

int ct_outq_reserve(struct ct_outq *q, size_t len)
{
    int rc = body_need(q);
    return rc == 0 ? ct_buf_reserve(&q->body->bytes, len) : rc;
}

int ct_outq_put(struct ct_outq *q, const void *bytes, size_t len)
{
    if (body_need(q) != 0 || ct_buf_append(&q->body->bytes, bytes, len) != 0) {
        return CT_ENOMEM;
    }
    q->total += len;
    return 0;
}

static int marks_reserve(struct ct_outq_body *body)
{
    if (body->first + body->count < body->cap) {
        return 0;
    }
    /* Marks move to the front only if that frees half of the array, so each moves seldom. */
    if (body->first > body->cap / 2) {
        memmove(body->marks, body->marks + body->first, body->count * sizeof(*body->marks));
        body->first = 0;
        return 0;
    }
    size_t cap = body->cap > 0 ? body->cap * 2 : MARKS_MIN;
    struct ct_outq_mark *marks = ct_realloc(body->marks, cap * sizeof(*marks));
    if (marks == NULL) {
        return CT_ENOMEM;
    }
    body->marks = marks;
    body->cap = cap;
    return 0;
}

int ct_outq_put_blob(struct ct_outq *q, struct ct_blob *blob)
{
    if (blob->len <= CT_OUT_COPY_MAX) {
        return ct_outq_put(q, blob->bytes, blob->len);
    }
    if (body_need(q) != 0 || marks_reserve(q->body) != 0) {
        return CT_ENOMEM;
    }
    struct ct_outq_body *body = q->body;
    body->marks[body->first + body->count] = (struct ct_outq_mark){
        .blob = ct_blob_ref(blob),
        .at = body->taken + body->bytes.len,
    };
    body->count++;
    q->total += blob->len;
    return 0;
}

size_t ct_outq_iov(const struct ct_outq *q, struct iovec *iov, size_t max)
{
    const struct ct_outq_body *body = q->body;
    if (body == NULL) {
        return 0;
    }
    size_t used = 0;
    uint64_t pos = body->taken;
    unsigned char *copied = ct_buf_bytes(&body->bytes);
    for (size_t i = 0; i < body->count && used < max; i++) {
        const struct ct_outq_mark *mark = &body->marks[body->first + i];
        if (mark->at > pos) {
            iov[used++] = (struct iovec){copied + (pos - body->taken), (size_t)(mark->at - pos)};
            pos = mark->at;
        }
        if (used < max) {
            size_t skip = i == 0 ? body->sent : 0;
            iov[used++] = (struct iovec){mark->blob->bytes + skip, mark->blob->len - skip};
        }
    }
    uint64_t end = body->taken + body->bytes.len;
    if (used < max && pos < end) {
        iov[used++] = (struct iovec){copied + (pos - body->taken), (size_t)(end - pos)};
    }
    return used;
}

/* Takes up to `len` bytes of the first mark's value, which comes next. Returns how many. */
static size_t consume_blob(struct ct_outq_body *body, size_t len)
{
    struct ct_outq_mark *mark = &body->marks[body->first];
    size_t left = mark->blob->len - body->sent;
    if (len < left) {
        body->sent += len;
        return len;
    }
    ct_blob_unref(mark->blob);
    body->sent = 0;
    body->count--;
    body->first = body->count > 0 ? body->first + 1 : 0;
    return left;
}

/* Takes up to `len` copied bytes before the first mark, which come next. Returns how many. */
static size_t consume_bytes(struct ct_outq_body *body, size_t len)
{
    size_t run =
        body->count > 0 ? (size_t)(body->marks[body->first].at - body->taken) : body->bytes.len;
    size_t take = len < run ? len : run;
    ct_buf_consume(&body->bytes, take);
    body->taken += take;
    return take;
}

void ct_outq_consume(struct ct_outq *q, size_t len)
{
    CT_ASSERT(len <= q->total);
    struct ct_outq_body *body = q->body;
    q->total -= len;
    while (len > 0) {
        bool blob_next = body->count > 0 && body->marks[body->first].at == body->taken;
        len -= blob_next ? consume_blob(body, len) : consume_bytes(body, len);
    }
    if (q->total == 0 && body != NULL &&
        (body->bytes.cap > CT_KEEP_BUF_BYTES || body->cap > MARKS_MIN)) {
        body_clear(body);
    }
}
