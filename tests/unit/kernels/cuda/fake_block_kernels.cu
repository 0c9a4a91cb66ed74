/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels right and wrong, for tests/unit/kernels/cuda/test_fake_block.c: each wrong one lacks or
 * misplaces one call. No GPU ever runs them.
 */
#include "tests/unit/kernels/cuda/fake_block_kernels.h"

#define ALL_LANES 0xffffffffu

/* Each thread leaves its number; the sum of all of them is read by each. */
template <bool WITH_BARRIER> __global__ void sum_kernel(unsigned *sums)
{
    __shared__ unsigned parts[3][32];
    parts[threadIdx.y][threadIdx.x] = threadIdx.y * 32 + threadIdx.x;
    if (WITH_BARRIER) {
        __syncthreads();
    }
    unsigned sum = 0;
    for (unsigned i = 0; i < 96; i++) {
        sum += parts[i / 32][i % 32];
    }
    sums[blockIdx.x * 96 + threadIdx.y * 32 + threadIdx.x] = sum;
}

/* Rounds over one buffer: without the second barrier, who is ahead overwrites what others read. */
template <bool SECOND> __global__ void rounds_kernel(unsigned *sums)
{
    extern __shared__ unsigned buffer[];
    unsigned sum = 0;
    for (unsigned round = 0; round < 4; round++) {
        buffer[threadIdx.x] = round;
        __syncthreads();
        sum += buffer[(threadIdx.x + 1) % blockDim.x];
        if (SECOND) {
            __syncthreads();
        }
    }
    sums[threadIdx.x] = sum;
}

__global__ void warp_kernel(unsigned *out, bool all)
{
    unsigned lane = threadIdx.x % 32, v = lane + 100 * (threadIdx.x / 32);
    unsigned across = __shfl_xor_sync(ALL_LANES, v, 5);
    unsigned below = __shfl_down_sync(ALL_LANES, v, 30);
    unsigned third = __shfl_sync(ALL_LANES, v, 3);
    unsigned most = __reduce_max_sync(ALL_LANES, v);
    unsigned odd = __ballot_sync(ALL_LANES, v % 2);
    bool any = __any_sync(ALL_LANES, v == 131);
    if (all || lane < 16) {
        __syncwarp();
    }
    unsigned base = 100 * (threadIdx.x / 32);
    bool good = across == base + (lane ^ 5) && below == (lane < 2 ? base + lane + 30 : v) &&
                third == base + 3 && most == base + 31 && odd == 0xaaaaaaaau &&
                any == (base == 100);
    out[threadIdx.x] = good ? 1 : 2;
}

__global__ void half_kernel(unsigned *out)
{
    if (threadIdx.x < 16) {
        __syncthreads();
    }
    *out = 1;
}

__global__ void other_barrier_kernel(unsigned *out)
{
    if (threadIdx.x < 16) {
        __syncthreads();
    } else {
        *out = 1;
        __syncthreads();
    }
}

__global__ void other_call_kernel(unsigned *out)
{
    if (threadIdx.x < 16) {
        *out = __shfl_xor_sync(ALL_LANES, 1u, 1);
    } else {
        *out = __shfl_xor_sync(ALL_LANES, 1u, 2);
    }
}

__global__ void absent_lane_kernel(unsigned *out)
{
    if (threadIdx.x < 16) {
        *out = __shfl_xor_sync(0xffffu, 1u, 16);
    }
}

__global__ void large_kernel(unsigned *out)
{
    __shared__ unsigned parts[16384];
    parts[threadIdx.x] = 1;
    *out = parts[threadIdx.x];
}

/* Each block leaves a number and counts itself; the last one adds them up. */
template <bool FIRST, bool SECOND> __global__ void tell_kernel(unsigned *out)
{
    unsigned *sum = out, *count = out + 1, *parts = out + 2;
    if (threadIdx.x > 0) {
        return;
    }
    parts[blockIdx.x] = blockIdx.x + 1;
    if (FIRST) {
        __threadfence();
    }
    bool last = atomicAdd(count, 1u) == gridDim.x - 1;
    if (SECOND) {
        __threadfence();
    }
    for (unsigned b = 0; last && b < gridDim.x; b++) {
        *sum += parts[b];
    }
}

/* Launched before the work in front of it has ended. */
template <bool WAITS> __global__ void early_kernel(unsigned *out)
{
    if (WAITS || threadIdx.x > 0) {
        cudaGridDependencySynchronize();
    }
    *out = 1;
}

static cudaError_t run_early(void (*kernel)(unsigned *), unsigned *out, unsigned threads)
{
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t how = {};
    how.gridDim = dim3(1);
    how.blockDim = dim3(threads);
    how.attrs = &early;
    how.numAttrs = 1;
    return cudaLaunchKernelEx(&how, kernel, out);
}

cudaError_t run_kernel(enum kernel kernel, unsigned *out, unsigned threads)
{
    cudaStream_t s = NULL;
    switch (kernel) {
    case SUM:
        sum_kernel<true><<<5, dim3(32, 3), 0, s>>>(out);
        break;
    case SUM_WITHOUT_BARRIER:
        sum_kernel<false><<<5, dim3(32, 3), 0, s>>>(out);
        break;
    case ROUNDS:
        rounds_kernel<true><<<1, threads, threads * sizeof(unsigned), s>>>(out);
        break;
    case ROUNDS_WITHOUT_SECOND:
        rounds_kernel<false><<<1, threads, threads * sizeof(unsigned), s>>>(out);
        break;
    case WARP:
        warp_kernel<<<1, threads, 0, s>>>(out, true);
        break;
    case HALF_WARP:
        warp_kernel<<<1, threads, 0, s>>>(out, false);
        break;
    case HALF_BARRIER:
        half_kernel<<<1, threads, 0, s>>>(out);
        break;
    case OTHER_BARRIER:
        other_barrier_kernel<<<1, threads, 0, s>>>(out);
        break;
    case OTHER_CALL:
        other_call_kernel<<<1, threads, 0, s>>>(out);
        break;
    case ABSENT_LANE:
        absent_lane_kernel<<<1, threads, 0, s>>>(out);
        break;
    case TELL:
        tell_kernel<true, true><<<9, threads, 0, s>>>(out);
        break;
    case TELL_WITHOUT_FIRST_FENCE:
        tell_kernel<false, true><<<9, threads, 0, s>>>(out);
        break;
    case TELL_WITHOUT_SECOND_FENCE:
        tell_kernel<true, false><<<9, threads, 0, s>>>(out);
        break;
    case TOO_LARGE:
        large_kernel<<<1, threads, 0, s>>>(out);
        break;
    case EARLY:
        return run_early(early_kernel<true>, out, threads);
    case EARLY_WITHOUT_WAIT:
        return run_early(early_kernel<false>, out, threads);
    }
    return cudaGetLastError();
}
