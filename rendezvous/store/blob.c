/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks with a count of references. The budget is charged for the capacity, not for the length.
 */
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
    blob->cap = len;
    if (a_len > 0) {
        memcpy(blob->bytes, a, a_len);
    }
    if (b_len > 0) {
        memcpy(blob->bytes + a_len, b, b_len);
    }
    return blob;
}

/* Makes room for `cap` bytes, more than there is. */
static bool resize(struct ct_blob **blob, size_t cap)
{
    struct ct_budget *budget = (*blob)->budget;
    size_t more = cap - (*blob)->cap;
    if (!ct_budget_take(budget, more)) {
        return false;
    }
    struct ct_blob *larger = ct_realloc(*blob, sizeof(*larger) + cap);
    if (larger == NULL) {
        ct_budget_give(budget, more);
        return false;
    }
    larger->cap = cap;
    *blob = larger;
    return true;
}

bool ct_blob_extend(struct ct_blob **blob, const void *bytes, size_t len)
{
    CT_ASSERT((*blob)->refs == 1);
    size_t need, roomy;
    if (!ct_add_size((*blob)->len, len, &need) || !ct_add_size(need, need / 2, &roomy)) {
        return false;
    }
    if (need > (*blob)->cap) {
        const struct ct_budget *budget = (*blob)->budget;
        bool fits = ct_budget_fits(budget, roomy - (*blob)->cap);
        if (!resize(blob, fits ? roomy : need)) {
            return false;
        }
    }
    if (len > 0) {
        memcpy((*blob)->bytes + (*blob)->len, bytes, len);
    }
    (*blob)->len = need;
    return true;
}

struct ct_blob *ct_blob_ref(struct ct_blob *blob)
{
    blob->refs++;
    return blob;
}

void ct_blob_unref(struct ct_blob *blob)
{
    if (blob != NULL && --blob->refs == 0) {
        ct_budget_give(blob->budget, ct_blob_cost(blob->cap));
        ct_free(blob);
    }
}
