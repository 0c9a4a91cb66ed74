/* SPDX-License-Identifier: Apache-2.0
 *
 * The built-in variables and functions of CUDA C++, for .cu files that the compiler of the host
 * compiles. This header is included before all others. It has only what the kernels use; anything
 * else does not compile. tests/lib/fake_gpu/fake_block.h has the implementation.
 */
#ifndef CT_TESTS_LIB_FAKE_GPU_FAKE_DEVICE_H
#define CT_TESTS_LIB_FAKE_GPU_FAKE_DEVICE_H

#include "tests/lib/fake_gpu/fake_block.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <type_traits>

#undef __shared__ /* fake_nvcc.py has replaced every use */
#undef __launch_bounds__
#define __launch_bounds__(...)
/* No macros, because a structure of CUDA has fields of these names. */
[[maybe_unused]] static const uint3 &threadIdx = fake_place.thread;
[[maybe_unused]] static const uint3 &blockIdx = fake_place.block;
[[maybe_unused]] static const dim3 &blockDim = fake_place.threads;
[[maybe_unused]] static const dim3 &gridDim = fake_place.blocks;

#define __syncthreads() fake_barrier(__LINE__)
#define __syncwarp() (void)fake_warp(FAKE_WARP_SYNC, 0xffffffffu, 0, 0, __LINE__)
#define __shfl_sync(mask, v, lane) fake_shuffle(FAKE_WARP_FROM, mask, v, lane, __LINE__)
#define __shfl_xor_sync(mask, v, by) fake_shuffle(FAKE_WARP_XOR, mask, v, by, __LINE__)
#define __shfl_down_sync(mask, v, by) fake_shuffle(FAKE_WARP_DOWN, mask, v, by, __LINE__)
#define __ballot_sync(mask, v) ((unsigned)fake_warp(FAKE_WARP_BALLOT, mask, (v) != 0, 0, __LINE__))
#define __any_sync(mask, v) ((int)(__ballot_sync(mask, v) != 0))
#define __reduce_max_sync(mask, v) ((unsigned)fake_warp(FAKE_WARP_MAX, mask, v, 0, __LINE__))

template <typename T>
T fake_shuffle(enum fake_warp_op op, unsigned mask, T v, unsigned arg, int line)
{
    static_assert(sizeof(T) <= sizeof(uint64_t) && std::is_arithmetic_v<T>);
    uint64_t bits = 0;
    memcpy(&bits, &v, sizeof v);
    bits = fake_warp(op, mask, bits, arg, line);
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* nvcc has these without a name space. */
using std::max;
using std::min;

#define __threadfence() fake_fence()

template <typename T, typename F> T fake_atomic_by(T *p, F change)
{
    struct both {
        F change;
        T was;
    } data = {change, T()};
    const auto run = [](void *at, void *given) {
        T *p = static_cast<T *>(at);
        both *b = static_cast<both *>(given);
        b->was = *p;
        *p = b->change(b->was);
    };
    fake_atomic(p, sizeof *p, run, &data);
    return data.was;
}

template <typename T> T atomicAdd(T *p, std::type_identity_t<T> v)
{
    return fake_atomic_by(p, [v](T was) { return T(was + v); });
}

template <typename T> T atomicMax(T *p, std::type_identity_t<T> v)
{
    return fake_atomic_by(p, [v](T was) { return was < v ? v : was; });
}

inline unsigned __float_as_uint(float v)
{
    unsigned bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

inline float __uint_as_float(unsigned bits)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* Launches a kernel. K is a lambda without captures that calls the kernel with its arguments, which
 * are copied now. */
template <typename K, typename... Args>
void fake_launch_by(const char *name, K, dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                    Args... args)
{
    static_assert(std::is_empty_v<K> && (std::is_trivially_copyable_v<Args> && ...));
    using all = std::tuple<Args...>;
    const all given(args...);
    const auto run = [](const void *data) { std::apply(K(), *static_cast<const all *>(data)); };
    const struct fake_launch launch = {name, run, grid, block, shared, stream, false};
    fake_launch(&launch, static_cast<const void *>(&given), sizeof given);
}

/* Launches a kernel as the runtime's function of this name does. `caller` is the text of the
 * function that launches, whose template arguments name the kernel. */
template <typename... Params, typename... Args>
cudaError_t fake_launch_kernel(const char *caller, const cudaLaunchConfig_t *how,
                               void (*kernel)(Params...), Args... args)
{
    static_assert((std::is_trivially_copyable_v<Params> && ...));
    struct all {
        void (*kernel)(Params...);
        std::tuple<Params...> args;
    };
    const all given = {kernel, std::tuple<Params...>(args...)};
    const auto run = [](const void *data) {
        const all *a = static_cast<const all *>(data);
        std::apply(a->kernel, a->args);
    };
    bool early = how->numAttrs == 1 &&
                 how->attrs->id == cudaLaunchAttributeProgrammaticStreamSerialization &&
                 how->attrs->val.programmaticStreamSerializationAllowed != 0;
    const struct fake_launch launch = {
        caller, run, how->gridDim, how->blockDim, how->dynamicSmemBytes, how->stream, early};
    fake_launch(&launch, static_cast<const void *>(&given), sizeof given);
    return cudaGetLastError();
}

#define cudaLaunchKernelEx(how, ...) fake_launch_kernel(__PRETTY_FUNCTION__, how, __VA_ARGS__)
#define cudaGridDependencySynchronize() fake_await_previous()
#define cudaTriggerProgrammaticLaunchCompletion() ((void)0)

#endif
