/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL of the stand-in: tests/lib/fake_gpu.h. There is one communicator at a time.
 */
#include "tests/lib/fake_gpu_engine.h"

#include <nccl.h>
#include <stdlib.h>
#include <string.h>

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

static ncclResult_t begin(struct ncclComm *comm, int turns)
{
    comm->busy = turns != 0;
    comm->left = turns;
    return comm->busy ? ncclInProgress : ncclSuccess;
}

static void usable(const struct ncclComm *comm)
{
    fake_rule(fake.comms == 1 && comm == &the_comm, "use of a communicator that does not exist");
    fake_rule(!comm->broken, "use of a communicator after its error");
    fake_rule(!comm->busy, "a call while the last one is in progress");
    fake_rule(!comm->finalized, "use of a finalised communicator");
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
    fake_rule(config != NULL && config->blocking == 0, "a blocking communicator");
    fake_rule(fake.device >= 0, "no device chosen before the communicator is made");
    fake_rule(fake.comms == 0, "two communicators");
    if (fake.init_error != 0) {
        *comm = NULL;
        return (ncclResult_t)fake.init_error;
    }
    fake_rule(fake_may_block("a communicator made in a capture"), "not in a capture");
    the_comm = (struct ncclComm){.rank = rank, .size = nranks};
    fake.comms++;
    *comm = &the_comm;
    return begin(&the_comm, fake.init_turns);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    fake_rule(fake.comms == 1 && comm == &the_comm, "polling a communicator that does not exist");
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
    fake_rule(fake.holding == 0, "finalised while a graph holds collectives: NCCL waits for ever");
    comm->finalized = true;
    return begin(comm, fake.finalize_turns);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    fake_rule(fake.comms == 1, "destroyed twice");
    fake_rule(comm->finalized && !comm->busy, "destroyed before finalisation is done");
    fake_rule(!comm->broken, "destroyed after an error");
    fake_rule(fake.registrations == 0, "destroyed with memory registered");
    fake.comms--;
    fake.destroys++;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    fake_rule(fake.comms == 1 && comm == &the_comm, "aborted twice");
    fake.comms--;
    fake.aborts++;
    fake_drop_all(); /* kernels that waited for peers end; what they leave is not to be read */
    fake_rule(fake.holding == 0, "aborted while a graph holds collectives: NCCL waits for ever");
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

struct sum {
    const float *from;
    float *to;
    size_t count;
    float ranks;
};

static void run_sum(const void *data)
{
    const struct sum *s = data;
    for (size_t i = 0; i < s->count; i++) {
        s->to[i] = s->from[i] * s->ranks;
    }
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    usable(comm);
    fake_rule(type == ncclFloat && op == ncclSum, "not a sum of floats");
    if (fake.call_error != 0) {
        comm->broken = true;
        return (ncclResult_t)fake.call_error;
    }
    const struct sum sum = {send, recv, count, (float)(comm->size - fake.refusing_peers)};
    fake_count_collective(stream);
    fake_queue(stream, run_sum, &sum, sizeof sum);
    return begin(comm, fake.call_turns);
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream)
{
    usable(comm);
    fake_rule(type == ncclUint8, "a broadcast of other things than bytes");
    fake_rule(root >= 0 && root < comm->size, "no such root");
    (void)count;
    fake_rule(send == recv, "a broadcast from one place to another");
    fake_count_collective(stream);
    return begin(comm, fake.call_turns);
}

/* ---- memory ---------------------------------------------------------------------------------- */

ncclResult_t ncclMemAlloc(void **ptr, size_t size)
{
    if (fake.no_mem_alloc) {
        return ncclUnhandledCudaError;
    }
    *ptr = malloc(size);
    fake_rule(fake_may_block("ncclMemAlloc() in a capture"), "not in a capture");
    fake.memory++;
    return ncclSuccess;
}

ncclResult_t ncclMemFree(void *ptr)
{
    fake_rule(fake_is_idle(), "ncclMemFree() of memory that queued work may use: it does not wait");
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
    fake_rule(fake.registrations > 0, "deregistered twice");
    fake.registrations--;
    return ncclSuccess;
}
