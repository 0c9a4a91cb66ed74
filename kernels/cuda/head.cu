/* SPDX-License-Identifier: Apache-2.0
 *
 * The last layer of a small model, its loss and the gradient of its input, in one launch. One warp
 * computes all of this for one row. The layer is so small that its weights stay in the L1 cache,
 * and that each of the three parts takes less time than a launch.
 *
 * The kernel computes in float32. It does not round inputs to tf32 or e4m3, as matrix units would.
 * In bfloat16 the inputs and the results are rounded, and dx is computed from the rounded dlogits.
 *
 * The gradient of the weights needs the dlogits of all rows. A product of its own computes it, or,
 * for a small batch, the last block of this launch that comes. That block has more warps than rows
 * at a time: the others wait meanwhile.
 */
#include "kernels/cuda/softmax.cuh"

/* The number of classes that a thread adds up at a time, so that a number of the input is read only
 * once for all of them. It is half of a warp, which share_sums() needs. */
#define CLASSES 16u

template <typename T> struct head {
    size_t batch, in;
    unsigned classes;
    const T *x, *w;
    const float *b;
    const uint8_t *labels;
    float scale;
    T *dlogits, *dx; /* dx may be NULL */
    bool relu;       /* x is the output of a ReLU */
    float *dw, *db;
    double *totals;
    struct count count;
};

/* Adds up CLASSES sums over all lanes. Lanes c and c + CLASSES get the sum of class c. In each step
 * a lane keeps half of its sums and sends the other half to the lane that keeps those. This takes
 * 16 shuffles; adding up each class alone would take 5 shuffles for each class. */
__device__ float share_sums(float sum[CLASSES], unsigned lane)
{
#pragma unroll
    for (unsigned half = CLASSES / 2; half > 0; half /= 2) {
        bool upper = (lane & half) != 0;
#pragma unroll
        for (unsigned c = 0; c < half; c++) {
            float mine = upper ? sum[c + half] : sum[c], other = upper ? sum[c] : sum[c + half];
            sum[c] = mine + __shfl_xor_sync(ALL_LANES, other, half);
        }
    }
    return sum[0] + __shfl_xor_sync(ALL_LANES, sum[0], CLASSES);
}

/* Returns logit c in lane c. Reads N numbers of a row at a time. */
template <unsigned N, typename T>
__device__ float logit_of(const struct head<T> &op, const T *x, unsigned lane)
{
    float logit = 0.0f;
    for (unsigned first = 0; first < op.classes; first += CLASSES) {
        float sum[CLASSES] = {};
        unsigned count = op.classes - first; /* the same in all lanes */
        const T *w = op.w + first * op.in;
        for (size_t i = lane * N; i < op.in; i += WARP * N) {
            ct_pack<T, N> in = ct_load<N>(x, i);
#pragma unroll
            for (unsigned c = 0; c < CLASSES; c++) {
                if (c < count) {
                    ct_pack<T, N> weight = ct_load<N>(w, c * op.in + i);
#pragma unroll
                    for (unsigned k = 0; k < N; k++) {
                        sum[c] += ct_get(in.v, k) * ct_get(weight.v, k);
                    }
                }
            }
        }
        float all = share_sums(sum, lane);
        logit = lane / CLASSES == first / CLASSES ? all : logit;
    }
    return lane < op.classes ? logit + op.b[lane] : 0.0f;
}

/* dx = dlogits * w, or 0 where a ReLU gave x = 0. Lane c has dlogit c in `d`. */
template <unsigned N, typename T>
__device__ void input_gradient(const struct head<T> &op, const T *x, T *dx, float d, unsigned lane)
{
    /* All lanes take part in each turn, because the other lanes read their dlogit. */
    for (size_t base = 0; base < op.in; base += WARP * N) {
        size_t i = base + lane * N;
        bool mine = i < op.in;
        float sum[N] = {};
#pragma unroll 4
        for (unsigned c = 0; c < op.classes; c++) {
            float of_class = __shfl_sync(ALL_LANES, d, c);
            if (mine) {
                ct_pack<T, N> weight = ct_load<N>(op.w, c * op.in + i);
#pragma unroll
                for (unsigned k = 0; k < N; k++) {
                    sum[k] += of_class * ct_get(weight.v, k);
                }
            }
        }
        if (mine) {
            ct_pack<T, N> in = ct_load<N>(x, i), out;
#pragma unroll
            for (unsigned k = 0; k < N; k++) {
                ct_put(out.v, k, op.relu && !(ct_get(in.v, k) > 0.0f) ? 0.0f : sum[k]);
            }
            ct_store(dx, i, out);
        }
    }
}

/* Does the same as row_loss() in loss.cu, with one logit in each lane. */
template <unsigned N, typename T>
__device__ float head_row(const struct head<T> &op, size_t row, unsigned lane, bool *right)
{
    const T *x = op.x + row * op.in;
    unsigned label = op.labels[row];
    bool mine = lane < op.classes;
    float logit = logit_of<N>(op, x, lane);
    float max = warp_max(mine ? logit : -INFINITY);
    float part = mine ? expf(logit - max) : 0.0f;
    float sum = warp_sum(part);
    float of_label = __shfl_sync(ALL_LANES, logit, label);
    T rounded;
    ct_put(&rounded, 0, part * (op.scale / sum) - (lane == label ? op.scale : 0.0f));
    if (mine) {
        op.dlogits[row * op.classes + lane] = rounded;
    }
    if (op.dx != NULL) {
        input_gradient<N>(op, x, op.dx + row * op.in, ct_get(&rounded, 0), lane);
    }
    bool beaten = mine && (lane < label ? !(logit < of_label) : !(logit <= of_label));
    *right = !__any_sync(ALL_LANES, beaten);
    return logf(sum) - (of_label - max);
}

