/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of device operations on a GPU: opening and closing, memory, and the operations that are
 * a single launch. A failed call gives a message with its place in the source; close() also ends a
 * device that was opened in part.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/cuda_plugin.h"

#include "common/alloc.h"
#include "kernels/device/update_scalars.h"

#include <stdio.h>
#include <string.h>

/* ---- errors --------------------------------------------------------------------------------- */

int ct_cuda_fail(struct ct_err *err, cudaError_t status, const char *file, int line,
                 const char *call)
{
    (void)cudaGetLastError();
    int code = status == cudaErrorMemoryAllocation ? CT_ENOMEM : CT_EIO;
    if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver ||
        status == cudaErrorNoKernelImageForDevice || status == cudaErrorUnsupportedPtxVersion) {
        code = CT_EUNSUPPORTED;
    }
    return ct_err_set(err, code, "CUDA: %s (%s) at %s:%d: %s", cudaGetErrorString(status),
                      cudaGetErrorName(status), file, line, call);
}

int ct_cublas_fail(struct ct_err *err, cublasStatus_t status, const char *file, int line,
                   const char *call)
{
    (void)cudaGetLastError();
    int code = status == CUBLAS_STATUS_ALLOC_FAILED    ? CT_ENOMEM
               : status == CUBLAS_STATUS_NOT_SUPPORTED ? CT_EUNSUPPORTED
                                                       : CT_EIO;
    return ct_err_set(err, code, "cuBLASLt: %s at %s:%d: %s", cublasLtGetStatusString(status), file,
                      line, call);
}

/* ---- memory --------------------------------------------------------------------------------- */

static int cuda_alloc(struct ct_device *dev, size_t bytes, void **out, struct ct_err *err)
{
    void *ptr = NULL;
    if (bytes > PTRDIFF_MAX) { /* the driver rounds sizes up, which could overflow */
        return ct_err_set(err, CT_ENOMEM, "no memory for %zu bytes", bytes);
    }
    /* cudaMalloc(0) gives NULL, which callers take for "there is no array". */
    CT_CUDA_TRY(err, cudaMalloc(&ptr, bytes > 0 ? bytes : 1));
    cudaError_t status = cudaMemsetAsync(ptr, 0, bytes, ct_cuda_of(dev)->stream);
    if (status != cudaSuccess) {
        (void)cudaFree(ptr);
        return ct_cuda_fail(err, status, __FILE__, __LINE__, "clearing new memory");
    }
    *out = ptr;
    return 0;
}

static void cuda_release(struct ct_device *dev, void *ptr)
{
    (void)cudaFree(ptr);
    ct_cuda_gemm_forget(ct_cuda_of(dev)->gemm);
}

/* Waits in both directions, so that the caller may use the host memory again on return. */
static int copy(struct ct_device *dev, void *dst, const void *src, size_t bytes,
                enum cudaMemcpyKind kind, struct ct_err *err)
{
    cudaStream_t stream = ct_cuda_of(dev)->stream;
    if (bytes > 0) {
        CT_CUDA_TRY(err, cudaMemcpyAsync(dst, src, bytes, kind, stream));
    }
    CT_CUDA_TRY(err, cudaStreamSynchronize(stream));
    return 0;
}

static int cuda_upload(struct ct_device *dev, void *dst, const void *src, size_t bytes,
                       struct ct_err *err)
{
    return copy(dev, dst, src, bytes, cudaMemcpyHostToDevice, err);
}

static int cuda_download(struct ct_device *dev, void *dst, const void *src, size_t bytes,
                         struct ct_err *err)
{
    return copy(dev, dst, src, bytes, cudaMemcpyDeviceToHost, err);
}

static int cuda_alloc_host(struct ct_device *dev, size_t bytes, void **out, struct ct_err *err)
{
    (void)dev;
    CT_CUDA_TRY(err, cudaMallocHost(out, bytes));
    return 0;
}

static void cuda_release_host(struct ct_device *dev, void *ptr)
{
    (void)dev;
    (void)cudaFreeHost(ptr);
}

static int cuda_upload_later(struct ct_device *dev, void *dst, const void *src, size_t bytes,
                             struct ct_err *err)
{
    CT_CUDA_TRY(err,
                cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, ct_cuda_of(dev)->stream));
    return 0;
}

