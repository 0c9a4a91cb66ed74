/* SPDX-License-Identifier: Apache-2.0
 *
 * The last layer of a model with its loss, forward and backward, in bfloat16 by AVX512-BF16: a few
 * rows at a time, which stay in the L1 cache from the first product to the last. Sums are float32.
 * For a matrix product library a layer of ten classes is mostly edges.
 *
 * Where the compiler does not know the instructions, cpu_head16_fallback.c stands for this.
 */
#ifndef CT_KERNELS_CPU_CPU_HEAD16_H
#define CT_KERNELS_CPU_CPU_HEAD16_H

#include "kernels/cpu/cpu_loops.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Does this processor have the instructions, and is this a shape for it: rows, up to 16 classes, a
 * multiple of 64 inputs that come out of a ReLU, and somebody below who wants their gradient? */
bool ct_head16_fits(const struct ct_head *op);

/* Pairs of bfloat16 numbers that ct_head16_run() needs as scratch memory. */
size_t ct_head16_scratch(const struct ct_head *op);

/* Only what fits. Leaves op->linear.y as it was. */
void ct_head16_run(const struct ct_cpu_loops *loops, const struct ct_head *op, uint32_t *scratch);

#endif
