/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products in a build without oneDNN: by the plain loops. bfloat16 is CT_EUNSUPPORTED.
 * ct_gemm_free() frees the scratch memory.
 */
#include "kernels/cpu/cpu_gemm.h"

#include "common/alloc.h"

#include <stdio.h>

struct ct_gemm {
    const struct ct_cpu_loops *loops;
    float *scratch;
    char name[64];
};

int ct_gemm_new(const struct ct_cpu_loops *loops, struct ct_gemm **out, struct ct_err *err)
{
    struct ct_gemm *gemm = ct_calloc(1, sizeof(*gemm));
    float *scratch = ct_malloc(CT_PRODUCT_SCRATCH * sizeof(float));
    if (gemm == NULL || scratch == NULL) {
        ct_free(scratch);
        ct_free(gemm);
        return ct_err_set(err, CT_ENOMEM, "no memory for the matrix product's scratch space");
    }
    gemm->loops = loops;
    gemm->scratch = scratch;
    (void)snprintf(gemm->name, sizeof(gemm->name), "plain loops, %s", loops->name);
    *out = gemm;
    return 0;
}

int ct_gemm_set_precision(struct ct_gemm *gemm, enum ct_precision precision, struct ct_err *err)
{
    (void)gemm;
    return precision == CT_PRECISION_F32
               ? 0
               : ct_err_set(err, CT_EUNSUPPORTED,
                            "bfloat16 on the CPU needs oneDNN, without which this was built");
}

void ct_gemm_free(struct ct_gemm *gemm)
{
    if (gemm != NULL) {
        ct_free(gemm->scratch);
        ct_free(gemm);
    }
}

const char *ct_gemm_name(const struct ct_gemm *gemm)
{
    return gemm->name;
}

bool ct_gemm_single(const struct ct_gemm *gemm)
{
    (void)gemm;
    return true;
}

int ct_gemm_linear(struct ct_gemm *gemm, const struct ct_linear *op, struct ct_err *err)
{
    (void)err;
    gemm->loops->product(&(struct ct_product){.m = op->batch,
                                              .n = op->out,
                                              .k = op->in,
                                              .a = {op->x, op->in, 1},
                                              .b = {op->w, 1, op->in}, /* w^T */
                                              .c = op->y,
                                              .scratch = gemm->scratch});
    gemm->loops->add_bias(op);
    return 0;
}

int ct_gemm_dw(struct ct_gemm *gemm, const struct ct_linear_grad *op, struct ct_err *err)
{
    (void)err;
    gemm->loops->product(&(struct ct_product){.m = op->out,
                                              .n = op->in,
                                              .k = op->batch,
                                              .a = {op->dy, 1, op->out},
                                              .b = {op->x, op->in, 1}, /* dy^T */
                                              .c = op->dw,
                                              .scratch = gemm->scratch});
    return 0;
}

int ct_gemm_dx(struct ct_gemm *gemm, const struct ct_linear_grad *op, struct ct_err *err)
{
    (void)err;
    gemm->loops->product(&(struct ct_product){.m = op->batch,
                                              .n = op->in,
                                              .k = op->out,
                                              .a = {op->dy, op->out, 1},
                                              .b = {op->w, op->in, 1},
                                              .c = op->dx,
                                              .scratch = gemm->scratch});
    return 0;
}
