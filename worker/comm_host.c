/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives between processes of one machine. Every operation starts by publishing what this
 * rank is about to do (struct sync_desc) and meeting the others in a barrier, after which each
 * checks that all do the same and knows where their buffers are.
 *
 * all_reduce: rank r sums share r of all ranks' numbers. Numbers are read where they
 * are when they lie in CTW_MEMORY_OWN, and the sum is written where all see it when it belongs into
 * CTW_MEMORY_SHARED; what is private passes through the stage, a chunk at a time.
 *
 *     file: | page | stage of rank 0 | ... | stage of rank n-1 | stage of the sum | regions ...
 */
#include "worker/comm.h"

#include "common/alloc.h"
#include "worker/arena.h"
#include "worker/shm.h"
#include "worker/sum.h"
#include "worker/sync.h"

#include <string.h>

/* A chunk and its sum stay in a core's L2 cache. */
#define STAGE_BYTES ((size_t)256 * 1024)

enum host_op { OP_NONE, OP_ALLOC, OP_ALL_REDUCE, OP_REDUCE_SCATTER, OP_BROADCAST, OP_BARRIER };

static const char *const op_names[] = {
    [OP_NONE] = "nothing",          [OP_ALLOC] = "alloc",
    [OP_ALL_REDUCE] = "all_reduce", [OP_REDUCE_SCATTER] = "reduce_scatter",
    [OP_BROADCAST] = "broadcast",   [OP_BARRIER] = "barrier",
};

struct host {
    struct ctw_comm comm;
    struct shm shm;
    struct sync sync;
    struct arena arena;
    unsigned turn;        /* operations so far: which of the two descriptions is in use */
    unsigned char *stage; /* this rank's */
    unsigned char *stages, *result;
    const float **sources; /* scratch, one per rank */
    sum_fn sum;            /* of the sources, in the order that was asked for */
};

/* ---- meeting --------------------------------------------------------------------------------- */

static const struct sync_desc *desc_of(const struct host *host, int rank)
{
    return &host->shm.page->slots[rank].desc[host->turn % 2];
}

static const char *op_name(uint32_t op)
{
    return op < sizeof(op_names) / sizeof(op_names[0]) ? op_names[op] : "an unknown operation";
}

static int check_same(const struct host *host, const struct sync_desc *mine, struct ct_err *err)
{
    for (int r = 0; r < host->comm.size; r++) {
        const struct sync_desc *theirs = desc_of(host, r);
        if (theirs->op != mine->op) {
            return ct_err_set(err, CT_EPROTO, "rank %d called %s, rank %d %s", r,
                              op_name(theirs->op), host->comm.rank, op_name(mine->op));
        }
        if (theirs->size != mine->size || theirs->arg != mine->arg) {
            return ct_err_set(err, CT_EPROTO,
                              "rank %d asks for %llu (kind or root %d), rank %d for %llu (%d)", r,
                              (unsigned long long)theirs->size, theirs->arg, host->comm.rank,
                              (unsigned long long)mine->size, mine->arg);
        }
    }
    return 0;
}

/* Publishes `mine`, waits for everybody, checks that all do the same. */
static int meet(struct host *host, const struct sync_desc *mine, struct ct_err *err)
{
    host->turn++;
    host->shm.page->slots[host->comm.rank].desc[host->turn % 2] = *mine;
    int rc = sync_barrier(&host->sync, err);
    return rc != 0 ? rc : check_same(host, mine, err);
}

/* ---- reductions ------------------------------------------------------------------------------ */

/* Points host->sources at every rank's numbers; a private one's are in its stage. */
static int find_sources(struct host *host, size_t bytes, bool *all_shared, struct ct_err *err)
{
    for (int r = 0; r < host->comm.size; r++) {
        int64_t at = desc_of(host, r)->send;
        const void *from = host->stages + (size_t)r * STAGE_BYTES;
        if (at == ARENA_PRIVATE) {
            *all_shared = false;
        } else {
            from = arena_resolve(&host->arena, CTW_MEMORY_OWN, r, at, bytes);
        }
        if (from == NULL) {
            return ct_err_set(err, CT_EPROTO, "rank %d names memory it does not have", r);
        }
        host->sources[r] = from;
    }
    return 0;
}

