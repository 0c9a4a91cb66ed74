/* SPDX-License-Identifier: Apache-2.0
 *
 * Which samples a rank trains on. Each epoch has its own permutation of all samples, which depends
 * on seed and epoch only. Global batch t is elements [t * batch, (t + 1) * batch) of it; the last
 * batch is shorter. A rank takes its contiguous share of each batch. So each sample comes once per
 * epoch, and the batches are the same for any number of ranks.
 */
#ifndef CT_TRAINER_DATA_SAMPLER_H
#define CT_TRAINER_DATA_SAMPLER_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

struct ct_sampler {
    uint32_t *order; /* [count], the permutation of the current epoch */
    size_t count;    /* number of samples */
    size_t batch;    /* global */
    int rank, world;
    uint64_t seed;
    unsigned made; /* 1 + the epoch of the permutation in `order`; 0 = none */
};

/* Gives the share [*begin, *end) of `rank` in `total` items. The shares cover all items once and
 * differ in size by at most one. */
void ct_sampler_share(size_t total, int rank, int world, size_t *begin, size_t *end);

/* 1 <= count <= UINT32_MAX, batch >= 1. Shuffle before the first batch. CT_ENOMEM. */
CT_MUST_CHECK int ct_sampler_init(struct ct_sampler *sampler, size_t count, size_t batch, int rank,
                                  int world, uint64_t seed);
void ct_sampler_fini(struct ct_sampler *sampler); /* NULL and zeroed memory are allowed */

/* Makes the permutation of `epoch` from nothing else, unless `order` already is that one. */
void ct_sampler_shuffle(struct ct_sampler *sampler, unsigned epoch);

/* Returns the number of samples before batch `t`; for t = batches, that of the whole epoch. */
size_t ct_sampler_first(const struct ct_sampler *sampler, size_t t);

/* Batches per epoch. */
size_t ct_sampler_batches(const struct ct_sampler *sampler);

/* Returns the samples of this rank in batch `t`. *rows is their number, perhaps 0, and *global_rows
 * that of all ranks. Valid until the next shuffle. */
const uint32_t *ct_sampler_batch(const struct ct_sampler *sampler, size_t t, size_t *rows,
                                 size_t *global_rows);

#endif
