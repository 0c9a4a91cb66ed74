/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernels with one warp for each row share, and how they add up losses. The order of the
 * additions depends only on the sizes, so a repeated run has the same loss to the last bit.
 */
#ifndef CT_KERNELS_CUDA_SOFTMAX_H
#define CT_KERNELS_CUDA_SOFTMAX_H

#include "kernels/cuda/number.cuh"

#include <math.h>

#define WARP 32u
#define ALL_LANES 0xffffffffu
#define LOSS_WARPS 4u /* warps of a block; each computes another row */

/* Adds up the values of all lanes of a warp. All lanes get the sum. */
template <typename T> __device__ inline T warp_sum(T v)
{
    for (unsigned step = WARP / 2; step > 0; step /= 2) {
        v += __shfl_xor_sync(ALL_LANES, v, step);
    }
    return v;
}

__device__ inline float warp_max(float v)
{
    for (unsigned step = WARP / 2; step > 0; step /= 2) {
        v = fmaxf(v, __shfl_xor_sync(ALL_LANES, v, step));
    }
    return v;
}

/* A counter to which the grid adds `steps` when it is done; NULL for none. */
struct count {
    uint64_t *counter;
    uint64_t steps;
};

static inline struct count count_of(const struct ct_step_cursor *cursor)
{
    return cursor != NULL ? count{cursor->counter, cursor->steps} : count{};
}

/* Adds the loss and the number of right answers of this warp to the totals. All threads of the
 * block must call it; only the first LOSS_WARPS warps have any. Each block writes its sum into
 * `sums`, and the last block of the grid that comes adds up all of them. Returns whether this is
 * it: then all that the grid has written before can be seen. */
__device__ inline bool add_totals(double loss, double rights, struct ct_loss_sums *sums,
                                  double *totals, struct count count)
{
    __shared__ double parts[LOSS_WARPS][2];
    __shared__ unsigned last;
    unsigned warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (lane == 0 && warp < LOSS_WARPS) {
        parts[warp][0] = loss;
        parts[warp][1] = rights;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        double of_block[2] = {0.0, 0.0};
        for (unsigned w = 0; w < LOSS_WARPS; w++) {
            of_block[0] += parts[w][0];
            of_block[1] += parts[w][1];
        }
        sums->part[blockIdx.x][0] = of_block[0];
        sums->part[blockIdx.x][1] = of_block[1];
        __threadfence(); /* the part must be visible before the block is counted */
        last = atomicAdd(&sums->done, 1u) == gridDim.x - 1;
        __threadfence(); /* parts must be read after all blocks are counted */
    }
    __syncthreads();
    if (last == 0 || warp > 0) {
        return last != 0;
    }
    loss = rights = 0.0;
    for (unsigned b = lane; b < gridDim.x; b += WARP) {
        loss += sums->part[b][0];
        rights += sums->part[b][1];
    }
    loss = warp_sum(loss);
    rights = warp_sum(rights);
    if (lane == 0) {
        totals[0] += loss;
        totals[1] += rights;
        sums->done = 0; /* for the next launch */
        if (count.counter != NULL) {
            *count.counter += count.steps;
        }
    }
    return true;
}

static inline unsigned loss_blocks(size_t batch)
{
    unsigned blocks = ct_blocks(batch, LOSS_WARPS);
    return blocks < CT_LOSS_BLOCKS ? blocks : CT_LOSS_BLOCKS;
}

#endif
