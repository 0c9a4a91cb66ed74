/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu_isa.h"

#include <math.h>
#include <string.h>

/* exp(z) for z <= 0, about 1 ulp; NaN stays NaN. Branch free so that the compiler vectorises it.
 * Range reduction and coefficients are those of Cephes' expf. Below -87 the result would be
 * subnormal; it is held at 1.6e-38, which no sum of a softmax (>= 1) can see. */
static inline float exp_nonpositive(float z)
{
    const float round_bias = 12582912.0f; /* 1.5 * 2^23: the sum's low bits are the integer */
    z = z < -87.0f ? -87.0f : z;
    float biased = z * 1.44269504f + round_bias;
    float n = biased - round_bias;
    float r = (z - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &biased, sizeof(bits));
    bits = (bits - 0x4b400000u + 127u) << 23; /* 0x4b400000 is round_bias itself */
    float scale;
    memcpy(&scale, &bits, sizeof(scale));
    return p * scale;
}

static void gather(const struct ct_gather *op)
{
    float scale = (float)(1.0 / (255.0 * (double)op->stddev));
    float shift = (float)(-(double)op->mean / (double)op->stddev);
    for (size_t b = 0; b < op->batch; b++) {
        const uint8_t *restrict from = op->images + (size_t)op->index[b] * op->features;
        float *restrict to = op->x + b * op->features;
        for (size_t i = 0; i < op->features; i++) {
            to[i] = (float)from[i] * scale + shift;
        }
        op->y[b] = op->labels[op->index[b]];
    }
}

/* Is `label` the first of the largest values? Never when one of them is NaN. */
static bool is_first_max(const float *row, size_t classes, size_t label)
{
    float v = row[label];
    bool yes = true;
    for (size_t c = 0; c < label; c++) {
        yes &= row[c] < v;
    }
    for (size_t c = label; c < classes; c++) {
        yes &= row[c] <= v;
    }
    return yes;
}

/* exps[r, c] = exp(logits[r, c] - largest of the row). */
static void shifted_exps(size_t rows, size_t classes, const float *restrict logits,
                         float *restrict exps)
{
    for (size_t r = 0; r < rows; r++) {
        const float *row = logits + r * classes;
        float max = row[0];
        for (size_t c = 1; c < classes; c++) {
            max = row[c] > max ? row[c] : max;
        }
        for (size_t c = 0; c < classes; c++) {
            exps[r * classes + c] = row[c] - max;
        }
    }
    for (size_t i = 0; i < rows * classes; i++) {
        exps[i] = exp_nonpositive(exps[i]);
    }
}

static void loss(const struct ct_loss *op)
{
    /* Several rows at once, as ten classes alone do not fill a vector. */
    float exps[4 * CT_MAX_CLASSES];
    size_t step = sizeof(exps) / sizeof(exps[0]) / op->classes;
    double total = 0.0;
    size_t right = 0;
    for (size_t first = 0; first < op->batch; first += step) {
        size_t rows = op->batch - first < step ? op->batch - first : step;
        const float *logits = op->logits + first * op->classes;
        shifted_exps(rows, op->classes, logits, exps);
        for (size_t r = 0; r < rows; r++) {
            const float *row = logits + r * op->classes;
            const float *e = exps + r * op->classes;
            size_t label = op->labels[first + r];
            double sum = 0.0;
            float max = row[0];
            for (size_t c = 0; c < op->classes; c++) {
                sum += (double)e[c];
                max = row[c] > max ? row[c] : max;
            }
            total += log(sum) - (double)(row[label] - max);
            right += is_first_max(row, op->classes, label);
            if (op->dlogits != NULL) {
                float *restrict d = op->dlogits + (first + r) * op->classes;
                float inverse = (float)((double)op->scale / sum);
                for (size_t c = 0; c < op->classes; c++) {
                    d[c] = e[c] * inverse;
                }
                d[label] -= op->scale;
            }
        }
    }
    op->totals[0] += total;
    op->totals[1] += (double)right;
}

static void sgd(const struct ct_sgd *op)
{
    float *restrict p = op->param;
    const float *restrict g = op->grad;
    float lr = op->lr, decay = op->weight_decay, momentum = op->momentum;
    if (op->momentum_buf == NULL) {
        for (size_t i = 0; i < op->count; i++) {
            p[i] -= lr * (g[i] + decay * p[i]);
        }
        return;
    }
    float *restrict v = op->momentum_buf;
    for (size_t i = 0; i < op->count; i++) {
        float next = momentum * v[i] + (g[i] + decay * p[i]);
        v[i] = next;
        p[i] -= lr * next;
    }
}

static void adamw(const struct ct_adamw *op)
{
    double step = (double)op->step;
    double correction1 = 1.0 - pow((double)op->beta1, step);
    double correction2 = 1.0 - pow((double)op->beta2, step);
    float keep = (float)(1.0 - (double)op->lr * (double)op->weight_decay);
    float step_size = (float)((double)op->lr / correction1);
    float denom_scale = (float)(1.0 / sqrt(correction2));
    float beta1 = op->beta1, beta2 = op->beta2, eps = op->eps;
    float *restrict p = op->param;
    float *restrict m = op->m;
    float *restrict v = op->v;
    const float *restrict g = op->grad;
    for (size_t i = 0; i < op->count; i++) {
        float first = beta1 * m[i] + (1.0f - beta1) * g[i];
        float second = beta2 * v[i] + (1.0f - beta2) * (g[i] * g[i]);
        m[i] = first;
        v[i] = second;
        p[i] = keep * p[i] - step_size * (first / (sqrtf(second) * denom_scale + eps));
    }
}

static void column_sum(size_t rows, size_t cols, const float *restrict m, float *restrict sum)
{
    memset(sum, 0, cols * sizeof(*sum));
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < cols; c++) {
            sum[c] += m[r * cols + c];
        }
    }
}

static void mask(size_t count, float *restrict x, const float *restrict by)
{
    for (size_t i = 0; i < count; i++) {
        x[i] = by[i] > 0.0f ? x[i] : 0.0f;
    }
}

const struct ct_cpu_loops CT_ISA_NAME(ct_cpu_loops) = {
    .name = CT_ISA_TEXT(CT_ISA),
    .gather = gather,
    .loss = loss,
    .sgd = sgd,
    .adamw = adamw,
    .column_sum = column_sum,
    .mask = mask,
    .dot = CT_ISA_NAME(ct_gemm_dot),
    .outer = CT_ISA_NAME(ct_gemm_outer),
};
