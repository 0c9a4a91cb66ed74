/* SPDX-License-Identifier: Apache-2.0
 *
 * For the files that are compiled once per instruction set: CT_ISA comes from the build and makes
 * each variant's global names its own.
 */
#ifndef CT_KERNELS_CPU_ISA_H
#define CT_KERNELS_CPU_ISA_H

#include "kernels/cpu_loops.h"

#define CT_ISA_JOIN_(name, isa) name##_##isa
#define CT_ISA_JOIN(name, isa) CT_ISA_JOIN_(name, isa)
#define CT_ISA_TEXT_(isa) #isa
#define CT_ISA_TEXT(isa) CT_ISA_TEXT_(isa)
#define CT_ISA_NAME(name) CT_ISA_JOIN(name, CT_ISA)

/* As the members of struct ct_cpu_loops say. */
void CT_ISA_NAME(ct_gemm_dot)(const struct ct_linear *op);
void CT_ISA_NAME(ct_gemm_outer)(size_t m, size_t n, size_t k, const struct ct_outer_operand *a,
                                const float *b, float *c, float *scratch);

extern const struct ct_cpu_loops CT_ISA_NAME(ct_cpu_loops);

#endif
