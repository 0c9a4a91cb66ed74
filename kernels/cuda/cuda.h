/* SPDX-License-Identifier: Apache-2.0
 *
 * What the host files of the CUDA plug-in share: plain C, so that tests can run them against
 * stand-ins for CUDA and cuBLASLt. Kernels are behind launch.h.
 *
 * All computing of a device goes to its one stream, in order; the side stream is for a collective
 * library, and a third one takes updates that may run beside the computing. Nothing here uses the
 * default stream. A device is used on the thread that opened it (CUDA's current device belongs to
 * the thread).
 */
#ifndef CT_KERNELS_CUDA_CUDA_H
#define CT_KERNELS_CUDA_CUDA_H

#include "kernels/cuda/launch.h"
#include "kernels/device/device.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

struct ct_cuda_gemm;
struct ct_cuda_head;

/* Where host indices wait until the copy engine has read them. */
struct ct_cuda_staging {
    uint32_t *host; /* page-locked */
    uint32_t *device;
    size_t capacity;  /* numbers */
    cudaEvent_t done; /* recorded after the copy; host may be written again */
};

/* Device memory that grows to the largest size asked for. What was too small stays until the end,
 * as recorded work may hold on to it; as each is at least twice the one before, together they are
 * no larger than the last. */
struct ct_cuda_room {
    void *data;
    size_t capacity; /* bytes */
    void *outgrown[64];
    size_t outgrown_count;
};

int ct_cuda_room_get(struct ct_cuda_room *room, size_t bytes, struct ct_err *err);
void ct_cuda_room_free(struct ct_cuda_room *room);

struct ct_cuda {
    struct ct_device base; /* first: the table's functions get a pointer to it */
    cudaStream_t stream, side, updates;
    cudaEvent_t forked, joined;
    cudaEvent_t to_update, updated;
    cudaEvent_t start, stop; /* of what is timed */
    void *workspace;         /* CT_CUDA_WORKSPACE bytes for the one stream's products, in order */
    bool recording;
    int capability; /* 80, 90: major * 10 + minor */
    struct ct_cuda_gemm *gemm;
    struct ct_cuda_head *head;
    struct ct_loss_sums *sums; /* in device memory; of the one stream's losses, in order */
    struct ct_cuda_room slots; /* of the gradients of parts, before they are added */
    size_t recorded_nodes;     /* of the last recording */
    struct ct_cuda_staging staging[CT_DEVICE_BATCHES_AHEAD];
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

/* NVIDIA's advice for Hopper; older ones need less. */
#define CT_CUDA_WORKSPACE ((size_t)32 << 20)

/* timing.c: microseconds that a run of one way to compute something takes on the device, the mean
 * of several after one that is not counted. Waits; not while recording. */
typedef int (*ct_cuda_way_fn)(struct ct_cuda *cuda, const void *op, struct ct_err *err);
int ct_cuda_time(struct ct_cuda *cuda, ct_cuda_way_fn way, const void *op, float *us,
                 struct ct_err *err);

/* gemm.c: as kernels/cpu/cpu_gemm.h, but for whole operations; batches of 0 never arrive. */
int ct_cuda_gemm_new(struct ct_cuda_gemm **out, struct ct_err *err);
void ct_cuda_gemm_free(struct ct_cuda_gemm *gemm);
int ct_cuda_linear(struct ct_cuda *cuda, const struct ct_linear *op, struct ct_err *err);
int ct_cuda_linear_grad(struct ct_cuda *cuda, const struct ct_linear_grad *op, struct ct_err *err);

/* gemm_cut.c: the same where op->cut is there. */
int ct_cuda_cut_linear(struct ct_cuda *cuda, const struct ct_linear *op, struct ct_err *err);
int ct_cuda_cut_grad(struct ct_cuda *cuda, const struct ct_linear_grad *op, struct ct_err *err);

/* head.c: what is known of last layers' shapes; the operation. */
int ct_cuda_head_new(struct ct_cuda_head **out, struct ct_err *err);
void ct_cuda_head_free(struct ct_cuda_head *head);
/* Each: the part of the table's explain(). CT_ENOMEM is the only failure. */
int ct_cuda_head_explain(const struct ct_cuda_head *head, struct ct_buf *to);
int ct_cuda_gemm_explain(const struct ct_cuda_gemm *gemm, struct ct_buf *to);
int ct_cuda_head(struct ct_cuda *cuda, const struct ct_head *op, struct ct_err *err);

/* record.c: members of the table. */
int ct_cuda_explain(struct ct_device *dev, struct ct_buf *to, struct ct_err *err);
int ct_cuda_record(struct ct_device *dev, struct ct_err *err);
int ct_cuda_record_end(struct ct_device *dev, struct ct_recording **out, struct ct_err *err);
int ct_cuda_replay(struct ct_device *dev, struct ct_recording *recording, struct ct_err *err);
void ct_cuda_forget(struct ct_device *dev, struct ct_recording *recording);
int ct_cuda_advance(struct ct_device *dev, uint64_t *now, uint64_t steps, struct ct_err *err);
int ct_cuda_fork(struct ct_device *dev, struct ct_err *err);
int ct_cuda_join(struct ct_device *dev, struct ct_err *err);
int ct_cuda_fork_updates(struct ct_device *dev, bool of_side, struct ct_err *err);
int ct_cuda_join_updates(struct ct_device *dev, struct ct_err *err);

#endif
