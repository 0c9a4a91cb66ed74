/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of arrays as a balanced binary tree: over parts of a batch, or over ranks. Each thread adds
 * up whole trees.
 */
#include "kernels/cuda/number.cuh"

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
