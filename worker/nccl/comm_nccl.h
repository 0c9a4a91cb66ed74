/* SPDX-License-Identifier: Apache-2.0
 *
 * A communicator of the NCCL back end, and its operations that have their own files.
 */
#ifndef CT_WORKER_NCCL_COMM_NCCL_H
#define CT_WORKER_NCCL_COMM_NCCL_H

#include "worker/nccl/comm_nccl_family.h"

struct nccl {
    struct ctw_comm comm;
    struct comm_nccl_member own;
    cudaStream_t stream; /* that of the family */
    struct block *blocks;
    float *word;              /* device memory; a barrier sums it */
    ctw_tree_sum_fn tree_sum; /* NULL: NCCL adds in its own order */
    void *tree_sum_data;
    float *slices; /* device memory for a piece, for sums as a tree */
};

/* Returns a member of the family that has no handle yet; its ctw_comm_ops.close frees it. NULL
 * without memory. */
struct nccl *comm_nccl_new(struct comm_nccl_family *family);

/* Sets rank and size, and allocates the memory that the operations need. */
CT_MUST_CHECK int comm_nccl_outfit(struct nccl *nccl, int rank, int size, struct ct_err *err);

/* In comm_nccl_tree.c: the sum over ranks as a balanced tree. nccl->slices must have room for
 * comm_nccl_tree_room() floats. */
size_t comm_nccl_tree_room(int ranks);
CT_MUST_CHECK int comm_nccl_tree(struct nccl *nccl, const float *send, float *recv, size_t count,
                                 struct ct_err *err);

/* In comm_nccl_split.c and comm_nccl_link.c: operations of struct ctw_comm_ops. */
CT_MUST_CHECK int comm_nccl_split(struct ctw_comm *comm, int color, int key,
                                  const struct comm_origin *origin, struct ctw_comm **out,
                                  struct ct_err *err);
CT_MUST_CHECK int comm_nccl_link(struct ctw_comm *comm, int peer, size_t buffer,
                                 struct ctw_link **out, struct ct_err *err);

#endif
