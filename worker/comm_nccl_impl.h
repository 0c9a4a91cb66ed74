/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the NCCL back end share.
 */
#ifndef CT_WORKER_COMM_NCCL_IMPL_H
#define CT_WORKER_COMM_NCCL_IMPL_H

#include "worker/comm.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

struct nccl {
    struct ctw_comm comm;
    ncclComm_t handle; /* NULL after an abort */
    cudaStream_t stream;
    int64_t timeout_ms;
    atomic_bool *over; /* of a crew, whose threads NCCL does not tell of each other; else NULL */
    const struct handover *handover; /* NCCL may not notice that a peer is gone; may be NULL */
    struct block *blocks;
    float *word;              /* device memory: what a barrier sums */
    ctw_tree_sum_fn tree_sum; /* NULL: sums are NCCL's */
    void *tree_sum_data;
    float *slices; /* device memory of a piece, for the tree's sums */
};

/* CUDA's result, which is a failure, as one of ours; clears it. */
int comm_nccl_fail_cuda(cudaError_t result, const char *what, struct ct_err *err);

/* Takes the result of a non-blocking call and waits until it is final. */
CT_MUST_CHECK int comm_nccl_finish(struct nccl *nccl, ncclResult_t result, int64_t timeout_ms,
                                   const char *what, struct ct_err *err);

/* comm_nccl_tree.c: the sum over ranks as a balanced tree, with nccl->slices of so many floats. */
size_t comm_nccl_tree_room(int ranks);
CT_MUST_CHECK int comm_nccl_tree(struct nccl *nccl, const float *send, float *recv, size_t count,
                                 struct ct_err *err);

#endif
