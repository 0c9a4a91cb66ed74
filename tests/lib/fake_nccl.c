/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL of the stand-in: tests/lib/fake_gpu.h.
 */
#include "tests/lib/fake_nccl.h"

#include <stdlib.h>
#include <string.h>

/* All of a process: one alone, or those of ncclCommInitAll(). */
static struct ncclComm comms[RANKS_MAX];

ncclResult_t fake_begin_call(struct ncclComm *comm, int turns)
{
    comm->busy = turns != 0;
    comm->left = turns;
    return comm->busy ? ncclInProgress : ncclSuccess;
}

static bool exists(const struct ncclComm *comm)
{
    return comm >= comms && comm < comms + RANKS_MAX && comm->alive;
}

void fake_usable(const struct ncclComm *comm)
{
    fake_rule(exists(comm), "use of a communicator that does not exist");
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
    FAKE_ALONE;
    memset(id->internal, 0x5a, sizeof(id->internal));
    if (fake.processes) {
        fake_room_name(id);
    }
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    FAKE_ALONE;
    fake_rule(config != NULL && config->blocking == 0, "a blocking communicator");
    fake_rule(fake.device >= 0, "no device chosen before the communicator is made");
    fake_rule(fake.comms == 0, "two communicators");
    if (fake.init_error != 0) {
        *comm = NULL;
        return (ncclResult_t)fake.init_error;
    }
    fake_rule(fake_may_block("a communicator made in a capture"), "not in a capture");
    comms[0] = (struct ncclComm){.rank = rank, .size = nranks, .alive = true, .round = 1};
    *comm = &comms[0];
    if (fake.processes) {
        comms[0].room = fake_room_enter(&id, rank, nranks);
        if (comms[0].room == NULL) {
            *comm = NULL;
            return ncclSystemError;
        }
    }
    fake.comms++;
    ncclResult_t result = fake_begin_call(&comms[0], fake.init_turns);
    comms[0].busy |= comms[0].room != NULL; /* until all have come */
    return comms[0].busy ? ncclInProgress : result;
}

ncclResult_t ncclCommInitAll(ncclComm_t *out, int ndev, const int *devlist)
{
    FAKE_ALONE;
    fake_rule(fake.comms == 0, "communicators beside those of a clique");
    fake_rule(ndev >= 1 && ndev <= RANKS_MAX, "a clique larger than the stand-in can hold");
    for (int i = 1; i < ndev; i++) {
        fake_rule(devlist[i] != devlist[i - 1], "two ranks on one device");
    }
    if (fake.init_error != 0) {
        return (ncclResult_t)fake.init_error;
    }
    struct fake_room *room = fake_room_new(ndev);
    for (int i = 0; i < ndev; i++) {
        comms[i] =
            (struct ncclComm){.rank = i, .size = ndev, .alive = true, .room = room, .round = 1};
        out[i] = &comms[i];
    }
    fake.comms += ndev;
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    FAKE_ALONE;
    fake_rule(exists(comm), "polling a communicator that does not exist");
    if (strikes()) {
        comm->broken = true;
        *state = (ncclResult_t)fake.async_error;
        return ncclSuccess;
    }
    if (comm->room != NULL && !comm->finalized && fake_room_lost_someone(comm->room)) {
        comm->broken = true;
        *state = ncclRemoteError;
        return ncclSuccess;
    }
    bool joining = comm->room != NULL && !fake_room_is_full(comm->room);
    if (comm->busy && !joining && (comm->left == 0 || --comm->left == 0)) {
        comm->busy = false;
    }
    *state = comm->busy ? ncclInProgress : ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    FAKE_ALONE;
    fake_usable(comm);
    fake_rule(comm->holding == 0, "finalised while a graph holds collectives: NCCL waits for ever");
    comm->finalized = true;
    return fake_begin_call(comm, fake.finalize_turns);
}

static void end(struct ncclComm *comm, int how)
{
    comm->alive = false;
    fake.comms--;
    if (comm->room != NULL) {
        fake_room_leave(comm->room, comm->rank, how);
    }
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    FAKE_ALONE;
    fake_rule(exists(comm), "destroyed twice");
    fake_rule(comm->finalized && !comm->busy, "destroyed before finalisation is done");
    fake_rule(!comm->broken, "destroyed after an error");
    fake_rule(comm->registrations == 0, "destroyed with memory registered");
    end(comm, FAKE_LEFT);
    fake.destroys++;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    FAKE_ALONE;
    fake_rule(exists(comm), "aborted twice");
    comm->aborted = true;
    if (comm->room != NULL) {
        fake_drain_all(); /* its kernels end, and what comes after them runs on whatever is there */
    } else {
        fake_drop_all(); /* the same, but what they would leave is not to be read */
    }
    fake_rule(comm->holding == 0, "aborted while a graph holds collectives: NCCL waits for ever");
    fake.registrations -= comm->registrations; /* go with the communicator */
    end(comm, FAKE_GONE);
    fake.aborts++;
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

/* ---- memory ---------------------------------------------------------------------------------- */

ncclResult_t ncclMemAlloc(void **ptr, size_t size)
{
    FAKE_ALONE;
    if (fake.no_mem_alloc) {
        return ncclUnhandledCudaError;
    }
    /* As pages of a GPU are: where memory lies decides which kernels products can use. */
    *ptr = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    fake_rule(fake_may_block("ncclMemAlloc() in a capture"), "not in a capture");
    fake.memory++;
    return ncclSuccess;
}

ncclResult_t ncclMemFree(void *ptr)
{
    FAKE_ALONE;
    fake_rule(fake.cliques > 0 || fake_is_idle(),
              "ncclMemFree() of memory that queued work may use: it does not wait");
    fake.memory -= ptr != NULL;
    free(ptr);
    return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle)
{
    FAKE_ALONE;
    (void)size;
    fake_usable(comm);
    if (fake.no_register) {
        return ncclInvalidUsage;
    }
    fake.registrations++;
    comm->registrations++;
    *handle = buff;
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    FAKE_ALONE;
    (void)handle;
    fake_usable(comm);
    fake_rule(comm->registrations > 0, "deregistered twice");
    fake.registrations--;
    comm->registrations--;
    return ncclSuccess;
}