static int cuda_clear(struct ct_device *dev, void *dst, size_t bytes, struct ct_err *err)
{
    if (bytes > 0) {
        CT_CUDA_TRY(err, cudaMemsetAsync(dst, 0, bytes, ct_cuda_of(dev)->stream));
    }
    return 0;
}

static int cuda_copy(struct ct_device *dev, void *dst, const void *src, size_t bytes,
                     struct ct_err *err)
{
    CT_CUDA_TRY(
        err, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, ct_cuda_of(dev)->stream));
    return 0;
}

static int cuda_sync(struct ct_device *dev, struct ct_err *err)
{
    CT_CUDA_TRY(err, cudaStreamSynchronize(ct_cuda_of(dev)->stream));
    return 0;
}

/* ---- operations ----------------------------------------------------------------------------- */

static int grow(struct ct_cuda_staging *s, size_t count, struct ct_err *err)
{
    (void)cudaFreeHost(s->host);
    (void)cudaFree(s->device); /* waits for kernels that still read it */
    s->host = NULL;
    s->device = NULL;
    s->capacity = 0;
    CT_CUDA_TRY(err, cudaMallocHost((void **)&s->host, count * sizeof(*s->host)));
    CT_CUDA_TRY(err, cudaMalloc((void **)&s->device, count * sizeof(*s->device)));
    s->capacity = count;
    return 0;
}

/* Clears the rows behind the batch up to the end of the last part of a divided batch, because these
 * rows are computed, too. */
static int clear_rest(struct ct_device *dev, const struct ct_partition *partition, size_t batch,
                      void *rows, size_t row_bytes, struct ct_err *err)
{
    size_t all = partition->rows * partition->parts;
    if (partition->rows == 0 || batch >= all) {
        return 0;
    }
    return cuda_clear(dev, (char *)rows + batch * row_bytes, (all - batch) * row_bytes, err);
}

static int cuda_gather(struct ct_device *dev, const struct ct_gather *op, struct ct_err *err)
{
    struct ct_cuda *cuda = ct_cuda_of(dev);
    if (op->batch == 0) {
        return 0;
    }
    size_t row_bytes = op->features * ct_precision_bytes(dev->precision);
    int rc = clear_rest(dev, &op->partition, op->batch, op->x, row_bytes, err);
    if (rc != 0) {
        return rc;
    }
    if (op->cursor != NULL) {
        CT_CUDA_TRY(err,
                    ct_launch_gather(ct_cuda_on(cuda, cuda->stream), dev->precision, op, NULL));
        return 0;
    }
    struct ct_cuda_staging *s = &cuda->staging[cuda->next_staging];
    cuda->next_staging = (cuda->next_staging + 1) % CT_DEVICE_BATCHES_AHEAD;
    CT_CUDA_TRY(err, cudaEventSynchronize(s->done));
    if (s->capacity < op->batch) {
        rc = grow(s, op->batch, err);
        if (rc != 0) {
            return rc;
        }
    }
    memcpy(s->host, op->index, op->batch * sizeof(*s->host));
    CT_CUDA_TRY(err, cudaMemcpyAsync(s->device, s->host, op->batch * sizeof(*s->host),
                                     cudaMemcpyHostToDevice, cuda->stream));
    CT_CUDA_TRY(err, cudaEventRecord(s->done, cuda->stream));
    CT_CUDA_TRY(err,
                ct_launch_gather(ct_cuda_on(cuda, cuda->stream), dev->precision, op, s->device));
    return 0;
}

static int cuda_linear(struct ct_device *dev, const struct ct_linear *op, struct ct_err *err)
{
    return op->batch == 0 ? 0 : ct_cuda_linear(ct_cuda_of(dev), op, err);
}

static int cuda_linear_grad(struct ct_device *dev, const struct ct_linear_grad *op,
                            struct ct_err *err)
{
    if (op->batch > 0) {
        return ct_cuda_linear_grad(ct_cuda_of(dev), op, err);
    }
    int rc = cuda_clear(dev, op->dw, op->out * op->in * sizeof(float), err);
    return rc == 0 ? cuda_clear(dev, op->db, op->out * sizeof(float), err) : rc;
}

#define MAX_CLASSES 256u /* labels are bytes */

