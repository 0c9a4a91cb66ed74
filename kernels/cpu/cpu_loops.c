/* SPDX-License-Identifier: Apache-2.0
 *
 * The element-wise loops, compiled once per instruction set (cpu_loops.h). Compilers can vectorise
 * them, and every variant gives the same bits. They allocate nothing and cannot fail.
 */
#include "kernels/cpu/cpu_isa.h"

#include <math.h>
#include <string.h>

/* exp(z) for z <= 0, with an error of about 1 ulp; NaN stays NaN. It has no branches, so that the
 * compiler vectorises it. Range reduction and coefficients are those of Cephes' expf. Below -87 the
 * result would be subnormal, so it stays at 1.6e-38, which no softmax's sum (>= 1) can see. */
static inline float exp_nonpositive(float z)
{
    const float round_bias = 12582912.0f; /* 1.5 * 2^23: the low bits of the sum are the integer */
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
    bits = (bits - 0x4b400000u + 127u) << 23; /* 0x4b400000 is round_bias */
    float scale;
    memcpy(&scale, &bits, sizeof(scale));
    return p * scale;
}

/* The inner loops are separate functions, because gcc respects `restrict` only for parameters, and
 * without it they are not vectorised. */
static void scale_row(size_t count, const uint8_t *restrict from, float scale, float shift,
                      float *restrict to)
{
    for (size_t i = 0; i < count; i++) {
        to[i] = (float)from[i] * scale + shift;
    }
}

/* Rows are picked at random from a data set larger than the caches, so they are prefetched to hide
 * the memory's latency. */
#define AHEAD 8
#define CACHE_LINE 64

static void prefetch_row(const struct ct_gather *op, size_t row)
{
    const uint8_t *from = op->images + row * op->features;
    for (size_t i = 0; i < op->features; i += CACHE_LINE) {
        __builtin_prefetch(from + i);
    }
    __builtin_prefetch(op->labels + row);
}

static void gather(const struct ct_gather *op)
{
    float scale = (float)(1.0 / (255.0 * (double)op->stddev));
    float shift = (float)(-(double)op->mean / (double)op->stddev);
    for (size_t b = 0; b < op->batch; b++) {
        size_t at = op->index[b];
        if (b + AHEAD < op->batch) {
            prefetch_row(op, op->index[b + AHEAD]);
        }
        scale_row(op->features, op->images + at * op->features, scale, shift,
                  (float *)op->x + b * op->features);
        op->y[b] = op->labels[at];
    }
}

/* Is `label` the first of the largest values? False if one of them is NaN. */
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

static float largest(const float *row, size_t count)
{
    float max = row[0];
    for (size_t c = 1; c < count; c++) {
        max = row[c] > max ? row[c] : max;
    }
    return max;
}

static void exp_all(size_t count, float *z)
{
    for (size_t i = 0; i < count; i++) {
        z[i] = exp_nonpositive(z[i]);
    }
}

/* Adds a few rows to the totals and writes their gradient. exps has room for the logits of all:
 * several rows are computed at once, because ten classes do not fill a vector. */
static void loss_rows(const struct ct_loss *op, size_t first, size_t rows, float *restrict exps,
                      double *loss, size_t *right)
{
    size_t classes = op->classes;
    const float *restrict logits = op->logits + first * classes;
    for (size_t r = 0; r < rows; r++) {
        float max = largest(logits + r * classes, classes);
        for (size_t c = 0; c < classes; c++) {
            exps[r * classes + c] = logits[r * classes + c] - max;
        }
        *loss -= (double)exps[r * classes + op->labels[first + r]];
    }
    exp_all(rows * classes, exps);
    for (size_t r = 0; r < rows; r++) {
        float *e = exps + r * classes;
        size_t label = op->labels[first + r];
        double sum = 0.0;
        for (size_t c = 0; c < classes; c++) {
            sum += (double)e[c];
        }
        *loss += log(sum);
        *right += is_first_max(logits + r * classes, classes, label);
        if (op->dlogits != NULL) {
            float inverse = (float)((double)op->scale / sum);
            float *d = (float *)op->dlogits + (first + r) * classes;
            for (size_t c = 0; c < classes; c++) {
                d[c] = e[c] * inverse;
            }
            d[label] -= op->scale;
        }
    }
}

