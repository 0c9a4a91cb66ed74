/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of oneDNN that versions 2 and 3 spell in different ways; all others are the same in
 * both. The build compiles one of cpu_onednn_2.c and cpu_onednn_3.c, whichever fits the library.
 */
#ifndef CT_KERNELS_CPU_CPU_ONEDNN_H
#define CT_KERNELS_CPU_CPU_ONEDNN_H

#include "kernels/cpu/cpu_matmul.h"

/* Describes a matrix. After success the caller calls onednn_undescribe(). */
dnnl_status_t onednn_describe(dnnl_memory_desc_t *desc, const struct ct_matmul_matrix *matrix);
void onednn_undescribe(dnnl_memory_desc_t *desc);

/* Lets `ops` end with max(x, 0). */
dnnl_status_t onednn_append_relu(dnnl_post_ops_t ops);

/* Describes the product of the operands; desc[CT_MATMUL_BIAS] is read only with `bias`. The caller
 * destroys *out, which is left as it was on an error. */
dnnl_status_t onednn_describe_matmul(dnnl_engine_t engine,
                                     const dnnl_memory_desc_t desc[CT_MATMUL_OPERANDS], bool bias,
                                     dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out);

/* Makes a memory object without data, which outlives the description. The caller destroys it. */
dnnl_status_t onednn_make_memory(dnnl_engine_t engine, const dnnl_memory_desc_t *desc,
                                 dnnl_memory_t *out);

#endif
