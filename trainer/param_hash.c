/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/param_hash.h"

#include "common/alloc.h"
#include "trainer/rng.h"

#include <string.h>

/* A sum of terms that each depend on place and value: no term waits for another, so the processor
 * works on several at a time. */
uint64_t ct_param_hash(const float *params, size_t count)
{
    const uint64_t golden = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t sum = 0, key = 0;
    for (size_t i = 0; i < count; i += 2) {
        uint64_t word;
        memcpy(&word, params + i, sizeof word);
        key += golden;
        sum += ct_rng_mix(word ^ key);
    }
    return ct_rng_mix(sum);
}

int ct_trainer_hash(struct ct_trainer *t, uint64_t *out, struct ct_err *err)
{
    const float *params = t->params;
    int rc = 0;
    if (t->staging != NULL) {
        params = t->staging;
        rc =
            ct_team_download(&t->team, t->staging, t->params, t->layout.count * sizeof(float), err);
    }
    double *all = ct_calloc(2 * (size_t)t->team.world, sizeof *all);
    if (rc == 0 && all == NULL) {
        rc = ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    if (rc != 0) {
        ct_free(all);
        return rc;
    }
    uint64_t hash = ct_param_hash(params, t->layout.count);
    const double mine[2] = {(double)(hash >> 32), (double)(hash & UINT32_MAX)};
    rc = ct_team_gather(&t->team, mine, 2, all, err);
    for (int r = 1; rc == 0 && r < t->team.world; r++) {
        if (all[2 * r] != all[0] || all[2 * r + 1] != all[1]) {
            rc = ct_err_set(err, CT_EPEER,
                            "the parameters of rank %d are not those of rank 0 any more after step "
                            "%lld",
                            r, (long long)t->optimizer.step);
        }
    }
    ct_free(all);
    *out = hash;
    return rc;
}
