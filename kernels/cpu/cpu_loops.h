/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU's plain loops: everything of the device table that a GEMM library does not do, and a
 * matrix product for builds without one.
 *
 * cpu_loops.c and cpu_gemm_plain.c are compiled once per instruction set. Opening the device picks
 * the best variant for this processor. The element-wise loops round alike in every variant, because
 * they use no fused multiply-add, so their results do not depend on the machine. The matrix product
 * does use it, so variants agree only to f32 rounding.
 */
#ifndef CT_KERNELS_CPU_CPU_LOOPS_H
#define CT_KERNELS_CPU_CPU_LOOPS_H

#include "kernels/device/device.h"

/* Labels are bytes. */
#define CT_MAX_CLASSES 256

/* c = a * b, for dense row-major c [m, n]. Element (i, j) of an operand is at data[i * row_step + j
 * * col_step], so a transposed matrix needs no copy. */
struct ct_operand {
    const float *data;
    size_t row_step, col_step;
};

struct ct_product {
    size_t m, n, k;
    struct ct_operand a, b; /* [m, k], [k, n] */
    float *c;
    float *scratch; /* CT_PRODUCT_SCRATCH floats */
};

#define CT_PRODUCT_SCRATCH ((size_t)256 * 64)

/* dw = dy^T * x and db = sum of dy over the batch, both as `partition` says (partition.rows > 0).
 */
struct ct_tree {
    size_t batch, in, out;
    struct ct_partition partition;
    bool bf16; /* x and dy are bfloat16 */
    const void *x, *dy;
    float *dw, *db;
    float *scratch; /* ct_tree_scratch() floats */
};

#define CT_TREE_ROWS 12
#define CT_TREE_PANEL 32
#define CT_TREE_LEVELS 12 /* for up to 2^10 parts, and one that is being added */

static inline size_t ct_tree_scratch(size_t batch, size_t out)
{
    return batch * (out + CT_TREE_ROWS + CT_TREE_PANEL);
}

struct ct_cpu_loops {
    const char *name; /* for example "avx512", "avx2" or "generic" */

    void (*gather)(const struct ct_gather *op);
    void (*loss)(const struct ct_loss *op); /* classes <= CT_MAX_CLASSES */
    void (*sgd)(const struct ct_sgd *op);
    void (*adamw)(const struct ct_adamw *op);

    /* sum[c] = sum over r of m[r, c], added in row order. */
    void (*column_sum)(size_t rows, size_t cols, const float *m, float *sum);
    /* x[i] = 0 where mask[i] <= 0. */
    void (*mask)(size_t count, float *x, const float *mask);

    /* op->y = act(yt^T + b), where yt is [out, batch]. Of op it reads only sizes, b, y and relu. */
    void (*finish)(const struct ct_linear *op, const float *yt);

    /* y = act(y + b) in place. Of op it reads only sizes, b, y and relu. */
    void (*add_bias)(const struct ct_linear *op);

    void (*product)(const struct ct_product *op);
    void (*tree)(const struct ct_tree *op);

    /* The same with op->x of gather, m, x and mask in bfloat16. */
    void (*gather16)(const struct ct_gather *op);
    void (*column_sum16)(size_t rows, size_t cols, const uint16_t *m, float *sum);
    void (*mask16)(size_t count, uint16_t *x, const uint16_t *mask);
    /* As in the device table; NaN stays NaN. */
    void (*narrow)(size_t count, const float *from, uint16_t *to);
};

/* Returns the built variants that this processor can run, best first; NULL after the last one.
 * There is at least one. */
const struct ct_cpu_loops *ct_cpu_loops_get(size_t rank);

#endif
