/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks of a job that train together, PyTorch's process group: their communicator, this rank's
 * device, and the memory of the model. There are two ways to keep the model:
 *
 * - on CPUs, parameters and optimizer state are one block that all ranks of a host share; each rank
 *   updates its own share, so nothing is copied and no rank keeps the whole state. Every host has
 *   such a block and updates it by the sum of all hosts' gradients;
 * - on GPUs, each rank has a copy of its own on its device and does the whole update by the sum of
 *   all gradients. A GPU without peers needs no communicator.
 */
#ifndef CT_TRAINER_MODEL_GROUP_H
#define CT_TRAINER_MODEL_GROUP_H

#include "common/err.h"
#include "kernels/device/device.h"
#include "worker/ctworker.h"

#include <stdbool.h>
#include <stddef.h>

/* For gradients, parameters, two optimizer states and the exchange. */
#define CT_GROUP_BLOCKS_MAX 8

struct ct_group {
    struct ctw_comm *comm; /* NULL: one GPU without peers */
    struct ct_device *dev; /* borrowed; collectives of a GPU are on its side stream */
    int rank, world;
    bool shares_model;                /* one block for all ranks; each updates its share */
    void *block[CT_GROUP_BLOCKS_MAX]; /* memory of `dev` that the group owns */
    size_t block_count;
    float *exchange; /* device memory: one row of words per rank */
    float *words;    /* host memory of the same size */
};

/* Collective. The group borrows job and dev. */
CT_MUST_CHECK int ct_group_open(struct ctw_job *job, struct ct_device *dev, enum ctw_order order,
                                struct ct_group *out, struct ct_err *err);
void ct_group_close(struct ct_group *group); /* NULL and zeroed memory are allowed */

/* Collective. Allocates zeroed floats in device memory, for this rank's gradients or for the model.
 * They live as long as the group. */
CT_MUST_CHECK int ct_group_alloc_gradients(struct ct_group *group, size_t count, float **out,
                                           struct ct_err *err);
CT_MUST_CHECK int ct_group_alloc_model(struct ct_group *group, size_t count, float **out,
                                       struct ct_err *err);

/* Collective. Sums the gradients of all ranks. Afterwards [*begin, *end) of this rank's block holds
 * the sum; this rank must update that range of the model. */
CT_MUST_CHECK int ct_group_reduce_scatter(struct ct_group *group, float *gradients, size_t count,
                                          size_t *begin, size_t *end, struct ct_err *err);

/* The same in parts, on GPUs: each call queues the sum of one range, beside the device's next
 * computations. What is queued after ct_group_all_reduce_wait() sees all sums. */
CT_MUST_CHECK int ct_group_all_reduce(struct ct_group *group, float *range, size_t count,
                                      struct ct_err *err);
CT_MUST_CHECK int ct_group_all_reduce_wait(struct ct_group *group, struct ct_err *err);

/* Collective. Returns when every rank sees the updates of all ranks. */
CT_MUST_CHECK int ct_group_barrier(struct ct_group *group, struct ct_err *err);

/* Collective. Copies a block of a shared model from rank 0's host to the other hosts. */
CT_MUST_CHECK int ct_group_broadcast(struct ct_group *group, void *block, size_t bytes,
                                     struct ct_err *err);

/* Collective. Copies a block of the model from rank `root` to all others; if the model is shared,
 * from that rank's host to the other hosts. */
CT_MUST_CHECK int ct_group_broadcast_from(struct ct_group *group, void *block, size_t bytes,
                                          int root, struct ct_err *err);

#define CT_GROUP_VALUES_MAX 4

/* Collective. all[r * n + i] = mine[i] of rank r, with the same bits. For sums and checks that must
 * be exact, which a sum of floats is not. n <= CT_GROUP_VALUES_MAX. */
CT_MUST_CHECK int ct_group_all_gather(struct ct_group *group, const double *mine, size_t n,
                                      double *all, struct ct_err *err);

/* Collective. Sets *all: do all ranks say yes? */
CT_MUST_CHECK int ct_group_agree(struct ct_group *group, bool mine, bool *all, struct ct_err *err);

/* Collective. Replaces values[0 .. n) by their sums over the ranks, added in rank order. */
CT_MUST_CHECK int ct_group_sum(struct ct_group *group, double *values, size_t n,
                               struct ct_err *err);

/* Waits for all work queued on the device. Fails if a peer dies meanwhile. */
CT_MUST_CHECK int ct_group_sync(struct ct_group *group, struct ct_err *err);

/* As the device's download, but fails if a peer of a GPU dies while it waits for queued work. */
CT_MUST_CHECK int ct_group_download(struct ct_group *group, void *dst, const void *src,
                                    size_t bytes, struct ct_err *err);

#endif
