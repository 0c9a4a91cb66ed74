/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients whose bits do not depend on the number of ranks (--consistent). Each global batch is
 * cut into a fixed power of two of shards. Every shard's gradient is computed alone, with products
 * of the same shape wherever it is computed, and gradients are added as one balanced binary tree
 * over shards: a rank that has several adds its subtree, the communicator adds above it.
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

/* What struct ct_cut takes, too. */
#define CT_SHARDS_MAX 1024

struct ct_shards {
    size_t count;       /* of the job; 0: batches are not cut into shards */
    size_t first, mine; /* this rank's */
};

/* CT_EINVAL with one line for the user unless `world` divides the shards. */
CT_MUST_CHECK int ct_shards_check(size_t count, int world, struct ct_err *err);

/* On CPUs sums are formed on each machine, then between machines: can these keep the tree? Each
 * knows of the others only how many they are; the communicator finds what remains. CT_EINVAL. */
CT_MUST_CHECK int ct_shards_check_machines(size_t count, const struct ctw_env *env,
                                           struct ct_err *err);

/* Of what ct_shards_check() allows, count > 0. */
void ct_shards_init(struct ct_shards *shards, size_t count, int rank, int world);

/* Rows of a batch of `total` that a rank has at most, and where in it they begin. */
size_t ct_shards_rows(const struct ct_shards *shards, size_t total);
size_t ct_shards_begin(const struct ct_shards *shards, size_t total);

/* Writes this rank's part of the gradient of a whole batch, index[0 .. total); where the model has
 * a course, index is not read. */
CT_MUST_CHECK int ct_shards_run(const struct ct_shards *shards, struct ct_model *model,
                                const float *params, const struct ct_resident *data,
                                const uint32_t *index, size_t total, float *grads, double *totals,
                                struct ct_err *err);

#endif
