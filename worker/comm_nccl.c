/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives between GPUs. This and comm_nccl_tree.c are the only files that know NCCL; they
 * become a module that the library loads when this back end is asked for, so that no other program
 * ever maps a CUDA library.
 *
 * NCCL can wait for ever: for a peer that never comes, in a kernel whose peer died. So the
 * communicator is non-blocking, and every wait is a loop here that asks for NCCL's asynchronous
 * error and looks at the clock. After a failure the communicator must be aborted (it is not legal
 * to destroy it), which also ends the kernels that are stuck on the stream.
 */
#include "worker/comm_nccl_impl.h"

#include "common/alloc.h"
#include "common/clock.h"

#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

_Static_assert(NCCL_UNIQUE_ID_BYTES == COMM_NCCL_ID_BYTES, "the id is carried as raw bytes");

/* A wait yields this often, about a millisecond, before it begins to sleep. */
#define YIELD_TURNS 1000
#define NAP_NS (50 * 1000)

/* Closing a healthy communicator waits for no peer; this only bounds what NCCL does meanwhile. */
#define CLOSE_MS (10 * 1000)

struct block {
    struct block *next;
    void *base;
    void *registration; /* NULL: not registered */
    bool by_nccl;       /* from ncclMemAlloc(), else cudaMalloc() */
};

/* ---- errors ---------------------------------------------------------------------------------- */

static int code_of(ncclResult_t result)
{
    if (result == ncclRemoteError || result == ncclSystemError) {
        return CT_EPEER; /* a lost connection is reported as either */
    }
    if (result == ncclInvalidArgument || result == ncclInvalidUsage) {
        return CT_EINVAL;
    }
    return CT_EIO;
}

static int fail_nccl(const struct nccl *nccl, ncclResult_t result, const char *what,
                     struct ct_err *err)
{
    const char *more = ncclGetLastError(nccl != NULL ? nccl->handle : NULL);
    bool has_more = more != NULL && more[0] != '\0';
    return ct_err_set(err, code_of(result), "%s: %s%s%.200s", what, ncclGetErrorString(result),
                      has_more ? ": " : "", has_more ? more : "");
}

