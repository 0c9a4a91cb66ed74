/* SPDX-License-Identifier: Apache-2.0
 *
 * What the host files of the CUDA plug-in share. They are plain C, so that tests can run them on a
 * fake GPU. launch.h declares the functions that launch kernels.
 *
 * A device computes on one stream, in order. A side stream is for the collective library, and a
 * third stream is for updates that may run while the device computes. Nothing here uses the default
 * stream. A device is used only by the thread that opened it, because CUDA's current device belongs
 * to the thread.
 */
#ifndef CT_KERNELS_CUDA_CUDA_H
#define CT_KERNELS_CUDA_CUDA_H

#include "kernels/cuda/launch.h"
#include "kernels/device/device.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

struct ct_cuda_gemm;
struct ct_cuda_head;

/* Holds the indices of a batch until the copy engine has read them. */
struct ct_cuda_staging {
    uint32_t *host; /* page-locked */
    uint32_t *device;
    size_t capacity;  /* numbers */
    cudaEvent_t done; /* recorded after the copy; then `host` may be written again */
};

/* Device memory that grows to the largest size asked for. Blocks that became too small are kept
 * until the end, because recorded work may still use them. Each block is at least twice as large as
 * the one before, so all old blocks together are no larger than the last one. */
struct ct_cuda_scratch {
    void *data;
    size_t capacity;    /* bytes */
    void *outgrown[64]; /* enough: the sizes at least double, and are counted in 64 bits */
    size_t outgrown_count;
};

int ct_cuda_scratch_get(struct ct_cuda_scratch *scratch, size_t bytes, struct ct_err *err);
void ct_cuda_scratch_free(struct ct_cuda_scratch *scratch);

struct ct_cuda {
    struct ct_device base; /* first: the table's functions get a pointer to it */
    cudaStream_t stream, side, updates;
    cudaEvent_t forked, joined;
    cudaEvent_t to_update, updated;
    cudaEvent_t start, stop; /* around work that is timed */
    void *workspace;         /* CT_CUDA_WORKSPACE bytes for the products, which run in order */
    bool recording;
    bool early;                 /* kernels are launched early, because that was faster */
    float early_us, in_turn_us; /* what a chain of kernels took in each way; 0 = not timed */
    int capability;             /* 80, 90: major * 10 + minor */
    struct ct_cuda_gemm *gemm;
    struct ct_cuda_head *head;
    struct ct_loss_sums *sums;    /* device memory for the losses, which run in order */
    struct ct_cuda_scratch slots; /* gradients of the parts of a batch, before they are added */
    size_t recorded_nodes;        /* number of nodes of the last recording */
    struct ct_cuda_staging staging[CT_DEVICE_BATCHES_AHEAD];
    size_t next_staging;
    char name[300]; /* cudaDeviceProp.name has 256 */
};

static inline struct ct_cuda *ct_cuda_of(struct ct_device *dev)
{
    return (struct ct_cuda *)dev;
}

/* For the functions of launch.h. */
static inline struct ct_launch_on ct_cuda_on(const struct ct_cuda *cuda, cudaStream_t stream)
{
    return (struct ct_launch_on){.stream = stream, .early = cuda->early};
}

/* Writes a message with the place of the failed call, and clears CUDA's last error, because
 * otherwise the next launch would report it. */
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

/* The size that NVIDIA recommends for Hopper; older GPUs need less. */
#define CT_CUDA_WORKSPACE ((size_t)32 << 20)

/* timing.c: measures one way to compute something on the device, in microseconds: the mean of
 * several runs, after one that is not counted. Waits for the device; not legal in a recording. */
typedef int (*ct_cuda_way_fn)(struct ct_cuda *cuda, const void *op, struct ct_err *err);
int ct_cuda_time(struct ct_cuda *cuda, ct_cuda_way_fn way, const void *op, float *us,
                 struct ct_err *err);
/* The same for work that will be recorded: so many runs in one recording. */
int ct_cuda_time_recorded(struct ct_cuda *cuda, ct_cuda_way_fn way, const void *op, size_t runs,
                          float *us, struct ct_err *err);

/* early.c: a member of the table; a part of explain(), whose only failure is CT_ENOMEM. */
int ct_cuda_prepare_record(struct ct_device *dev, struct ct_err *err);
int ct_cuda_early_explain(const struct ct_cuda *cuda, struct ct_buf *to);

/* gemm.c: like kernels/cpu/cpu_gemm.h, but for whole operations. The batch is never empty. */
int ct_cuda_gemm_new(struct ct_cuda_gemm **out, struct ct_err *err);
void ct_cuda_gemm_free(struct ct_cuda_gemm *gemm);
/* Memory was released: addresses may be those of other layers from now on. */
void ct_cuda_gemm_forget(struct ct_cuda_gemm *gemm);
int ct_cuda_linear(struct ct_cuda *cuda, const struct ct_linear *op, struct ct_err *err);
int ct_cuda_linear_grad(struct ct_cuda *cuda, const struct ct_linear_grad *op, struct ct_err *err);

/* gemm_partition.c: the same for a batch that op->partition divides. */
int ct_cuda_cut_linear(struct ct_cuda *cuda, const struct ct_linear *op, struct ct_err *err);
int ct_cuda_cut_grad(struct ct_cuda *cuda, const struct ct_linear_grad *op, struct ct_err *err);

/* head.c: the timed choices for shapes of last layers; the operation itself. */
int ct_cuda_head_new(struct ct_cuda_head **out, struct ct_err *err);
void ct_cuda_head_free(struct ct_cuda_head *head);
/* Each appends its part of explain() of the table. CT_ENOMEM is the only failure. */
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