static void loss(const struct ct_loss *op)
{
    float exps[4 * CT_MAX_CLASSES];
    size_t step = sizeof(exps) / sizeof(exps[0]) / op->classes;
    double total = 0.0;
    size_t right = 0;
    for (size_t first = 0; first < op->batch; first += step) {
        size_t rows = op->batch - first < step ? op->batch - first : step;
        loss_rows(op, first, rows, exps, &total, &right);
    }
    op->totals[0] += total;
    op->totals[1] += (double)right;
}

static void sgd_plain(size_t count, float lr, float decay, const float *restrict g,
                      float *restrict p)
{
    for (size_t i = 0; i < count; i++) {
        p[i] -= lr * (g[i] + decay * p[i]);
    }
}

static void sgd_momentum(size_t count, float lr, float momentum, float decay,
                         const float *restrict g, float *restrict p, float *restrict v)
{
    for (size_t i = 0; i < count; i++) {
        float next = momentum * v[i] + (g[i] + decay * p[i]);
        v[i] = next;
        p[i] -= lr * next;
    }
}

static void sgd(const struct ct_sgd *op)
{
    if (op->momentum_buf == NULL) {
        sgd_plain(op->count, op->lr, op->weight_decay, op->grad, op->param);
    } else {
        sgd_momentum(op->count, op->lr, op->momentum, op->weight_decay, op->grad, op->param,
                     op->momentum_buf);
    }
}

struct adamw_step {
    float beta1, beta2, rest1, rest2; /* restN = 1 - betaN */
    float keep, step_size, denom_scale, eps;
};

static void adamw_all(size_t count, struct adamw_step s, const float *restrict g, float *restrict p,
                      float *restrict m, float *restrict v)
{
    for (size_t i = 0; i < count; i++) {
        float first = s.beta1 * m[i] + s.rest1 * g[i];
        float second = s.beta2 * v[i] + s.rest2 * (g[i] * g[i]);
        m[i] = first;
        v[i] = second;
        p[i] = s.keep * p[i] - s.step_size * (first / (sqrtf(second) * s.denom_scale + s.eps));
    }
}

static void adamw(const struct ct_adamw *op)
{
    double step = (double)op->step;
    double correction1 = 1.0 - pow((double)op->beta1, step);
    double correction2 = 1.0 - pow((double)op->beta2, step);
    struct adamw_step s = {
        .beta1 = op->beta1,
        .beta2 = op->beta2,
        .rest1 = (float)(1.0 - (double)op->beta1),
        .rest2 = (float)(1.0 - (double)op->beta2),
        .keep = (float)(1.0 - (double)op->lr * (double)op->weight_decay),
        .step_size = (float)((double)op->lr / correction1),
        .denom_scale = (float)(1.0 / sqrt(correction2)),
        .eps = op->eps,
    };
    adamw_all(op->count, s, op->grad, op->param, op->m, op->v);
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

/* Works in blocks, so that cache lines of both sides are used completely while they are in L1. */
static void finish(const struct ct_linear *op, const float *restrict yt)
{
    const size_t block = 16;
    float low = op->relu ? 0.0f : -INFINITY;
    for (size_t o0 = 0; o0 < op->out; o0 += block) {
        size_t o1 = op->out - o0 < block ? op->out : o0 + block;
        for (size_t b = 0; b < op->batch; b++) {
            float *restrict y = (float *)op->y + b * op->out;
            for (size_t o = o0; o < o1; o++) {
                float v = yt[o * op->batch + b] + op->b[o];
                y[o] = v < low ? low : v;
            }
        }
    }
}

static void add_bias_row(size_t count, const float *restrict bias, float low, float *restrict y)
{
    for (size_t i = 0; i < count; i++) {
        float v = y[i] + bias[i];
        y[i] = v < low ? low : v;
    }
}

static void add_bias(const struct ct_linear *op)
{
    for (size_t b = 0; b < op->batch; b++) {
        add_bias_row(op->out, op->b, op->relu ? 0.0f : -INFINITY, (float *)op->y + b * op->out);
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
    .finish = finish,
    .add_bias = add_bias,
    .product = CT_ISA_NAME(ct_gemm_product),
    .tree = CT_ISA_NAME(ct_tree_gradient),
    .gather16 = CT_ISA_NAME(ct_gather16),
    .column_sum16 = CT_ISA_NAME(ct_column_sum16),
    .mask16 = CT_ISA_NAME(ct_mask16),
    .narrow = CT_ISA_NAME(ct_narrow),
};
