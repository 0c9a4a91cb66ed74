/* SPDX-License-Identifier: Apache-2.0
 *
 * What kernels with a warp for each row share, and how they add up losses: in an order that depends
 * on nothing but the sizes, so a run that is repeated shows the same loss to the last bit.
 */
#ifndef CT_KERNELS_CUDA_SOFTMAX_H
#define CT_KERNELS_CUDA_SOFTMAX_H

#include "kernels/cuda/number.cuh"

#include <math.h>

#define WARP 32u
#define ALL_LANES 0xffffffffu
#define LOSS_WARPS 4u /* of a block, each with a row of its own */

/* Of a warp, all of whose lanes get the answer. */
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

/* What the grid adds `steps` to when it is done; nothing if `counter` is NULL. */
struct count {
    uint64_t *counter;
    uint64_t steps;
};

static inline struct count count_of(const struct ct_course *course)
{
    return course != NULL ? count{course->counter, course->steps} : count{};
}

/* What the rows of this thread's warp add up to, for totals. All threads of the block are here, and
 * the grid's last block to come adds up what all of them left. */
__device__ inline void add_totals(double loss, double rights, struct ct_loss_sums *sums,
                                  double *totals, struct count count)
{
    __shared__ double parts[LOSS_WARPS][2];
    __shared__ unsigned last;
    unsigned warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (lane == 0) {
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
        __threadfence(); /* the part is there before it is counted */
        last = atomicAdd(&sums->done, 1u) == gridDim.x - 1;
        __threadfence(); /* and read after all are */
    }
    __syncthreads();
    if (last == 0 || warp > 0) {
        return;
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
}

static inline unsigned loss_blocks(size_t batch)
{
    unsigned blocks = ct_blocks(batch, LOSS_WARPS);
    return blocks < CT_LOSS_BLOCKS ? blocks : CT_LOSS_BLOCKS;
}

#endif
