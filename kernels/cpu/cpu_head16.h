/* SPDX-License-Identifier: Apache-2.0
 *
 * The last layer of a model with its loss, forward and backward, in bfloat16 by AVX512-BF16. It
 * takes a few rows at a time, which stay in the L1 cache from the first product to the last. Sums
 * are float32. A matrix product library is slow here, because a layer of ten classes is mostly
 * edges.
 *
 * If the compiler does not support the instructions, cpu_head16_fallback.c replaces this.
 */
#ifndef CT_KERNELS_CPU_CPU_HEAD16_H
#define CT_KERNELS_CPU_CPU_HEAD16_H

#include "kernels/cpu/cpu_loops.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Does the processor have the instructions, and does the shape fit: a row, up to 16 classes, a
 * multiple of 64 inputs that come from a ReLU, and a layer below that needs their gradient? */
bool ct_head16_fits(const struct ct_head *op);

/* Returns the number of pairs of bfloat16 that ct_head16_run() needs as scratch memory. */
size_t ct_head16_scratch(const struct ct_head *op);

/* Runs an operation that fits. Does not change op->linear.y. */
void ct_head16_run(const struct ct_cpu_loops *loops, const struct ct_head *op, uint32_t *scratch);

#endif
