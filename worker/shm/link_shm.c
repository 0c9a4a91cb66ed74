/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between two ranks of one machine. They share a file in memory with a ring of bytes for
 * each direction, and a page for waiting (sync.h). A failure of either end is told through that
 * page; close() unmaps and frees.
 *
 *     file: | page | head, bytes (lower rank to higher) | head, bytes (higher to lower) |
 *
 * `written` and `read` count bytes and are never reset; their difference is the number of bytes in
 * the ring. Each message starts with its length and tag. One that is longer than the free space
 * passes in pieces.
 */
#include "worker/comm/link.h"
#include "worker/shm/shm.h"

#include "common/alloc.h"
#include "worker/job/job.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define HEAD_BYTES 4096

struct ring_head {
    uint64_t capacity; /* a power of two; written before the other end reads it */
    _Atomic uint32_t written __attribute__((aligned(SYNC_ALIGN)));
    _Atomic uint32_t read __attribute__((aligned(SYNC_ALIGN)));
};

struct frame {
    uint64_t bytes;
    int64_t tag;
};

struct ring {
    struct ring_head *head;
    unsigned char *bytes;
};

struct shm_link {
    struct ctw_link link;
    struct shm shm;
    struct sync sync;
    int names[2]; /* the two ranks as the communicator numbers them, the lower one first */
    bool lower;   /* this end is the lower rank */
    size_t capacity;
    void *base; /* start of the mapping of both rings */
    struct ring out, in;
};

static struct shm_link *self(struct ctw_link *link)
{
    return (struct shm_link *)link;
}

/* ---- rings ----------------------------------------------------------------------------------- */

/* The counters of one direction differ by at most the capacity. Otherwise something else has
 * written to them. */
static int check_used(const struct shm_link *link, uint32_t used, struct ct_err *err)
{
    return used <= link->capacity ? 0 : ct_err_set(err, CT_EPROTO, "the shared ring is corrupt");
}

static int put(struct shm_link *link, const void *data, size_t len, struct ct_err *err)
{
    const unsigned char *from = data;
    struct ring_head *head = link->out.head;
    uint32_t written = atomic_load_explicit(&head->written, memory_order_relaxed);
    while (len > 0) {
        uint32_t read = atomic_load_explicit(&head->read, memory_order_acquire);
        uint32_t used = written - read;
        int rc = check_used(link, used, err);
        if (rc != 0) {
            return rc;
        }
        if (used == link->capacity) {
            rc = sync_wait(&link->sync, &head->read, read, err);
            if (rc != 0) {
                return rc;
            }
            continue;
        }
        size_t at = written & (link->capacity - 1);
        size_t room = link->capacity - used;
        size_t piece = link->capacity - at < room ? link->capacity - at : room;
        piece = piece < len ? piece : len;
        memcpy(link->out.bytes + at, from, piece);
        from += piece;
        len -= piece;
        written += (uint32_t)piece;
        atomic_store(&head->written, written);
        sync_wake(&link->sync, &head->written);
    }
    return 0;
}

static int take(struct shm_link *link, void *data, size_t len, struct ct_err *err)
{
    unsigned char *to = data;
    struct ring_head *head = link->in.head;
    uint32_t read = atomic_load_explicit(&head->read, memory_order_relaxed);
    while (len > 0) {
        uint32_t written = atomic_load_explicit(&head->written, memory_order_acquire);
        uint32_t used = written - read;
        int rc = check_used(link, used, err);
        if (rc != 0) {
            return rc;
        }
        if (used == 0) {
            rc = sync_wait(&link->sync, &head->written, written, err);
            if (rc != 0) {
                return rc;
            }
            continue;
        }
        size_t at = read & (link->capacity - 1);
        size_t piece = link->capacity - at < used ? link->capacity - at : used;
        piece = piece < len ? piece : len;
        memcpy(to, link->in.bytes + at, piece);
        to += piece;
        len -= piece;
        read += (uint32_t)piece;
        atomic_store(&head->read, read);
        sync_wake(&link->sync, &head->read);
    }
    return 0;
}

/* ---- messages -------------------------------------------------------------------------------- */

static int shm_send(struct ctw_link *base, const void *buf, size_t bytes, int tag,
                    struct ct_err *err)
{
    struct shm_link *link = self(base);
    const struct frame frame = {bytes, tag};
    int rc = put(link, &frame, sizeof(frame), err);
    if (rc != 0) {
        return rc;
    }
    return put(link, buf, bytes, err);
}

static int shm_recv(struct ctw_link *base, void *buf, size_t bytes, int tag, struct ct_err *err)
{
    struct shm_link *link = self(base);
    struct frame frame;
    int rc = take(link, &frame, sizeof(frame), err);
    if (rc != 0) {
        return rc;
    }
    rc = link_check_message(frame.bytes, frame.tag, bytes, tag, err);
    if (rc != 0) {
        return rc;
    }
    return take(link, buf, bytes, err);
}