static int check_classes(size_t classes, struct ct_err *err)
{
    return classes > 0 && classes <= MAX_CLASSES
               ? 0
               : ct_err_set(err, CT_EINVAL, "%zu classes: must be 1 to %u", classes, MAX_CLASSES);
}

static int cuda_loss(struct ct_device *dev, const struct ct_loss *op, struct ct_err *err)
{
    int rc = check_classes(op->classes, err);
    if (rc != 0) {
        return rc;
    }
    if (op->batch == 0) {
        return 0;
    }
    struct ct_cuda *cuda = ct_cuda_of(dev);
    CT_CUDA_TRY(err,
                ct_launch_loss(ct_cuda_on(cuda, cuda->stream), dev->precision, op, cuda->sums));
    size_t row_bytes = op->classes * ct_precision_bytes(dev->precision);
    return op->dlogits == NULL
               ? 0
               : clear_rest(dev, &op->partition, op->batch, op->dlogits, row_bytes, err);
}

static int cuda_head(struct ct_device *dev, const struct ct_head *op, struct ct_err *err)
{
    int rc = check_classes(op->loss.classes, err);
    if (rc != 0) {
        return rc;
    }
    return op->linear.batch > 0 ? ct_cuda_head(ct_cuda_of(dev), op, err)
                                : cuda_linear_grad(dev, &op->grad, err);
}

static cudaStream_t stream_of_update(struct ct_device *dev, bool beside)
{
    return beside ? ct_cuda_of(dev)->updates : ct_cuda_of(dev)->stream;
}

static int cuda_sgd(struct ct_device *dev, const struct ct_sgd *op, struct ct_err *err)
{
    if (op->count > 0) {
        const struct ct_update_scalars scalars = {.lr = op->lr};
        CT_CUDA_TRY(err,
                    ct_launch_sgd(ct_cuda_on(ct_cuda_of(dev), stream_of_update(dev, op->beside)),
                                  op, scalars));
    }
    return 0;
}

static int cuda_adamw(struct ct_device *dev, const struct ct_adamw *op, struct ct_err *err)
{
    if (op->count > 0) {
        struct ct_update_scalars scalars = {0};
        if (op->cursor == NULL) {
            scalars =
                ct_update_scalars_adamw(op->lr, op->beta1, op->beta2, op->weight_decay, op->step);
        }
        CT_CUDA_TRY(err,
                    ct_launch_adamw(ct_cuda_on(ct_cuda_of(dev), stream_of_update(dev, op->beside)),
                                    op, scalars));
    }
    return 0;
}

static int cuda_narrow(struct ct_device *dev, size_t count, const float *from, uint16_t *to,
                       struct ct_err *err)
{
    if (count > 0) {
        CT_CUDA_TRY(err, ct_launch_narrow(ct_cuda_on(ct_cuda_of(dev), ct_cuda_of(dev)->stream),
                                          count, from, to));
    }
    return 0;
}

static int cuda_tree_sum(struct ct_device *dev, const struct ct_tree_sum *op, struct ct_err *err)
{
    if (op->count > 0) {
        CT_CUDA_TRY(err,
                    ct_launch_tree_sum(ct_cuda_on(ct_cuda_of(dev), ct_cuda_of(dev)->side), op));
    }
    return 0;
}

static int cuda_set_precision(struct ct_device *dev, enum ct_precision precision,
                              struct ct_err *err)
{
    /* bf16 and tf32 came with Ampere, e4m3 and e5m2 with Ada. */
    int needed = precision == CT_PRECISION_F32 ? 0 : precision == CT_PRECISION_FP8 ? 89 : 80;
    int capability = ct_cuda_of(dev)->capability;
    if (capability < needed) {
        return ct_err_set(err, CT_EUNSUPPORTED,
                          "%s does not multiply %s: that takes compute capability %d.%d, not %d.%d",
                          dev->name, ct_precision_name(precision), needed / 10, needed % 10,
                          capability / 10, capability % 10);
    }
    dev->precision = precision;
    return 0;
}

/* ---- life ----------------------------------------------------------------------------------- */

