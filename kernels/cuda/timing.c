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

static int record_runs(struct ct_cuda *cuda, ct_cuda_way_fn way, const void *op, size_t runs,
                       struct ct_recording **out, struct ct_err *err)
{
    int rc = way(cuda, op, err); /* chooses the kernels of the products */
    if (rc == 0) {
        rc = ct_cuda_record(&cuda->base, err);
    }
    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; rc == 0 && i < runs; i++) {
        rc = way(cuda, op, err);
    }
    int ended = ct_cuda_record_end(&cuda->base, rc == 0 ? out : NULL, err);
    return rc != 0 ? rc : ended;
}

static int time_replay(struct ct_cuda *cuda, struct ct_recording *recording, size_t runs, float *us,
                       struct ct_err *err)
{
    int rc = ct_cuda_replay(&cuda->base, recording, err); /* warms up */
    if (rc != 0) {
        return rc;
    }
    CT_CUDA_TRY(err, cudaEventRecord(cuda->start, cuda->stream));
    rc = ct_cuda_replay(&cuda->base, recording, err);
    if (rc != 0) {
        return rc;
    }
    float ms;
    CT_CUDA_TRY(err, cudaEventRecord(cuda->stop, cuda->stream));
    CT_CUDA_TRY(err, cudaEventSynchronize(cuda->stop));
    CT_CUDA_TRY(err, cudaEventElapsedTime(&ms, cuda->start, cuda->stop));
    *us = 1e3f * ms / (float)runs;
    return 0;
}

int ct_cuda_time_recorded(struct ct_cuda *cuda, ct_cuda_way_fn way, const void *op, size_t runs,
                          float *us, struct ct_err *err)
{
    struct ct_recording *recording = NULL;
    int rc = record_runs(cuda, way, op, runs, &recording, err);
    if (rc == 0) {
        rc = time_replay(cuda, recording, runs, us, err);
    }
    ct_cuda_forget(&cuda->base, recording);
    return rc;
}
