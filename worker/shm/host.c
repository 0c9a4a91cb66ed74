/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens the shared file through the store, publishes the description of each operation, and finds
 * the peers' buffers. If two ranks' descriptions differ, both are told in CT_EPROTO. A failure
 * while opening tells the peers, so that they do not wait until their deadline.
 */
#include "worker/shm/host.h"

#include "common/alloc.h"

#include <stdio.h>
#include <string.h>

/* For "host/" and a number. */
#define KEY_MAX 24

static const char *const op_names[] = {
    [HOST_OP_NONE] = "nothing",          [HOST_OP_ALLOC] = "alloc",
    [HOST_OP_ALL_REDUCE] = "all_reduce", [HOST_OP_REDUCE_SCATTER] = "reduce_scatter",
    [HOST_OP_BROADCAST] = "broadcast",   [HOST_OP_BARRIER] = "barrier",
};

/* ---- the start of an operation --------------------------------------------------------------- */

const struct sync_desc *host_desc(const struct host *host, int rank)
{
    return &host->shm.page->slots[rank].desc[host->turn % 2];
}

const char *host_op_name(uint32_t op)
{
    return op < sizeof(op_names) / sizeof(op_names[0]) ? op_names[op] : "an unknown operation";
}

static int check_same(const struct host *host, const struct sync_desc *mine, struct ct_err *err)
{
    for (int r = 0; r < host->comm.size; r++) {
        const struct sync_desc *theirs = host_desc(host, r);
        if (theirs->op != mine->op) {
            return ct_err_set(err, CT_EPROTO, "rank %d called %s, rank %d %s", host->first + r,
                              host_op_name(theirs->op), host->first + host->comm.rank,
                              host_op_name(mine->op));
        }
        if (theirs->size != mine->size || theirs->arg != mine->arg) {
            return ct_err_set(
                err, CT_EPROTO, "rank %d asks for %llu (kind or root %d), rank %d for %llu (%d)",
                host->first + r, (unsigned long long)theirs->size, theirs->arg,
                host->first + host->comm.rank, (unsigned long long)mine->size, mine->arg);
        }
    }
    return 0;
}

int host_locate(struct host *host, const void *send, const void *recv, size_t bytes,
                struct sync_desc *mine, struct ct_err *err)
{
    int rc = arena_locate(&host->arena, CTW_MEMORY_OWN, send, bytes, &mine->send, err);
    if (rc != 0) {
        return rc;
    }
    return arena_locate(&host->arena, CTW_MEMORY_SHARED, recv, bytes, &mine->recv, err);
}

int host_locate_own(struct host *host, const void *buf, size_t bytes, struct sync_desc *mine,
                    struct ct_err *err)
{
    int rc = arena_locate(&host->arena, CTW_MEMORY_OWN, buf, bytes, &mine->send, err);
    if (rc != 0) {
        return rc;
    }
    if (mine->send == ARENA_PRIVATE && bytes > 0) {
        return ct_err_set(err, CT_EINVAL, "the buffer is not of CTW_MEMORY_OWN");
    }
    return 0;
}

int host_begin(struct host *host, const struct sync_desc *mine, struct ct_err *err)
{
    host->turn++;
    host->shm.page->slots[host->comm.rank].desc[host->turn % 2] = *mine;
    int rc = sync_barrier(&host->sync, err);
    if (rc != 0) {
        return rc;
    }
    return check_same(host, mine, err);
}

int host_find_sources(struct host *host, size_t bytes, bool *all_shared, struct ct_err *err)
{
    *all_shared = true;
    for (int r = 0; r < host->comm.size; r++) {
        int64_t at = host_desc(host, r)->send;
        const void *from = host->all_staging + (size_t)r * HOST_STAGING_BYTES;
        if (at == ARENA_PRIVATE) {
            *all_shared = false;
        } else {
            from = arena_resolve(&host->arena, CTW_MEMORY_OWN, r, at, bytes);
        }
        if (from == NULL) {
            return ct_err_set(err, CT_EPROTO, "rank %d published a buffer outside its memory",
                              host->first + r);
        }
        host->sources[r] = from;
    }
    return 0;
}

int host_begin_sum(struct host *host, const struct sync_desc *mine, size_t bytes, bool *all_shared,
                   struct ct_err *err)
{
    int rc = host_begin(host, mine, err);
    if (rc != 0) {
        return rc;
    }
    return host_find_sources(host, bytes, all_shared, err);
}

bool host_same_target(const struct host *host)
{
    int64_t first = host_desc(host, 0)->recv;
    for (int r = 1; r < host->comm.size; r++) {
        if (host_desc(host, r)->recv != first) {
            return false;
        }
    }
    return first != ARENA_PRIVATE;
}

