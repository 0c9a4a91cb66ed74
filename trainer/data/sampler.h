/* SPDX-License-Identifier: Apache-2.0
 *
 * Which samples a rank trains on. Each epoch has its own permutation of all samples, a function of
 * seed and epoch; global batch t is places [t * batch, (t + 1) * batch) of it, the last one
 * shorter; a rank takes its contiguous share of each batch. So each sample comes once per epoch and
 * the batches are the same for any number of ranks.
 */
#ifndef CT_TRAINER_DATA_SAMPLER_H
#define CT_TRAINER_DATA_SAMPLER_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

struct ct_sampler {
    uint32_t *order; /* [count], the permutation of the current epoch */
    size_t count;    /* samples */
    size_t batch;    /* global */
    int rank, world;
    uint64_t seed;
    unsigned made; /* 1 + the epoch whose permutation `order` is; 0 = none */
};

/* The share of `rank` in `total` items: [*begin, *end). Shares differ by at most one item and cover
 * all items once. */
void ct_share(size_t total, int rank, int world, size_t *begin, size_t *end);

/* 1 <= count <= UINT32_MAX, batch >= 1. Starts with the identity permutation. CT_ENOMEM. */
CT_MUST_CHECK int ct_sampler_init(struct ct_sampler *sampler, size_t count, size_t batch, int rank,
                                  int world, uint64_t seed);
void ct_sampler_fini(struct ct_sampler *sampler); /* NULL and zeroed memory are allowed */

/* Makes the permutation of `epoch`, whatever was there before, unless it is there already. */
void ct_sampler_shuffle(struct ct_sampler *sampler, unsigned epoch);

/* Samples before batch `t`, or of the whole epoch for t = batches. */
size_t ct_sampler_first(const struct ct_sampler *sampler, size_t t);

/* Batches per epoch. */
size_t ct_sampler_batches(const struct ct_sampler *sampler);

/* The samples of this rank in batch `t`: *rows of them, maybe 0, of *global_rows of all ranks.
 * Valid until the next shuffle. */
const uint32_t *ct_sampler_batch(const struct ct_sampler *sampler, size_t t, size_t *rows,
                                 size_t *global_rows);

#endif
