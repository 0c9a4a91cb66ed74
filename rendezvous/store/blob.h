/* SPDX-License-Identifier: Apache-2.0
 *
 * Immutable, counted bytes: a value that the store and any number of unsent replies share. One
 * thread.
 */
#ifndef CT_RENDEZVOUS_STORE_BLOB_H
#define CT_RENDEZVOUS_STORE_BLOB_H

#include "rendezvous/store/budget.h"

#include <stddef.h>

struct ct_blob {
    struct ct_budget *budget; /* gets the cost back at the end */
    size_t refs;
    size_t len;
    unsigned char bytes[];
};

/* Copies `a` and behind it `b`; one reference, which the caller owns. NULL when memory is out or
 * `budget`, which must outlive the blob, is. */
struct ct_blob *ct_blob_join(struct ct_budget *budget, const void *a, size_t a_len, const void *b,
                             size_t b_len);

static inline struct ct_blob *ct_blob_new(struct ct_budget *budget, const void *bytes, size_t len)
{
    return ct_blob_join(budget, bytes, len, NULL, 0);
}

/* What a value of this length takes of a budget. */
static inline size_t ct_blob_cost(size_t len)
{
    return sizeof(struct ct_blob) + len + CT_BLOCK_COST;
}

/* Returns its argument with one reference more. */
struct ct_blob *ct_blob_ref(struct ct_blob *blob);

/* NULL is allowed. */
void ct_blob_unref(struct ct_blob *blob);

#endif
