/* SPDX-License-Identifier: Apache-2.0
 *
 * A layer's gradient that is done starts the sum of its bucket if it is the bucket's lowest one.
 * ct_buckets_finish() sends what is left and waits.
 */
#include "trainer/model/buckets.h"

void ct_buckets_init(struct ct_buckets *buckets, const struct ct_layout *layout, size_t bytes,
                     struct ct_team *team, float *grads)
{
    *buckets = (struct ct_buckets){.team = team, .grads = grads};
    size_t end = layout->count, cap = bytes < CT_BUCKET_FIRST_BYTES ? bytes : CT_BUCKET_FIRST_BYTES;
    for (size_t l = layout->layer_count; l-- > 0;) {
        size_t begin = layout->layer[l].weight;
        if (l == 0 || (end - begin) * sizeof(float) >= cap) {
            buckets->bucket[buckets->count++] = (struct ct_bucket){begin, end, l};
            end = begin;
            cap = bytes;
        }
    }
}

static int send_next(struct ct_buckets *buckets, struct ct_err *err)
{
    const struct ct_bucket *b = &buckets->bucket[buckets->sent++];
    return ct_team_all_reduce(buckets->team, buckets->grads + b->begin, b->end - b->begin, err);
}

int ct_buckets_layer_done(void *data, size_t layer, struct ct_err *err)
{
    struct ct_buckets *buckets = data;
    CT_ASSERT(buckets->sent < buckets->count);
    return buckets->bucket[buckets->sent].layer == layer ? send_next(buckets, err) : 0;
}

int ct_buckets_finish(struct ct_buckets *buckets, struct ct_err *err)
{
    int rc = 0;
    while (rc == 0 && buckets->sent < buckets->count) {
        rc = send_next(buckets, err);
    }
    buckets->sent = 0;
    return rc == 0 ? ct_team_all_reduce_wait(buckets->team, err) : rc;
}
