/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies in fewer bits: bfloat16, and e4m3 with one scale per tensor.
 */
#include "kernels/cuda/number.cuh"

#include <cuda_fp8.h>

#define THREADS 256u
#define E4M3_MAX 448.0f

__global__ void narrow_kernel(size_t count, const float *from, __nv_bfloat16 *to)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        ct_put(to, i, from[i]);
    }
}

cudaError_t ct_launch_narrow(cudaStream_t stream, size_t count, const float *from, uint16_t *to)
{
    narrow_kernel<<<ct_blocks(count, THREADS), THREADS, 0, stream>>>(count, from,
                                                                     (__nv_bfloat16 *)to);
    return cudaGetLastError();
}

/* Floats that are not negative are ordered as their bits are, so an integer's atomic finds the
 * largest, the same one in any order. A NaN is larger than all and shows in every product. */
__global__ void largest_kernel(size_t count, const __nv_bfloat16 *from, unsigned *largest)
{
    unsigned most = 0;
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        unsigned bits = __float_as_uint(fabsf(ct_get(from, i)));
        most = bits > most ? bits : most;
    }
    most = __reduce_max_sync(0xffffffffu, most);
    if (threadIdx.x % 32 == 0) {
        atomicMax(largest, most);
    }
}

__global__ void fp8_kernel(size_t count, const __nv_bfloat16 *from, __nv_fp8_e4m3 *to,
                           const unsigned *largest, float *scale)
{
    float most = __uint_as_float(*largest);
    float own = most == 0.0f ? 1.0f : most / E4M3_MAX;
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        to[i] = __nv_fp8_e4m3(ct_get(from, i) / own); /* saturates */
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        *scale = own;
    }
}

cudaError_t ct_launch_fp8(cudaStream_t stream, size_t count, const uint16_t *from, uint8_t *to,
                          float *scale)
{
    const __nv_bfloat16 *numbers = (const __nv_bfloat16 *)from;
    unsigned *largest = (unsigned *)(scale + 1);
    unsigned blocks = ct_blocks(count, THREADS * 4);
    cudaError_t status = cudaMemsetAsync(largest, 0, sizeof(*largest), stream);
    if (status != cudaSuccess) {
        return status;
    }
    largest_kernel<<<blocks, THREADS, 0, stream>>>(count, numbers, largest);
    fp8_kernel<<<blocks, THREADS, 0, stream>>>(count, numbers, (__nv_fp8_e4m3 *)to, largest, scale);
    return cudaGetLastError();
}
