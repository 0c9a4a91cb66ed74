/* SPDX-License-Identifier: Apache-2.0
 *
 * The updates of SGD and AdamW. Each is one pass over the parameters, which also writes the
 * bfloat16 copy of the parameters if there is one.
 */
#include "kernels/cuda/number.cuh"

#define THREADS 256u
#define PACK (CT_WIDEST / sizeof(float))

/* Returns the scalars at the cursor if there is one, because the host does not know at which step
 * recorded work will run. */
__device__ struct ct_update_scalars scalars_of(const struct ct_step_cursor *cursor,
                                               struct ct_update_scalars scalars)
{
    return cursor->now != NULL ? cursor->scalars[*cursor->now + cursor->ahead] : scalars;
}

static struct ct_step_cursor cursor_of(const struct ct_step_cursor *cursor)
{
    return cursor != NULL ? *cursor : ct_step_cursor{};
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

/* `cursor` is an argument of its own, because the pointer in `op` is host memory. */
__global__ void sgd_kernel(struct ct_sgd op, struct ct_step_cursor cursor,
                           struct ct_update_scalars scalars, bool packed)
{
    ct_begin();
    float lr = scalars_of(&cursor, scalars).lr;
    ct_each<PACK>(
        op.count, packed, [&](size_t i) { sgd<PACK>(op, lr, i); },
        [&](size_t i) { sgd<1>(op, lr, i); });
}

cudaError_t ct_launch_sgd(struct ct_launch_on on, const struct ct_sgd *op,
                          struct ct_update_scalars scalars)
{
    bool packed = ct_packs<PACK>(op->param) && ct_packs<PACK>(op->grad) &&
                  ct_packs<PACK>(op->momentum_buf) && ct_packs<PACK>(op->narrow);
    unsigned blocks = ct_blocks(packed ? op->count / PACK + PACK : op->count, THREADS);
    return ct_launch<sgd_kernel>(on, blocks, THREADS, *op, cursor_of(op->cursor), scalars, packed);
}

/* 1 - beta1 and 1 - beta2, computed in double. */
struct rest {
    float m, v;
};

template <unsigned N>
__device__ void adamw(const struct ct_adamw &op, const struct ct_update_scalars &scalars,
                      struct rest rest, size_t i)
{
    ct_pack<float, N> p = ct_load<N>(op.param, i), g = ct_load<N>(op.grad, i);
    ct_pack<float, N> m = ct_load<N>(op.m, i), v = ct_load<N>(op.v, i);
    ct_pack<__nv_bfloat16, N> narrow;
    for (unsigned k = 0; k < N; k++) {
        m.v[k] = op.beta1 * m.v[k] + rest.m * g.v[k];
        v.v[k] = op.beta2 * v.v[k] + rest.v * (g.v[k] * g.v[k]);
        float change =
            scalars.step_size * (m.v[k] / (sqrtf(v.v[k]) * scalars.denom_scale + op.eps));
        p.v[k] = scalars.keep * p.v[k] - change;
        ct_put(narrow.v, k, p.v[k]);
    }
    ct_store(op.m, i, m);
    ct_store(op.v, i, v);
    ct_store(op.param, i, p);
    if (op.narrow != NULL) {
        ct_store((__nv_bfloat16 *)op.narrow, i, narrow);
    }
}

__global__ void adamw_kernel(struct ct_adamw op, struct ct_step_cursor cursor,
                             struct ct_update_scalars given, struct rest rest, bool packed)
{
    ct_begin();
    struct ct_update_scalars scalars = scalars_of(&cursor, given);
    ct_each<PACK>(
        op.count, packed, [&](size_t i) { adamw<PACK>(op, scalars, rest, i); },
        [&](size_t i) { adamw<1>(op, scalars, rest, i); });
}

cudaError_t ct_launch_adamw(struct ct_launch_on on, const struct ct_adamw *op,
                            struct ct_update_scalars scalars)
{
    struct rest rest = {(float)(1.0 - (double)op->beta1), (float)(1.0 - (double)op->beta2)};
    bool packed = ct_packs<PACK>(op->param) && ct_packs<PACK>(op->grad) && ct_packs<PACK>(op->m) &&
                  ct_packs<PACK>(op->v) && ct_packs<PACK>(op->narrow);
    unsigned blocks = ct_blocks(packed ? op->count / PACK + PACK : op->count, THREADS);
    return ct_launch<adamw_kernel>(on, blocks, THREADS, *op, cursor_of(op->cursor), scalars, rest,
                                   packed);
}

__global__ void advance_kernel(uint64_t *now, uint64_t steps)
{
    ct_begin();
    *now += steps;
}

cudaError_t ct_launch_check(void)
{
    struct cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, (const void *)advance_kernel);
}

cudaError_t ct_launch_advance(struct ct_launch_on on, uint64_t *now, uint64_t steps)
{
    return ct_launch<advance_kernel>(on, 1, 1, now, steps);
}
