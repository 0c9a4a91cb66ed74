/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU's plain loops: everything of the device table that is not left to a GEMM library, and
 * two matrix products for machines without one.
 *
 * cpu_loops.c and cpu_gemm_plain.c are compiled once per instruction set, and the best variant that
 * this processor runs is picked when the device is opened. The element-wise loops round the same in
 * every variant (no fused multiply-add in them), so a run does not change with the machine there;
 * the matrix products do use it and agree to f32 rounding only.
 */
#ifndef CT_KERNELS_CPU_LOOPS_H
#define CT_KERNELS_CPU_LOOPS_H

#include "kernels/device.h"

/* Labels are bytes, so more classes cannot be told apart. */
#define CT_MAX_CLASSES 256

/* One operand of ct_cpu_loops.outer: element (row, k) is at data[row * row_step + k * k_step]. */
struct ct_outer_operand {
    const float *data;
    size_t row_step, k_step;
};

/* Floats of scratch memory that `outer` needs. */
#define CT_OUTER_SCRATCH ((size_t)256 * 64)

struct ct_cpu_loops {
    const char *name; /* "avx512", "avx2", "generic" */

    void (*gather)(const struct ct_gather *op);
    void (*loss)(const struct ct_loss *op); /* classes <= CT_MAX_CLASSES */
    void (*sgd)(const struct ct_sgd *op);
    void (*adamw)(const struct ct_adamw *op);

    /* sum[c] = sum over r of m[r, c], added up in the order of the rows. */
    void (*column_sum)(size_t rows, size_t cols, const float *m, float *sum);
    /* x[i] = 0 where mask[i] <= 0. */
    void (*mask)(size_t count, float *x, const float *mask);

    /* op->y = act(x * w^T + b): rows of both operands are dotted, nothing is copied. */
    void (*dot)(const struct ct_linear *op);
    /* c[m, n] = sum over k of a(m, k) * b[k, n]; c and b are dense. */
    void (*outer)(size_t m, size_t n, size_t k, const struct ct_outer_operand *a, const float *b,
                  float *c, float *scratch);
};

/* The variants built in that this processor can run, best first; NULL past the last one. There is
 * always at least one. */
const struct ct_cpu_loops *ct_cpu_loops_get(size_t rank);

#endif
