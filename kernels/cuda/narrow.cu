/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of float32 numbers in bfloat16.
 */
#include "kernels/cuda/number.cuh"

#define THREADS 256u
#define PACK (CT_WIDEST / sizeof(float))

template <unsigned N> __device__ void narrow(const float *from, __nv_bfloat16 *to, size_t i)
{
    ct_pack<float, N> wide = ct_load<N>(from, i);
    ct_pack<__nv_bfloat16, N> made;
    for (unsigned k = 0; k < N; k++) {
        ct_put(made.v, k, wide.v[k]);
    }
    ct_store(to, i, made);
}

__global__ void narrow_kernel(size_t count, const float *from, __nv_bfloat16 *to, bool packed)
{
    ct_begin();
    ct_each<PACK>(
        count, packed, [=](size_t i) { narrow<PACK>(from, to, i); },
        [=](size_t i) { narrow<1>(from, to, i); });
}

cudaError_t ct_launch_narrow(struct ct_launch_on on, size_t count, const float *from, uint16_t *to)
{
    bool packed = ct_packs<PACK>(from) && ct_packs<PACK>(to);
    unsigned blocks = ct_blocks(packed ? count / PACK + PACK : count, THREADS);
    return ct_launch<narrow_kernel>(on, blocks, THREADS, count, from, (__nv_bfloat16 *)to, packed);
}