static void shm_abort(struct ctw_link *base)
{
    sync_abort(&self(base)->sync);
}

static void shm_close(struct ctw_link *base)
{
    struct shm_link *link = self(base);
    sync_fini(&link->sync);
    if (link->base != NULL) {
        (void)munmap(link->base, 2 * (HEAD_BYTES + link->capacity));
    }
    shm_fini(&link->shm);
    ct_free(link);
}

static const struct ctw_link_ops shm_ops = {
    .send = shm_send, .recv = shm_recv, .abort = shm_abort, .close = shm_close};

/* ---- opening --------------------------------------------------------------------------------- */

static int map_rings(struct shm_link *link, struct ct_err *err)
{
    size_t span = HEAD_BYTES + link->capacity;
    int rc = shm_map(&link->shm, link->shm.page_bytes, 2 * span, &link->base, err);
    if (rc != 0) {
        return rc;
    }
    unsigned char *up = link->base, *down = up + span;
    unsigned char *out = link->lower ? up : down, *in = link->lower ? down : up;
    link->out = (struct ring){(struct ring_head *)out, out + HEAD_BYTES};
    link->in = (struct ring){(struct ring_head *)in, in + HEAD_BYTES};
    return 0;
}

/* On the lower rank: makes the file with both rings and publishes it in the store. */
static int make(struct shm_link *link, struct comm_origin *origin, const char *key,
                struct ct_err *err)
{
    char invitation[SHM_INVITATION_MAX];
    int rc = shm_create(&link->shm, 2, invitation, err);
    if (rc != 0) {
        return rc;
    }
    rc = shm_reserve(&link->shm, link->shm.page_bytes, 2 * (HEAD_BYTES + link->capacity), err);
    if (rc != 0) {
        return rc;
    }
    rc = map_rings(link, err);
    if (rc != 0) {
        return rc;
    }
    link->out.head->capacity = link->capacity;
    return comm_store_set(origin, key, invitation, strlen(invitation), err);
}

static int find(struct shm_link *link, struct comm_origin *origin, const char *key,
                struct ct_err *err)
{
    struct ct_buf invitation = CT_BUF_INIT;
    int rc = comm_store_get(origin, key, origin->timeout_ms, &invitation, err);
    if (rc != 0) {
        goto out;
    }
    const char *text = ct_buf_cstr(&invitation);
    rc = text != NULL ? shm_attach(&link->shm, 2, text, err)
                      : ct_err_set(err, CT_ENOMEM, "out of memory");
    if (rc != 0) {
        goto out;
    }
    rc = map_rings(link, err);
out:
    ct_buf_fini(&invitation);
    return rc;
}

/* Compares the capacities. If they differ, the second head is not where this end looks for it, so
 * until here only the first is touched. */
static int check_capacity(const struct shm_link *link, struct ct_err *err)
{
    const struct ring_head *first = link->base;
    if (first->capacity != link->capacity) {
        return ct_err_set(err, CT_EPROTO, "its end buffers %llu bytes, this one %zu",
                          (unsigned long long)first->capacity, link->capacity);
    }
    return 0;
}

static int connect_ends(struct shm_link *link, struct ctw_comm *comm, struct ct_err *err)
{
    char key[32];
    (void)snprintf(key, sizeof(key), "link/%d/%d", link->names[0], link->names[1]);
    int rc =
        link->lower ? make(link, &comm->origin, key, err) : find(link, &comm->origin, key, err);
    if (rc != 0) {
        return rc;
    }
    rc = sync_init(&link->sync, link->shm.page, link->lower ? 0 : 1, 2,
                   comm->origin.job->env.local_world_size, comm->origin.timeout_ms, err);
    if (rc != 0) {
        return rc;
    }
    link->sync.names = link->names;
    link->sync.handover = &comm->origin.job->handover;
    rc = check_capacity(link, err);
    if (rc != 0) {
        goto fail;
    }
    rc = sync_join(&link->sync, err);
    if (rc != 0) {
        goto fail;
    }
    return 0;
fail:
    sync_abort(&link->sync);
    return rc;
}

int link_shm_open(struct ctw_comm *comm, int peer, size_t buffer, struct ctw_link **out,
                  struct ct_err *err)
{
    struct shm_link *link = ct_calloc(1, sizeof(*link));
    if (link == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    link->link.ops = &shm_ops;
    link->shm = (struct shm)SHM_INIT;
    link->sync.epoll = -1;
    link->lower = comm->rank < peer;
    link->names[0] = link->lower ? comm->rank : peer;
    link->names[1] = link->lower ? peer : comm->rank;
    link->capacity = link_ring_size(buffer, sizeof(struct frame));
    int rc = connect_ends(link, comm, err);
    if (rc != 0) {
        shm_close(&link->link);
        return rc;
    }
    *out = &link->link;
    return 0;
}
