/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for the CPU's arrays: aligned to 64 bytes, and in large pages if it is large. The products
 * read whole matrices again and again: with large pages a step of two workers with 1024 bfloat16
 * samples each took 4.5 % less time on Zen 5.
 */
#ifndef CT_KERNELS_CPU_CPU_MEMORY_H
#define CT_KERNELS_CPU_CPU_MEMORY_H

#include <stddef.h>

/* The memory is not cleared. NULL without memory. ct_cpu_memory_free() frees it. */
void *ct_cpu_memory_new(size_t bytes) __attribute__((warn_unused_result));
/* NULL is allowed. */
void ct_cpu_memory_free(void *memory);

#endif
