/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives between GPUs. Only the sources of this module (meson.build) know NCCL. The library
 * loads the module when this back end is asked for, so that other programs never map a CUDA
 * library. A failure ends the communicator (comm_nccl_family.c); nccl_close() frees its memory.
 */
#include "worker/nccl/comm_nccl.h"

#include "common/alloc.h"

#include <stdbool.h>
#include <string.h>

_Static_assert(NCCL_UNIQUE_ID_BYTES == COMM_NCCL_ID_BYTES, "the id is carried as raw bytes");

struct block {
    struct block *next;
    void *base;
    void *registration; /* NULL: not registered */
    bool by_nccl;       /* from ncclMemAlloc(); otherwise from cudaMalloc() */
};

/* ---- operations ------------------------------------------------------------------------------ */

/* Sums in NCCL's order. */
static int sum(struct nccl *nccl, const float *send, float *recv, size_t count, struct ct_err *err)
{
    int rc = comm_nccl_begin(&nccl->own, err);
    if (rc != 0) {
        return rc;
    }
    ncclResult_t result =
        ncclAllReduce(send, recv, count, ncclFloat, ncclSum, nccl->own.handle, nccl->stream);
    return comm_nccl_finish(&nccl->own, result, "ncclAllReduce", err);
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
    int rc = comm_nccl_begin(&nccl->own, err);
    if (rc != 0) {
        return rc;
    }
    ncclResult_t result =
        ncclBroadcast(buf, buf, bytes, ncclUint8, root, nccl->own.handle, nccl->stream);
    return comm_nccl_finish(&nccl->own, result, "ncclBroadcast", err);
}

static int nccl_sync(struct ctw_comm *comm, struct ct_err *err)
{
    return comm_nccl_wait(&((struct nccl *)comm)->own, "waiting for the stream", err);
}

static int nccl_barrier(struct ctw_comm *comm, struct ct_err *err)
{
    struct nccl *nccl = (struct nccl *)comm;
    int rc = sum(nccl, nccl->word, nccl->word, 1, err);
    if (rc != 0) {
        return rc;
    }
    return nccl_sync(comm, err);
}

static int nccl_poll(struct ctw_comm *comm, struct ct_err *err)
{
    bool busy;
    const struct nccl *nccl = (struct nccl *)comm;
    int rc = comm_nccl_ready(&nccl->own, err);
    if (rc != 0) {
        return rc;
    }
    return comm_nccl_check(&nccl->own, "NCCL", &busy, err);
}

static void nccl_abort(struct ctw_comm *comm)
{
    comm_nccl_abort(&((struct nccl *)comm)->own);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Do all ranks say yes? NCCL requires that the memory of all ranks is registered, or of none. */
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
    rc = comm_nccl_wait(&nccl->own, "reading votes", err);
    *all = votes == (float)nccl->comm.size;
    return rc;
}

static void release(struct nccl *nccl, struct block *block)
{
    if (block->registration != NULL && nccl->own.handle != NULL) {
        (void)ncclCommDeregister(nccl->own.handle, block->registration);
    }
    if (block->by_nccl) {
        (void)ncclMemFree(block->base);
    } else {
        (void)cudaFree(block->base);
    }
    ct_free(block);
}

