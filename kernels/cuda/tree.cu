/* SPDX-License-Identifier: Apache-2.0
 *
 * Adds arrays as a balanced binary tree: those of the parts of a batch, or of ranks. A thread adds
 * up the whole tree of an element.
 */
#include "kernels/cuda/number.cuh"

#define THREADS 256u
#define LEAVES 8u
#define LEVELS 8u /* of a tree of 1024 / LEAVES sums, and one for the sum that is being added */

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
    ct_begin();
    size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < op.count; i += stride) {
        op.to[i] = tree<N>(op.from + i, op.step);
    }
}

/* A sum of LEAVES leaves is a subtree. A left subtree waits on the stack until its right sibling is
 * complete. When subtree s is complete, it completes one larger tree for each 1 bit at the end of
 * the binary number s. */
__global__ void tall_tree_kernel(struct ct_tree_sum op)
{
    ct_begin();
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

cudaError_t ct_launch_tree_sum(struct ct_launch_on on, const struct ct_tree_sum *op)
{
    unsigned blocks = ct_blocks(op->count, THREADS);
    switch (op->n) {
    case 1:
        return ct_launch<tree_sum_kernel<1>>(on, blocks, THREADS, *op);
    case 2:
        return ct_launch<tree_sum_kernel<2>>(on, blocks, THREADS, *op);
    case 4:
        return ct_launch<tree_sum_kernel<4>>(on, blocks, THREADS, *op);
    case LEAVES:
        return ct_launch<tree_sum_kernel<LEAVES>>(on, blocks, THREADS, *op);
    default:
        return ct_launch<tall_tree_kernel>(on, blocks, THREADS, *op);
    }
}
