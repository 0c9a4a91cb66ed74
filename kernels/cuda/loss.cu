/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax cross-entropy: one warp per row. Its totals are added up in an order that depends on
 * nothing but the sizes, so a run that is repeated shows the same loss to the last bit.
 */
#include "kernels/cuda/number.cuh"

#include <math.h>

#define WARP 32u
#define ALL_LANES 0xffffffffu
#define WARPS 4u

/* ---- of a warp, all of whose lanes get the answer -------------------------------------------- */

template <typename T> __device__ T warp_sum(T v)
{
    for (unsigned step = WARP / 2; step > 0; step /= 2) {
        v += __shfl_xor_sync(ALL_LANES, v, step);
    }
    return v;
}

__device__ float warp_max(float v)
{
    for (unsigned step = WARP / 2; step > 0; step /= 2) {
        v = fmaxf(v, __shfl_xor_sync(ALL_LANES, v, step));
    }
    return v;
}

/* Is `label` the first of the largest? Never when one of them is NaN. All lanes get the answer. */
__device__ bool is_first_max(const float *row, size_t classes, size_t label, unsigned lane)
{
    float v = row[label];
    bool beaten = false;
    for (size_t c = lane; c < classes; c += WARP) {
        beaten |= c < label ? !(row[c] < v) : !(row[c] <= v);
    }
    return !__any_sync(ALL_LANES, beaten);
}

/* fmaxf() passes NaN over, exp() of what is left does not: a NaN logit makes the loss NaN. */

/* ---- totals ---------------------------------------------------------------------------------- */

/* What the rows of this thread's warp add up to, for totals. All threads of the block are here, and
 * the grid's last block to come adds up what all of them left. */
__device__ void add_totals(double loss, double rights, struct ct_loss_sums *sums, double *totals)
{
    __shared__ double parts[WARPS][2];
    __shared__ unsigned last;
    unsigned warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (lane == 0) {
        parts[warp][0] = loss;
        parts[warp][1] = rights;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        double of_block[2] = {0.0, 0.0};
        for (unsigned w = 0; w < WARPS; w++) {
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
    }
}

static unsigned blocks_of(size_t batch)
{
    unsigned blocks = ct_blocks(batch, WARPS);
    return blocks < CT_LOSS_BLOCKS ? blocks : CT_LOSS_BLOCKS;
}

/* ---- the loss of logits ---------------------------------------------------------------------- */

template <typename T>
__device__ float row_loss(const struct ct_loss &op, size_t row, unsigned lane, bool *right)
{
    const float *logits = op.logits + row * op.classes;
    size_t label = op.labels[row];
    float max = -INFINITY;
    for (size_t c = lane; c < op.classes; c += WARP) {
        max = fmaxf(max, logits[c]);
    }
    max = warp_max(max);
    float sum = 0.0f;
    for (size_t c = lane; c < op.classes; c += WARP) {
        sum += expf(logits[c] - max);
    }
    sum = warp_sum(sum);
    if (op.dlogits != NULL) {
        float inverse = op.scale / sum;
        T *dlogits = (T *)op.dlogits + row * op.classes;
        for (size_t c = lane; c < op.classes; c += WARP) {
            float d = expf(logits[c] - max) * inverse;
            ct_put(dlogits, c, c == label ? d - op.scale : d);
        }
    }
    *right = is_first_max(logits, op.classes, label, lane);
    return logf(sum) - (logits[label] - max);
}

template <typename T> __global__ void loss_kernel(struct ct_loss op, struct ct_loss_sums *sums)
{
    unsigned warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    double loss = 0.0, rights = 0.0;
    size_t step = (size_t)gridDim.x * WARPS;
    for (size_t row = (size_t)blockIdx.x * WARPS + warp; row < op.batch; row += step) {
        bool right;
        loss += (double)row_loss<T>(op, row, lane, &right);
        rights += right ? 1.0 : 0.0;
    }
    add_totals(loss, rights, sums, op.totals);
}

cudaError_t ct_launch_loss(cudaStream_t stream, enum ct_precision p, const struct ct_loss *op,
                           struct ct_loss_sums *sums)
{
    unsigned blocks = blocks_of(op->batch);
    if (ct_precision_narrow(p)) {
        loss_kernel<__nv_bfloat16><<<blocks, WARPS * WARP, 0, stream>>>(*op, sums);
    } else {
        loss_kernel<float><<<blocks, WARPS * WARP, 0, stream>>>(*op, sums);
    }
    return cudaGetLastError();
}
