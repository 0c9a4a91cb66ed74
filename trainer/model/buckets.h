/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients of GPUs, summed while the backward pass continues. The flat gradient array is divided
 * into ranges of whole layers (buckets). A bucket's sum is queued on the device's side stream as
 * soon as its lowest layer is done. After the sum, that range of the model is updated on a third
 * stream:
 *
 *     computing  | dlast ... d2 |  d1  |  d0  |                           | next step
 *     side                      | sum of d2.. | sum of d1, d0    |
 *     updates                                 | of layers 2.. |  | of 1, 0 |
 *
 * The first bucket is small, so that its sum starts early. A layer is never divided. A GPU without
 * peers has buckets, too, for the updates only.
 */
#ifndef CT_TRAINER_MODEL_BUCKETS_H
#define CT_TRAINER_MODEL_BUCKETS_H

#include "common/err.h"
#include "trainer/model/group.h"
#include "trainer/model/model.h"
#include "trainer/model/optimizer.h"

#include <stddef.h>

/* As in PyTorch's DistributedDataParallel. */
#define CT_BUCKET_FIRST_BYTES ((size_t)1 << 20)

struct ct_bucket {
    size_t begin, end; /* floats of the flat array */
    size_t layer;      /* the bucket is complete when this layer's gradient is */
};

struct ct_buckets {
    struct ct_bucket bucket[CT_LAYERS_MAX]; /* in the order of sending, from the last layer down */
    size_t count, sent;
    struct ct_group *group; /* borrowed */
    float *grads;           /* borrowed */
    /* Borrowed; NULL = the caller updates the whole model after ct_buckets_finish(). */
    const struct ct_optimizer *optimizer;
    float *params;
};

/* Bucket size on a GPU without peers. An update moves 30 bytes for each 4 of these, which takes 28
 * us at 4.3 TB/s; running it beside other work costs 2 to 3 us. */
#define CT_BUCKET_UPDATE_BYTES ((size_t)16 << 20)

/* Every bucket except the first has at least `bytes`, if enough layers are left. */
void ct_buckets_init(struct ct_buckets *buckets, const struct ct_layout *layout, size_t bytes,
                     struct ct_group *group, float *grads);

/* From now on each bucket's range of `params` is updated after its sum, if there is more than one
 * bucket. Both are borrowed; the optimizer's fields are read at each update. */
void ct_buckets_update(struct ct_buckets *buckets, const struct ct_optimizer *optimizer,
                       float *params);

/* Called when a layer's gradient is queued: sends its bucket if that is complete. A
 * ct_model.layer_done function; `data` is the struct ct_buckets. */
CT_MUST_CHECK int ct_buckets_layer_done(void *data, size_t layer, struct ct_err *err);

/* Sends the remaining buckets. Work queued later on the device waits for all sums and updates. */
CT_MUST_CHECK int ct_buckets_finish(struct ct_buckets *buckets, struct ct_err *err);

#endif
