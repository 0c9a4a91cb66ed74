/* SPDX-License-Identifier: Apache-2.0
 *
 * Splits communicators between GPUs. NCCL finds the groups. The child shares the parent's stream
 * and family, but has resources of its own. A failure aborts the parent.
 */
#include "worker/nccl/comm_nccl.h"

/* Gives the child its handle, unless the color is negative. A failure has ended the parent. */
static int split_handle(struct nccl *parent, struct nccl *child, int color, int key,
                        struct ct_err *err)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.splitShare = 0;
    ncclComm_t made = NULL;
    ncclResult_t result = ncclCommSplit(parent->own.handle, color < 0 ? NCCL_SPLIT_NOCOLOR : color,
                                        key, &made, &config);
    /* NCCL returns success while a thread of it still splits. Only the parent's state tells. */
    result = result == ncclSuccess ? ncclInProgress : result;
    int rc = comm_nccl_finish(&parent->own, result, "ncclCommSplit", err);
    if (rc != 0) {
        comm_nccl_abort(&parent->own); /* before this a thread of NCCL may still write `made` */
    }
    child->own.handle = made; /* must be aborted even if the split has failed */
    if (rc == 0 && made != NULL) {
        rc = comm_nccl_finish(&child->own, ncclInProgress, "ncclCommSplit", err);
    }
    return rc;
}

/* Finds the child's rank and size, and allocates its memory. */
static int start(struct nccl *child, struct ct_err *err)
{
    int rank = 0, size = 0;
    ncclResult_t result = ncclCommUserRank(child->own.handle, &rank);
    if (result == ncclSuccess) {
        result = ncclCommCount(child->own.handle, &size);
    }
    if (result != ncclSuccess) {
        return comm_nccl_fail(&child->own, result, "ncclCommCount", err);
    }
    if (child->tree_sum != NULL && (size & (size - 1)) != 0) {
        return ct_err_set(err, CT_EINVAL,
                          "%d ranks cannot add as a balanced tree: that needs a power of two",
                          size);
    }
    return comm_nccl_outfit(child, rank, size, err);
}

int comm_nccl_split(struct ctw_comm *comm, int color, int key, const struct comm_origin *origin,
                    struct ctw_comm **out, struct ct_err *err)
{
    (void)origin; /* NCCL splits without the store */
    struct nccl *parent = (struct nccl *)comm;
    struct comm_nccl_family *family = parent->own.family;
    if (family->over != NULL) {
        return ct_err_set(err, CT_EUNSUPPORTED, "ranks of one process cannot be split");
    }
    /* NCCL requires that nothing is outstanding on the parent. */
    int rc = comm_nccl_wait(&parent->own, "before a split", err);
    if (rc != 0) {
        return rc;
    }
    struct nccl *child = comm_nccl_new(family);
    if (child == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    child->tree_sum = parent->tree_sum;
    child->tree_sum_data = parent->tree_sum_data;
    rc = split_handle(parent, child, color, key, err);
    bool none = child->own.handle == NULL;
    if (rc == 0 && !none) {
        rc = start(child, err);
    }
    if (rc != 0 || none) {
        child->comm.ops->abort(&child->comm);
        child->comm.ops->close(&child->comm);
        return rc;
    }
    *out = &child->comm;
    return 0;
}
