/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels that walk rows of a matrix: gather, bias gradient, ReLU mask, loss.
 */
#include "kernels/cuda/number.cuh"

#include <math.h>

#define WARP 32u
#define ALL_LANES 0xffffffffu

/* ---- gather: one block per sample ----------------------------------------------------------- */

template <typename T>
__global__ void gather_kernel(const uint8_t *images, const uint8_t *labels, const uint32_t *index,
                              struct ct_course course, size_t features, float scale, float shift,
                              T *x, uint8_t *y)
{
    size_t b = blockIdx.x;
    if (index == NULL) {
        index = course.order + (*course.now + course.ahead) * course.batch + course.begin;
    }
    size_t from = (size_t)index[b] * features;
    for (size_t i = threadIdx.x; i < features; i += blockDim.x) {
        ct_put(x, b * features + i, (float)images[from + i] * scale + shift);
    }
    if (threadIdx.x == 0) {
        y[b] = labels[index[b]];
    }
}

cudaError_t ct_launch_gather(cudaStream_t stream, enum ct_precision p, const struct ct_gather *op,
                             const uint32_t *index)
{
    float scale = (float)(1.0 / (255.0 * (double)op->stddev));
    float shift = (float)(-(double)op->mean / (double)op->stddev);
    struct ct_course course = op->course != NULL ? *op->course : ct_course{};
    unsigned blocks = (unsigned)op->batch;
    if (ct_precision_narrow(p)) {
        gather_kernel<<<blocks, 256, 0, stream>>>(op->images, op->labels, index, course,
                                                  op->features, scale, shift,
                                                  (__nv_bfloat16 *)op->x, op->y);
    } else {
        gather_kernel<<<blocks, 256, 0, stream>>>(op->images, op->labels, index, course,
                                                  op->features, scale, shift, (float *)op->x,
                                                  op->y);
    }
    return cudaGetLastError();
}

/* ---- column sum: one block per 32 columns, rows shared out to its warps --------------------- */

#define SUM_WARPS 16u

/* No atomics: the order of adding depends on nothing but the sizes, so the bits repeat. */
template <typename T>
__global__ void column_sum_kernel(size_t rows, size_t cols, const T *m, float *sum)
{
    __shared__ float parts[SUM_WARPS][WARP];
    size_t col = (size_t)blockIdx.x * WARP + threadIdx.x;
    float part = 0.0f;
    if (col < cols) {
        for (size_t r = threadIdx.y; r < rows; r += SUM_WARPS) {
            part += ct_get(m, r * cols + col);
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

cudaError_t ct_launch_column_sum(cudaStream_t stream, enum ct_precision p, size_t rows, size_t cols,
                                 const void *m, float *sum)
{
    unsigned blocks = (unsigned)((cols + WARP - 1) / WARP);
    dim3 threads(WARP, SUM_WARPS);
    if (ct_precision_narrow(p)) {
        column_sum_kernel<<<blocks, threads, 0, stream>>>(rows, cols, (const __nv_bfloat16 *)m,
                                                          sum);
    } else {
        column_sum_kernel<<<blocks, threads, 0, stream>>>(rows, cols, (const float *)m, sum);
    }
    return cudaGetLastError();
}

/* ---- bias ----------------------------------------------------------------------------------- */

template <typename T>
__global__ void add_bias_kernel(size_t count, size_t out, T *y, const float *b, bool relu)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        float v = ct_get(y, i) + b[i % out];
        ct_put(y, i, relu && v < 0.0f ? 0.0f : v);
    }
}

cudaError_t ct_launch_add_bias(cudaStream_t stream, enum ct_precision p, const struct ct_linear *op)
{
    size_t count = op->batch * op->out;
    unsigned blocks = ct_blocks(count, 256);
    if (ct_precision_narrow(p) && !op->wide) {
        add_bias_kernel<<<blocks, 256, 0, stream>>>(count, op->out, (__nv_bfloat16 *)op->y, op->b,
                                                    op->relu);
    } else {
        add_bias_kernel<<<blocks, 256, 0, stream>>>(count, op->out, (float *)op->y, op->b,
                                                    op->relu);
    }
    return cudaGetLastError();
}

/* ---- mask ----------------------------------------------------------------------------------- */

template <typename T> __global__ void mask_kernel(size_t count, T *x, const T *mask)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        if (!(ct_get(mask, i) > 0.0f)) {
            ct_put(x, i, 0.0f);
        }
    }
}

cudaError_t ct_launch_mask(cudaStream_t stream, enum ct_precision p, size_t count, void *x,
                           const void *mask)
{
    unsigned blocks = ct_blocks(count, 256);
    if (ct_precision_narrow(p)) {
        mask_kernel<<<blocks, 256, 0, stream>>>(count, (__nv_bfloat16 *)x,
                                                (const __nv_bfloat16 *)mask);
    } else {
        mask_kernel<<<blocks, 256, 0, stream>>>(count, (float *)x, (const float *)mask);
    }
    return cudaGetLastError();
}

/* ---- loss: one warp per row ----------------------------------------------------------------- */

#define LOSS_WARPS 4u

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

/* Rows are added up per warp and per block in double; only the blocks' sums meet in an atomic,
 * whose order changes nothing above the last bits of a double. */
template <typename T> __global__ void loss_kernel(struct ct_loss op)
{
    __shared__ double parts[LOSS_WARPS][2];
    unsigned warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    double loss = 0.0, rights = 0.0;
    size_t step = (size_t)gridDim.x * LOSS_WARPS;
    for (size_t row = (size_t)blockIdx.x * LOSS_WARPS + warp; row < op.batch; row += step) {
        bool right;
        loss += (double)row_loss<T>(op, row, lane, &right);
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

cudaError_t ct_launch_loss(cudaStream_t stream, enum ct_precision p, const struct ct_loss *op)
{
    unsigned blocks = ct_blocks(op->batch, LOSS_WARPS);
    if (ct_precision_narrow(p)) {
        loss_kernel<__nv_bfloat16><<<blocks, LOSS_WARPS * WARP, 0, stream>>>(*op);
    } else {
        loss_kernel<float><<<blocks, LOSS_WARPS * WARP, 0, stream>>>(*op);
    }
    return cudaGetLastError();
}
