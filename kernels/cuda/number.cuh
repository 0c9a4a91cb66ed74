/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernels share: numbers that are float or bfloat16 in memory and float in registers.
 */
#ifndef CT_KERNELS_CUDA_NUMBER_H
#define CT_KERNELS_CUDA_NUMBER_H

#include "kernels/cuda/launch.h"

#include <cuda_bf16.h>

__device__ inline float ct_get(const float *p, size_t i)
{
    return p[i];
}

__device__ inline float ct_get(const __nv_bfloat16 *p, size_t i)
{
    return __bfloat162float(p[i]);
}

__device__ inline void ct_put(float *p, size_t i, float v)
{
    p[i] = v;
}

/* To the nearest, ties to even; NaN stays NaN. */
__device__ inline void ct_put(__nv_bfloat16 *p, size_t i, float v)
{
    p[i] = __float2bfloat16_rn(v);
}

/* Blocks of `threads` for a grid-stride loop over `count` elements: enough to fill any GPU. */
static inline unsigned ct_blocks(size_t count, unsigned threads)
{
    const size_t most = 8192;
    size_t blocks = (count + threads - 1) / threads;
    return (unsigned)(blocks < most ? blocks : most);
}

#endif
