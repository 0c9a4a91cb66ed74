/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimiser steps: one pass over the parameters each.
 */
#include "kernels/cuda/cuda.h"

#include <math.h>

#define THREADS 256u

__global__ void sgd_kernel(struct ct_sgd op)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < op.count; i += step) {
        float p = op.param[i];
        float v = op.grad[i] + op.weight_decay * p;
        if (op.momentum_buf != NULL) {
            v += op.momentum * op.momentum_buf[i];
            op.momentum_buf[i] = v;
        }
        op.param[i] = p - op.lr * v;
    }
}

int ct_cuda_sgd(struct ct_device *dev, const struct ct_sgd *op, struct ct_err *err)
{
    if (op->count == 0) {
        return 0;
    }
    unsigned blocks = ct_cuda_blocks(op->count, THREADS);
    sgd_kernel<<<blocks, THREADS, 0, ct_cuda_of(dev)->stream>>>(*op);
    CT_CUDA_LAUNCHED(err);
    return 0;
}

/* What the step number gives, made once on the host. */
struct adamw_step {
    float rest1, rest2; /* 1 - beta */
    float keep, step_size, denom_scale;
};

__global__ void adamw_kernel(struct ct_adamw op, struct adamw_step s)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < op.count; i += step) {
        float g = op.grad[i];
        float m = op.beta1 * op.m[i] + s.rest1 * g;
        float v = op.beta2 * op.v[i] + s.rest2 * (g * g);
        op.m[i] = m;
        op.v[i] = v;
        float change = s.step_size * (m / (sqrtf(v) * s.denom_scale + op.eps));
        op.param[i] = s.keep * op.param[i] - change;
    }
}

int ct_cuda_adamw(struct ct_device *dev, const struct ct_adamw *op, struct ct_err *err)
{
    if (op->count == 0) {
        return 0;
    }
    double correction1 = 1.0 - pow((double)op->beta1, (double)op->step);
    double correction2 = 1.0 - pow((double)op->beta2, (double)op->step);
    struct adamw_step s;
    s.rest1 = (float)(1.0 - (double)op->beta1);
    s.rest2 = (float)(1.0 - (double)op->beta2);
    s.keep = (float)(1.0 - (double)op->lr * (double)op->weight_decay);
    s.step_size = (float)((double)op->lr / correction1);
    s.denom_scale = (float)(1.0 / sqrt(correction2));
    unsigned blocks = ct_cuda_blocks(op->count, THREADS);
    adamw_kernel<<<blocks, THREADS, 0, ct_cuda_of(dev)->stream>>>(*op, s);
    CT_CUDA_LAUNCHED(err);
    return 0;
}
