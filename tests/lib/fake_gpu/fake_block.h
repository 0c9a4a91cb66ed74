/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the grid of a CUDA kernel that was compiled for the host. The calls in the kernel become
 * calls of these functions by tests/lib/fake_gpu/fake_device.h, and its launches by
 * tests/lib/fake_gpu/fake_nvcc.py.
 *
 * The threads of up to four blocks run in turns. One thread runs at a time, until it waits for
 * others; then the next one is drawn. Shared memory is full of NaNs when a block begins. So a
 * missing barrier gives wrong results. It is a violation (fake_rule) if threads wait for others
 * that never come, or if the kernel does anything else that CUDA leaves undefined.
 * tests/lib/fake_gpu/fake_view.h says when a block sees what another one has written.
 */
#ifndef CT_TESTS_LIB_FAKE_GPU_FAKE_BLOCK_H
#define CT_TESTS_LIB_FAKE_GPU_FAKE_BLOCK_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Runs one thread of the kernel with the arguments of the launch. */
typedef void (*fake_kernel_fn)(const void *args);

struct fake_launch {
    const char *name; /* for messages */
    fake_kernel_fn run;
    dim3 grid, block;
    size_t shared; /* bytes of dynamic shared memory */
    cudaStream_t stream;
    bool early; /* may begin before the work in front of it has ended */
};

/* Queues the launch with a copy of `args`. cudaGetLastError() returns the result. */
void fake_launch(const struct fake_launch *launch, const void *args, size_t bytes);

/* ---- for the kernel that runs ---------------------------------------------------------------- */

struct fake_place {
    uint3 thread, block;
    dim3 threads, blocks;
};

extern struct fake_place fake_place;

/* Called where a kernel declares shared memory. The first thread of a block fills it with NaNs. */
void fake_shared(void *memory, size_t bytes);
void *fake_dynamic_shared(void);

/* __syncthreads(). All threads of the block must call it at the same line of the source. */
void fake_barrier(int line);

/* Changes *at atomically. Other threads may run before and after it. */
void fake_atomic(void *at, size_t bytes, void (*change)(void *at, void *data), void *data);
void fake_fence(void);

/* cudaGridDependencySynchronize(). Every thread of a kernel that was launched early must call it,
 * before it does anything with other threads. */
void fake_await_previous(void);

enum fake_warp_op {
    FAKE_WARP_SYNC,
    FAKE_WARP_XOR,  /* the value of the lane with the number of this one xor `arg` */
    FAKE_WARP_DOWN, /* the value of the lane `arg` higher, or the own value if there is none */
    FAKE_WARP_FROM, /* the value of lane `arg` */
    FAKE_WARP_BALLOT,
    FAKE_WARP_MAX, /* the largest value, as unsigned 32-bit numbers */
};

/* A function of a warp. All lanes in `mask` must call it at the same line of the source. */
uint64_t fake_warp(enum fake_warp_op op, unsigned mask, uint64_t value, unsigned arg, int line);

#ifdef __cplusplus
}
#endif

#endif
