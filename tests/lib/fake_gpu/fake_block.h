/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the grid of a CUDA kernel that was compiled for the host: tests/lib/fake_gpu/fake_device.h
 * makes the kernel's calls into these, tests/lib/fake_gpu/fake_nvcc.py its launches.
 *
 * The threads run by turns, one at a time, each until it waits for others; who goes on is drawn, of
 * up to four blocks that have begun. Shared memory is full of NaNs when a block begins. So a
 * missing barrier shows, and threads that wait for others which do not come are a broken rule of
 * the stand-in (fake_rule), as is whatever else CUDA leaves undefined here. Of what blocks tell
 * each other, tests/lib/fake_gpu/fake_view.h says when it is seen.
 */
#ifndef CT_TESTS_LIB_FAKE_GPU_FAKE_BLOCK_H
#define CT_TESTS_LIB_FAKE_GPU_FAKE_BLOCK_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One thread of the kernel; `args` are the launch's. */
typedef void (*fake_kernel_fn)(const void *args);

struct fake_launch {
    const char *name; /* for messages */
    fake_kernel_fn run;
    dim3 grid, block;
    size_t shared; /* bytes of dynamic shared memory */
    cudaStream_t stream;
};

/* Queues it with a copy of `args`; cudaGetLastError() says how that went. */
void fake_launch(const struct fake_launch *launch, const void *args, size_t bytes);

/* ---- for the kernel that runs ---------------------------------------------------------------- */

struct fake_place {
    uint3 thread, block;
    dim3 threads, blocks;
};

extern struct fake_place fake_place;

/* Where a kernel declares shared memory: fills it when the block's first thread comes here. */
void fake_shared(void *memory, size_t bytes);
void *fake_dynamic_shared(void);

/* All threads of the block, at one line of the source. */
void fake_barrier(int line);

/* Changes *at as one, after and before others may do something. */
void fake_atomic(void *at, size_t bytes, void (*change)(void *at, void *data), void *data);
void fake_fence(void);

enum fake_warp_op {
    FAKE_WARP_SYNC,
    FAKE_WARP_XOR,  /* the value of the lane whose number is this one's xor `arg` */
    FAKE_WARP_DOWN, /* of the lane `arg` higher, or the own one */
    FAKE_WARP_FROM, /* of lane `arg` */
    FAKE_WARP_BALLOT,
    FAKE_WARP_MAX, /* of 32 bits without sign */
};

/* All lanes named in `mask`, at one line of the source. */
uint64_t fake_warp(enum fake_warp_op op, unsigned mask, uint64_t value, unsigned arg, int line);

#ifdef __cplusplus
}
#endif

#endif
