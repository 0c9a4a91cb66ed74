/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference-counted bytes: a value that the store and any number of unsent replies share. They are
 * changed only while there is a single reference. One thread.
 */
#ifndef CT_RENDEZVOUS_STORE_BLOB_H
#define CT_RENDEZVOUS_STORE_BLOB_H

#include "common/err.h"
#include "rendezvous/store/budget.h"

#include <stddef.h>

struct ct_blob {
    struct ct_budget *budget; /* gets the cost back at the end */
    size_t refs;
    size_t len;
    size_t cap; /* bytes there is room for; more than `len` only after ct_blob_extend() */
    unsigned char bytes[];
};

/* Makes a blob of `a` and `b`, which are copied. The caller owns its one reference. NULL when
 * memory or the budget is used up. The budget must outlive the blob. */
struct ct_blob *ct_blob_join(struct ct_budget *budget, const void *a, size_t a_len, const void *b,
                             size_t b_len);

static inline struct ct_blob *ct_blob_new(struct ct_budget *budget, const void *bytes, size_t len)
{
    return ct_blob_join(budget, bytes, len, NULL, 0);
}

/* Appends bytes to a blob whose only reference is `*blob`. The blob may move. If the budget allows,
 * it gets half as much room again as it needs, so that not every small append copies it. False when
 * memory or the budget is used up; the blob is then unchanged. */
CT_MUST_CHECK bool ct_blob_extend(struct ct_blob **blob, const void *bytes, size_t len);

/* What a value with room for so many bytes takes of a budget. */
static inline size_t ct_blob_cost(size_t cap)
{
    return sizeof(struct ct_blob) + cap + CT_BLOCK_COST;
}

/* Returns its argument with one reference more. */
struct ct_blob *ct_blob_ref(struct ct_blob *blob);

/* NULL is allowed. */
void ct_blob_unref(struct ct_blob *blob);

#endif