static void cuda_close(struct ct_device *dev)
{
    if (dev == NULL) {
        return;
    }
    struct ct_cuda *cuda = ct_cuda_of(dev);
    if (cuda->stream != NULL) {
        (void)cudaStreamSynchronize(cuda->stream);
    }
    const cudaStream_t others[] = {cuda->side, cuda->updates};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (others[i] != NULL) {
            (void)cudaStreamSynchronize(others[i]);
            (void)cudaStreamDestroy(others[i]);
        }
    }
    const cudaEvent_t events[] = {cuda->forked,  cuda->joined, cuda->to_update,
                                  cuda->updated, cuda->start,  cuda->stop};
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
        if (events[i] != NULL) {
            (void)cudaEventDestroy(events[i]);
        }
    }
    for (size_t i = 0; i < CT_DEVICE_BATCHES_AHEAD; i++) {
        (void)cudaFreeHost(cuda->staging[i].host);
        (void)cudaFree(cuda->staging[i].device);
        if (cuda->staging[i].done != NULL) {
            (void)cudaEventDestroy(cuda->staging[i].done);
        }
    }
    ct_cuda_gemm_free(cuda->gemm);
    ct_cuda_head_free(cuda->head);
    (void)cudaFree(cuda->sums);
    (void)cudaFree(cuda->workspace);
    ct_cuda_scratch_free(&cuda->slots);
    if (cuda->stream != NULL) {
        (void)cudaStreamDestroy(cuda->stream);
    }
    (void)cudaGetLastError();
    ct_free(cuda);
}

static const struct ct_device_ops cuda_ops = {
    .close = cuda_close,
    .alloc = cuda_alloc,
    .release = cuda_release,
    .upload = cuda_upload,
    .download = cuda_download,
    .clear = cuda_clear,
    .copy = cuda_copy,
    .sync = cuda_sync,
    .gather = cuda_gather,
    .linear = cuda_linear,
    .linear_grad = cuda_linear_grad,
    .loss = cuda_loss,
    .head = cuda_head,
    .sgd = cuda_sgd,
    .adamw = cuda_adamw,
    .set_precision = cuda_set_precision,
    .narrow = cuda_narrow,
    .prepare_record = ct_cuda_prepare_record,
    .record = ct_cuda_record,
    .record_end = ct_cuda_record_end,
    .replay = ct_cuda_replay,
    .forget = ct_cuda_forget,
    .alloc_host = cuda_alloc_host,
    .release_host = cuda_release_host,
    .upload_later = cuda_upload_later,
    .advance = ct_cuda_advance,
    .fork = ct_cuda_fork,
    .join = ct_cuda_join,
    .fork_updates = ct_cuda_fork_updates,
    .join_updates = ct_cuda_join_updates,
    .tree_sum = cuda_tree_sum,
    .explain = ct_cuda_explain,
};

/* CUDA's own message names neither the versions nor what to do. */
static int fail_driver(struct ct_err *err)
{
    int has = 0;
    (void)cudaGetLastError();
    if (cudaDriverGetVersion(&has) != cudaSuccess || has == 0) {
        (void)cudaGetLastError();
        return ct_err_set(err, CT_EUNSUPPORTED, "no NVIDIA driver is installed");
    }
    return ct_err_set(
        err, CT_EUNSUPPORTED,
        "the NVIDIA driver knows CUDA up to %d.%d, this build needs %d.%d: update the "
        "driver, or build with an older toolkit",
        has / 1000, has % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
}

static int count_devices(int *out, struct ct_err *err)
{
    int count = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaErrorInsufficientDriver) {
        return fail_driver(err);
    }
    *out = count;
    return status == cudaSuccess
               ? 0
               : ct_cuda_fail(err, status, __FILE__, __LINE__, "cudaGetDeviceCount");
}

/* The side stream has the highest priority, because a sum that waits for the grids of a product
 * delays all peers. Updates have the lowest, because nothing waits for them before the end of the
 * step. A smaller number is a higher priority; the lowest priority, 0, is also the default. */
static int open_streams(struct ct_cuda *cuda, struct ct_err *err)
{
    int least = 0, greatest = 0;
    CT_CUDA_TRY(err, cudaDeviceGetStreamPriorityRange(&least, &greatest));
    int middle = least > greatest ? least - 1 : least;
    const unsigned flags = cudaStreamNonBlocking;
    CT_CUDA_TRY(err, cudaStreamCreateWithPriority(&cuda->stream, flags, middle));
    CT_CUDA_TRY(err, cudaStreamCreateWithPriority(&cuda->side, flags, greatest));
    CT_CUDA_TRY(err, cudaStreamCreateWithPriority(&cuda->updates, flags, least));
    return 0;
}

