/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory that grows. A block that became too small is kept until the end, because work that
 * is queued or recorded may still use it.
 */
#include "kernels/cuda/cuda.h"

int ct_cuda_scratch_get(struct ct_cuda_scratch *scratch, size_t bytes, struct ct_err *err)
{
    if (scratch->capacity >= bytes) {
        return 0;
    }
    void *data = NULL;
    size_t capacity = bytes > 2 * scratch->capacity ? bytes : 2 * scratch->capacity;
    CT_CUDA_TRY(err, cudaMalloc(&data, capacity));
    if (scratch->data != NULL) {
        scratch->outgrown[scratch->outgrown_count++] = scratch->data;
    }
    scratch->data = data;
    scratch->capacity = capacity;
    return 0;
}

void ct_cuda_scratch_free(struct ct_cuda_scratch *scratch)
{
    (void)cudaFree(scratch->data);
    for (size_t i = 0; i < scratch->outgrown_count; i++) {
        (void)cudaFree(scratch->outgrown[i]);
    }
    *scratch = (struct ct_cuda_scratch){0};
}
