/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the CUDA plug-in share. All work of a device goes to its one stream, in order;
 * nothing here uses the default stream, so that a collective library may have its own beside it.
 * A device is used on the thread that opened it (CUDA's current device belongs to the thread).
 */
#ifndef CT_KERNELS_CUDA_CUDA_H
#define CT_KERNELS_CUDA_CUDA_H

#include "kernels/device.h"

#include <cublasLt.h>
#include <cuda_runtime.h>

struct ct_cuda_gemm;

/* Where host indices wait until the copy engine has read them. */
struct ct_cuda_staging {
    uint32_t *host; /* page-locked */
    uint32_t *device;
    size_t capacity;  /* numbers */
    cudaEvent_t done; /* recorded after the copy; host may be written again */
};

/* Two would do; more let the host run ahead of the device by as many batches. */
#define CT_CUDA_STAGINGS 4

struct ct_cuda {
    struct ct_device base; /* first: the table's functions get a pointer to it */
    cudaStream_t stream;
    struct ct_cuda_gemm *gemm;
    struct ct_cuda_staging staging[CT_CUDA_STAGINGS];
    size_t next_staging;
    char name[300]; /* cudaDeviceProp.name has 256 */
};

static inline struct ct_cuda *ct_cuda_of(struct ct_device *dev)
{
    return (struct ct_cuda *)dev;
}

/* Turns a failed call into words with its place, and clears CUDA's sticky error so that it is not
 * blamed on the next launch. */
int ct_cuda_fail(struct ct_err *err, cudaError_t status, const char *file, int line,
                 const char *call);
int ct_cublas_fail(struct ct_err *err, cublasStatus_t status, const char *file, int line,
                   const char *call);

#define CT_CUDA_TRY(err, call)                                              \
    do {                                                                    \
        cudaError_t status_ = (call);                                       \
        if (status_ != cudaSuccess) {                                       \
            return ct_cuda_fail((err), status_, __FILE__, __LINE__, #call); \
        }                                                                   \
    } while (0)

#define CT_CUBLAS_TRY(err, call)                                              \
    do {                                                                      \
        cublasStatus_t status_ = (call);                                      \
        if (status_ != CUBLAS_STATUS_SUCCESS) {                               \
            return ct_cublas_fail((err), status_, __FILE__, __LINE__, #call); \
        }                                                                     \
    } while (0)

/* After each launch. */
#define CT_CUDA_LAUNCHED(err) CT_CUDA_TRY(err, cudaGetLastError())

/* gemm.cu: as kernels/cpu_gemm.h; batches of 0 never arrive. */
int ct_cuda_gemm_new(struct ct_cuda_gemm **out, struct ct_err *err);
void ct_cuda_gemm_free(struct ct_cuda_gemm *gemm);
int ct_cuda_gemm_linear(struct ct_cuda *cuda, const struct ct_linear *op, struct ct_err *err);
int ct_cuda_gemm_dw(struct ct_cuda *cuda, const struct ct_linear_grad *op, struct ct_err *err);
int ct_cuda_gemm_dx(struct ct_cuda *cuda, const struct ct_linear_grad *op, struct ct_err *err);

/* rows.cu and update.cu: launches only; members of the table or parts of them. */
int ct_cuda_gather_rows(struct ct_cuda *cuda, const struct ct_gather *op, const uint32_t *index,
                        struct ct_err *err);
int ct_cuda_column_sum(struct ct_cuda *cuda, size_t rows, size_t cols, const float *m, float *sum,
                       struct ct_err *err);
/* y = act(y + b) in place. */
int ct_cuda_add_bias(struct ct_cuda *cuda, const struct ct_linear *op, struct ct_err *err);
int ct_cuda_mask(struct ct_cuda *cuda, size_t count, float *x, const float *mask,
                 struct ct_err *err);
int ct_cuda_loss(struct ct_device *dev, const struct ct_loss *op, struct ct_err *err);
int ct_cuda_sgd(struct ct_device *dev, const struct ct_sgd *op, struct ct_err *err);
int ct_cuda_adamw(struct ct_device *dev, const struct ct_adamw *op, struct ct_err *err);

/* Blocks of `threads` for a grid-stride loop over `count` elements: enough to fill any GPU. */
static inline unsigned ct_cuda_blocks(size_t count, unsigned threads)
{
    const size_t most = 8192;
    size_t blocks = (count + threads - 1) / threads;
    return (unsigned)(blocks < most ? blocks : most);
}

#endif
