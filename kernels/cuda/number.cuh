/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernels share: numbers that are float or bfloat16 in memory and float in registers, and
 * loops that read several of them at a time.
 */
#ifndef CT_KERNELS_CUDA_NUMBER_H
#define CT_KERNELS_CUDA_NUMBER_H

#include "kernels/cuda/launch.h"

#include <cuda_bf16.h>
#include <stdint.h>

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

/* Rounds to the nearest number, ties to even; NaN stays NaN. */
__device__ inline void ct_put(__nv_bfloat16 *p, size_t i, float v)
{
    p[i] = __float2bfloat16_rn(v);
}

/* Bytes of the widest memory access. Kernels that memory limits are fastest with it. */
#define CT_WIDEST 16u

/* N adjacent numbers, read and written in one access, or in several of the widest. */
template <typename T, unsigned N>
struct alignas(sizeof(T) * N < CT_WIDEST ? sizeof(T) * N : CT_WIDEST) ct_pack {
    T v[N];
};

template <unsigned N, typename T> __device__ inline ct_pack<T, N> ct_load(const T *p, size_t i)
{
    return *(const ct_pack<T, N> *)(p + i);
}

template <typename T, unsigned N>
__device__ inline void ct_store(T *p, size_t i, const ct_pack<T, N> &pack)
{
    *(ct_pack<T, N> *)(p + i) = pack;
}

/* Is p aligned for reading packs of N numbers? True for NULL, which is never read. */
template <unsigned N, typename T> static inline bool ct_packs(const T *p)
{
    return (uintptr_t)p % alignof(ct_pack<T, N>) == 0;
}

/* A grid-stride loop. If `packed`, it calls some(i) for every N-th i, and one(i) for each number
 * that is left over at the end. Otherwise it calls one(i) for all numbers. */
template <unsigned N, typename Some, typename One>
__device__ inline void ct_each(size_t count, bool packed, Some some, One one)
{
    size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    size_t step = (size_t)gridDim.x * blockDim.x, packs = packed ? count / N : 0;
    for (size_t i = first; i < packs; i += step) {
        some(i * N);
    }
    for (size_t i = packs * N + first; i < count; i += step) {
        one(i);
    }
}

/* Returns the number of blocks for a grid-stride loop over `count` elements: one thread for each
 * element, but not more than fill any GPU. */
static inline unsigned ct_blocks(size_t count, unsigned threads)
{
    const size_t most = 8192;
    size_t blocks = (count + threads - 1) / threads;
    return (unsigned)(blocks < most ? blocks : most);
}

/* The first statement of each kernel. One that was launched early waits here until the work in
 * front of it has ended and its results can be seen. Then the next kernel may come to the device,
 * where it waits in the same way: not sooner, because waiting blocks take room that other streams
 * may need.
 */
__device__ inline void ct_begin()
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/* Launches the kernel, which must begin with ct_begin(). */
template <auto Kernel, typename... Args>
static cudaError_t ct_launch(struct ct_launch_on on, dim3 blocks, dim3 threads, const Args &...args)
{
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t how = {};
    how.gridDim = blocks;
    how.blockDim = threads;
    how.stream = on.stream;
    how.attrs = &early;
    how.numAttrs = on.early ? 1 : 0;
    return cudaLaunchKernelEx(&how, Kernel, args...);
}

#endif
