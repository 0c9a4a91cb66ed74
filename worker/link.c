/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between two ranks of one machine: a file in memory of their own with a ring of bytes for
 * each direction, and the page by which ranks wait for each other (sync.h).
 *
 *     file: | page | head, bytes (lower rank to higher) | head, bytes (higher to lower) |
 *
 * `written` and `read` count bytes and are never reset; their difference is what lies in the ring.
 * A message longer than what is free passes through in pieces. Each starts with its length and tag.
 */
#include "worker/comm.h"
#include "worker/shm.h"

#include "common/alloc.h"
#include "worker/job.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* What a ring has at least, so that short messages seldom wait. */
#define CAPACITY_MIN ((size_t)64 * 1024)

#define HEAD_BYTES 4096

struct ring_head {
    uint64_t capacity; /* a power of two; written before the other end looks */
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

struct ctw_link {
    struct shm shm;
    struct sync sync;
    struct progress_page *progress; /* of the job */
    int names[2];                   /* the two ranks as the communicator numbers them, in order */
    int peer;                       /* of those */
    size_t capacity;
    void *base; /* of both rings */
    struct ring out, in;
    int dead; /* code of the failure that ended it, 0 while alive */
    struct ct_err reason;
};

/* ---- rings ----------------------------------------------------------------------------------- */

/* Counters of one direction differ by at most the capacity; anything else is not ours. */
static int check_used(const struct ctw_link *link, uint32_t used, struct ct_err *err)
{
    return used <= link->capacity ? 0 : ct_err_set(err, CT_EPROTO, "the shared ring is corrupt");
}

static int wait_for(struct ctw_link *link, _Atomic uint32_t *word, uint32_t old, struct ct_err *err)
{
    uint64_t before = progress_begin_wait(link->progress);
    int rc = sync_wait(&link->sync, word, old, err);
    progress_end_wait(link->progress, before);
    return rc;
}

static int put(struct ctw_link *link, const void *data, size_t len, struct ct_err *err)
{
    const unsigned char *from = data;
    struct ring_head *head = link->out.head;
    uint32_t written = atomic_load_explicit(&head->written, memory_order_relaxed);
    while (len > 0) {
        uint32_t read = atomic_load_explicit(&head->read, memory_order_acquire);
        uint32_t used = written - read;
        int rc = check_used(link, used, err);
        if (rc == 0 && used == link->capacity) {
            rc = wait_for(link, &head->read, read, err);
            if (rc == 0) {
                continue;
            }
        }
        if (rc != 0) {
            return rc;
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

static int take(struct ctw_link *link, void *data, size_t len, struct ct_err *err)
{
    unsigned char *to = data;
    struct ring_head *head = link->in.head;
    uint32_t read = atomic_load_explicit(&head->read, memory_order_relaxed);
    while (len > 0) {
        uint32_t written = atomic_load_explicit(&head->written, memory_order_acquire);
        uint32_t used = written - read;
        int rc = check_used(link, used, err);
        if (rc == 0 && used == 0) {
            rc = wait_for(link, &head->written, written, err);
            if (rc == 0) {
                continue;
            }
        }
        if (rc != 0) {
            return rc;
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

static int settle(struct ctw_link *link, int rc, const char *what, struct ct_err *err)
{
    if (rc != 0) {
        link->dead = rc;
        (void)ct_err_wrap(&link->reason, "%s rank %d", what, link->peer);
        sync_abort(&link->sync);
        if (err != NULL) {
            *err = link->reason;
        }
    }
    return rc;
}

static int refuse_dead(const struct ctw_link *link, struct ct_err *err)
{
    return ct_err_set(err, link->dead, "the link has ended: %s", link->reason.text);
}

static int send_message(struct ctw_link *link, const void *buf, size_t bytes, int tag)
{
    const struct frame frame = {bytes, tag};
    if (buf == NULL && bytes > 0) {
        return ct_err_set(&link->reason, CT_EINVAL, "the buffer is NULL");
    }
    int rc = put(link, &frame, sizeof(frame), &link->reason);
    return rc == 0 ? put(link, buf, bytes, &link->reason) : rc;
}

static int receive_message(struct ctw_link *link, void *buf, size_t bytes, int tag)
{
    struct frame frame;
    if (buf == NULL && bytes > 0) {
        return ct_err_set(&link->reason, CT_EINVAL, "the buffer is NULL");
    }
    int rc = take(link, &frame, sizeof(frame), &link->reason);
    if (rc == 0 && (frame.bytes != bytes || frame.tag != tag)) {
        rc = ct_err_set(&link->reason, CT_EPROTO,
                        "%llu bytes with tag %lld came, %zu with tag %d were expected",
                        (unsigned long long)frame.bytes, (long long)frame.tag, bytes, tag);
    }
    return rc == 0 ? take(link, buf, bytes, &link->reason) : rc;
}

int ctw_link_send(struct ctw_link *link, const void *buf, size_t bytes, int tag, struct ct_err *err)
{
    if (link->dead != 0) {
        return refuse_dead(link, err);
    }
    return settle(link, send_message(link, buf, bytes, tag), "send to", err);
}

int ctw_link_recv(struct ctw_link *link, void *buf, size_t bytes, int tag, struct ct_err *err)
{
    if (link->dead != 0) {
        return refuse_dead(link, err);
    }
    return settle(link, receive_message(link, buf, bytes, tag), "receive from", err);
}

void ctw_link_abort(struct ctw_link *link)
{
    if (link != NULL && link->dead == 0) {
        int rc = ct_err_set(&link->reason, CT_EABORTED, "called here");
        (void)settle(link, rc, "abort of the link to", NULL);
    }
}

/* ---- opening --------------------------------------------------------------------------------- */

static int check(const struct ctw_comm *comm, int peer, size_t buffer, struct ctw_link **out,
                 struct ct_err *err)
{
    if (out == NULL || peer < 0 || peer >= comm->size || peer == comm->rank) {
        return ct_err_set(err, CT_EINVAL, "rank %d has no link to rank %d of %d", comm->rank, peer,
                          comm->size);
    }
    if (buffer > CTW_LINK_BUFFER_MAX) {
        return ct_err_set(err, CT_ELIMIT, "messages of %zu bytes are too long to buffer", buffer);
    }
    const struct ctw_env *env = &comm->origin.job->env;
    if (env->local_world_size < env->world_size) {
        return ct_err_set(err, CT_EUNSUPPORTED,
                          "the job spans machines, between which there are no links yet");
    }
    return 0;
}

static bool is_lower(const struct ctw_link *link)
{
    return link->peer == link->names[1];
}

static int map_rings(struct ctw_link *link, struct ct_err *err)
{
    size_t span = HEAD_BYTES + link->capacity;
    int rc = shm_map(&link->shm, link->shm.page_bytes, 2 * span, &link->base, err);
    if (rc == 0) {
        unsigned char *up = link->base, *down = up + span;
        unsigned char *out = is_lower(link) ? up : down, *in = is_lower(link) ? down : up;
        link->out = (struct ring){(struct ring_head *)out, out + HEAD_BYTES};
        link->in = (struct ring){(struct ring_head *)in, in + HEAD_BYTES};
    }
    return rc;
}

/* The lower rank makes the file with both rings and says so in the store. */
static int make(struct ctw_link *link, struct comm_origin *origin, const char *key,
                struct ct_err *err)
{
    char invitation[SHM_INVITATION_MAX];
    int rc = shm_create(&link->shm, 2, invitation, err);
    if (rc == 0) {
        rc = shm_reserve(&link->shm, link->shm.page_bytes, 2 * (HEAD_BYTES + link->capacity), err);
    }
    if (rc == 0) {
        rc = map_rings(link, err);
    }
    if (rc == 0) {
        link->out.head->capacity = link->capacity;
        rc = comm_store_set(origin, key, invitation, strlen(invitation), err);
    }
    return rc;
}

static int find(struct ctw_link *link, struct comm_origin *origin, const char *key,
                struct ct_err *err)
{
    struct ct_buf invitation = CT_BUF_INIT;
    int rc = comm_store_get(origin, key, origin->timeout_ms, &invitation, err);
    if (rc == 0) {
        const char *text = ct_buf_cstr(&invitation);
        rc = text != NULL ? shm_attach(&link->shm, 2, text, err)
                          : ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    ct_buf_fini(&invitation);
    return rc == 0 ? map_rings(link, err) : rc;
}

/* Where the ends differ, the second head is not where this one looks for it: until this is known
 * only the first is touched. */
static int check_capacity(const struct ctw_link *link, struct ct_err *err)
{
    const struct ring_head *first = link->base;
    if (first->capacity != link->capacity) {
        return ct_err_set(err, CT_EPROTO, "its end buffers %llu bytes, this one %zu",
                          (unsigned long long)first->capacity, link->capacity);
    }
    return 0;
}

static int connect_ends(struct ctw_link *link, struct ctw_comm *comm, struct ct_err *err)
{
    char key[32];
    (void)snprintf(key, sizeof(key), "link/%d/%d", link->names[0], link->names[1]);
    int rc =
        is_lower(link) ? make(link, &comm->origin, key, err) : find(link, &comm->origin, key, err);
    if (rc == 0) {
        rc = sync_init(&link->sync, link->shm.page, is_lower(link) ? 0 : 1, 2,
                       comm->origin.job->env.local_world_size, comm->origin.timeout_ms, err);
    }
    if (rc != 0) {
        return rc;
    }
    link->sync.names = link->names;
    link->sync.handover = &comm->origin.job->handover;
    rc = check_capacity(link, err);
    if (rc == 0) {
        rc = sync_join(&link->sync, err);
    }
    if (rc != 0) {
        sync_abort(&link->sync);
    }
    return rc;
}

int ctw_link_open(struct ctw_comm *comm, int peer, size_t buffer, struct ctw_link **out,
                  struct ct_err *err)
{
    int rc = comm != NULL ? check(comm, peer, buffer, out, err)
                          : ct_err_set(err, CT_EINVAL, "ctw_link_open: no communicator");
    if (rc != 0) {
        return rc;
    }
    struct ctw_link *link = ct_calloc(1, sizeof(*link));
    if (link == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    link->shm = (struct shm)SHM_INIT;
    link->sync.epoll = -1;
    link->progress = &comm->origin.job->progress;
    link->peer = peer;
    link->names[0] = comm->rank < peer ? comm->rank : peer;
    link->names[1] = comm->rank < peer ? peer : comm->rank;
    link->capacity = CAPACITY_MIN;
    while (link->capacity < buffer + sizeof(struct frame)) {
        link->capacity *= 2;
    }
    rc = connect_ends(link, comm, err);
    if (rc != 0) {
        ctw_link_free(link);
        (void)ct_err_wrap(err, "rank %d cannot open a link to rank %d", comm->rank, peer);
        return rc;
    }
    *out = link;
    return 0;
}

void ctw_link_free(struct ctw_link *link)
{
    if (link == NULL) {
        return;
    }
    sync_fini(&link->sync);
    if (link->base != NULL) {
        (void)munmap(link->base, 2 * (HEAD_BYTES + link->capacity));
    }
    shm_fini(&link->shm);
    ct_free(link);
}
