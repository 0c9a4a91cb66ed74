/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists the variants of the loops that this processor can run, the fastest first. Callers take rank
 * 0; tests use all. It cannot fail, because the generic variant always runs.
 */
#include "kernels/cpu/cpu_loops.h"

extern const struct ct_cpu_loops ct_cpu_loops_generic;

#if CT_ISA_X86
extern const struct ct_cpu_loops ct_cpu_loops_avx2, ct_cpu_loops_avx512;

/* The features of the build's compiler flags for each variant. */
static bool runs_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool runs_avx512(void)
{
    return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}
#endif

const struct ct_cpu_loops *ct_cpu_loops_get(size_t rank)
{
    const struct ct_cpu_loops *usable[3] = {NULL};
    size_t count = 0;
#if CT_ISA_X86
    if (runs_avx512()) {
        usable[count++] = &ct_cpu_loops_avx512;
    }
    if (runs_avx2()) {
        usable[count++] = &ct_cpu_loops_avx2;
    }
#endif
    usable[count++] = &ct_cpu_loops_generic;
    return rank < count ? usable[rank] : NULL;
}
