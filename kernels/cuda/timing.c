/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures how long queued work takes, to choose between ways that compute the same. The caller
 * decides what a failure means. Usually a way that cannot be timed cannot be used either.
 */
#include "kernels/cuda/cuda.h"

#define TIMED_RUNS 8
/* The workspace is cleared so many times before the runs, which takes some 10 us each. In this time
 * the host queues all runs, of two launches each. So the device is timed and not the host, even if
 * the runs are short. */
#define HEAD_START 8

int ct_cuda_time(struct ct_cuda *cuda, ct_cuda_way_fn way, const void *op, float *us,
                 struct ct_err *err)
{
    int rc = way(cuda, op, err); /* chooses kernels, allocates memory, warms up */
    for (int i = 0; rc == 0 && i < HEAD_START; i++) {
        CT_CUDA_TRY(err, cudaMemsetAsync(cuda->workspace, 0, CT_CUDA_WORKSPACE, cuda->stream));
    }
    if (rc != 0) {
        return rc;
    }
    CT_CUDA_TRY(err, cudaEventRecord(cuda->start, cuda->stream));
    for (int i = 0; rc == 0 && i < TIMED_RUNS; i++) {
        rc = way(cuda, op, err);
    }
    if (rc != 0) {
        return rc;
    }
    CT_CUDA_TRY(err, cudaEventRecord(cuda->stop, cuda->stream));
    CT_CUDA_TRY(err, cudaEventSynchronize(cuda->stop));
    float ms;
    CT_CUDA_TRY(err, cudaEventElapsedTime(&ms, cuda->start, cuda->stop));
    *us = 1e3f * ms / TIMED_RUNS;
    return 0;
}
