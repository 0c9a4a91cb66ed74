/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CT_TESTS_UNIT_KERNELS_CUDA_FAKE_BLOCK_KERNELS_H
#define CT_TESTS_UNIT_KERNELS_CUDA_FAKE_BLOCK_KERNELS_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

enum kernel {
    SUM, /* 5 blocks of 96 threads, whatever is asked for */
    SUM_WITHOUT_BARRIER,
    ROUNDS,
    ROUNDS_WITHOUT_SECOND,
    WARP,
    HALF_WARP,
    HALF_BARRIER,
    OTHER_BARRIER,
    OTHER_CALL,
    ABSENT_LANE,
    TOO_LARGE,
    TELL,
    TELL_WITHOUT_FIRST_FENCE,
    TELL_WITHOUT_SECOND_FENCE,
    EARLY,
    EARLY_WITHOUT_WAIT,
};

/* Queues it on the default stream. */
cudaError_t run_kernel(enum kernel kernel, unsigned *out, unsigned threads);

#ifdef __cplusplus
}
#endif

#endif
