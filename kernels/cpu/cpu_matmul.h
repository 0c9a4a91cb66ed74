/* SPDX-License-Identifier: Apache-2.0
 *
 * One oneDNN matmul primitive with its operands.
 */
#ifndef CT_KERNELS_CPU_CPU_MATMUL_H
#define CT_KERNELS_CPU_CPU_MATMUL_H

#include <dnnl.h>

#include <stdbool.h>
#include <stddef.h>

/* The operands of dst[m, n] = src[m, k] * weights[k, n] + bias[1, n], as oneDNN names them. */
enum ct_matmul_operand {
    CT_MATMUL_SRC,
    CT_MATMUL_WEIGHTS,
    CT_MATMUL_DST,
    CT_MATMUL_BIAS,
    CT_MATMUL_OPERANDS
};

struct ct_matmul_matrix {
    size_t rows, cols;
    bool transposed; /* memory has the other order */
    bool bf16;       /* else float32 */
};

/* Makes the primitive, and a memory object without data for each operand; the bias is left out
 * without `bias`, and the result goes through max(x, 0) with `relu`. On an error what was made is
 * in the outputs, the rest of them is NULL, and the caller destroys it in any case. */
dnnl_status_t ct_matmul_make(dnnl_engine_t engine,
                             const struct ct_matmul_matrix matrix[CT_MATMUL_OPERANDS], bool bias,
                             bool relu, dnnl_primitive_t *primitive,
                             dnnl_memory_t memory[CT_MATMUL_OPERANDS]);

#endif