/* Whether all ranks want the sum in the same shared place. */
static bool same_target(const struct host *host)
{
    int64_t first = desc_of(host, 0)->recv;
    for (int r = 1; r < host->comm.size; r++) {
        if (desc_of(host, r)->recv != first) {
            return false;
        }
    }
    return first != ARENA_PRIVATE;
}

/* Sums this rank's share of `len` numbers into `to` and waits until all have. */
static int sum_chunk(struct host *host, float *to, size_t len, struct ct_err *err)
{
    size_t begin, end;
    sum_share(len, host->comm.rank, host->comm.size, &begin, &end);
    host->sum(to, host->sources, host->comm.size, begin, end);
    return sync_barrier(&host->sync, err);
}

/* Sources that are not private move along with the chunks. */
static void advance_sources(struct host *host, size_t len)
{
    for (int r = 0; r < host->comm.size; r++) {
        if (desc_of(host, r)->send != ARENA_PRIVATE) {
            host->sources[r] += len;
        }
    }
}

/* The first chunk of a private `send` is in the stage already. */
static int reduce_in_chunks(struct host *host, const float *send, float *recv, size_t count,
                            bool into_shared, struct ct_err *err)
{
    const size_t chunk = STAGE_BYTES / sizeof(float);
    bool private_send = desc_of(host, host->comm.rank)->send == ARENA_PRIVATE;
    for (size_t at = 0; at < count; at += chunk) {
        size_t len = count - at < chunk ? count - at : chunk;
        if (at > 0) {
            if (private_send) {
                memcpy(host->stage, send + at, len * sizeof(float));
            }
            int rc = sync_barrier(&host->sync, err);
            if (rc != 0) {
                return rc;
            }
            advance_sources(host, chunk);
        }
        int rc = sum_chunk(host, into_shared ? recv + at : (float *)host->result, len, err);
        if (rc != 0) {
            return rc;
        }
        if (!into_shared) {
            /* Nobody writes the next sum before this rank has come to the next barrier. */
            memcpy(recv + at, host->result, len * sizeof(float));
        }
    }
    return 0;
}

static int host_all_reduce(struct ctw_comm *comm, const float *send, float *recv, size_t count,
                           struct ct_err *err)
{
    struct host *host = (struct host *)comm;
    size_t bytes = count * sizeof(float);
    struct sync_desc mine = {.op = OP_ALL_REDUCE, .size = count};
    int rc = arena_locate(&host->arena, CTW_MEMORY_OWN, send, bytes, &mine.send, err);
    if (rc == 0) {
        rc = arena_locate(&host->arena, CTW_MEMORY_SHARED, recv, bytes, &mine.recv, err);
    }
    if (rc != 0) {
        return rc;
    }
    if (mine.send == ARENA_PRIVATE && count > 0) {
        memcpy(host->stage, send, bytes < STAGE_BYTES ? bytes : STAGE_BYTES);
    }
    rc = meet(host, &mine, err);
    bool all_shared = true;
    if (rc == 0) {
        rc = find_sources(host, bytes, &all_shared, err);
    }
    if (rc != 0) {
        return rc;
    }
    bool into_shared = same_target(host);
    if (all_shared && into_shared) {
        return sum_chunk(host, recv, count, err);
    }
    return reduce_in_chunks(host, send, recv, count, into_shared, err);
}

static int host_reduce_scatter(struct ctw_comm *comm, float *buf, size_t count, size_t *begin,
                               size_t *end, struct ct_err *err)
{
    struct host *host = (struct host *)comm;
    struct sync_desc mine = {.op = OP_REDUCE_SCATTER, .size = count, .recv = ARENA_PRIVATE};
    size_t bytes = count * sizeof(float);
    int rc = arena_locate(&host->arena, CTW_MEMORY_OWN, buf, bytes, &mine.send, err);
    if (rc == 0 && mine.send == ARENA_PRIVATE && count > 0) {
        rc = ct_err_set(err, CT_EINVAL, "the buffer is not of CTW_MEMORY_OWN");
    }
    if (rc == 0) {
        rc = meet(host, &mine, err);
    }
    bool all_shared = true;
    if (rc == 0) {
        rc = find_sources(host, bytes, &all_shared, err);
    }
    if (rc != 0) {
        return rc;
    }
    sum_share(count, comm->rank, comm->size, begin, end);
    host->sum(buf, host->sources, comm->size, *begin, *end);
    return 0;
}

