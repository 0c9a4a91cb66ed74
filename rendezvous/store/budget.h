/* SPDX-License-Identifier: Apache-2.0
 *
 * How much memory the store has taken for its clients, and how much it may take. One thread.
 *
 * Everything that a client can make grow is counted: keys, values, elements, waits, incomplete
 * requests, unsent replies, each with its overhead. Memory that is freed is given back to the
 * budget, so `used` is 0 when nothing is left.
 */
#ifndef CT_RENDEZVOUS_STORE_BUDGET_H
#define CT_RENDEZVOUS_STORE_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a block costs besides the bytes asked for: malloc's header and, on average, rounding. */
#define CT_BLOCK_COST ((size_t)16)

/* An object's place in a hash map: at most a bucket in each of two tables, while it grows. */
#define CT_BUCKET_COST (2 * sizeof(void *))

struct ct_budget {
    size_t used;
    size_t max;       /* SIZE_MAX = no cap */
    uint64_t refused; /* requests that were over it */
};

static inline bool ct_budget_fits(const struct ct_budget *budget, size_t bytes)
{
    return budget->used <= budget->max && bytes <= budget->max - budget->used;
}

/* Takes the bytes even beyond the cap, for small things that must not be refused. */
static inline void ct_budget_force(struct ct_budget *budget, size_t bytes)
{
    budget->used += bytes;
}

/* Takes the bytes. If that would pass the cap: counts a refusal instead and returns false. */
static inline bool ct_budget_take(struct ct_budget *budget, size_t bytes)
{
    if (!ct_budget_fits(budget, bytes)) {
        budget->refused++;
        return false;
    }
    budget->used += bytes;
    return true;
}

static inline void ct_budget_give(struct ct_budget *budget, size_t bytes)
{
    budget->used -= bytes;
}

#endif
