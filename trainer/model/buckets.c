/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums gradients in buckets. When the gradient of a bucket's lowest layer is computed, its sum is
 * queued, and after it the update. Layers below do not read what the update writes, because the
 * gradients of this bucket's layers are finished. ct_buckets_finish() sends the rest and waits. A
 * failure of a collective is returned unchanged; nothing is allocated.
 */
#include "trainer/model/buckets.h"

void ct_buckets_init(struct ct_buckets *buckets, const struct ct_layout *layout, size_t bytes,
                     struct ct_group *group, float *grads)
{
    *buckets = (struct ct_buckets){.group = group, .grads = grads};
    size_t end = layout->count, cap = bytes;
    if (bytes > CT_BUCKET_FIRST_BYTES && (group == NULL || group->comm != NULL)) {
        cap = CT_BUCKET_FIRST_BYTES;
    }
    for (size_t l = layout->layer_count; l-- > 0;) {
        size_t begin = layout->layer[l].weight;
        if (l == 0 || (end - begin) * sizeof(float) >= cap) {
            buckets->bucket[buckets->count++] = (struct ct_bucket){begin, end, l};
            end = begin;
            cap = bytes;
        }
    }
}

void ct_buckets_update(struct ct_buckets *buckets, const struct ct_optimizer *optimizer,
                       float *params)
{
    if (buckets->count > 1) {
        buckets->optimizer = optimizer;
        buckets->params = params;
    }
}

static int update(const struct ct_buckets *buckets, const struct ct_bucket *b, struct ct_err *err)
{
    struct ct_device *dev = buckets->group->dev;
    struct ct_optimizer beside = *buckets->optimizer;
    beside.beside = true;
    int rc = dev->ops->fork_updates(dev, buckets->group->comm != NULL, err);
    return rc == 0 ? ct_optimizer_apply(&beside, dev, buckets->params, buckets->grads, b->begin,
                                        b->end, err)
                   : rc;
}

static int send_next(struct ct_buckets *buckets, struct ct_err *err)
{
    const struct ct_bucket *b = &buckets->bucket[buckets->sent++];
    int rc = 0;
    if (buckets->group->comm != NULL) {
        rc = ct_group_all_reduce(buckets->group, buckets->grads + b->begin, b->end - b->begin, err);
    }
    return rc == 0 && buckets->optimizer != NULL ? update(buckets, b, err) : rc;
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
    if (rc == 0 && buckets->group->comm != NULL) {
        rc = ct_group_all_reduce_wait(buckets->group, err);
    }
    struct ct_device *dev = buckets->group->dev;
    return rc == 0 && buckets->optimizer != NULL ? dev->ops->join_updates(dev, err) : rc;
}