/* ---- the others ------------------------------------------------------------------------------ */

/* Through all stages together, as one large chunk. */
static int broadcast_in_chunks(struct host *host, unsigned char *buf, size_t bytes, bool is_root,
                               struct ct_err *err)
{
    const size_t chunk = STAGE_BYTES * (size_t)host->comm.size;
    for (size_t at = 0; at < bytes; at += chunk) {
        size_t len = bytes - at < chunk ? bytes - at : chunk;
        if (is_root) {
            memcpy(host->stages, buf + at, len);
        }
        int rc = sync_barrier(&host->sync, err);
        if (rc != 0) {
            return rc;
        }
        if (!is_root) {
            memcpy(buf + at, host->stages, len);
        }
        /* The root overwrites the stage only when all have read it. */
        rc = sync_barrier(&host->sync, err);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int host_broadcast(struct ctw_comm *comm, void *buf, size_t bytes, int root,
                          struct ct_err *err)
{
    struct host *host = (struct host *)comm;
    struct sync_desc mine = {.op = OP_BROADCAST, .arg = root, .size = bytes};
    int rc = arena_locate(&host->arena, CTW_MEMORY_OWN, buf, bytes, &mine.send, err);
    if (rc == 0) {
        rc = arena_locate(&host->arena, CTW_MEMORY_SHARED, buf, bytes, &mine.recv, err);
    }
    if (rc == 0) {
        rc = meet(host, &mine, err);
    }
    if (rc != 0 || same_target(host)) {
        return rc;
    }
    int64_t at = desc_of(host, root)->send;
    if (at == ARENA_PRIVATE) {
        return broadcast_in_chunks(host, buf, bytes, comm->rank == root, err);
    }
    const void *from = arena_resolve(&host->arena, CTW_MEMORY_OWN, root, at, bytes);
    if (from == NULL) {
        return ct_err_set(err, CT_EPROTO, "rank %d names memory it does not have", root);
    }
    if (comm->rank != root && bytes > 0) {
        memcpy(buf, from, bytes);
    }
    /* The root may change its buffer only when all have read it. */
    return sync_barrier(&host->sync, err);
}

static int host_barrier(struct ctw_comm *comm, struct ct_err *err)
{
    struct host *host = (struct host *)comm;
    const struct sync_desc mine = {.op = OP_BARRIER, .send = ARENA_PRIVATE, .recv = ARENA_PRIVATE};
    return meet(host, &mine, err);
}

static int host_alloc(struct ctw_comm *comm, enum ctw_memory kind, size_t bytes, void **out,
                      struct ct_err *err)
{
    struct host *host = (struct host *)comm;
    const struct sync_desc mine = {.op = OP_ALLOC,
                                   .arg = (int32_t)kind,
                                   .size = bytes,
                                   .send = ARENA_PRIVATE,
                                   .recv = ARENA_PRIVATE};
    int rc = meet(host, &mine, err);
    void *block = NULL;
    if (rc == 0) {
        rc = arena_add(&host->arena, kind, bytes, &block, err);
    }
    if (rc == 0) {
        rc = sync_barrier(&host->sync, err);
    }
    if (rc == 0) {
        *out = block;
    }
    return rc;
}

static int host_poll(struct ctw_comm *comm, struct ct_err *err)
{
    return sync_poll(&((struct host *)comm)->sync, err);
}

static int host_sync(struct ctw_comm *comm, struct ct_err *err)
{
    (void)comm;
    (void)err;
    return 0;
}

static void host_abort(struct ctw_comm *comm)
{
    sync_abort(&((struct host *)comm)->sync);
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static void host_close(struct ctw_comm *comm)
{
    struct host *host = (struct host *)comm;
    sync_fini(&host->sync);
    arena_fini(&host->arena);
    shm_fini(&host->shm);
    ct_free(host->sources);
    ct_free(host);
}

static const struct ctw_comm_ops host_ops = {
    .close = host_close,
    .alloc = host_alloc,
    .all_reduce = host_all_reduce,
    .reduce_scatter = host_reduce_scatter,
    .broadcast = host_broadcast,
    .barrier = host_barrier,
    .poll = host_poll,
    .sync = host_sync,
    .abort = host_abort,
};

/* Makes or finds the shared file. */
static int exchange(struct host *host, const struct comm_setup *setup, struct ct_err *err)
{
    if (setup->rank == 0) {
        char invitation[SHM_INVITATION_MAX];
        int rc = shm_create(&host->shm, setup->size, invitation, err);
        if (rc == 0) {
            host->shm.page->order = setup->order;
        }
        return rc != 0 ? rc : setup->set(setup->data, "host", invitation, strlen(invitation), err);
    }
    struct ct_buf invitation = CT_BUF_INIT;
    int rc = setup->get(setup->data, "host", setup->timeout_ms, &invitation, err);
    if (rc == 0) {
        const char *text = ct_buf_cstr(&invitation);
        rc = text != NULL ? shm_attach(&host->shm, setup->size, text, err)
                          : ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    ct_buf_fini(&invitation);
    return rc;
}

/* The stages are the first region: one block per rank and one more for the sum. */
static int make_stages(struct host *host, struct ct_err *err)
{
    void *stage, *result;
    int rc = arena_add(&host->arena, CTW_MEMORY_OWN, STAGE_BYTES, &stage, err);
    if (rc == 0) {
        rc = arena_add(&host->arena, CTW_MEMORY_SHARED, STAGE_BYTES, &result, err);
    }
    if (rc == 0) {
        host->stage = stage;
        host->stages = host->stage - (size_t)host->comm.rank * STAGE_BYTES;
        host->result = result;
    }
    return rc;
}

int comm_host_open(const struct comm_setup *setup, struct ctw_comm **out, struct ct_err *err)
{
    if (setup->local_size != setup->size) {
        return ct_err_set(err, CT_EUNSUPPORTED,
                          "the job spans machines (%d of %d ranks are here): not supported yet",
                          setup->local_size, setup->size);
    }
    if (setup->size > SYNC_RANKS_MAX) {
        return ct_err_set(err, CT_ELIMIT, "%d ranks on one machine are more than %d", setup->size,
                          SYNC_RANKS_MAX);
    }
    struct host *host = ct_calloc(1, sizeof(*host));
    if (host == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    host->comm = (struct ctw_comm){
        .ops = &host_ops, .rank = setup->rank, .size = setup->size, .backend = CTW_BACKEND_HOST};
    host->sum = setup->order == CTW_ORDER_TREE ? sum_tree : sum_arrays;
    host->shm = (struct shm)SHM_INIT;
    host->sync.epoll = -1;
    int rc = 0;
    host->sources = ct_calloc((size_t)setup->size, sizeof(*host->sources));
    if (host->sources == NULL) {
        rc = ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    if (rc == 0) {
        rc = exchange(host, setup, err);
    }
    if (rc == 0) {
        rc = sync_init(&host->sync, host->shm.page, setup->rank, setup->size, setup->crowd,
                       setup->timeout_ms, err);
    }
    if (rc == 0 && host->shm.page->order != (uint32_t)setup->order) {
        rc = ct_err_set(err, CT_EPROTO, "rank 0 adds in another order than rank %d", setup->rank);
    }
    if (rc == 0) {
        arena_init(&host->arena, &host->shm, setup->rank, setup->size);
        rc = make_stages(host, err);
    }
    if (rc == 0) {
        rc = sync_join(&host->sync, err);
    }
    if (rc != 0) {
        if (host->sync.page != NULL) {
            sync_abort(&host->sync);
        }
        host_close(&host->comm);
        return rc;
    }
    *out = &host->comm;
    return 0;
}
