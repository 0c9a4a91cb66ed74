/* SPDX-License-Identifier: Apache-2.0
 *
 * Unsent reply bytes of one connection. Small pieces are copied into one buffer, large values are
 * referenced. So a GET of 8 MiB copies nothing, and a MULTI_GET that names the same key a million
 * times holds its value once.
 */
#ifndef CT_RENDEZVOUS_STORE_OUTQ_H
#define CT_RENDEZVOUS_STORE_OUTQ_H

#include "common/buf.h"
#include "common/err.h"
#include "rendezvous/store/blob.h"

#include <stddef.h>
#include <sys/uio.h>

struct ct_outq_body;

/* Zeroed memory is a valid empty queue. */
struct ct_outq {
    struct ct_outq_body *body; /* made when something is put into a queue without one */
    size_t total;              /* unsent bytes, copied and referenced */
};

/* Bytes that the queue itself takes, without the values that it references. */
size_t ct_outq_memory(const struct ct_outq *q);

/* Drops everything and leaves an empty, usable queue. */
void ct_outq_fini(struct ct_outq *q);

/* Queues that are empty most of the time share one spare body, so that an idle connection has no
 * memory for replies and a busy one need not allocate it. Lend the body to a queue before something
 * is put there, and take it back afterwards. */
void ct_outq_lend(struct ct_outq *q, struct ct_outq_body **spare);

/* The body of an empty queue becomes the spare one, or is freed; other queues keep theirs. */
void ct_outq_take_back(struct ct_outq *q, struct ct_outq_body **spare);

/* NULL is allowed. */
void ct_outq_body_free(struct ct_outq_body *body);

/* Makes room for `len` copied bytes, so that putting them cannot fail. */
CT_MUST_CHECK int ct_outq_reserve(struct ct_outq *q, size_t len);

/* Both copy; CT_ENOMEM leaves the queue as it was. */
CT_MUST_CHECK int ct_outq_put(struct ct_outq *q, const void *bytes, size_t len);

/* Copies a short value. Of a long one it takes a reference of its own. */
CT_MUST_CHECK int ct_outq_put_blob(struct ct_outq *q, struct ct_blob *blob);

/* Describes the first unsent bytes in at most `max` entries; returns how many were used. They point
 * into the queue and are valid until it is changed. */
size_t ct_outq_iov(const struct ct_outq *q, struct iovec *iov, size_t max);

/* `len` must not exceed total. An emptied queue gives back memory beyond CT_KEEP_BUF_BYTES. */
void ct_outq_consume(struct ct_outq *q, size_t len);

#endif
