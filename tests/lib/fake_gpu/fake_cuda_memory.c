/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory, devices and error texts of the fake GPU: tests/lib/fake_gpu/fake_gpu.h.
 */
#include "tests/lib/fake_gpu/fake_gpu_engine.h"
#include "tests/lib/fake_gpu/fake_view.h"

#include <stdlib.h>
#include <string.h>

/* Page-locked blocks. A copy from such a block reads it when the copy runs. A copy from other host
 * memory reads it when the copy is queued. */
#define LOCKED_MAX 64
static struct {
    char *base;
    size_t size;
} locked[LOCKED_MAX];

static bool is_locked(const void *ptr)
{
    const char *p = ptr;
    for (int i = 0; i < LOCKED_MAX; i++) {
        if (locked[i].base != NULL && p >= locked[i].base && p < locked[i].base + locked[i].size) {
            return true;
        }
    }
    return false;
}

struct fill {
    void *ptr;
    int value;
    size_t count;
};

/* Only scratch memory is so large, and it is only cleared to pass time. So it is enough to fill
 * both ends. */
#define LARGE ((size_t)16 << 20)
#define END 4096

static void run_fill(const void *data)
{
    const struct fill *f = data;
    bool whole = f->count < LARGE;
    memset(f->ptr, f->value, whole ? f->count : END);
    if (!whole) {
        memset((char *)f->ptr + f->count - END, f->value, END);
    }
}

cudaError_t cudaMalloc(void **ptr, size_t size)
{
    FAKE_ALONE;
    if (!fake_may_block("cudaMalloc() in a capture")) {
        return cudaErrorStreamCaptureUnsupported;
    }
    if (fake_fails() || size > (size_t)1 << 40) {
        return cudaErrorMemoryAllocation;
    }
    /* Aligned as by cudaMalloc(), and not zeroed. */
    *ptr = aligned_alloc(256, (size + 255) / 256 * 256);
    run_fill(&(struct fill){*ptr, 0xa5, size});
    fake_view_add(*ptr, size);
    fake.memory++;
    return cudaSuccess;
}

cudaError_t cudaFree(void *ptr)
{
    FAKE_ALONE;
    if (ptr == NULL) {
        return cudaSuccess;
    }
    if (!fake_may_block("cudaFree() in a capture")) {
        return cudaErrorStreamCaptureUnsupported;
    }
    fake_wait_needs_no_peer(NULL, NULL, "cudaFree() while a collective is queued");
    fake_drain_all(); /* it waits for the device */
    fake.memory--;
    fake_view_remove(ptr);
    free(ptr);
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **ptr, size_t size)
{
    FAKE_ALONE;
    cudaError_t status = cudaMalloc(ptr, size);
    if (status == cudaSuccess) {
        /* The host may write it while a kernel of another rank runs, and a view would undo that. */
        fake_view_remove(*ptr);
    }
    for (int i = 0; status == cudaSuccess && i < LOCKED_MAX; i++) {
        if (locked[i].base == NULL) {
            locked[i].base = *ptr;
            locked[i].size = size;
            return cudaSuccess;
        }
    }
    fake_rule(status != cudaSuccess, "more page-locked blocks than the fake GPU can hold");
    return status;
}

cudaError_t cudaFreeHost(void *ptr)
{
    FAKE_ALONE;
    for (int i = 0; ptr != NULL && i < LOCKED_MAX; i++) {
        locked[i].base = locked[i].base == ptr ? NULL : locked[i].base;
    }
    return cudaFree(ptr);
}

cudaError_t cudaMemsetAsync(void *ptr, int value, size_t count, cudaStream_t stream)
{
    FAKE_ALONE;
    if (fake_fails()) {
        return cudaErrorUnknown;
    }
    fake_queue(stream, run_fill, &(struct fill){ptr, value, count}, sizeof(struct fill));
    return cudaSuccess;
}

struct move {
    void *dst;
    const void *src;
    size_t count;
    bool staged;
    char held[]; /* what pageable memory held when the copy was queued */
};

static void run_move(const void *data)
{
    const struct move *m = data;
    memcpy(m->dst, m->staged ? m->held : m->src, m->count);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    FAKE_ALONE;
    fake_rule(kind == cudaMemcpyDeviceToDevice || !fake_is_capturing(stream),
              "a copy between host and device in a capture");
    if (fake_fails()) {
        return cudaErrorUnknown;
    }
    if (kind == cudaMemcpyDeviceToHost && !is_locked(dst)) {
        fake_wait_needs_no_peer(fake_stream_of(stream), NULL,
                                "a copy to pageable memory behind a collective: it waits");
    }
    bool staged = kind == cudaMemcpyHostToDevice && !is_locked(src);
    size_t bytes = sizeof(struct move) + (staged ? count : 0);
    struct move *m = malloc(bytes);
    m->dst = dst, m->src = src, m->count = count, m->staged = staged;
    if (staged) {
        memcpy(m->held, src, count);
    }
    fake_queue(stream, run_move, m, bytes);
    free(m);
    return cudaSuccess;
}

/* ---- the device ------------------------------------------------------------------------------ */

static _Thread_local int here = -1;

int fake_current_device(void)
{
    return here;
}

void fake_be_on(int device)
{
    here = device;
}

cudaError_t cudaSetDevice(int device)
{
    FAKE_ALONE;
    fake.device = device;
    here = device;
    return fake.set_device_error != 0 ? (cudaError_t)fake.set_device_error
           : fake_fails()             ? cudaErrorUnknown
                                      : cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    FAKE_ALONE;
    *version = fake.driver > 0 ? fake.driver : 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    FAKE_ALONE;
    if (!fake_may_block("cudaDeviceSynchronize() in a capture")) {
        return cudaErrorStreamCaptureUnsupported;
    }
    fake_wait_needs_no_peer(NULL, NULL, "cudaDeviceSynchronize() behind a collective");
    fake_drain_all();
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    FAKE_ALONE;
    if (fake.driver != 0) {
        return cudaErrorInsufficientDriver;
    }
    *count = fake.devices > 0 ? fake.devices : 8;
    return fake_fails() ? cudaErrorNoDevice : cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    FAKE_ALONE;
    int capability = fake.capability != 0 ? fake.capability : 90;
    (void)device;
    *prop = (struct cudaDeviceProp){
        .name = "fake GPU", .major = capability / 10, .minor = capability % 10};
    return fake_fails() ? cudaErrorUnknown : cudaSuccess;
}

/* ---- errors ---------------------------------------------------------------------------------- */

cudaError_t fake_last_error;

cudaError_t cudaGetLastError(void)
{
    FAKE_ALONE;
    cudaError_t error = fake_last_error;
    fake_last_error = cudaSuccess;
    return error;
}

/* Fails if there is no kernel for the device. */
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel)
{
    FAKE_ALONE;
    *attributes = (struct cudaFuncAttributes){0};
    fake_rule(kernel != NULL, "attributes of no kernel");
    if (fake.capability != 0 && fake.capability < 75) {
        return fake.other_refusal ? cudaErrorInvalidDeviceFunction
                                  : cudaErrorNoKernelImageForDevice;
    }
    return fake_fails() ? cudaErrorUnknown : cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorNoDevice ? "no CUDA-capable device is detected" : "fake CUDA error";
}

const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaErrorNoDevice ? "cudaErrorNoDevice" : "cudaErrorFake";
}
