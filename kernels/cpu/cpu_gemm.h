/* SPDX-License-Identifier: Apache-2.0
 *
 * The three matrix products of a linear layer on the CPU, behind which oneDNN
 * (cpu_gemm_onednn.c) or plain C (cpu_gemm_fallback.c) stands. Batches of 0 never arrive here.
 */
#ifndef CT_KERNELS_CPU_CPU_GEMM_H
#define CT_KERNELS_CPU_CPU_GEMM_H

#include "kernels/cpu/cpu_loops.h"

struct ct_gemm;

/* `loops` is borrowed for the life of the object. Gives *out; end it with ct_gemm_free(). */
CT_MUST_CHECK int ct_gemm_new(const struct ct_cpu_loops *loops, struct ct_gemm **out,
                              struct ct_err *err);
/* Of all products from now on. CT_EUNSUPPORTED when the processor or the build lacks it. */
CT_MUST_CHECK int ct_gemm_set_precision(struct ct_gemm *gemm, enum ct_precision precision,
                                        struct ct_err *err);
void ct_gemm_free(struct ct_gemm *gemm);

/* "oneDNN 2.6.3", "plain loops, avx2"; lives as long as the object. */
const char *ct_gemm_name(const struct ct_gemm *gemm);

/* Does a product run on the calling thread alone? */
bool ct_gemm_single(const struct ct_gemm *gemm);

/* Operations as device.h says; the last two ignore the fields that belong to other parts: _dw makes
 * op->dw, _dx makes op->dx without the mask. */
CT_MUST_CHECK int ct_gemm_linear(struct ct_gemm *gemm, const struct ct_linear *op,
                                 struct ct_err *err);
CT_MUST_CHECK int ct_gemm_dw(struct ct_gemm *gemm, const struct ct_linear_grad *op,
                             struct ct_err *err);
CT_MUST_CHECK int ct_gemm_dx(struct ct_gemm *gemm, const struct ct_linear_grad *op,
                             struct ct_err *err);

#endif
