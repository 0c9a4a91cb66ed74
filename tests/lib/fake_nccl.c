/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/fake_nccl.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdlib.h>
#include <string.h>

struct fake_nccl fake;

/* ncclComm_t points to one of these. */
struct ncclComm {
    int rank, size;
    int left;  /* polls until the call in progress is done */
    bool busy; /* a call is in progress */
    bool finalized;
    bool broken; /* an error was reported: only ncclCommAbort() is legal */
};

/* The only one of a process. */
static struct ncclComm the_comm;

void fake_nccl_begin(const struct fake_nccl *script)
{
    fake = script != NULL ? *script : (struct fake_nccl){0};
    fake.device = -1;
    memset(&the_comm, 0, sizeof(the_comm));
}

static void rule(bool kept, const char *text)
{
    if (!kept) {
        fake.violations++;
        if (fake.first_violation == NULL) {
            fake.first_violation = text;
        }
    }
}

static ncclResult_t begin(struct ncclComm *comm, int turns)
{
    comm->busy = turns != 0;
    comm->left = turns;
    return comm->busy ? ncclInProgress : ncclSuccess;
}

static void usable(const struct ncclComm *comm)
{
    rule(fake.comms == 1 && comm == &the_comm, "use of a communicator that does not exist");
    rule(!comm->broken, "use of a communicator after its error");
    rule(!comm->busy, "a call while the last one is in progress");
    rule(!comm->finalized, "use of a finalised communicator");
}

/* True when the script's error strikes now. */
static bool strikes(void)
{
    return fake.fail_after > 0 && --fake.fail_after == 0;
}

/* ---- communicators --------------------------------------------------------------------------- */

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    memset(id->internal, 0x5a, sizeof(id->internal));
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    (void)id;
    rule(config != NULL && config->blocking == 0, "a blocking communicator");
    rule(fake.device >= 0, "no device chosen before the communicator is made");
    rule(fake.comms == 0, "two communicators");
    if (fake.init_error != 0) {
        *comm = NULL;
        return (ncclResult_t)fake.init_error;
    }
    the_comm = (struct ncclComm){.rank = rank, .size = nranks};
    fake.comms++;
    *comm = &the_comm;
    return begin(&the_comm, fake.init_turns);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    rule(fake.comms == 1 && comm == &the_comm, "polling a communicator that does not exist");
    if (strikes()) {
        comm->broken = true;
        *state = (ncclResult_t)fake.async_error;
        return ncclSuccess;
    }
    if (comm->busy && comm->left > 0 && --comm->left == 0) {
        comm->busy = false;
    }
    *state = comm->busy ? ncclInProgress : ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    usable(comm);
    comm->finalized = true;
    return begin(comm, fake.finalize_turns);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    rule(fake.comms == 1, "destroyed twice");
    rule(comm->finalized && !comm->busy, "destroyed before finalisation is done");
    rule(!comm->broken, "destroyed after an error");
    rule(fake.registrations == 0, "destroyed with memory registered");
    fake.comms--;
    fake.destroys++;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    rule(fake.comms == 1 && comm == &the_comm, "aborted twice");
    fake.comms--;
    fake.aborts++;
    fake.registrations = 0; /* go with the communicator */
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclRemoteError ? "remote process exited" : "fake error";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "two\nlines";
}

/* ---- collectives ----------------------------------------------------------------------------- */

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    (void)stream;
    usable(comm);
    rule(type == ncclFloat && op == ncclSum, "not a sum of floats");
    if (fake.call_error != 0) {
        comm->broken = true;
        return (ncclResult_t)fake.call_error;
    }
    const float *from = send;
    float *to = recv;
    for (size_t i = 0; i < count; i++) {
        to[i] = from[i] * (float)(comm->size - fake.refusing_peers);
    }
    return begin(comm, fake.call_turns);
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream)
{
    (void)stream;
    usable(comm);
    rule(type == ncclUint8, "a broadcast of other things than bytes");
    rule(root >= 0 && root < comm->size, "no such root");
    memmove(recv, send, count);
    return begin(comm, fake.call_turns);
}

/* ---- memory ---------------------------------------------------------------------------------- */

ncclResult_t ncclMemAlloc(void **ptr, size_t size)
{
    if (fake.no_mem_alloc) {
        return ncclUnhandledCudaError;
    }
    *ptr = malloc(size);
    fake.memory++;
    return ncclSuccess;
}

ncclResult_t ncclMemFree(void *ptr)
{
    fake.memory -= ptr != NULL;
    free(ptr);
    return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle)
{
    (void)size;
    usable(comm);
    if (fake.no_register) {
        return ncclInvalidUsage;
    }
    fake.registrations++;
    *handle = buff;
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    (void)handle;
    usable(comm);
    rule(fake.registrations > 0, "deregistered twice");
    fake.registrations--;
    return ncclSuccess;
}

/* ---- CUDA runtime ---------------------------------------------------------------------------- */

cudaError_t cudaSetDevice(int device)
{
    fake.device = device;
    return (cudaError_t)fake.set_device_error;
}

cudaError_t cudaMalloc(void **ptr, size_t size)
{
    *ptr = malloc(size);
    fake.memory++;
    return cudaSuccess;
}

cudaError_t cudaFree(void *ptr)
{
    fake.memory -= ptr != NULL;
    free(ptr);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *ptr, int value, size_t count, cudaStream_t stream)
{
    (void)stream;
    memset(ptr, value, count);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    (void)kind;
    (void)stream;
    memcpy(dst, src, count);
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    (void)stream;
    if (fake.stream_error != 0) {
        return (cudaError_t)fake.stream_error;
    }
    if (fake.stream_turns > 0) {
        fake.stream_turns--;
    }
    return fake.stream_turns != 0 ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorNoDevice ? "no CUDA-capable device is detected" : "fake CUDA error";
}
