/* SPDX-License-Identifier: Apache-2.0
 *
 * Counted bytes: a value that the store and any number of unsent replies share. They change only
 * while one holds them alone. One thread.
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

/* Copies `a` and behind it `b`; one reference, which the caller owns. NULL when memory is out or
 * `budget`, which must outlive the blob, is. */
struct ct_blob *ct_blob_join(struct ct_budget *budget, const void *a, size_t a_len, const void *b,
                             size_t b_len);

static inline struct ct_blob *ct_blob_new(struct ct_budget *budget, const void *bytes, size_t len)
{
    return ct_blob_join(budget, bytes, len, NULL, 0);
}

/* Puts bytes behind those of a blob whose only reference is `*blob`. It may move, and takes half as
 * much again as it needs where the budget has it, so that many small additions do not copy it each
 * time. False when memory is out or the budget is: then it is as it was. */
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
