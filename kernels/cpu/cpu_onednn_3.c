/* SPDX-License-Identifier: Apache-2.0
 *
 * oneDNN 3, which Debian 13 has: descriptions are objects, which primitives and memory copy.
 */
#include "kernels/cpu/cpu_onednn.h"

dnnl_status_t onednn_describe(dnnl_memory_desc_t *desc, const struct ct_matmul_matrix *matrix)
{
    dnnl_dims_t dims = {(dnnl_dim_t)matrix->rows, (dnnl_dim_t)matrix->cols};
    return dnnl_memory_desc_create_with_tag(desc, 2, dims, matrix->bf16 ? dnnl_bf16 : dnnl_f32,
                                            matrix->transposed ? dnnl_ba : dnnl_ab);
}

void onednn_undescribe(dnnl_memory_desc_t *desc)
{
    (void)dnnl_memory_desc_destroy(*desc);
}

dnnl_status_t onednn_append_relu(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_relu, 0.0f, 0.0f);
}

dnnl_status_t onednn_describe_matmul(dnnl_engine_t engine,
                                     const dnnl_memory_desc_t desc[CT_MATMUL_OPERANDS], bool bias,
                                     dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out)
{
    return dnnl_matmul_primitive_desc_create(
        out, engine, desc[CT_MATMUL_SRC], desc[CT_MATMUL_WEIGHTS],
        bias ? desc[CT_MATMUL_BIAS] : NULL, desc[CT_MATMUL_DST], attr);
}

dnnl_status_t onednn_make_memory(dnnl_engine_t engine, const dnnl_memory_desc_t *desc,
                                 dnnl_memory_t *out)
{
    return dnnl_memory_create(out, *desc, engine, DNNL_MEMORY_NONE);
}
