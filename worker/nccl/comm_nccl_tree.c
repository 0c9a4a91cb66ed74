/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over GPUs as a balanced tree over the ranks. NCCL only moves numbers: each rank gets its
 * slice of all ranks' arrays and adds them as a tree, then all ranks gather the sums.
 *
 *     rank 0   a0 a1   exchange   a0 b0   add   a0+b0   gather   a0+b0 a1+b1
 *     rank 1   b0 b1              a1 b1         a1+b1            a0+b0 a1+b1
 *
 * Each rank sends and receives 2 (N - 1) / N of the array, as in a ring, but exchanges with all
 * other ranks.
 */
#include "worker/nccl/comm_nccl.h"

/* Floats that are added at a time: more than a gradient bucket of 25 MB, so that a bucket is one
 * piece. */
#define PIECE ((size_t)8 << 20)
/* Slices begin at multiples of 16 bytes, which NCCL moves fastest. */
#define SLICE_FLOATS 4

size_t comm_nccl_tree_room(int ranks)
{
    return PIECE + SLICE_FLOATS * (size_t)ranks; /* each slice is rounded up */
}

/* Returns how many of the `count` floats are in slice `rank`. */
static size_t slice_floats(size_t count, size_t each, int rank)
{
    size_t begin = each * (size_t)rank;
    size_t left = begin < count ? count - begin : 0;
    return left < each ? left : each;
}

/* Sends slice r of `send` to each rank r. There the slices of all ranks are `each` floats apart. */
static int exchange(struct nccl *nccl, const float *send, size_t count, size_t each,
                    struct ct_err *err)
{
    size_t mine = slice_floats(count, each, nccl->comm.rank);
    ncclResult_t result = ncclGroupStart();
    bool well = result == ncclSuccess;
    for (int r = 0; well && r < nccl->comm.size; r++) {
        size_t at = each * (size_t)r, theirs = slice_floats(count, each, r);
        if (theirs > 0) {
            result = ncclSend(send + at, theirs, ncclFloat, r, nccl->own.handle, nccl->stream);
            well = result == ncclSuccess || result == ncclInProgress;
        }
        if (well && mine > 0) {
            result =
                ncclRecv(nccl->slices + at, mine, ncclFloat, r, nccl->own.handle, nccl->stream);
            well = result == ncclSuccess || result == ncclInProgress;
        }
    }
    ncclResult_t ended = ncclGroupEnd();
    return comm_nccl_finish(&nccl->own, well ? ended : result, "ncclSend and ncclRecv", err);
}

static int tree_of_piece(struct nccl *nccl, const float *send, float *recv, size_t count,
                         struct ct_err *err)
{
    size_t size = (size_t)nccl->comm.size;
    size_t each = (count + size - 1) / size;
    each = (each + SLICE_FLOATS - 1) / SLICE_FLOATS * SLICE_FLOATS;
    float *own = nccl->slices + each * (size_t)nccl->comm.rank;
    size_t mine = slice_floats(count, each, nccl->comm.rank);
    int rc = exchange(nccl, send, count, each, err);
    if (rc == 0 && mine > 0) {
        rc = nccl->tree_sum(nccl->tree_sum_data, size, mine, each, nccl->slices, own, err);
    }
    if (rc != 0) {
        return rc;
    }
    ncclResult_t result =
        ncclAllGather(own, nccl->slices, each, ncclFloat, nccl->own.handle, nccl->stream);
    rc = comm_nccl_finish(&nccl->own, result, "ncclAllGather", err);
    if (rc != 0) {
        return rc;
    }
    cudaError_t copied = cudaMemcpyAsync(recv, nccl->slices, count * sizeof(float),
                                         cudaMemcpyDeviceToDevice, nccl->stream);
    return copied == cudaSuccess ? 0 : comm_nccl_fail_cuda(copied, "cudaMemcpyAsync", err);
}

int comm_nccl_tree(struct nccl *nccl, const float *send, float *recv, size_t count,
                   struct ct_err *err)
{
    int rc = comm_nccl_begin(&nccl->own, err);
    for (size_t at = 0; rc == 0 && at < count; at += PIECE) {
        size_t part = count - at < PIECE ? count - at : PIECE;
        rc = tree_of_piece(nccl, send + at, recv + at, part, err);
    }
    return rc;
}