int comm_nccl_fail_cuda(cudaError_t result, const char *what, struct ct_err *err)
{
    /* Clears the error, which CUDA would report again from the next unrelated call. */
    (void)cudaGetLastError();
    int code = CT_EIO;
    if (result == cudaErrorNoDevice || result == cudaErrorInsufficientDriver) {
        code = CT_EUNSUPPORTED;
    } else if (result == cudaErrorInvalidDevice || result == cudaErrorInvalidValue) {
        code = CT_EINVAL;
    } else if (result == cudaErrorMemoryAllocation) {
        code = CT_ENOMEM;
    }
    return ct_err_set(err, code, "%s: %s", what, cudaGetErrorString(result));
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void pause_turn(int turn)
{
    if (turn < YIELD_TURNS) {
        (void)sched_yield();
        return;
    }
    const struct timespec nap = {.tv_nsec = NAP_NS};
    (void)nanosleep(&nap, NULL);
}

static int give_up(int64_t timeout_ms, const char *what, struct ct_err *err)
{
    return ct_err_set(err, CT_ETIMEDOUT, "%s: gave up after %.1f s: a peer has not come", what,
                      (double)timeout_ms / 1000);
}

/* 0 while NCCL is well; *busy says whether it is still at work on the last call. */
static int check_async(struct nccl *nccl, const char *what, bool *busy, struct ct_err *err)
{
    ncclResult_t state = ncclSuccess;
    ncclResult_t result = ncclCommGetAsyncError(nccl->handle, &state);
    if (result != ncclSuccess) {
        return fail_nccl(nccl, result, what, err);
    }
    *busy = state == ncclInProgress;
    if (nccl->over != NULL && atomic_load(nccl->over)) {
        return ct_err_set(err, CT_EPEER, "%s: another rank of this process has given up", what);
    }
    if (handover_ended(nccl->handover)) {
        return ct_err_set(err, CT_EPEER, "%s: the launcher has ended this generation", what);
    }
    return state == ncclSuccess || *busy ? 0 : fail_nccl(nccl, state, what, err);
}

int comm_nccl_finish(struct nccl *nccl, ncclResult_t result, int64_t timeout_ms, const char *what,
                     struct ct_err *err)
{
    if (result != ncclSuccess && result != ncclInProgress) {
        return fail_nccl(nccl, result, what, err);
    }
    bool busy = result == ncclInProgress;
    int64_t deadline = ct_deadline_in(NULL, timeout_ms);
    for (int turn = 0; busy; turn++) {
        int rc = check_async(nccl, what, &busy, err);
        if (rc != 0) {
            return rc;
        }
        if (busy && ct_clock_now(NULL) >= deadline) {
            return give_up(timeout_ms, what, err);
        }
        if (busy) {
            pause_turn(turn);
        }
    }
    return 0;
}

static int wait_stream(struct nccl *nccl, const char *what, struct ct_err *err)
{
    int64_t deadline = ct_deadline_in(NULL, nccl->timeout_ms);
    for (int turn = 0;; turn++) {
        cudaError_t state = cudaStreamQuery(nccl->stream);
        if (state == cudaSuccess) {
            return 0;
        }
        if (state != cudaErrorNotReady) {
            return comm_nccl_fail_cuda(state, what, err);
        }
        bool busy;
        int rc = check_async(nccl, what, &busy, err);
        if (rc != 0) {
            return rc;
        }
        if (ct_clock_now(NULL) >= deadline) {
            return give_up(nccl->timeout_ms, what, err);
        }
        pause_turn(turn);
    }
}

/* ---- operations ------------------------------------------------------------------------------ */

/* In whatever order. */
static int sum(struct nccl *nccl, const float *send, float *recv, size_t count, struct ct_err *err)
{
    ncclResult_t result =
        ncclAllReduce(send, recv, count, ncclFloat, ncclSum, nccl->handle, nccl->stream);
    return comm_nccl_finish(nccl, result, nccl->timeout_ms, "ncclAllReduce", err);
}

static int nccl_all_reduce(struct ctw_comm *comm, const float *send, float *recv, size_t count,
                           struct ct_err *err)
{
    struct nccl *nccl = (struct nccl *)comm;
    if (nccl->slices == NULL) {
        return sum(nccl, send, recv, count, err);
    }
    return comm_nccl_tree(nccl, send, recv, count, err);
}

static int nccl_reduce_scatter(struct ctw_comm *comm, float *buf, size_t count, size_t *begin,
                               size_t *end, struct ct_err *err)
{
    int rc = nccl_all_reduce(comm, buf, buf, count, err);
    if (rc == 0) {
        *begin = 0;
        *end = count;
    }
    return rc;
}

static int nccl_broadcast(struct ctw_comm *comm, void *buf, size_t bytes, int root,
                          struct ct_err *err)
{
    struct nccl *nccl = (struct nccl *)comm;
    ncclResult_t result =
        ncclBroadcast(buf, buf, bytes, ncclUint8, root, nccl->handle, nccl->stream);
    return comm_nccl_finish(nccl, result, nccl->timeout_ms, "ncclBroadcast", err);
}

static int nccl_sync(struct ctw_comm *comm, struct ct_err *err)
{
    return wait_stream((struct nccl *)comm, "waiting for the stream", err);
}

static int nccl_barrier(struct ctw_comm *comm, struct ct_err *err)
{
    struct nccl *nccl = (struct nccl *)comm;
    int rc = sum(nccl, nccl->word, nccl->word, 1, err);
    return rc != 0 ? rc : nccl_sync(comm, err);
}

static int nccl_poll(struct ctw_comm *comm, struct ct_err *err)
{
    bool busy;
    return check_async((struct nccl *)comm, "NCCL", &busy, err);
}

static void nccl_abort(struct ctw_comm *comm)
{
    struct nccl *nccl = (struct nccl *)comm;
    if (nccl->over != NULL) {
        atomic_store(nccl->over, true);
    }
    if (nccl->handle != NULL) {
        (void)ncclCommAbort(nccl->handle);
        nccl->handle = NULL;
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Whether all ranks say yes. NCCL wants the memory of all ranks registered, or of none. */
static int all_agree(struct nccl *nccl, bool yes, bool *all, struct ct_err *err)
{
    const float vote = yes ? 1 : 0;
    float votes = 0;
    cudaError_t result =
        cudaMemcpyAsync(nccl->word, &vote, sizeof(vote), cudaMemcpyHostToDevice, nccl->stream);
    if (result != cudaSuccess) {
        return comm_nccl_fail_cuda(result, "cudaMemcpyAsync", err);
    }
    int rc = nccl_barrier(&nccl->comm, err);
    if (rc != 0) {
        return rc;
    }
    result =
        cudaMemcpyAsync(&votes, nccl->word, sizeof(votes), cudaMemcpyDeviceToHost, nccl->stream);
    if (result != cudaSuccess) {
        return comm_nccl_fail_cuda(result, "cudaMemcpyAsync", err);
    }
    rc = wait_stream(nccl, "reading votes", err);
    *all = votes == (float)nccl->comm.size;
    return rc;
}

static void release(struct nccl *nccl, struct block *block)
{
    if (block->registration != NULL && nccl->handle != NULL) {
        (void)ncclCommDeregister(nccl->handle, block->registration);
    }
    if (block->by_nccl) {
        (void)ncclMemFree(block->base);
    } else {
        (void)cudaFree(block->base);
    }
    ct_free(block);
}

/* Memory that NCCL can read from other GPUs if it may, plain device memory else. */
static int get_memory(struct block *block, size_t bytes, struct ct_err *err)
{
    if (ncclMemAlloc(&block->base, bytes) == ncclSuccess) {
        block->by_nccl = true;
        return 0;
    }
    (void)cudaGetLastError();
    cudaError_t result = cudaMalloc(&block->base, bytes);
    return result == cudaSuccess ? 0 : comm_nccl_fail_cuda(result, "cudaMalloc", err);
}

static int fill_block(struct nccl *nccl, struct block *block, size_t bytes, struct ct_err *err)
{
    cudaError_t result = cudaMemsetAsync(block->base, 0, bytes, nccl->stream);
    if (result != cudaSuccess) {
        return comm_nccl_fail_cuda(result, "cudaMemsetAsync", err);
    }
    if (ncclCommRegister(nccl->handle, block->base, bytes, &block->registration) != ncclSuccess) {
        block->registration = NULL;
    }
    bool all = false;
    int rc = all_agree(nccl, block->registration != NULL, &all, err);
    if (rc == 0 && !all && block->registration != NULL) {
        (void)ncclCommDeregister(nccl->handle, block->registration);
        block->registration = NULL;
    }
    return rc;
}

static int nccl_alloc(struct ctw_comm *comm, enum ctw_memory kind, size_t bytes, void **out,
                      struct ct_err *err)
{
    struct nccl *nccl = (struct nccl *)comm;
    if (kind != CTW_MEMORY_OWN) {
        return ct_err_set(err, CT_EUNSUPPORTED, "GPUs have no memory that all ranks see");
    }
    struct block *block = ct_calloc(1, sizeof(*block));
    if (block == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    int rc = get_memory(block, bytes, err);
    if (rc != 0) {
        ct_free(block);
        return rc;
    }
    /* Kept also on failure: until the communicator is aborted the GPU may still touch it. */
    block->next = nccl->blocks;
    nccl->blocks = block;
    rc = fill_block(nccl, block, bytes, err);
    if (rc == 0) {
        *out = block->base;
    }
    return rc;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void nccl_close(struct ctw_comm *comm)
{
    struct nccl *nccl = (struct nccl *)comm;
    /* What still computes with the memory below, on whatever stream, must have ended: NCCL's memory
     * is unmapped at once. Collectives that were stuck have ended with the communicator. */
    (void)cudaDeviceSynchronize();
    (void)cudaGetLastError();
    while (nccl->blocks != NULL) {
        struct block *block = nccl->blocks;
        nccl->blocks = block->next;
        release(nccl, block);
    }
    if (nccl->handle != NULL) {
        ncclResult_t result = ncclCommFinalize(nccl->handle);
        if (comm_nccl_finish(nccl, result, CLOSE_MS, "ncclCommFinalize", NULL) == 0) {
            (void)ncclCommDestroy(nccl->handle);
        } else {
            nccl_abort(comm);
        }
    }
    (void)cudaFree(nccl->word);
    (void)cudaFree(nccl->slices);
    ct_free(nccl);
}

static const struct ctw_comm_ops nccl_ops = {
    .close = nccl_close,
    .alloc = nccl_alloc,
    .all_reduce = nccl_all_reduce,
    .reduce_scatter = nccl_reduce_scatter,
    .broadcast = nccl_broadcast,
    .barrier = nccl_barrier,
    .poll = nccl_poll,
    .sync = nccl_sync,
    .abort = nccl_abort,
};

int comm_nccl_exchange_id(const struct comm_setup *setup, unsigned char id[COMM_NCCL_ID_BYTES],
                          struct ct_err *err)
{
    if (setup->rank == 0) {
        ncclUniqueId made;
        ncclResult_t result = ncclGetUniqueId(&made);
        if (result != ncclSuccess) {
            return fail_nccl(NULL, result, "ncclGetUniqueId", err);
        }
        memcpy(id, made.internal, COMM_NCCL_ID_BYTES);
        return setup->size == 1 ? 0 : setup->set(setup->data, "nccl", id, COMM_NCCL_ID_BYTES, err);
    }
    struct ct_buf value = CT_BUF_INIT;
    int rc = setup->get(setup->data, "nccl", setup->timeout_ms, &value, err);
    if (rc == 0 && value.len != COMM_NCCL_ID_BYTES) {
        rc = ct_err_set(err, CT_EPROTO, "rank 0's NCCL id has %zu bytes, not %d", value.len,
                        COMM_NCCL_ID_BYTES);
    }
    if (rc == 0) {
        memcpy(id, ct_buf_bytes(&value), COMM_NCCL_ID_BYTES);
    }
    ct_buf_fini(&value);
    return rc;
}

static int init_handle(struct nccl *nccl, const struct comm_setup *setup, struct ct_err *err)
{
    if (nccl->handle != NULL) {
        return 0;
    }
    ncclUniqueId id;
    unsigned char bytes[COMM_NCCL_ID_BYTES];
    int rc = comm_nccl_exchange_id(setup, bytes, err);
    if (rc != 0) {
        return rc;
    }
    memcpy(id.internal, bytes, sizeof(bytes));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclResult_t result =
        ncclCommInitRankConfig(&nccl->handle, setup->size, id, setup->rank, &config);
    return comm_nccl_finish(nccl, result, nccl->timeout_ms, "ncclCommInitRankConfig", err);
}

/* Zeroed. */
static int get_floats(struct nccl *nccl, size_t count, float **out, struct ct_err *err)
{
    void *floats = NULL;
    cudaError_t result = cudaMalloc(&floats, count * sizeof(**out));
    *out = floats;
    if (result == cudaSuccess) {
        result = cudaMemsetAsync(floats, 0, count * sizeof(**out), nccl->stream);
    }
    return result == cudaSuccess ? 0 : comm_nccl_fail_cuda(result, "cudaMalloc", err);
}

/* Everything that may fail; the caller closes on failure. */
static int start(struct nccl *nccl, const struct comm_setup *setup, struct ct_err *err)
{
    cudaError_t result = cudaSetDevice(setup->device);
    if (result != cudaSuccess) {
        int rc = comm_nccl_fail_cuda(result, "cudaSetDevice", err);
        (void)ct_err_wrap(err, "CUDA device %d", setup->device);
        return rc;
    }
    int rc = get_floats(nccl, 1, &nccl->word, err);
    if (rc == 0 && setup->tree_sum != NULL && setup->size > 1) {
        rc = get_floats(nccl, comm_nccl_tree_room(setup->size), &nccl->slices, err);
    }
    return rc == 0 ? init_handle(nccl, setup, err) : rc;
}

static int nccl_open(const struct comm_setup *setup, struct ctw_comm **out, struct ct_err *err)
{
    struct nccl *nccl = ct_calloc(1, sizeof(*nccl));
    if (nccl == NULL) {
        (void)(setup->ready != NULL ? ncclCommAbort(setup->ready) : ncclSuccess);
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    nccl->comm = (struct ctw_comm){
        .ops = &nccl_ops, .rank = setup->rank, .size = setup->size, .backend = CTW_BACKEND_NCCL};
    nccl->stream = setup->stream;
    nccl->timeout_ms = setup->timeout_ms;
    nccl->handle = setup->ready;
    nccl->over = setup->over;
    nccl->tree_sum = setup->tree_sum;
    nccl->tree_sum_data = setup->tree_sum_data;
    nccl->handover = setup->handover;
    int rc = start(nccl, setup, err);
    if (rc != 0) {
        nccl_abort(&nccl->comm);
        nccl_close(&nccl->comm);
        return rc;
    }
    *out = &nccl->comm;
    return 0;
}

/* Blocking, unlike what other processes take part in: all ranks are here, so nobody is waited for.
 */
static int nccl_connect(int n, const int *devices, void **handles, struct ct_err *err)
{
    ncclComm_t comms[CTW_CREW_MAX];
    ncclResult_t result = ncclCommInitAll(comms, n, devices);
    if (result != ncclSuccess) {
        return fail_nccl(NULL, result, "ncclCommInitAll", err);
    }
    for (int i = 0; i < n; i++) {
        handles[i] = comms[i];
    }
    return 0;
}

extern CTW_API const struct comm_nccl_module ctworker_nccl_module;
const struct comm_nccl_module ctworker_nccl_module = {COMM_NCCL_VERSION, nccl_open, nccl_connect};