int host_alloc(struct ctw_comm *comm, enum ctw_memory kind, size_t bytes, void **out,
               struct ct_err *err)
{
    struct host *host = (struct host *)comm;
    const struct sync_desc mine = {.op = HOST_OP_ALLOC,
                                   .arg = (int32_t)kind,
                                   .size = bytes,
                                   .send = ARENA_PRIVATE,
                                   .recv = ARENA_PRIVATE};
    int rc = host_begin(host, &mine, err);
    if (rc != 0) {
        return rc;
    }
    void *block = NULL;
    rc = arena_add(&host->arena, kind, bytes, &block, err);
    if (rc != 0) {
        return rc;
    }
    rc = sync_barrier(&host->sync, err);
    if (rc != 0) {
        return rc;
    }
    *out = block;
    return 0;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

void host_free(struct host *host)
{
    if (host == NULL) {
        return;
    }
    sync_fini(&host->sync);
    arena_fini(&host->arena);
    shm_fini(&host->shm);
    ct_free(host->sources);
    ct_free(host);
}

static void abandon(struct host *host)
{
    if (host->sync.page != NULL) {
        sync_abort(&host->sync);
    }
    host_free(host);
}

/* Creates the shared file on rank 0, opens it on the others. */
static int exchange(struct host *host, const struct comm_setup *setup, struct ct_err *err)
{
    char key[KEY_MAX];
    (void)snprintf(key, sizeof(key), "host/%d", setup->node);
    if (setup->rank == 0) {
        char invitation[SHM_INVITATION_MAX];
        int rc = shm_create(&host->shm, setup->size, invitation, err);
        if (rc != 0) {
            return rc;
        }
        host->shm.page->order = setup->order;
        return setup->set(setup->data, key, invitation, strlen(invitation), err);
    }
    struct ct_buf invitation = CT_BUF_INIT;
    int rc = setup->get(setup->data, key, setup->timeout_ms, &invitation, err);
    if (rc != 0) {
        goto out;
    }
    const char *text = ct_buf_cstr(&invitation);
    rc = text != NULL ? shm_attach(&host->shm, setup->size, text, err)
                      : ct_err_set(err, CT_ENOMEM, "out of memory");
out:
    ct_buf_fini(&invitation);
    return rc;
}

/* The staging buffers are the first region: one block per rank, and one for the sum. */
static int make_staging(struct host *host, struct ct_err *err)
{
    void *staging, *result;
    int rc = arena_add(&host->arena, CTW_MEMORY_OWN, HOST_STAGING_BYTES, &staging, err);
    if (rc != 0) {
        return rc;
    }
    rc = arena_add(&host->arena, CTW_MEMORY_SHARED, HOST_STAGING_BYTES, &result, err);
    if (rc != 0) {
        return rc;
    }
    host->staging = staging;
    host->all_staging = host->staging - (size_t)host->comm.rank * HOST_STAGING_BYTES;
    host->result = result;
    return 0;
}

int host_open(const struct comm_setup *setup, struct host **out, struct ct_err *err)
{
    if (setup->size > SYNC_RANKS_MAX) {
        return ct_err_set(err, CT_ELIMIT, "%d ranks on one machine are more than %d", setup->size,
                          SYNC_RANKS_MAX);
    }
    struct host *host = ct_calloc(1, sizeof(*host));
    if (host == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    host->comm =
        (struct ctw_comm){.rank = setup->rank, .size = setup->size, .backend = CTW_BACKEND_HOST};
    host->first = setup->first;
    host->sum = setup->order == CTW_ORDER_TREE ? sum_tree : sum_arrays;
    host->shm = (struct shm)SHM_INIT;
    host->sync.epoll = -1;
    int rc = 0;
    host->sources = ct_calloc((size_t)setup->size, sizeof(*host->sources));
    if (host->sources == NULL) {
        rc = ct_err_set(err, CT_ENOMEM, "out of memory");
        goto fail;
    }
    rc = exchange(host, setup, err);
    if (rc != 0) {
        goto fail;
    }
    rc = sync_init(&host->sync, host->shm.page, setup->rank, setup->size, setup->crowd,
                   setup->timeout_ms, err);
    if (rc != 0) {
        goto fail;
    }
    host->sync.first = setup->first;
    host->sync.handover = setup->handover;
    if (host->shm.page->order != (uint32_t)setup->order) {
        rc = ct_err_set(err, CT_EPROTO, "rank %d adds in another order than rank %d", setup->first,
                        setup->first + setup->rank);
        goto fail;
    }
    arena_init(&host->arena, &host->shm, setup->rank, setup->size);
    rc = make_staging(host, err);
    if (rc != 0) {
        goto fail;
    }
    *out = host;
    return 0;
fail:
    abandon(host);
    return rc;
}

int host_join(struct host *host, struct ct_err *err)
{
    int rc = sync_join(&host->sync, err);
    if (rc != 0) {
        abandon(host);
    }
    return rc;
}
