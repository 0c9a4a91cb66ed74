/* SPDX-License-Identifier: Apache-2.0
 *
 * The three matrix products of a linear layer on the CPU, by oneDNN (cpu_gemm_onednn.c) or plain C
 * (cpu_gemm_fallback.c). The batch is never 0.
 */
#ifndef CT_KERNELS_CPU_CPU_GEMM_H
#define CT_KERNELS_CPU_CPU_GEMM_H

#include "kernels/cpu/cpu_loops.h"

struct ct_gemm;

/* `loops` is borrowed for the life of the object. Gives *out, which ct_gemm_free() frees. */
CT_MUST_CHECK int ct_gemm_new(const struct ct_cpu_loops *loops, struct ct_gemm **out,
                              struct ct_err *err);
/* Sets the precision of later products. CT_EUNSUPPORTED if processor or build lacks it. */
CT_MUST_CHECK int ct_gemm_set_precision(struct ct_gemm *gemm, enum ct_precision precision,
                                        struct ct_err *err);
void ct_gemm_free(struct ct_gemm *gemm);

/* Returns for example "oneDNN 2.6.3" or "plain loops, avx2"; valid as long as the object. */
const char *ct_gemm_name(const struct ct_gemm *gemm);

/* Do products run on the calling thread alone? */
bool ct_gemm_single(const struct ct_gemm *gemm);

/* The operations of device.h. The last two ignore the fields of the other's result: _dw computes
 * op->dw, and _dx computes op->dx without the mask. */
CT_MUST_CHECK int ct_gemm_linear(struct ct_gemm *gemm, const struct ct_linear *op,
                                 struct ct_err *err);
CT_MUST_CHECK int ct_gemm_dw(struct ct_gemm *gemm, const struct ct_linear_grad *op,
                             struct ct_err *err);
CT_MUST_CHECK int ct_gemm_dx(struct ct_gemm *gemm, const struct ct_linear_grad *op,
                             struct ct_err *err);

#endif
