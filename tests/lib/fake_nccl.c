/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL of the stand-in: tests/lib/fake_gpu.h.
 */
#include "tests/lib/fake_gpu_engine.h"

#include <nccl.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_MAX 8

/* What the ranks of a clique have brought to their collective number `round`. A rank can be one
 * round ahead of another, so there are two of them. */
struct meeting {
    int round, came;
    size_t count;
    float *from[RANKS_MAX];
};

struct clique {
    int size, alive;
    struct meeting meetings[2];
};

/* ncclComm_t points to one of these. */
struct ncclComm {
    int rank, size;
    int left; /* polls until the call in progress is done */
    bool alive;
    bool busy; /* a call is in progress */
    bool finalized;
    bool broken;  /* an error was reported: only ncclCommAbort() is legal */
    bool aborted; /* its kernels end, whatever they wait for */
    int holding;  /* graphs with its collectives */
    int registrations;
    struct clique *clique; /* NULL: the peers are imaginary */
    int round;             /* collectives done */
};

/* All of a process: one alone, or a clique. */
static struct ncclComm comms[RANKS_MAX];
static struct clique the_clique;

static ncclResult_t begin(struct ncclComm *comm, int turns)
{
    comm->busy = turns != 0;
    comm->left = turns;
    return comm->busy ? ncclInProgress : ncclSuccess;
}

static bool exists(const struct ncclComm *comm)
{
    return comm >= comms && comm < comms + RANKS_MAX && comm->alive;
}

static void usable(const struct ncclComm *comm)
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
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    FAKE_ALONE;
    (void)id;
    fake_rule(config != NULL && config->blocking == 0, "a blocking communicator");
    fake_rule(fake.device >= 0, "no device chosen before the communicator is made");
    fake_rule(fake.comms == 0, "two communicators");
    if (fake.init_error != 0) {
        *comm = NULL;
        return (ncclResult_t)fake.init_error;
    }
    fake_rule(fake_may_block("a communicator made in a capture"), "not in a capture");
    comms[0] = (struct ncclComm){.rank = rank, .size = nranks, .alive = true};
    fake.comms++;
    *comm = &comms[0];
    return begin(&comms[0], fake.init_turns);
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
    the_clique = (struct clique){.size = ndev, .alive = ndev};
    for (int i = 0; i < ndev; i++) {
        comms[i] = (struct ncclComm){
            .rank = i, .size = ndev, .alive = true, .clique = &the_clique, .round = 1};
        out[i] = &comms[i];
    }
    fake.comms += ndev;
    fake.cliques++;
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
    if (comm->busy && comm->left > 0 && --comm->left == 0) {
        comm->busy = false;
    }
    *state = comm->busy ? ncclInProgress : ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    FAKE_ALONE;
    usable(comm);
    fake_rule(comm->holding == 0, "finalised while a graph holds collectives: NCCL waits for ever");
    comm->finalized = true;
    return begin(comm, fake.finalize_turns);
}

static void end(struct ncclComm *comm)
{
    comm->alive = false;
    fake.comms--;
    if (comm->clique == NULL || --comm->clique->alive > 0) {
        return;
    }
    fake.cliques--;
    for (int i = 0; i < 2 * RANKS_MAX; i++) {
        free(comm->clique->meetings[i % 2].from[i / 2]);
    }
    *comm->clique = (struct clique){0};
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    FAKE_ALONE;
    fake_rule(exists(comm), "destroyed twice");
    fake_rule(comm->finalized && !comm->busy, "destroyed before finalisation is done");
    fake_rule(!comm->broken, "destroyed after an error");
    fake_rule(comm->registrations == 0, "destroyed with memory registered");
    end(comm);
    fake.destroys++;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    FAKE_ALONE;
    fake_rule(exists(comm), "aborted twice");
    comm->aborted = true;
    if (comm->clique != NULL) {
        fake_drain_all(); /* its kernels end, and what comes after them runs on whatever is there */
    } else {
        fake_drop_all(); /* the same, but what they would leave is not to be read */
    }
    fake_rule(comm->holding == 0, "aborted while a graph holds collectives: NCCL waits for ever");
    fake.registrations -= comm->registrations; /* go with the communicator */
    end(comm);
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

/* ---- collectives ----------------------------------------------------------------------------- */

struct sum {
    struct ncclComm *comm;
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

static void run_nothing(const void *data)
{
    (void)data;
}

static struct meeting *meeting_of(const struct ncclComm *comm)
{
    return &comm->clique->meetings[comm->round % 2];
}

/* Leaves a copy of what this rank brings. The first to come clears the table. */
static void run_arrive(const void *data)
{
    const struct sum *s = data;
    struct meeting *m = meeting_of(s->comm);
    if (m->round != s->comm->round) {
        for (int r = 0; r < RANKS_MAX; r++) {
            free(m->from[r]);
        }
        *m = (struct meeting){.round = s->comm->round, .count = s->count};
    }
    fake_rule(m->count == s->count, "ranks that add arrays of other lengths");
    m->from[s->comm->rank] = malloc(m->count * sizeof(float) + 1);
    memcpy(m->from[s->comm->rank], s->from,
           (s->count < m->count ? s->count : m->count) * sizeof(float));
    m->came++;
}

static bool all_came(const void *data)
{
    const struct sum *s = data;
    const struct meeting *m = meeting_of(s->comm);
    return s->comm->aborted || (m->round == s->comm->round && m->came == s->comm->size);
}

static void run_leave(const void *data)
{
    const struct sum *s = data;
    const struct meeting *m = meeting_of(s->comm);
    for (size_t i = 0; i < s->count && !s->comm->aborted; i++) {
        float sum = 0;
        for (int r = 0; r < s->comm->size; r++) {
            sum += m->from[r][i];
        }
        s->to[i] = sum;
    }
    s->comm->round++;
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    FAKE_ALONE;
    usable(comm);
    fake_rule(type == ncclFloat && op == ncclSum, "not a sum of floats");
    if (fake.call_error != 0) {
        comm->broken = true;
        return (ncclResult_t)fake.call_error;
    }
    const struct sum sum = {comm, send, recv, count, (float)(comm->size - fake.refusing_peers)};
    if (comm->clique == NULL) {
        fake_queue(stream, run_sum, &sum, sizeof sum);
    } else {
        fake_queue(stream, run_arrive, &sum, sizeof sum);
        fake_queue_when(stream, all_came, run_leave, &sum, sizeof sum);
    }
    fake_count_collective(stream, &comm->holding);
    return begin(comm, fake.call_turns);
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream)
{
    FAKE_ALONE;
    usable(comm);
    fake_rule(type == ncclUint8, "a broadcast of other things than bytes");
    fake_rule(root >= 0 && root < comm->size, "no such root");
    (void)count;
    fake_rule(send == recv, "a broadcast from one place to another");
    fake_queue(stream, run_nothing, "", 1);
    fake_count_collective(stream, &comm->holding);
    return begin(comm, fake.call_turns);
}

/* ---- memory ---------------------------------------------------------------------------------- */

ncclResult_t ncclMemAlloc(void **ptr, size_t size)
{
    FAKE_ALONE;
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
    usable(comm);
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
    usable(comm);
    fake_rule(comm->registrations > 0, "deregistered twice");
    fake.registrations--;
    comm->registrations--;
    return ncclSuccess;
}
