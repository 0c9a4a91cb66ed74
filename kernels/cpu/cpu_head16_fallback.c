/* SPDX-License-Identifier: Apache-2.0
 *
 * The build for a processor or by a compiler without AVX512-BF16: no shape fits.
 */
#include "kernels/cpu/cpu_head16.h"

bool ct_head16_fits(const struct ct_head *op)
{
    (void)op;
    return false;
}

size_t ct_head16_scratch(const struct ct_head *op)
{
    (void)op;
    return 0;
}

void ct_head16_run(const struct ct_cpu_loops *loops, const struct ct_head *op, uint32_t *scratch)
{
    (void)loops;
    (void)op;
    (void)scratch;
}
