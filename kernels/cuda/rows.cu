/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels that walk rows of a matrix: gather, bias gradient, ReLU mask, loss.
 */
#include "kernels/cuda/cuda.h"

#include <math.h>

#define WARP 32u
#define ALL_LANES 0xffffffffu

/* ---- gather: one block per sample ----------------------------------------------------------- */

__global__ void gather_kernel(const uint8_t *images, const uint8_t *labels, const uint32_t *index,
                              size_t features, float scale, float shift, float *x, uint8_t *y)
{
    size_t b = blockIdx.x;
    size_t from = (size_t)index[b] * features;
    for (size_t i = threadIdx.x; i < features; i += blockDim.x) {
        x[b * features + i] = (float)images[from + i] * scale + shift;
    }
    if (threadIdx.x == 0) {
        y[b] = labels[index[b]];
    }
}

int ct_cuda_gather_rows(struct ct_cuda *cuda, const struct ct_gather *op, const uint32_t *index,
                        struct ct_err *err)
{
    float scale = (float)(1.0 / (255.0 * (double)op->stddev));
    float shift = (float)(-(double)op->mean / (double)op->stddev);
    gather_kernel<<<(unsigned)op->batch, 256, 0, cuda->stream>>>(
        op->images, op->labels, index, op->features, scale, shift, (float *)op->x, op->y);
    CT_CUDA_LAUNCHED(err);
    return 0;
}

/* ---- column sum: one block per 32 columns, rows shared out to its warps --------------------- */

#define SUM_WARPS 16u

/* No atomics: the order of adding depends on nothing but the sizes, so the bits repeat. */
__global__ void column_sum_kernel(size_t rows, size_t cols, const float *m, float *sum)
{
    __shared__ float parts[SUM_WARPS][WARP];
    size_t col = (size_t)blockIdx.x * WARP + threadIdx.x;
    float part = 0.0f;
    if (col < cols) {
        for (size_t r = threadIdx.y; r < rows; r += SUM_WARPS) {
            part += m[r * cols + col];
        }
    }
    parts[threadIdx.y][threadIdx.x] = part;
    __syncthreads();
    if (threadIdx.y == 0 && col < cols) {
        float total = 0.0f;
        for (unsigned w = 0; w < SUM_WARPS; w++) {
            total += parts[w][threadIdx.x];
        }
        sum[col] = total;
    }
}

int ct_cuda_column_sum(struct ct_cuda *cuda, size_t rows, size_t cols, const float *m, float *sum,
                       struct ct_err *err)
{
    if (cols == 0) {
        return 0;
    }
    unsigned blocks = (unsigned)((cols + WARP - 1) / WARP);
    column_sum_kernel<<<blocks, dim3(WARP, SUM_WARPS), 0, cuda->stream>>>(rows, cols, m, sum);
    CT_CUDA_LAUNCHED(err);
    return 0;
}

/* ---- bias ----------------------------------------------------------------------------------- */

__global__ void add_bias_kernel(struct ct_linear op)
{
    float *y = (float *)op.y;
    size_t count = op.batch * op.out, step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        float v = y[i] + op.b[i % op.out];
        y[i] = op.relu && v < 0.0f ? 0.0f : v;
    }
}

int ct_cuda_add_bias(struct ct_cuda *cuda, const struct ct_linear *op, struct ct_err *err)
{
    unsigned blocks = ct_cuda_blocks(op->batch * op->out, 256);
    add_bias_kernel<<<blocks, 256, 0, cuda->stream>>>(*op);
    CT_CUDA_LAUNCHED(err);
    return 0;
}

/* ---- mask ----------------------------------------------------------------------------------- */

__global__ void mask_kernel(size_t count, float *x, const float *mask)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        if (!(mask[i] > 0.0f)) {
            x[i] = 0.0f;
        }
    }
}

int ct_cuda_mask(struct ct_cuda *cuda, size_t count, float *x, const float *mask,
                 struct ct_err *err)
{
    if (count == 0) {
        return 0;
    }
    mask_kernel<<<ct_cuda_blocks(count, 256), 256, 0, cuda->stream>>>(count, x, mask);
    CT_CUDA_LAUNCHED(err);
    return 0;
}

/* ---- loss: one warp per row ----------------------------------------------------------------- */

#define LOSS_WARPS 4u
#define MAX_CLASSES 256u /* labels are bytes */

__device__ float warp_max(float v)
{
    for (unsigned step = WARP / 2; step > 0; step /= 2) {
        v = fmaxf(v, __shfl_xor_sync(ALL_LANES, v, step));
    }
    return v;
}

__device__ float warp_sum(float v)
{
    for (unsigned step = WARP / 2; step > 0; step /= 2) {
        v += __shfl_xor_sync(ALL_LANES, v, step);
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
__device__ float row_loss(struct ct_loss op, size_t row, unsigned lane, bool *right)
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
        float *dlogits = (float *)op.dlogits + row * op.classes;
        for (size_t c = lane; c < op.classes; c += WARP) {
            float d = expf(logits[c] - max) * inverse;
            dlogits[c] = c == label ? d - op.scale : d;
        }
    }
    *right = is_first_max(logits, op.classes, label, lane);
    return logf(sum) - (logits[label] - max);
}

/* Rows are added up per warp and per block in double; only the blocks' sums meet in an atomic,
 * whose order changes nothing above the last bits of a double. */
__global__ void loss_kernel(struct ct_loss op)
{
    __shared__ double parts[LOSS_WARPS][2];
    unsigned warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    double loss = 0.0, rights = 0.0;
    size_t step = (size_t)gridDim.x * LOSS_WARPS;
    for (size_t row = (size_t)blockIdx.x * LOSS_WARPS + warp; row < op.batch; row += step) {
        bool right;
        loss += (double)row_loss(op, row, lane, &right);
        rights += right ? 1.0 : 0.0;
    }
    if (lane == 0) {
        parts[warp][0] = loss;
        parts[warp][1] = rights;
    }
    __syncthreads();
    if (threadIdx.x < 2) {
        double total = 0.0;
        for (unsigned w = 0; w < LOSS_WARPS; w++) {
            total += parts[w][threadIdx.x];
        }
        atomicAdd(&op.totals[threadIdx.x], total);
    }
}

int ct_cuda_loss(struct ct_device *dev, const struct ct_loss *op, struct ct_err *err)
{
    if (op->classes == 0 || op->classes > MAX_CLASSES) {
        return ct_err_set(err, CT_EINVAL, "%zu classes: must be 1 to %u", op->classes, MAX_CLASSES);
    }
    if (op->batch == 0) {
        return 0;
    }
    unsigned blocks = ct_cuda_blocks(op->batch, LOSS_WARPS);
    loss_kernel<<<blocks, LOSS_WARPS * WARP, 0, ct_cuda_of(dev)->stream>>>(*op);
    CT_CUDA_LAUNCHED(err);
    return 0;
}
