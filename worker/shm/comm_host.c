/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives between processes of one machine, on what host.h provides.
 *
 * all_reduce: rank r sums share r of all ranks' arrays. It reads arrays of CTW_MEMORY_OWN in place
 * and writes the sum directly to CTW_MEMORY_SHARED. Private memory passes through the staging
 * buffer, one chunk at a time. A failure ends the communicator; host_close() frees it.
 */
#include "worker/comm/link.h"
#include "worker/shm/host.h"

#include <string.h>

/* ---- reductions ------------------------------------------------------------------------------ */

/* Sums this rank's share of `len` numbers into `to` and waits until all ranks have. */
static int sum_chunk(struct host *host, float *to, size_t len, struct ct_err *err)
{
    size_t begin, end;
    sum_share(len, host->comm.rank, host->comm.size, &begin, &end);
    host->sum(to, host->sources, host->comm.size, begin, end);
    return sync_barrier(&host->sync, err);
}

/* Moves the pointers of the sources that are not private to the next chunk. */
static void advance_sources(struct host *host, size_t len)
{
    for (int r = 0; r < host->comm.size; r++) {
        if (host_desc(host, r)->send != ARENA_PRIVATE) {
            host->sources[r] += len;
        }
    }
}

/* Sums in chunks. The first chunk of a private `send` is already in the staging buffer. */
static int reduce_in_chunks(struct host *host, const float *send, float *recv, size_t count,
                            bool into_shared, struct ct_err *err)
{
    const size_t chunk = HOST_STAGING_BYTES / sizeof(float);
    bool private_send = host_desc(host, host->comm.rank)->send == ARENA_PRIVATE;
    for (size_t at = 0; at < count; at += chunk) {
        size_t len = count - at < chunk ? count - at : chunk;
        if (at > 0) {
            if (private_send) {
                memcpy(host->staging, send + at, len * sizeof(float));
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
            /* No rank writes the next sum before this one has reached the next barrier. */
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
    struct sync_desc mine = {.op = HOST_OP_ALL_REDUCE, .size = count};
    int rc = host_locate(host, send, recv, bytes, &mine, err);
    if (rc != 0) {
        return rc;
    }
    if (mine.send == ARENA_PRIVATE && count > 0) {
        memcpy(host->staging, send, bytes < HOST_STAGING_BYTES ? bytes : HOST_STAGING_BYTES);
    }
    bool all_shared;
    rc = host_begin_sum(host, &mine, bytes, &all_shared, err);
    if (rc != 0) {
        return rc;
    }
    bool into_shared = host_same_target(host);
    if (all_shared && into_shared) {
        return sum_chunk(host, recv, count, err);
    }
    return reduce_in_chunks(host, send, recv, count, into_shared, err);
}

static int host_reduce_scatter(struct ctw_comm *comm, float *buf, size_t count, size_t *begin,
                               size_t *end, struct ct_err *err)
{
    struct host *host = (struct host *)comm;
    struct sync_desc mine = {.op = HOST_OP_REDUCE_SCATTER, .size = count, .recv = ARENA_PRIVATE};
    size_t bytes = count * sizeof(float);
    int rc = host_locate_own(host, buf, bytes, &mine, err);
    bool all_shared;
    if (rc == 0) {
        rc = host_begin_sum(host, &mine, bytes, &all_shared, err);
    }
    if (rc != 0) {
        return rc;
    }
    sum_share(count, comm->rank, comm->size, begin, end);
    host->sum(buf, host->sources, comm->size, *begin, *end);
    return 0;
}

/* ---- broadcast and barrier ------------------------------------------------------------------- */

/* Broadcasts private memory through all staging buffers together, used as one large chunk. */
static int broadcast_in_chunks(struct host *host, unsigned char *buf, size_t bytes, bool is_root,
                               struct ct_err *err)
{
    const size_t chunk = HOST_STAGING_BYTES * (size_t)host->comm.size;
    for (size_t at = 0; at < bytes; at += chunk) {
        size_t len = bytes - at < chunk ? bytes - at : chunk;
        if (is_root) {
            memcpy(host->all_staging, buf + at, len);
        }
        int rc = sync_barrier(&host->sync, err);
        if (rc != 0) {
            return rc;
        }
        if (!is_root) {
            memcpy(buf + at, host->all_staging, len);
        }
        /* The root overwrites the staging memory only when all ranks have read it. */
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
    struct sync_desc mine = {.op = HOST_OP_BROADCAST, .arg = root, .size = bytes};
    int rc = host_locate(host, buf, buf, bytes, &mine, err);
    if (rc == 0) {
        rc = host_begin(host, &mine, err);
    }
    if (rc != 0 || host_same_target(host)) {
        return rc;
    }
    int64_t at = host_desc(host, root)->send;
    if (at == ARENA_PRIVATE) {
        return broadcast_in_chunks(host, buf, bytes, comm->rank == root, err);
    }
    const void *from = arena_resolve(&host->arena, CTW_MEMORY_OWN, root, at, bytes);
    if (from == NULL) {
        return ct_err_set(err, CT_EPROTO, "rank %d published a buffer outside its memory",
                          host->first + root);
    }
    if (comm->rank != root && bytes > 0) {
        memcpy(buf, from, bytes);
    }
    /* The root may change its buffer only when all ranks have read it. */
    return sync_barrier(&host->sync, err);
}

static int host_barrier(struct ctw_comm *comm, struct ct_err *err)
{
    struct host *host = (struct host *)comm;
    const struct sync_desc mine = {
        .op = HOST_OP_BARRIER, .send = ARENA_PRIVATE, .recv = ARENA_PRIVATE};
    return host_begin(host, &mine, err);
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

static void host_close(struct ctw_comm *comm)
{
    host_free((struct host *)comm);
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
    .link = link_shm_open,
};

int comm_host_open(const struct comm_setup *setup, struct ctw_comm **out, struct ct_err *err)
{
    struct host *host;
    int rc = host_open(setup, &host, err);
    if (rc == 0) {
        host->comm.ops = &host_ops;
        rc = host_join(host, err);
    }
    if (rc == 0) {
        *out = &host->comm;
    }
    return rc;
}
