/* SPDX-License-Identifier: Apache-2.0
 *
 * Times what is queued, for choices between ways that give the same. Any failure is the caller's to
 * judge: a way that cannot be timed is mostly one that cannot be used.
 */
#include "kernels/cuda/cuda.h"

#define TIMED_RUNS 8
/* Clears of the workspace before the runs, some 10 us each: longer than the host takes to queue the
 * runs, of two launches each, so that small ones are timed and not the host. */
#define HEAD_START 8

int ct_cuda_time(struct ct_cuda *cuda, ct_cuda_way_fn way, const void *op, float *us,
                 struct ct_err *err)
{
    int rc = way(cuda, op, err); /* chooses kernels, makes room, warms up */
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
