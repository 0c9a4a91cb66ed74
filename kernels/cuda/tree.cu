/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums whose bits depend on nothing but the numbers and their number: the sums of parts of a batch,
 * and those over parts, or over ranks, as a balanced binary tree.
 */
#include "kernels/cuda/number.cuh"

/* ---- the tree: each thread adds up whole columns of it -------------------------------------- */

#define THREADS 256u
#define LEAVES 8u
#define LEVELS 8u /* of 1024 / LEAVES leaves, and one that is being added */

template <unsigned N> __device__ float tree(const float *from, size_t step)
{
    if constexpr (N == 1) {
        return *from;
    } else {
        return tree<N / 2>(from, step) + tree<N / 2>(from + N / 2 * step, step);
    }
}

template <unsigned N> __global__ void tree_sum_kernel(struct ct_tree_sum op)
{
    size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < op.count; i += stride) {
        op.to[i] = tree<N>(op.from + i, op.step);
    }
}

/* A left subtree waits on the stack until its right one is there: subtree s completes as many as s
 * has ones at its end. */
__global__ void tall_tree_kernel(struct ct_tree_sum op)
{
    size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < op.count; i += stride) {
        float stack[LEVELS];
        unsigned depth = 0;
        for (unsigned s = 0; s < op.n / LEAVES; s++) {
            float sum = tree<LEAVES>(op.from + s * LEAVES * op.step + i, op.step);
            for (unsigned lefts = s; lefts % 2 == 1; lefts /= 2) {
                sum = stack[--depth] + sum;
            }
            stack[depth++] = sum;
        }
        op.to[i] = stack[0];
    }
}

cudaError_t ct_launch_tree_sum(cudaStream_t stream, const struct ct_tree_sum *op)
{
    unsigned blocks = ct_blocks(op->count, THREADS);
    if (op->n == 1) {
        tree_sum_kernel<1><<<blocks, THREADS, 0, stream>>>(*op);
    } else if (op->n == 2) {
        tree_sum_kernel<2><<<blocks, THREADS, 0, stream>>>(*op);
    } else if (op->n == 4) {
        tree_sum_kernel<4><<<blocks, THREADS, 0, stream>>>(*op);
    } else if (op->n == LEAVES) {
        tree_sum_kernel<LEAVES><<<blocks, THREADS, 0, stream>>>(*op);
    } else {
        tall_tree_kernel<<<blocks, THREADS, 0, stream>>>(*op);
    }
    return cudaGetLastError();
}

/* ---- sums of parts: one block per 32 columns of a part, rows shared out to its warps --------- */

#define WARP 32u
#define SUM_WARPS 16u

template <typename T>
__global__ void part_sums_kernel(size_t rows, size_t cols, const T *m, size_t step, float *sums)
{
    __shared__ float parts[SUM_WARPS][WARP];
    size_t part = blockIdx.y, col = (size_t)blockIdx.x * WARP + threadIdx.x;
    const T *first = m + part * rows * cols;
    float own = 0.0f;
    if (col < cols) {
        for (size_t r = threadIdx.y; r < rows; r += SUM_WARPS) {
            own += ct_get(first, r * cols + col);
        }
    }
    parts[threadIdx.y][threadIdx.x] = own;
    __syncthreads();
    if (threadIdx.y == 0 && col < cols) {
        float total = 0.0f;
        for (unsigned w = 0; w < SUM_WARPS; w++) {
            total += parts[w][threadIdx.x];
        }
        sums[part * step + col] = total;
    }
}

cudaError_t ct_launch_part_sums(cudaStream_t stream, enum ct_precision p, size_t parts, size_t rows,
                                size_t cols, const void *m, size_t step, float *sums)
{
    dim3 blocks((unsigned)((cols + WARP - 1) / WARP), (unsigned)parts);
    dim3 threads(WARP, SUM_WARPS);
    if (ct_precision_narrow(p)) {
        part_sums_kernel<<<blocks, threads, 0, stream>>>(rows, cols, (const __nv_bfloat16 *)m, step,
                                                         sums);
    } else {
        part_sums_kernel<<<blocks, threads, 0, stream>>>(rows, cols, (const float *)m, step, sums);
    }
    return cudaGetLastError();
}
