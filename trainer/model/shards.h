/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients whose bits do not depend on the number of ranks (--consistent). Each global batch is
 * divided into a fixed number of shards, a power of two. Every shard's gradient is computed alone,
 * by products of the same shape on every rank, and gradients are added as one balanced binary tree
 * over the shards: a rank adds the subtree of its shards, the communicator adds the rest.
 *
 *     shard    0   1   2   3   4   5   6   7        world 2: rank 0 has 0..3, rank 1 has 4..7
 *               \ /     \ /     \ /     \ /
 *                +-------+       +-------+          <- by the rank
 *                    +---------------+              <- between the ranks (CTW_ORDER_TREE)
 *
 * EasyScale and VirtualFlow (arXiv 2009.09523) do the same for elastic jobs.
 */
#ifndef CT_TRAINER_MODEL_SHARDS_H
#define CT_TRAINER_MODEL_SHARDS_H

#include "common/err.h"
#include "trainer/model/model.h"
#include "worker/ctworker.h"

#include <stddef.h>
#include <stdint.h>

/* The limit of struct ct_partition, too. */
#define CT_SHARDS_MAX 1024

struct ct_shards {
    size_t count;       /* of the job; 0: batches are not divided into shards */
    size_t first, mine; /* the shards of this rank */
};

/* CT_EINVAL, with a message for the user, unless `world` divides the number of shards. */
CT_MUST_CHECK int ct_shards_check(size_t count, int world, struct ct_err *err);

/* On CPUs, sums are formed within each machine, then between machines. Does that keep the tree? A
 * rank knows only the number of other machines; the communicator checks the rest. CT_EINVAL. */
CT_MUST_CHECK int ct_shards_check_machines(size_t count, const struct ctw_env *env,
                                           struct ct_err *err);

/* The arguments must have passed ct_shards_check(); count > 0. */
void ct_shards_init(struct ct_shards *shards, size_t count, int rank, int world);

/* The most rows of a batch of `total` that a rank has, and the index of its first one. */
size_t ct_shards_rows(const struct ct_shards *shards, size_t total);
size_t ct_shards_begin(const struct ct_shards *shards, size_t total);

/* Writes this rank's part of the gradient of a whole batch, index[0 .. total). If the model has a
 * cursor, index is not read. */
CT_MUST_CHECK int ct_shards_run(const struct ct_shards *shards, struct ct_model *model,
                                const float *params, const struct ct_device_dataset *data,
                                const uint32_t *index, size_t total, float *grads, double *totals,
                                struct ct_err *err);

#endif
