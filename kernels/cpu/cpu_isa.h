/* SPDX-License-Identifier: Apache-2.0
 *
 * For files that are compiled once per instruction set. The build defines CT_ISA, which makes the
 * global names of each variant different.
 */
#ifndef CT_KERNELS_CPU_CPU_ISA_H
#define CT_KERNELS_CPU_CPU_ISA_H

#include "kernels/cpu/cpu_loops.h"

#define CT_ISA_JOIN_(name, isa) name##_##isa
#define CT_ISA_JOIN(name, isa) CT_ISA_JOIN_(name, isa)
#define CT_ISA_TEXT_(isa) #isa
#define CT_ISA_TEXT(isa) CT_ISA_TEXT_(isa)
#define CT_ISA_NAME(name) CT_ISA_JOIN(name, CT_ISA)

/* The functions behind the members of struct ct_cpu_loops. */
void CT_ISA_NAME(ct_gemm_product)(const struct ct_product *op);
void CT_ISA_NAME(ct_tree_gradient)(const struct ct_tree *op);
void CT_ISA_NAME(ct_gather16)(const struct ct_gather *op);
void CT_ISA_NAME(ct_column_sum16)(size_t rows, size_t cols, const uint16_t *m, float *sum);
void CT_ISA_NAME(ct_mask16)(size_t count, uint16_t *x, const uint16_t *mask);
void CT_ISA_NAME(ct_narrow)(size_t count, const float *from, uint16_t *to);

extern const struct ct_cpu_loops CT_ISA_NAME(ct_cpu_loops);

#endif
