/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients of GPUs, summed while the backward pass goes on. The flat gradient array is cut into
 * ranges of whole layers, and each is on its way as soon as its lowest layer is done, on the
 * device's side stream:
 *
 *     computing  | dlast ... d2 |  d1  |  d0  |                  | update |
 *     side                      | sum of d2.. | sum of d1, d0    |
 *
 * The first bucket is small, so that it starts early. One layer is never cut.
 */
#ifndef CT_TRAINER_MODEL_BUCKETS_H
#define CT_TRAINER_MODEL_BUCKETS_H

#include "common/err.h"
#include "trainer/model/model.h"
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
};

/* Every bucket but the first has at least `bytes`, if its layers come to that. */
void ct_buckets_init(struct ct_buckets *buckets, const struct ct_layout *layout, size_t bytes,
                     struct ct_team *team, float *grads);

/* A layer's gradient is queued: sends its bucket if that is whole. For struct ct_model's
 * layer_done, `data` is the buckets. */
CT_MUST_CHECK int ct_buckets_layer_done(void *data, size_t layer, struct ct_err *err);

/* Sends what has not been sent and makes what is queued next on the device wait for all sums. */
CT_MUST_CHECK int ct_buckets_finish(struct ct_buckets *buckets, struct ct_err *err);

#endif
