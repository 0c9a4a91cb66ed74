/* SPDX-License-Identifier: Apache-2.0
 *
 * matmul primitives by oneDNN 3, which Debian 13 has: descriptions are objects, which primitives
 * copy.
 */
#include "kernels/cpu/cpu_matmul.h"

static dnnl_status_t describe(dnnl_memory_desc_t *desc, const struct ct_matmul_matrix *matrix)
{
    dnnl_dims_t dims = {(dnnl_dim_t)matrix->rows, (dnnl_dim_t)matrix->cols};
    return dnnl_memory_desc_create_with_tag(desc, 2, dims, matrix->bf16 ? dnnl_bf16 : dnnl_f32,
                                            matrix->transposed ? dnnl_ba : dnnl_ab);
}

static dnnl_status_t add_relu(dnnl_primitive_attr_t attr)
{
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t status = dnnl_post_ops_create(&ops);
    if (status != dnnl_success) {
        return status;
    }
    status = dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_relu, 0.0f, 0.0f);
    if (status == dnnl_success) {
        status = dnnl_primitive_attr_set_post_ops(attr, ops);
    }
    (void)dnnl_post_ops_destroy(ops);
    return status;
}

static dnnl_status_t make_primitive(dnnl_engine_t engine,
                                    const dnnl_memory_desc_t desc[CT_MATMUL_OPERANDS], bool bias,
                                    bool relu, dnnl_primitive_t *out)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t made = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(&attr);
    if (status == dnnl_success && relu) {
        status = add_relu(attr);
    }
    if (status == dnnl_success) {
        status = dnnl_matmul_primitive_desc_create(
            &made, engine, desc[CT_MATMUL_SRC], desc[CT_MATMUL_WEIGHTS],
            bias ? desc[CT_MATMUL_BIAS] : NULL, desc[CT_MATMUL_DST], attr);
    }
    if (status == dnnl_success) {
        status = dnnl_primitive_create(out, made);
    }
    if (made != NULL) {
        (void)dnnl_primitive_desc_destroy(made);
    }
    if (attr != NULL) {
        (void)dnnl_primitive_attr_destroy(attr);
    }
    return status;
}

dnnl_status_t ct_matmul_make(dnnl_engine_t engine,
                             const struct ct_matmul_matrix matrix[CT_MATMUL_OPERANDS], bool bias,
                             bool relu, dnnl_primitive_t *primitive,
                             dnnl_memory_t memory[CT_MATMUL_OPERANDS])
{
    int count = bias ? CT_MATMUL_OPERANDS : CT_MATMUL_BIAS;
    dnnl_memory_desc_t desc[CT_MATMUL_OPERANDS] = {NULL};
    dnnl_status_t status = dnnl_success;
    for (int i = 0; status == dnnl_success && i < count; i++) {
        status = describe(&desc[i], &matrix[i]);
    }
    if (status == dnnl_success) {
        status = make_primitive(engine, desc, bias, relu, primitive);
    }
    for (int i = 0; status == dnnl_success && i < count; i++) {
        status = dnnl_memory_create(&memory[i], desc[i], engine, DNNL_MEMORY_NONE);
    }
    for (int i = 0; i < count; i++) {
        if (desc[i] != NULL) {
            (void)dnnl_memory_desc_destroy(desc[i]);
        }
    }
    return status;
}