/* Allocates memory that NCCL can read from other GPUs, if possible, or plain device memory. */
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
    if (ncclCommRegister(nccl->own.handle, block->base, bytes, &block->registration) !=
        ncclSuccess) {
        block->registration = NULL;
    }
    bool all = false;
    int rc = all_agree(nccl, block->registration != NULL, &all, err);
    if (rc == 0 && !all && block->registration != NULL) {
        (void)ncclCommDeregister(nccl->own.handle, block->registration);
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
    int rc = comm_nccl_ready(&nccl->own, err);
    if (rc != 0) {
        return rc;
    }
    struct block *block = ct_calloc(1, sizeof(*block));
    if (block == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    rc = get_memory(block, bytes, err);
    if (rc != 0) {
        ct_free(block);
        return rc;
    }
    /* Kept on failure, too: the GPU may use the block until the communicator is aborted. */
    block->next = nccl->blocks;
    nccl->blocks = block;
    rc = fill_block(nccl, block, bytes, err);
    if (rc == 0) {
        *out = block->base;
    }
    return rc;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static void nccl_quiesce(struct ctw_comm *comm)
{
    comm_nccl_quiesce(((struct nccl *)comm)->own.family);
}

static void nccl_close(struct ctw_comm *comm)
{
    struct nccl *nccl = (struct nccl *)comm;
    /* NCCL unmaps its memory at once, so kernels on any stream that use it must have ended.
     * Collectives that were stuck have ended with the communicator. */
    (void)cudaDeviceSynchronize();
    (void)cudaGetLastError();
    while (nccl->blocks != NULL) {
        struct block *block = nccl->blocks;
        nccl->blocks = block->next;
        release(nccl, block);
    }
    comm_nccl_destroy(&nccl->own);
    comm_nccl_leave(&nccl->own);
    (void)cudaFree(nccl->word);
    (void)cudaFree(nccl->slices);
    ct_free(nccl);
}

static const struct ctw_comm_ops nccl_ops = {
    .quiesce = nccl_quiesce,
    .close = nccl_close,
    .alloc = nccl_alloc,
    .all_reduce = nccl_all_reduce,
    .reduce_scatter = nccl_reduce_scatter,
    .broadcast = nccl_broadcast,
    .barrier = nccl_barrier,
    .poll = nccl_poll,
    .sync = nccl_sync,
    .abort = nccl_abort,
    .split = comm_nccl_split,
    .link = comm_nccl_link,
};

int comm_nccl_exchange_id(const struct comm_setup *setup, unsigned char id[COMM_NCCL_ID_BYTES],
                          struct ct_err *err)
{
    if (setup->rank == 0) {
        ncclUniqueId made;
        ncclResult_t result = ncclGetUniqueId(&made);
        if (result != ncclSuccess) {
            return comm_nccl_fail(NULL, result, "ncclGetUniqueId", err);
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
        ncclCommInitRankConfig(&nccl->own.handle, setup->size, id, setup->rank, &config);
    return comm_nccl_finish(&nccl->own, result, "ncclCommInitRankConfig", err);
}

/* Allocates zeroed floats. */
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

int comm_nccl_outfit(struct nccl *nccl, int rank, int size, struct ct_err *err)
{
    nccl->comm.rank = rank;
    nccl->comm.size = size;
    int rc = get_floats(nccl, 1, &nccl->word, err);
    if (rc == 0 && nccl->tree_sum != NULL && size > 1) {
        rc = get_floats(nccl, comm_nccl_tree_room(size), &nccl->slices, err);
    }
    return rc;
}

struct nccl *comm_nccl_new(struct comm_nccl_family *family)
{
    struct nccl *nccl = ct_calloc(1, sizeof(*nccl));
    if (nccl != NULL) {
        nccl->comm = (struct ctw_comm){.ops = &nccl_ops, .backend = CTW_BACKEND_NCCL};
        nccl->own.comm = &nccl->comm;
        nccl->stream = family->stream;
        comm_nccl_join(family, &nccl->own);
    }
    return nccl;
}

/* Older ones wait in ncclCommAbort() itself until all graphs with their collectives are gone, and
 * not at the end of its group (comm_nccl_family.c). */
#define OLDEST NCCL_VERSION(2, 22, 0)

static int check_version(struct ct_err *err)
{
    int version = 0;
    if (ncclGetVersion(&version) != ncclSuccess || version < OLDEST) {
        return ct_err_set(err, CT_EUNSUPPORTED,
                          "this NCCL has the version %d.%d.%d; 2.22 or later is needed",
                          version / 10000, version / 100 % 100, version % 100);
    }
    return 0;
}

/* Does all steps that may fail. On failure the caller closes the communicator. */
static int start(struct nccl *nccl, const struct comm_setup *setup, struct ct_err *err)
{
    nccl->tree_sum = setup->tree_sum;
    nccl->tree_sum_data = setup->tree_sum_data;
    int rc = check_version(err);
    if (rc != 0) {
        return rc;
    }
    cudaError_t result = cudaSetDevice(setup->device);
    if (result != cudaSuccess) {
        rc = comm_nccl_fail_cuda(result, "cudaSetDevice", err);
        (void)ct_err_wrap(err, "CUDA device %d", setup->device);
        return rc;
    }
    rc = comm_nccl_outfit(nccl, setup->rank, setup->size, err);
    if (rc != 0) {
        return rc;
    }
    return init_handle(nccl, setup, err);
}

static int nccl_open(const struct comm_setup *setup, struct ctw_comm **out, struct ct_err *err)
{
    struct comm_nccl_family *family = comm_nccl_family_new(setup);
    struct nccl *nccl = family != NULL ? comm_nccl_new(family) : NULL;
    if (nccl == NULL) {
        ct_free(family);
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    int rc = start(nccl, setup, err);
    if (rc != 0) {
        nccl_abort(&nccl->comm);
        nccl_close(&nccl->comm);
        return rc;
    }
    *out = &nccl->comm;
    return 0;
}

extern CTW_API const struct comm_nccl_module ctworker_nccl_module;
const struct comm_nccl_module ctworker_nccl_module = {COMM_NCCL_VERSION, nccl_open};
