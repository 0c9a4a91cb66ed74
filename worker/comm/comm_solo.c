/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicator of a single process: no store, no shared memory, no waiting. Memory of alloc()
 * is kept in a list and unmapped by close().
 */
#include "worker/comm/comm.h"

#include "common/alloc.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

struct block {
    struct block *next;
    void *base;
    size_t bytes;
};

struct solo {
    struct ctw_comm comm;
    struct block *blocks;
};

static void solo_close(struct ctw_comm *comm)
{
    struct solo *solo = (struct solo *)comm;
    while (solo->blocks != NULL) {
        struct block *block = solo->blocks;
        solo->blocks = block->next;
        (void)munmap(block->base, block->bytes);
        ct_free(block);
    }
    ct_free(solo);
}

static int solo_alloc(struct ctw_comm *comm, enum ctw_memory kind, size_t bytes, void **out,
                      struct ct_err *err)
{
    (void)kind;
    struct solo *solo = (struct solo *)comm;
    struct block *block = ct_calloc(1, sizeof(*block));
    if (block == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        int saved = errno;
        ct_free(block);
        return ct_err_sys(err, ct_code_from_errno(saved), saved, "cannot map %zu bytes", bytes);
    }
    *block = (struct block){solo->blocks, base, bytes};
    solo->blocks = block;
    *out = base;
    return 0;
}

static int solo_all_reduce(struct ctw_comm *comm, const float *send, float *recv, size_t count,
                           struct ct_err *err)
{
    (void)comm;
    (void)err;
    if (send != recv && count > 0) {
        memcpy(recv, send, count * sizeof(float));
    }
    return 0;
}

static int solo_reduce_scatter(struct ctw_comm *comm, float *buf, size_t count, size_t *begin,
                               size_t *end, struct ct_err *err)
{
    (void)comm;
    (void)buf;
    (void)err;
    *begin = 0;
    *end = count;
    return 0;
}

static int solo_broadcast(struct ctw_comm *comm, void *buf, size_t bytes, int root,
                          struct ct_err *err)
{
    (void)comm;
    (void)buf;
    (void)bytes;
    (void)root;
    (void)err;
    return 0;
}

static int solo_nothing(struct ctw_comm *comm, struct ct_err *err)
{
    (void)comm;
    (void)err;
    return 0;
}

static void solo_abort(struct ctw_comm *comm)
{
    (void)comm;
}

static const struct ctw_comm_ops solo_ops = {
    .close = solo_close,
    .alloc = solo_alloc,
    .all_reduce = solo_all_reduce,
    .reduce_scatter = solo_reduce_scatter,
    .broadcast = solo_broadcast,
    .barrier = solo_nothing,
    .poll = solo_nothing,
    .sync = solo_nothing,
    .abort = solo_abort,
};

int comm_solo_open(const struct comm_setup *setup, struct ctw_comm **out, struct ct_err *err)
{
    struct solo *solo = ct_calloc(1, sizeof(*solo));
    if (solo == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    solo->comm.ops = &solo_ops;
    solo->comm.rank = setup->rank;
    solo->comm.size = 1;
    solo->comm.backend = CTW_BACKEND_HOST;
    *out = &solo->comm;
    return 0;
}
