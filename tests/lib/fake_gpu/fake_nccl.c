/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL of the fake GPU (tests/lib/fake_gpu/fake_gpu.h): communicators and registered memory. The
 * collectives are in fake_nccl_calls.c.
 */
#include "tests/lib/fake_gpu/fake_nccl.h"

#include <stdlib.h>
#include <string.h>

/* All communicators of a process, whose ranks may be threads. */
#define COMMS_MAX 64
static struct ncclComm comms[COMMS_MAX];

struct ncclComm *fake_comm_new(int rank, int size)
{
    struct ncclComm *comm = comms;
    while (comm < comms + COMMS_MAX && comm->alive) {
        comm++;
    }
    if (comm == comms + COMMS_MAX) {
        abort();
    }
    *comm = (struct ncclComm){.rank = rank, .size = size, .alive = true, .round = 1};
    fake.comms++;
    return comm;
}

ncclResult_t fake_begin_call(struct ncclComm *comm, int turns)
{
    comm->busy = turns != 0;
    comm->left = turns;
    return comm->busy ? ncclInProgress : ncclSuccess;
}

static bool exists(const struct ncclComm *comm)
{
    return comm >= comms && comm < comms + COMMS_MAX && comm->alive;
}

void fake_usable(const struct ncclComm *comm)
{
    fake_rule(exists(comm), "use of a communicator that does not exist");
    fake_rule(!comm->broken, "use of a communicator after its error");
    fake_rule(!comm->busy, "a call while the last one is in progress");
    fake_rule(!comm->finalized, "use of a finalised communicator");
}

/* True if the script reports its error in this poll. */
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
        fake_rendezvous_name(id);
    }
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    FAKE_ALONE;
    fake_rule(config != NULL && config->blocking == 0, "a blocking communicator");
    fake_rule(fake.device >= 0, "no device chosen before the communicator is made");
    if (fake.init_error != 0) {
        *comm = NULL;
        return (ncclResult_t)fake.init_error;
    }
    fake_rule(fake_may_block("a communicator made in a capture"), "not in a capture");
    struct fake_rendezvous *rendezvous =
        fake.processes ? fake_rendezvous_enter(&id, rank, nranks) : NULL;
    *comm = NULL;
    if (fake.processes && rendezvous == NULL) {
        return ncclSystemError;
    }
    *comm = fake_comm_new(rank, nranks);
    (*comm)->rendezvous = rendezvous;
    (void)fake_begin_call(*comm, fake.init_turns);
    (*comm)->busy |= rendezvous != NULL; /* until all ranks have come */
    return (*comm)->busy ? ncclInProgress : ncclSuccess;
}

/* Does the call in progress still wait for the peers, or for a thread of NCCL? */
static bool is_held(struct ncclComm *comm)
{
    if (comm->working) {
        return true;
    }
    if (comm->rendezvous == NULL) {
        return comm->split != NULL && !fake_split_is_done(comm);
    }
    if (comm->finalized) {
        while (comm->pending > 0 && fake_turn()) {
        }
        return comm->pending > 0;
    }
    if (!fake_rendezvous_is_full(comm->rendezvous) ||
        (comm->split != NULL && !fake_split_is_done(comm))) {
        return true;
    }
    bool connecting = comm->rendezvous->called[comm->rank] > 0 && !comm->connected;
    for (int r = 0; connecting && r < comm->size; r++) {
        if (comm->rendezvous->called[r] == 0) {
            return true;
        }
    }
    comm->connected = comm->connected || connecting;
    return false;
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
    if (comm->rendezvous != NULL && !comm->finalized &&
        fake_rendezvous_lost_someone(comm->rendezvous)) {
        comm->broken = true;
        *state = ncclRemoteError;
        return ncclSuccess;
    }
    if (comm->busy && !is_held(comm) && (comm->left == 0 || --comm->left == 0)) {
        comm->busy = false;
    }
    *state = comm->busy ? ncclInProgress : ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    FAKE_ALONE;
    fake_usable(comm);
    fake_rule(comm->hold.graphs == 0,
              "finalised while a graph holds collectives: NCCL waits for ever");
    comm->finalized = true;
    if (comm->rendezvous != NULL) {
        comm->rendezvous->finalized[comm->rank] = true;
        fake_tell_others();
    }
    (void)fake_begin_call(comm, fake.finalize_turns);
    comm->busy |= comm->pending > 0; /* queued collectives end first */
    return comm->busy ? ncclInProgress : ncclSuccess;
}

void fake_comm_end(struct ncclComm *comm, int how)
{
    comm->alive = false;
    fake.comms--;
    if (comm->rendezvous != NULL) {
        fake_rendezvous_leave(comm->rendezvous, comm->rank, how);
    }
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    FAKE_ALONE;
    fake_rule(exists(comm), "destroyed twice");
    fake_rule(comm->finalized && !comm->busy, "destroyed before finalisation is done");
    fake_rule(!comm->broken, "destroyed after an error");
    fake_rule(comm->registrations == 0, "destroyed with memory registered");
    /* NCCL's own thread waits for those of the ranks on this machine, so let it be all of them. */
    while (comm->rendezvous != NULL && !fake_rendezvous_is_final(comm->rendezvous)) {
        if (!fake_await_others()) {
            fake_rule(false, "destroyed while another rank waits elsewhere: NCCL waits for it");
            break;
        }
    }
    fake_comm_end(comm, FAKE_LEFT);
    fake.destroys++;
    return ncclSuccess;
}

void fake_abort_all(struct ncclComm **comm, int count)
{
    bool imaginary = false;
    for (int i = 0; i < count; i++) {
        fake_await_thread(comm[i]);
        comm[i]->hold.aborted = true;
        imaginary = imaginary || comm[i]->rendezvous == NULL;
    }
    /* The kernels end, and the work behind them runs on undefined numbers. */
    fake_drain_all();
    if (imaginary) { /* nothing may run on the results of imaginary peers */
        fake_drop_all();
        for (int i = 0; i < COMMS_MAX; i++) {
            comms[i].pending = comms[i].rendezvous == NULL ? 0 : comms[i].pending;
        }
    }
    for (int i = 0; i < count; i++) {
        fake_rule(comm[i]->pending == 0, "aborted while its kernels are behind another "
                                         "communicator's that are stuck: NCCL waits for ever");
        fake_rule(comm[i]->hold.graphs == 0,
                  "aborted while a graph holds collectives: NCCL waits for ever");
        if (comm[i]->split != NULL) {
            *comm[i]->split = comm[i]->child; /* for the caller to abort */
        }
        fake.registrations -= comm[i]->registrations; /* they end with the communicator */
        fake_comm_end(comm[i], FAKE_GONE);
        fake.aborts++;
    }
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    FAKE_ALONE;
    fake_rule(exists(comm) && !comm->hold.aborted, "aborted twice");
    comm->hold.aborted = true;
    if (!fake_group_takes_abort(comm)) {
        fake_abort_all(&comm, 1);
    }
    return ncclSuccess;
}

ncclResult_t ncclGetVersion(int *version)
{
    *version = fake.nccl_version != 0 ? fake.nccl_version : NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    FAKE_ALONE;
    fake_usable(comm);
    *rank = comm->rank;
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    FAKE_ALONE;
    fake_usable(comm);
    *count = comm->size;
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
    /* Aligned like pages of a GPU, because the alignment decides which kernels products can use. */
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