/* How many classes of the gradient a thread adds up at a time, N weights each. */
#define GROUP 4u
#define WHOLE_WARPS 16u

/* dw = the sum over the rows of dlogits * x, and db that of dlogits, in the order of the rows. The
 * dlogits are those of all blocks. */
template <unsigned N, typename T> __device__ void weight_gradient(const struct head<T> &op)
{
    unsigned packs = (unsigned)(op.in / N), groups = (op.classes + GROUP - 1) / GROUP;
    for (unsigned unit = threadIdx.x; unit < packs * groups; unit += blockDim.x) {
        size_t i = (size_t)(unit % packs) * N;
        unsigned first = unit / packs * GROUP;
        float sum[GROUP][N] = {};
#pragma unroll 4
        for (size_t row = 0; row < op.batch; row++) {
            ct_pack<T, N> in = ct_load<N>(op.x, row * op.in + i);
#pragma unroll
            for (unsigned g = 0; g < GROUP; g++) {
                unsigned c = first + g;
                float d = c < op.classes ? ct_get(op.dlogits, row * op.classes + c) : 0.0f;
#pragma unroll
                for (unsigned k = 0; k < N; k++) {
                    sum[g][k] += d * ct_get(in.v, k);
                }
            }
        }
        /* The loops have a known length, so that the sums stay in registers. */
#pragma unroll
        for (unsigned g = 0; g < GROUP; g++) {
            ct_pack<float, N> all;
#pragma unroll
            for (unsigned k = 0; k < N; k++) {
                all.v[k] = sum[g][k];
            }
            if (first + g < op.classes) {
                ct_store(op.dw, (first + g) * op.in + i, all);
            }
        }
    }
    unsigned warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    for (unsigned c = warp; c < op.classes; c += blockDim.x / WARP) {
        float sum = 0.0f;
        for (size_t row = lane; row < op.batch; row += WARP) {
            sum += ct_get(op.dlogits, row * op.classes + c);
        }
        sum = warp_sum(sum);
        if (lane == 0) {
            op.db[c] = sum;
        }
    }
}

template <unsigned N, typename T, bool WHOLE>
__global__ void __launch_bounds__(WARP *(WHOLE ? WHOLE_WARPS : LOSS_WARPS), 1)
    head_kernel(struct head<T> op, struct ct_loss_sums *sums)
{
    ct_begin();
    unsigned warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    double loss = 0.0, rights = 0.0;
    size_t step = (size_t)gridDim.x * LOSS_WARPS;
    size_t first = warp < LOSS_WARPS ? (size_t)blockIdx.x * LOSS_WARPS + warp : op.batch;
    for (size_t row = first; row < op.batch; row += step) {
        bool right;
        loss += (double)head_row<N>(op, row, lane, &right);
        rights += right ? 1.0 : 0.0;
    }
    bool last = add_totals(loss, rights, sums, op.totals, op.count);
    if (WHOLE && last) {
        weight_gradient<N>(op);
    }
}

template <unsigned N, typename T>
static cudaError_t launch_by(struct ct_launch_on on, const struct head<T> &h, bool whole,
                             struct ct_loss_sums *sums)
{
    unsigned blocks = loss_blocks(h.batch);
    return whole ? ct_launch<head_kernel<N, T, true>>(on, blocks, WHOLE_WARPS * WARP, h, sums)
                 : ct_launch<head_kernel<N, T, false>>(on, blocks, LOSS_WARPS * WARP, h, sums);
}

template <typename T>
static cudaError_t launch(struct ct_launch_on on, const struct ct_head *op, bool whole,
                          struct ct_loss_sums *sums)
{
    const struct head<T> h = {
        .batch = op->linear.batch, .in = op->linear.in, .classes = (unsigned)op->linear.out,
        .x = (const T *)op->linear.x, .w = (const T *)op->linear.w, .b = op->linear.b,
        .labels = op->loss.labels, .scale = op->loss.scale, .dlogits = (T *)op->loss.dlogits,
        .dx = (T *)op->grad.dx, .relu = op->grad.mask != NULL, .dw = op->grad.dw, .db = op->grad.db,
        .totals = op->loss.totals, .count = count_of(op->loss.cursor),
    };
    const unsigned n = CT_WIDEST / sizeof(T);
    bool packed = h.in % n == 0 && ct_packs<n>(h.x) && ct_packs<n>(h.w) && ct_packs<n>(h.dx) &&
                  (!whole || ct_packs<n>(h.dw));
    return packed ? launch_by<n>(on, h, whole, sums) : launch_by<1>(on, h, whole, sums);
}

cudaError_t ct_launch_head(struct ct_launch_on on, enum ct_precision p, const struct ct_head *op,
                           bool whole, struct ct_loss_sums *sums)
{
    return ct_precision_narrow(p) ? launch<__nv_bfloat16>(on, op, whole, sums)
                                  : launch<float>(on, op, whole, sums);
}
