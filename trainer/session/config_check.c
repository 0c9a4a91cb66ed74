/* SPDX-License-Identifier: Apache-2.0
 *
 * Each rank hashes everything that must agree, all gather the hashes, and the message names the
 * first rank whose hash differs from rank 0's. The table of hashes is freed here.
 */
#include "trainer/session/config_check.h"

#include "common/alloc.h"
#include "trainer/formats/rng.h"

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t len)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < len; i++) {
        hash = ct_rng_mix(hash ^ p[i]);
    }
    return hash;
}

#define HASH(hash, value) ((hash) = hash_bytes((hash), &(value), sizeof(value)))

uint64_t ct_config_check_fingerprint(const struct ct_trainer *t)
{
    uint64_t hash = 0;
    const struct ct_train_options *o = &t->options;
    for (size_t l = 0; l < t->layout.layer_count; l++) {
        HASH(hash, t->layout.layer[l].in);
        HASH(hash, t->layout.layer[l].out);
    }
    HASH(hash, o->epochs);
    HASH(hash, o->batch_size);
    HASH(hash, o->shards);
    HASH(hash, o->lr);
    HASH(hash, o->momentum);
    HASH(hash, o->weight_decay);
    HASH(hash, o->optimizer);
    HASH(hash, o->schedule);
    HASH(hash, o->scale_lr);
    HASH(hash, o->base_batch);
    HASH(hash, o->warmup_epochs);
    HASH(hash, o->seed);
    HASH(hash, t->dev->precision);
    HASH(hash, o->pipeline_stages);
    HASH(hash, o->micro_batches);
    HASH(hash, o->augment.flip);
    HASH(hash, o->augment.shift);
    HASH(hash, t->data.set.train.count);
    HASH(hash, t->data.set.test.count);
    HASH(hash, t->data.set.mean);
    HASH(hash, t->data.set.stddev);
    return hash;
}

/* Hashes everything that must be the same on all ranks. */
static uint64_t fingerprint(const struct ct_trainer *t)
{
    uint64_t hash = ct_config_check_fingerprint(t);
    HASH(hash, t->options.eval_only);
    HASH(hash, t->options.bucket_mb);
    HASH(hash, t->options.metrics_every); /* decides when ranks exchange */
    if (t->options.pipeline_stages > 1) { /* when stages are collected for a checkpoint */
        bool saves = t->options.checkpoint != NULL || t->options.checkpoint_dir != NULL;
        HASH(hash, saves);
        HASH(hash, t->options.checkpoint_every);
    }
    HASH(hash, t->at.epoch);
    HASH(hash, t->at.batch);
    HASH(hash, t->optimizer.step);
    return hash;
}

int ct_config_check(struct ct_trainer *t, struct ct_err *err)
{
    uint64_t hash = fingerprint(t);
    /* Sent as halves, because not every 64-bit pattern survives as a double. */
    const double mine[2] = {(double)(hash >> 32), (double)(hash & UINT32_MAX)};
    double *all = ct_calloc(2 * (size_t)t->group.world, sizeof *all);
    if (all == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    int rc = ct_group_all_gather(&t->group, mine, 2, all, err);
    for (int r = 1; rc == 0 && r < t->group.world; r++) {
        if (all[2 * r] != all[0] || all[2 * r + 1] != all[1]) {
            rc = ct_err_set(err, CT_EINVAL,
                            "rank %d has other options, data or checkpoint than rank 0", r);
        }
    }
    ct_free(all);
    return rc;
}
