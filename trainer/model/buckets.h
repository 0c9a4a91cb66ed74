/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients of GPUs, summed while the backward pass goes on. The flat gradient array is cut into
 * ranges of whole layers, and each is on its way as soon as its lowest layer is done, on the
 * device's side stream. Behind its sum each range of the model is updated, on a third stream:
 *
 *     computing  | dlast ... d2 |  d1  |  d0  |                           | next step
 *     side                      | sum of d2.. | sum of d1, d0    |
 *     updates                                 | of layers 2.. |  | of 1, 0 |
 *
 * The first bucket is small, so that its sum starts early. One layer is never cut. A GPU without
 * peers has buckets, too, of which only the updates are left.
 */
#ifndef CT_TRAINER_MODEL_BUCKETS_H
#define CT_TRAINER_MODEL_BUCKETS_H

#include "common/err.h"
#include "trainer/model/model.h"
#include "trainer/model/optimizer.h"
#include "trainer/model/team.h"

#include <stddef.h>

/* PyTorch's DistributedDataParallel begins with the same. */
#define CT_BUCKET_FIRST_BYTES ((size_t)1 << 20)

struct ct_bucket {
    size_t begin, end; /* floats of the flat array */
    size_t layer;      /* the bucket is whole when this layer's gradient is */
};

struct ct_buckets {
    struct ct_bucket bucket[CT_LAYERS_MAX]; /* in the order of sending: from the last layer down */
    size_t count, sent;
    struct ct_team *team; /* borrowed */
    float *grads;         /* likewise */
    /* Borrowed; NULL = the caller updates all of the model after ct_buckets_finish(). */
    const struct ct_optimizer *optimizer;
    float *params;
};

/* Of a GPU without peers. An update moves 30 bytes for each of these 4, 28 us at 4.3 TB/s; to run
 * it beside something else costs two or three. */
#define CT_BUCKET_UPDATE_BYTES ((size_t)16 << 20)

/* Every bucket but the first has at least `bytes`, if its layers come to that. */
void ct_buckets_init(struct ct_buckets *buckets, const struct ct_layout *layout, size_t bytes,
                     struct ct_team *team, float *grads);

/* From now on each bucket's part of `params` is updated when its sum is there, if there is more
 * than one. Both are borrowed; the optimizer is looked at anew for each update. */
void ct_buckets_update(struct ct_buckets *buckets, const struct ct_optimizer *optimizer,
                       float *params);

/* A layer's gradient is queued: sends its bucket if that is whole. For struct ct_model's
 * layer_done, `data` is the buckets. */
CT_MUST_CHECK int ct_buckets_layer_done(void *data, size_t layer, struct ct_err *err);

/* Sends what has not been sent and makes what is queued next on the device wait for all sums and
 * updates. */
CT_MUST_CHECK int ct_buckets_finish(struct ct_buckets *buckets, struct ct_err *err);

#endif
