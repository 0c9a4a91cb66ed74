/* SPDX-License-Identifier: Apache-2.0
 *
 * A communicator of the NCCL back end, and those of its operations that have files of their own.
 */
#ifndef CT_WORKER_NCCL_COMM_NCCL_H
#define CT_WORKER_NCCL_COMM_NCCL_H

#include "worker/nccl/comm_nccl_family.h"

struct nccl {
    struct ctw_comm comm;
    struct comm_nccl_member own;
    cudaStream_t stream; /* the family's */
    struct block *blocks;
    float *word;              /* device memory: what a barrier sums */
    ctw_tree_sum_fn tree_sum; /* NULL: sums are NCCL's */
    void *tree_sum_data;
    float *slices; /* device memory of a piece, for the tree's sums */
};

/* A member of the family without a handle, for close() of its operations. NULL when there is no
 * memory. */
struct nccl *comm_nccl_new(struct comm_nccl_family *family);

/* Tells it its place, and gets the memory that its operations need. */
CT_MUST_CHECK int comm_nccl_outfit(struct nccl *nccl, int rank, int size, struct ct_err *err);

/* comm_nccl_tree.c: the sum over ranks as a balanced tree, with nccl->slices of so many floats. */
size_t comm_nccl_tree_room(int ranks);
CT_MUST_CHECK int comm_nccl_tree(struct nccl *nccl, const float *send, float *recv, size_t count,
                                 struct ct_err *err);

/* comm_nccl_split.c, comm_nccl_link.c: operations of struct ctw_comm_ops. */
CT_MUST_CHECK int comm_nccl_split(struct ctw_comm *comm, int color, int key,
                                  const struct comm_origin *origin, struct ctw_comm **out,
                                  struct ct_err *err);
CT_MUST_CHECK int comm_nccl_link(struct ctw_comm *comm, int peer, size_t buffer,
                                 struct ctw_link **out, struct ct_err *err);

#endif
