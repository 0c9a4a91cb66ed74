/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes oneDNN's matmul primitives. The calls that depend on oneDNN's version are in cpu_onednn.h.
 */
#include "kernels/cpu/cpu_matmul.h"

#include "kernels/cpu/cpu_onednn.h"

static dnnl_status_t add_relu(dnnl_primitive_attr_t attr)
{
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t status = dnnl_post_ops_create(&ops);
    if (status != dnnl_success) {
        return status;
    }
    status = onednn_append_relu(ops);
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
        status = onednn_describe_matmul(engine, desc, bias, attr, &made);
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
    int count = bias ? CT_MATMUL_OPERANDS : CT_MATMUL_BIAS, described = 0;
    dnnl_memory_desc_t desc[CT_MATMUL_OPERANDS];
    dnnl_status_t status = dnnl_success;
    for (int i = 0; status == dnnl_success && i < count; i++) {
        status = onednn_describe(&desc[i], &matrix[i]);
        described += status == dnnl_success;
    }
    if (status == dnnl_success) {
        status = make_primitive(engine, desc, bias, relu, primitive);
    }
    for (int i = 0; status == dnnl_success && i < count; i++) {
        status = onednn_make_memory(engine, &desc[i], &memory[i]);
    }
    for (int i = 0; i < described; i++) {
        onednn_undescribe(&desc[i]);
    }
    return status;
}