/* On failure the caller closes the device: cuda_close() frees what was opened so far. */
static int open_into(struct ct_cuda *cuda, int index, struct ct_err *err)
{
    struct cudaDeviceProp prop;
    CT_CUDA_TRY(err, cudaSetDevice(index));
    CT_CUDA_TRY(err, cudaGetDeviceProperties(&prop, index));
    cudaError_t status = ct_launch_check();
    /* CUDA documents the second for this call, and the first for launches. */
    if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction ||
        status == cudaErrorUnsupportedPtxVersion) {
        (void)cudaGetLastError();
        return ct_err_set(err, CT_EUNSUPPORTED,
                          "%s has compute capability %d.%d, for which this build has no kernels",
                          prop.name, prop.major, prop.minor);
    }
    if (status != cudaSuccess) {
        return ct_cuda_fail(err, status, __FILE__, __LINE__, "looking for kernels");
    }
    int rc = open_streams(cuda, err);
    if (rc != 0) {
        return rc;
    }
    CT_CUDA_TRY(err, cudaEventCreateWithFlags(&cuda->forked, cudaEventDisableTiming));
    CT_CUDA_TRY(err, cudaEventCreateWithFlags(&cuda->joined, cudaEventDisableTiming));
    for (size_t i = 0; i < CT_DEVICE_BATCHES_AHEAD; i++) {
        CT_CUDA_TRY(err, cudaEventCreateWithFlags(&cuda->staging[i].done, cudaEventDisableTiming));
    }
    CT_CUDA_TRY(err, cudaEventCreateWithFlags(&cuda->to_update, cudaEventDisableTiming));
    CT_CUDA_TRY(err, cudaEventCreateWithFlags(&cuda->updated, cudaEventDisableTiming));
    CT_CUDA_TRY(err, cudaEventCreate(&cuda->start));
    CT_CUDA_TRY(err, cudaEventCreate(&cuda->stop));
    CT_CUDA_TRY(err, cudaMalloc(&cuda->workspace, CT_CUDA_WORKSPACE));
    CT_CUDA_TRY(err, cudaMalloc((void **)&cuda->sums, sizeof(*cuda->sums)));
    CT_CUDA_TRY(err, cudaMemsetAsync(cuda->sums, 0, sizeof(*cuda->sums), cuda->stream));
    rc = ct_cuda_gemm_new(&cuda->gemm, err);
    if (rc == 0) {
        rc = ct_cuda_head_new(&cuda->head, err);
    }
    if (rc != 0) {
        return rc;
    }
    (void)snprintf(cuda->name, sizeof(cuda->name), "cuda:%d (%s)", index, prop.name);
    cuda->capability = prop.major * 10 + prop.minor;
    cuda->base = (struct ct_device){
        .ops = &cuda_ops,
        .kind = CT_DEVICE_CUDA,
        .index = index,
        .stream = cuda->stream,
        .side = cuda->side,
        .name = cuda->name,
    };
    return 0;
}

static int open_device(int index, struct ct_device **out, struct ct_err *err)
{
    int count = 0;
    int rc = count_devices(&count, err);
    if (rc != 0) {
        (void)ct_err_wrap(err, "cannot open CUDA device %d", index);
        return rc;
    }
    if (index < 0 || index >= count) {
        return ct_err_set(err, CT_EUNSUPPORTED,
                          "cannot open CUDA device %d: this machine has %d, counted from 0", index,
                          count);
    }
    struct ct_cuda *cuda = ct_calloc(1, sizeof(*cuda));
    if (cuda == NULL) {
        return ct_err_set(err, CT_ENOMEM, "no memory for CUDA device %d", index);
    }
    rc = open_into(cuda, index, err);
    if (rc != 0) {
        cuda_close(&cuda->base);
        (void)ct_err_wrap(err, "cannot open CUDA device %d", index);
        return rc;
    }
    *out = &cuda->base;
    return 0;
}

extern __attribute__((visibility("default"))) const struct ct_cuda_plugin ct_cuda_plugin;
const struct ct_cuda_plugin ct_cuda_plugin = {
    .version = CT_VERSION,
    .ops_size = sizeof(struct ct_device_ops),
    .open = open_device,
    .count = count_devices,
};
