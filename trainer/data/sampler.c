/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the order of an epoch by a Fisher-Yates shuffle, with random numbers from seed and epoch
 * (trainer/formats/rng.h). ct_sampler_fini() frees the order; only its allocation can fail.
 */
#include "trainer/data/sampler.h"

#include "common/alloc.h"
#include "trainer/formats/rng.h"

void ct_sampler_share(size_t total, int rank, int world, size_t *begin, size_t *end)
{
    /* Quotient and remainder are used, because total * world could overflow. */
    size_t each = total / (size_t)world;
    size_t left = total % (size_t)world;
    size_t r = (size_t)rank;
    *begin = r * each + r * left / (size_t)world;
    *end = (r + 1) * each + (r + 1) * left / (size_t)world;
}

int ct_sampler_init(struct ct_sampler *sampler, size_t count, size_t batch, int rank, int world,
                    uint64_t seed)
{
    CT_ASSERT(count >= 1 && count <= UINT32_MAX && batch >= 1);
    uint32_t *order = ct_calloc(count, sizeof *order);
    if (order == NULL) {
        return CT_ENOMEM;
    }
    *sampler = (struct ct_sampler){
        .order = order,
        .count = count,
        .batch = batch < count ? batch : count,
        .rank = rank,
        .world = world,
        .seed = seed,
    };
    return 0;
}

void ct_sampler_fini(struct ct_sampler *sampler)
{
    if (sampler != NULL) {
        ct_free(sampler->order);
        *sampler = (struct ct_sampler){0};
    }
}

void ct_sampler_shuffle(struct ct_sampler *sampler, unsigned epoch)
{
    uint32_t *order = sampler->order;
    if (sampler->made == epoch + 1) {
        return;
    }
    sampler->made = epoch + 1;
    for (size_t i = 0; i < sampler->count; i++) {
        order[i] = (uint32_t)i;
    }
    /* The Fisher-Yates shuffle, from the end. */
    for (size_t i = sampler->count; i > 1; i--) {
        uint64_t random = ct_rng_u64(sampler->seed, (uint64_t)CT_RNG_EPOCH + epoch, i);
        size_t j = (size_t)ct_rng_below(random, i);
        uint32_t swap = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swap;
    }
}

size_t ct_sampler_first(const struct ct_sampler *sampler, size_t t)
{
    size_t first = t * sampler->batch;
    return first < sampler->count ? first : sampler->count;
}

size_t ct_sampler_batches(const struct ct_sampler *sampler)
{
    return (sampler->count - 1) / sampler->batch + 1;
}

const uint32_t *ct_sampler_batch(const struct ct_sampler *sampler, size_t t, size_t *rows,
                                 size_t *global_rows)
{
    CT_ASSERT(t < ct_sampler_batches(sampler));
    size_t first = t * sampler->batch;
    size_t left = sampler->count - first;
    size_t total = left < sampler->batch ? left : sampler->batch;
    size_t begin, end;
    ct_sampler_share(total, sampler->rank, sampler->world, &begin, &end);
    *rows = end - begin;
    *global_rows = total;
    return sampler->order + first + begin;
}
