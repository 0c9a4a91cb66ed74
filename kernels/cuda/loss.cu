/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax cross-entropy and its gradient. One warp computes one row.
 */
#include "kernels/cuda/softmax.cuh"

/* Is the logit of `label` the largest one, and the first of the largest? No if any logit is NaN.
 * All lanes get the answer. */
__device__ bool is_first_max(const float *row, size_t classes, size_t label, unsigned lane)
{
    float v = row[label];
    bool beaten = false;
    for (size_t c = lane; c < classes; c += WARP) {
        beaten |= c < label ? !(row[c] < v) : !(row[c] <= v);
    }
    return !__any_sync(ALL_LANES, beaten);
}

/* A NaN logit makes the loss NaN: fmaxf() ignores it, but expf() does not. */
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

/* `count` is an argument of its own, because the cursor in `op` is host memory. */
template <typename T>
__global__ void loss_kernel(struct ct_loss op, struct count count, struct ct_loss_sums *sums)
{
    ct_begin();
    unsigned warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    double loss = 0.0, rights = 0.0;
    size_t step = (size_t)gridDim.x * LOSS_WARPS;
    for (size_t row = (size_t)blockIdx.x * LOSS_WARPS + warp; row < op.batch; row += step) {
        bool right;
        loss += (double)row_loss<T>(op, row, lane, &right);
        rights += right ? 1.0 : 0.0;
    }
    (void)add_totals(loss, rights, sums, op.totals, count);
}

cudaError_t ct_launch_loss(struct ct_launch_on on, enum ct_precision p, const struct ct_loss *op,
                           struct ct_loss_sums *sums)
{
    unsigned blocks = loss_blocks(op->batch);
    struct count count = count_of(op->cursor);
    return ct_precision_narrow(p)
               ? ct_launch<loss_kernel<__nv_bfloat16>>(on, blocks, LOSS_WARPS * WARP, *op, count,
                                                       sums)
               : ct_launch<loss_kernel<float>>(on, blocks, LOSS_WARPS * WARP, *op, count, sums);
}
