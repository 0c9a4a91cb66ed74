/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/store/blob.h"

#include "common/alloc.h"
#include "common/num.h"

#include <string.h>

struct ct_blob *ct_blob_join(struct ct_budget *budget, const void *a, size_t a_len, const void *b,
                             size_t b_len)
{
    size_t len, cost;
    if (!ct_add_size(a_len, b_len, &len) || !ct_add_size(len, ct_blob_cost(0), &cost) ||
        !ct_budget_take(budget, cost)) {
        return NULL;
    }
    struct ct_blob *blob = ct_malloc(sizeof(*blob) + len);
    if (blob == NULL) {
        ct_budget_give(budget, cost);
        return NULL;
    }
    blob->budget = budget;
    blob->refs = 1;
    blob->len = len;
    if (a_len > 0) {
        memcpy(blob->bytes, a, a_len);
    }
    if (b_len > 0) {
        memcpy(blob->bytes + a_len, b, b_len);
    }
    return blob;
}

struct ct_blob *ct_blob_ref(struct ct_blob *blob)
{
    blob->refs++;
    return blob;
}

void ct_blob_unref(struct ct_blob *blob)
{
    if (blob != NULL && --blob->refs == 0) {
        ct_budget_give(blob->budget, ct_blob_cost(blob->len));
        ct_free(blob);
    }
}
