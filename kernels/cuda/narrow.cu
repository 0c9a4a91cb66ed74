/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies in fewer bits: bfloat16, and e4m3 with one scale per tensor.
 */
#include "kernels/cuda/number.cuh"

#include <cfloat>
#include <cuda_fp8.h>

#define THREADS 256u
#define PACK (CT_WIDEST / sizeof(float))
#define E4M3_MAX 448.0f
#define WARP 32u
#define MOST_BLOCKS 1024u /* of what ends in an atomic operation each: enough to fill any GPU */

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
    ct_each<PACK>(
        count, packed, [=](size_t i) { narrow<PACK>(from, to, i); },
        [=](size_t i) { narrow<1>(from, to, i); });
}

cudaError_t ct_launch_narrow(cudaStream_t stream, size_t count, const float *from, uint16_t *to)
{
    bool packed = ct_packs<PACK>(from) && ct_packs<PACK>(to);
    unsigned blocks = ct_blocks(packed ? count / PACK + PACK : count, THREADS);
    narrow_kernel<<<blocks, THREADS, 0, stream>>>(count, from, (__nv_bfloat16 *)to, packed);
    return cudaGetLastError();
}

/* ---- e4m3 ------------------------------------------------------------------------------------ */

#define PACK16 (CT_WIDEST / sizeof(__nv_bfloat16))

template <unsigned N> __device__ unsigned largest(const __nv_bfloat16 *from, size_t i)
{
    ct_pack<__nv_bfloat16, N> some = ct_load<N>(from, i);
    unsigned most = 0;
    for (unsigned k = 0; k < N; k++) {
        unsigned bits = __float_as_uint(fabsf(ct_get(some.v, k)));
        most = bits > most ? bits : most;
    }
    return most;
}

/* Floats that are not negative are ordered as their bits are, so an integer's atomic finds the
 * largest, the same one in any order. A NaN is larger than all and shows in every product. */
__global__ void largest_kernel(size_t count, const __nv_bfloat16 *from, unsigned *to, bool packed)
{
    unsigned most = 0;
    ct_each<PACK16>(
        count, packed, [&](size_t i) { most = max(most, largest<PACK16>(from, i)); },
        [&](size_t i) { most = max(most, largest<1>(from, i)); });
    __shared__ unsigned of_warp[THREADS / WARP];
    most = __reduce_max_sync(0xffffffffu, most);
    if (threadIdx.x % WARP == 0) {
        of_warp[threadIdx.x / WARP] = most;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned w = 1; w < THREADS / WARP; w++) {
            most = max(most, of_warp[w]);
        }
        atomicMax(to, most);
    }
}

template <unsigned N>
__device__ void scale_down(const __nv_bfloat16 *from, __nv_fp8_e4m3 *to, float by, size_t i)
{
    ct_pack<__nv_bfloat16, N> wide = ct_load<N>(from, i);
    ct_pack<__nv_fp8_e4m3, N> made;
    for (unsigned k = 0; k < N; k++) {
        made.v[k] = __nv_fp8_e4m3(ct_get(wide.v, k) * by); /* saturates */
    }
    ct_store(to, i, made);
}

__global__ void fp8_kernel(size_t count, const __nv_bfloat16 *from, __nv_fp8_e4m3 *to,
                           const unsigned *largest, float *scale, bool packed)
{
    float own = __uint_as_float(*largest) / E4M3_MAX; /* NaN stays NaN in all that follows */
    if (own < FLT_MIN) {                              /* what it is divided by must be finite */
        own = own == 0.0f ? 1.0f : FLT_MIN;
    }
    float inverse = 1.0f / own; /* a division for each number takes longer than reading it */
    ct_each<PACK16>(
        count, packed, [=](size_t i) { scale_down<PACK16>(from, to, inverse, i); },
        [=](size_t i) { scale_down<1>(from, to, inverse, i); });
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        *scale = own;
    }
}

cudaError_t ct_launch_fp8(cudaStream_t stream, size_t count, const uint16_t *from, uint8_t *to,
                          float *scale)
{
    const __nv_bfloat16 *numbers = (const __nv_bfloat16 *)from;
    unsigned *largest = (unsigned *)(scale + 1);
    bool packed = ct_packs<PACK16>(from) && ct_packs<PACK16>(to);
    unsigned blocks = ct_blocks(packed ? count / PACK16 + PACK16 : count, THREADS);
    cudaError_t status = cudaMemsetAsync(largest, 0, sizeof(*largest), stream);
    if (status != cudaSuccess) {
        return status;
    }
    unsigned few = blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS;
    largest_kernel<<<few, THREADS, 0, stream>>>(count, numbers, largest, packed);
    fp8_kernel<<<blocks, THREADS, 0, stream>>>(count, numbers, (__nv_fp8_e4m3 *)to, largest, scale,
                                               packed);
    return cudaGetLastError();
}
