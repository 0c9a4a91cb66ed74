/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimiser steps: one pass over the parameters each, which also leaves their bfloat16 copy.
 */
#include "kernels/cuda/number.cuh"

#define THREADS 256u

/* By the course when there is one: the host does not know the step of recorded work. */
__device__ struct ct_pace pace_of(const struct ct_course *course, struct ct_pace pace)
{
    return course->now != NULL ? course->paces[*course->now + course->ahead] : pace;
}

static struct ct_course course_of(const struct ct_course *course)
{
    return course != NULL ? *course : ct_course{};
}

/* `course` beside op: the pointer in op is of the host. */
__global__ void sgd_kernel(struct ct_sgd op, struct ct_course course, struct ct_pace pace)
{
    float lr = pace_of(&course, pace).lr;
    __nv_bfloat16 *narrow = (__nv_bfloat16 *)op.narrow;
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < op.count; i += step) {
        float p = op.param[i];
        float v = op.grad[i] + op.weight_decay * p;
        if (op.momentum_buf != NULL) {
            v += op.momentum * op.momentum_buf[i];
            op.momentum_buf[i] = v;
        }
        p -= lr * v;
        op.param[i] = p;
        if (narrow != NULL) {
            ct_put(narrow, i, p);
        }
    }
}

cudaError_t ct_launch_sgd(cudaStream_t stream, const struct ct_sgd *op, struct ct_pace pace)
{
    sgd_kernel<<<ct_blocks(op->count, THREADS), THREADS, 0, stream>>>(*op, course_of(op->course),
                                                                      pace);
    return cudaGetLastError();
}

__global__ void adamw_kernel(struct ct_adamw op, struct ct_course course, struct ct_pace given,
                             float rest1, float rest2)
{
    struct ct_pace pace = pace_of(&course, given);
    __nv_bfloat16 *narrow = (__nv_bfloat16 *)op.narrow;
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < op.count; i += step) {
        float g = op.grad[i];
        float m = op.beta1 * op.m[i] + rest1 * g;
        float v = op.beta2 * op.v[i] + rest2 * (g * g);
        op.m[i] = m;
        op.v[i] = v;
        float change = pace.step_size * (m / (sqrtf(v) * pace.denom_scale + op.eps));
        float p = pace.keep * op.param[i] - change;
        op.param[i] = p;
        if (narrow != NULL) {
            ct_put(narrow, i, p);
        }
    }
}

cudaError_t ct_launch_adamw(cudaStream_t stream, const struct ct_adamw *op, struct ct_pace pace)
{
    float rest1 = (float)(1.0 - (double)op->beta1), rest2 = (float)(1.0 - (double)op->beta2);
    adamw_kernel<<<ct_blocks(op->count, THREADS), THREADS, 0, stream>>>(*op, course_of(op->course),
                                                                        pace, rest1, rest2);
    return cudaGetLastError();
}

__global__ void advance_kernel(uint64_t *now, uint64_t steps)
{
    *now += steps;
}

cudaError_t ct_launch_check(void)
{
    struct cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, (const void *)advance_kernel);
}

cudaError_t ct_launch_advance(cudaStream_t stream, uint64_t *now, uint64_t steps)
{
    advance_kernel<<<1, 1, 0, stream>>>(now, steps);
    return cudaGetLastError();
}
