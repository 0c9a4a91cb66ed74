/* SPDX-License-Identifier: Apache-2.0
 *
 * The hash of the parameters. On a GPU they are first copied to host memory, which is freed here. A
 * rank whose copy differs is CT_EPEER.
 */
#include "trainer/loop/param_hash.h"

#include "common/alloc.h"
#include "trainer/formats/rng.h"

#include <string.h>

uint64_t ct_param_hash_part(const float *params, size_t first, size_t count)
{
    const uint64_t golden = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t sum = 0, key = first / 2 * golden;
    for (size_t i = 0; i < count; i += 2) {
        uint64_t word;
        memcpy(&word, params + i, sizeof word);
        key += golden;
        sum += ct_rng_mix(word ^ key);
    }
    return sum;
}

uint64_t ct_param_hash_of(uint64_t sum)
{
    return ct_rng_mix(sum);
}

static uint64_t sum_of(const double *halves)
{
    return (uint64_t)halves[0] << 32 | (uint64_t)halves[1];
}

/* Each stage of a pipeline hashes its layers; without stages a rank hashes the whole model. */
int ct_trainer_hash(struct ct_trainer *t, uint64_t *out, struct ct_err *err)
{
    int stages = t->pipe != NULL ? (int)t->pipe->stages : 1;
    size_t first = t->pipe != NULL ? t->pipe->place : 0;
    size_t count = t->pipe != NULL ? t->pipe->layout.count : t->layout.count;
    const float *params = t->memory.params + (t->pipe != NULL ? t->pipe->base : 0);
    if (t->memory.host_copy != NULL) {
        int rc =
            ct_group_download(&t->group, t->memory.host_copy, params, count * sizeof(float), err);
        if (rc != 0) {
            return rc;
        }
        params = t->memory.host_copy;
    }
    double *all = ct_calloc(2 * (size_t)t->group.world, sizeof *all);
    if (all == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    uint64_t part = ct_param_hash_part(params, first, count), sum = 0;
    const double mine[2] = {(double)(part >> 32), (double)(part & UINT32_MAX)};
    int rc = ct_group_all_gather(&t->group, mine, 2, all, err);
    for (int r = 0; rc == 0 && r < t->group.world; r++) {
        int like = r % stages;
        if (sum_of(all + 2 * r) != sum_of(all + 2 * like)) {
            rc = ct_err_set(err, CT_EPEER,
                            "the parameters of rank %d differ from those of rank %d after "
                            "step %lld",
                            r, like, (long long)t->optimizer.step);
        }
        sum += r < stages ? sum_of(all + 2 * r) : 0;
    }
    ct_free(all);
    if (rc == 0) {
        *out = ct_param_hash_of(sum);
    }
    return rc;
}
