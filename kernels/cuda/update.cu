/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimiser steps: one pass over the parameters each, which also leaves their bfloat16 copy.
 */
#include "kernels/cuda/number.cuh"

#define THREADS 256u
#define PACK (CT_WIDEST / sizeof(float))

/* By the course when there is one: the host does not know the step of recorded work. */
__device__ struct ct_pace pace_of(const struct ct_course *course, struct ct_pace pace)
{
    return course->now != NULL ? course->paces[*course->now + course->ahead] : pace;
}

static struct ct_course course_of(const struct ct_course *course)
{
    return course != NULL ? *course : ct_course{};
}

template <unsigned N> __device__ void sgd(const struct ct_sgd &op, float lr, size_t i)
{
    ct_pack<float, N> p = ct_load<N>(op.param, i), g = ct_load<N>(op.grad, i), v = {};
    ct_pack<__nv_bfloat16, N> narrow;
    if (op.momentum_buf != NULL) {
        v = ct_load<N>(op.momentum_buf, i);
    }
    for (unsigned k = 0; k < N; k++) {
        v.v[k] = op.momentum * v.v[k] + (g.v[k] + op.weight_decay * p.v[k]);
        p.v[k] -= lr * v.v[k];
        ct_put(narrow.v, k, p.v[k]);
    }
    if (op.momentum_buf != NULL) {
        ct_store(op.momentum_buf, i, v);
    }
    ct_store(op.param, i, p);
    if (op.narrow != NULL) {
        ct_store((__nv_bfloat16 *)op.narrow, i, narrow);
    }
}

/* `course` beside op: the pointer in op is of the host. */
__global__ void sgd_kernel(struct ct_sgd op, struct ct_course course, struct ct_pace pace,
                           bool packed)
{
    float lr = pace_of(&course, pace).lr;
    ct_each<PACK>(
        op.count, packed, [&](size_t i) { sgd<PACK>(op, lr, i); },
        [&](size_t i) { sgd<1>(op, lr, i); });
}

cudaError_t ct_launch_sgd(cudaStream_t stream, const struct ct_sgd *op, struct ct_pace pace)
{
    bool packed = ct_packs<PACK>(op->param) && ct_packs<PACK>(op->grad) &&
                  ct_packs<PACK>(op->momentum_buf) && ct_packs<PACK>(op->narrow);
    unsigned blocks = ct_blocks(packed ? op->count / PACK + PACK : op->count, THREADS);
    sgd_kernel<<<blocks, THREADS, 0, stream>>>(*op, course_of(op->course), pace, packed);
    return cudaGetLastError();
}

/* What 1 - beta is, made in double. */
struct rest {
    float m, v;
};

template <unsigned N>
__device__ void adamw(const struct ct_adamw &op, const struct ct_pace &pace, struct rest rest,
                      size_t i)
{
    ct_pack<float, N> p = ct_load<N>(op.param, i), g = ct_load<N>(op.grad, i);
    ct_pack<float, N> m = ct_load<N>(op.m, i), v = ct_load<N>(op.v, i);
    ct_pack<__nv_bfloat16, N> narrow;
    for (unsigned k = 0; k < N; k++) {
        m.v[k] = op.beta1 * m.v[k] + rest.m * g.v[k];
        v.v[k] = op.beta2 * v.v[k] + rest.v * (g.v[k] * g.v[k]);
        float change = pace.step_size * (m.v[k] / (sqrtf(v.v[k]) * pace.denom_scale + op.eps));
        p.v[k] = pace.keep * p.v[k] - change;
        ct_put(narrow.v, k, p.v[k]);
    }
    ct_store(op.m, i, m);
    ct_store(op.v, i, v);
    ct_store(op.param, i, p);
    if (op.narrow != NULL) {
        ct_store((__nv_bfloat16 *)op.narrow, i, narrow);
    }
}

__global__ void adamw_kernel(struct ct_adamw op, struct ct_course course, struct ct_pace given,
                             struct rest rest, bool packed)
{
    struct ct_pace pace = pace_of(&course, given);
    ct_each<PACK>(
        op.count, packed, [&](size_t i) { adamw<PACK>(op, pace, rest, i); },
        [&](size_t i) { adamw<1>(op, pace, rest, i); });
}

cudaError_t ct_launch_adamw(cudaStream_t stream, const struct ct_adamw *op, struct ct_pace pace)
{
    struct rest rest = {(float)(1.0 - (double)op->beta1), (float)(1.0 - (double)op->beta2)};
    bool packed = ct_packs<PACK>(op->param) && ct_packs<PACK>(op->grad) && ct_packs<PACK>(op->m) &&
                  ct_packs<PACK>(op->v) && ct_packs<PACK>(op->narrow);
    unsigned blocks = ct_blocks(packed ? op->count / PACK + PACK : op->count, THREADS);
    adamw_kernel<<<blocks, THREADS, 0, stream>>>(*op, course_of(op->course), pace, rest, packed);
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
