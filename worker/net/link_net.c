/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between ranks of two machines. The two connect as hosts of a communicator do (net.h): by
 * a control connection, and one connection per direction for the messages. Closing a TCP connection
 * that has unread bytes discards what was sent on it, so an end that closes keeps its own messages
 * on a connection on which it has received nothing.
 *
 * Bytes move only inside calls. A sender that waits for room meanwhile stores what the peer sends
 * in a ring, because otherwise two ends that send at once would wait for each other. If the ring is
 * full, the peer waits. A receiver takes bytes directly to their destination.
 */
#include "worker/comm/link.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "worker/job/job.h"
#include "worker/net/net.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* Longest sleep between two looks at what has no descriptor: the launcher's order that ends the
 * generation. */
#define SLICE_MS 20

/* For "link/", two ranks and a key of net_bootstrap.c. */
#define KEY_MAX 48

struct frame {
    uint64_t bytes;
    int32_t tag;
    uint32_t magic;
};

struct net_channel {
    struct ctw_link link;
    struct net net;
    int names[2]; /* the two ranks as the communicator numbers them, the lower one first */
    const struct order_reader *handover;
    /* Stores what comes while this end sends. The difference of the counters is the number of bytes
     * in the ring. When the ring is empty both restart at 0, so that short messages use only the
     * front of a large ring, which stays in the cache. */
    unsigned char *ring;
    size_t capacity;
    uint64_t stored, taken;
};

static struct net_channel *self(struct ctw_link *link)
{
    return (struct net_channel *)link;
}

/* ---- waiting --------------------------------------------------------------------------------- */

static bool has_room(const struct net_channel *c)
{
    return c->stored - c->taken < c->capacity;
}

static int timed_out(const struct net_channel *c, bool sending, struct ct_err *err)
{
    return ct_err_set(err, CT_ETIMEDOUT, "gave up after %.1f s: %s %s",
                      (double)c->net.timeout_ms / 1000, c->net.peers[1 - c->net.node].name,
                      sending ? "takes nothing" : "has sent nothing");
}

/* Returns an error if there is a reason to end the link. That the peer has closed its end is one
 * only for a sender: what it sent before it closed can still be received. */
static int look(struct net_channel *c, bool sending, struct ct_err *err)
{
    int rc = net_look(&c->net, err);
    if (rc != 0) {
        return rc;
    }
    if (sending) {
        rc = net_anyone_left(&c->net, err);
        if (rc != 0) {
            return rc;
        }
    }
    return order_reader_check(c->handover, err);
}

/* Waits until there is room to send, bytes to receive, or a reason to end the link. */
static int wait_for(struct net_channel *c, bool sending, int64_t *deadline, struct ct_err *err)
{
    int64_t began = ct_clock_now(NULL);
    struct pollfd waiting[3] = {
        {.fd = !sending || has_room(c) ? c->net.links[SCHEDULE_PREV].fd : -1, .events = POLLIN},
        {.fd = sending ? c->net.links[SCHEDULE_NEXT].fd : -1, .events = POLLOUT},
        {.fd = c->net.epoll, .events = POLLIN},
    };
    int n = poll(waiting, 3, SLICE_MS);
    if (n < 0 && errno != EINTR) {
        int saved = errno;
        return ct_err_sys(err, ct_code_from_errno(saved), saved, "cannot wait");
    }
    /* Bytes that have arrived count, whatever the peer did afterwards. */
    bool ready = n > 0 && (waiting[0].revents | waiting[1].revents) != 0;
    int rc = ready ? 0 : look(c, sending, err);
    int64_t now = ct_clock_now(NULL);
    ct_deadline_put_off(deadline, began, now);
    if (rc != 0) {
        return rc;
    }
    return !ready && now >= *deadline ? timed_out(c, sending, err) : 0;
}

/* Handles a failed send() or recv(): 0 if trying again may help. */
static int failed(struct net_channel *c, int direction, ssize_t n, struct ct_err *err)
{
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    return net_lost(&c->net, &c->net.links[direction], n < 0 ? errno : 0, err);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Stores in the ring what has arrived, as far as one contiguous piece of it has room. */
static int store(struct net_channel *c, bool *moved, struct ct_err *err)
{
    size_t at = (size_t)c->stored & (c->capacity - 1);
    size_t room = c->capacity - (size_t)(c->stored - c->taken);
    size_t piece = c->capacity - at < room ? c->capacity - at : room;
    *moved = false;
    if (piece == 0) {
        return 0;
    }
    ssize_t n = recv(c->net.links[SCHEDULE_PREV].fd, c->ring + at, piece, MSG_DONTWAIT);
    if (n <= 0) {
        return failed(c, SCHEDULE_PREV, n, err);
    }
    c->stored += (uint64_t)n;
    *moved = true;
    return 0;
}

/* Sends all of `iov`, and changes it. */
static int put(struct net_channel *c, struct iovec *iov, size_t count, struct ct_err *err)
{
    int64_t deadline = ct_deadline_in(NULL, c->net.timeout_ms);
    while (count > 0) {
        if (iov->iov_len == 0) {
            iov++;
            count--;
            continue;
        }
        struct msghdr message = {.msg_iov = iov, .msg_iovlen = count};
        ssize_t n = sendmsg(c->net.links[SCHEDULE_NEXT].fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0) {
            bool moved;
            int rc = failed(c, SCHEDULE_NEXT, n, err);
            if (rc != 0) {
                return rc;
            }
            rc = store(c, &moved, err);
            if (rc != 0) {
                return rc;
            }
            if (!moved) {
                rc = wait_for(c, true, &deadline, err);
                if (rc != 0) {
                    return rc;
                }
            }
            continue;
        }
        deadline = ct_deadline_in(NULL, c->net.timeout_ms);
        for (size_t i = 0, left = (size_t)n; i < count && left > 0; i++) {
            size_t used = iov[i].iov_len < left ? iov[i].iov_len : left;
            iov[i].iov_base = (char *)iov[i].iov_base + used;
            iov[i].iov_len -= used;
            left -= used;
        }
    }
    return 0;
}

/* Copies bytes from the ring, as far as they are wanted and contiguous there. */
static size_t take_stored(struct net_channel *c, unsigned char *to, size_t len)
{
    size_t at = (size_t)c->taken & (c->capacity - 1);
    size_t have = (size_t)(c->stored - c->taken);
    size_t piece = c->capacity - at < have ? c->capacity - at : have;
    piece = piece < len ? piece : len;
    if (piece > 0) {
        memcpy(to, c->ring + at, piece);
    }
    c->taken += piece;
    if (c->taken == c->stored) {
        c->taken = c->stored = 0;
    }
    return piece;
}

static int take(struct net_channel *c, void *data, size_t len, struct ct_err *err)
{
    unsigned char *to = data;
    int64_t deadline = ct_deadline_in(NULL, c->net.timeout_ms);
    while (len > 0) {
        size_t stored = take_stored(c, to, len);
        ssize_t n = (ssize_t)stored;
        if (stored == 0) {
            n = recv(c->net.links[SCHEDULE_PREV].fd, to, len, MSG_DONTWAIT);
        }
        if (n > 0) {
            to += n;
            len -= (size_t)n;
            deadline = ct_deadline_in(NULL, c->net.timeout_ms);
            continue;
        }
        int rc = failed(c, SCHEDULE_PREV, n, err);
        if (rc != 0) {
            return rc;
        }
        rc = wait_for(c, false, &deadline, err);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

/* ---- messages -------------------------------------------------------------------------------- */

static int net_send(struct ctw_link *link, const void *buf, size_t bytes, int tag,
                    struct ct_err *err)
{
    struct net_channel *c = self(link);
    struct frame frame = {.bytes = bytes, .tag = tag, .magic = NET_MAGIC};
    struct iovec iov[2] = {{&frame, sizeof(frame)}, {(void *)buf, bytes}};
    int rc = look(c, true, err);
    if (rc != 0) {
        return rc;
    }
    return put(c, iov, 2, err);
}

static int take_frame(struct net_channel *c, struct frame *frame, struct ct_err *err)
{
    int rc = take(c, frame, sizeof(*frame), err);
    if (rc != 0) {
        return rc;
    }
    if (frame->magic != NET_MAGIC) {
        return ct_err_set(err, CT_EPROTO, "%s has sent an invalid message",
                          c->net.peers[1 - c->net.node].name);
    }
    return 0;
}

static int net_recv(struct ctw_link *link, void *buf, size_t bytes, int tag, struct ct_err *err)
{
    struct net_channel *c = self(link);
    struct frame frame;
    int rc = take_frame(c, &frame, err);
    if (rc != 0) {
        return rc;
    }
    rc = link_check_message(frame.bytes, frame.tag, bytes, tag, err);
    if (rc != 0) {
        return rc;
    }
    return take(c, buf, bytes, err);
}

static void net_abort(struct ctw_link *link)
{
    net_tell(&self(link)->net, link->reason.text);
}

static void net_channel_close(struct ctw_link *link)
{
    struct net_channel *c = self(link);
    net_close(&c->net, link->dead != 0);
    ct_free(c->ring);
    ct_free(c);
}

static const struct ctw_link_ops net_ops = {
    .send = net_send, .recv = net_recv, .abort = net_abort, .close = net_channel_close};

/* ---- opening --------------------------------------------------------------------------------- */

/* Gives the keys of a pair of ranks names of their own among those of the communicator. */
struct pair_keys {
    struct comm_origin *origin;
    const int *names;
};

static void name_key(const struct pair_keys *keys, const char *key, char out[KEY_MAX])
{
    (void)snprintf(out, KEY_MAX, "link/%d/%d/%s", keys->names[0], keys->names[1], key);
}

static int set_key(void *data, const char *key, const void *value, size_t len, struct ct_err *err)
{
    const struct pair_keys *keys = data;
    char name[KEY_MAX];
    name_key(keys, key, name);
    return comm_store_set(keys->origin, name, value, len, err);
}

static int get_key(void *data, const char *key, int64_t timeout_ms, struct ct_buf *out,
                   struct ct_err *err)
{
    const struct pair_keys *keys = data;
    char name[KEY_MAX];
    name_key(keys, key, name);
    return comm_store_get(keys->origin, name, timeout_ms, out, err);
}

/* Exchanges a first frame, in which each end says how much it buffers. */
static int check_capacity(struct net_channel *c, struct ct_err *err)
{
    struct frame mine = {.bytes = c->capacity, .magic = NET_MAGIC}, theirs;
    struct iovec iov = {&mine, sizeof(mine)};
    int rc = put(c, &iov, 1, err);
    if (rc != 0) {
        return rc;
    }
    rc = take_frame(c, &theirs, err);
    if (rc != 0) {
        return rc;
    }
    if (theirs.bytes != mine.bytes) {
        return ct_err_set(err, CT_EPROTO, "its end buffers %llu bytes, this one %zu",
                          (unsigned long long)theirs.bytes, c->capacity);
    }
    return 0;
}

static int connect_ends(struct net_channel *c, struct ctw_comm *comm, struct ct_err *err)
{
    struct pair_keys keys = {&comm->origin, c->names};
    struct comm_setup setup = comm_setup_of(&comm->origin);
    setup.rank = setup.node = setup.first = comm->rank == c->names[0] ? 0 : 1;
    setup.size = setup.nodes = 2;
    setup.local_size = 1;
    setup.order = CTW_ORDER_RANK;
    setup.set = set_key;
    setup.get = get_key;
    setup.data = &keys;
    int rc = net_open_pair(&c->net, &setup, c->names, err);
    if (rc != 0) {
        return rc;
    }
    rc = check_capacity(c, err);
    if (rc != 0) {
        net_tell(&c->net, err != NULL ? err->text : "cannot open the link");
        return rc;
    }
    return 0;
}

int link_net_open(struct ctw_comm *comm, int peer, size_t buffer, struct ctw_link **out,
                  struct ct_err *err)
{
    struct net_channel *c = ct_calloc(1, sizeof(*c));
    if (c == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    c->link.ops = &net_ops;
    c->names[0] = comm->rank < peer ? comm->rank : peer;
    c->names[1] = comm->rank < peer ? peer : comm->rank;
    c->handover = &comm->origin.job->handover;
    c->capacity = link_ring_size(buffer, sizeof(struct frame));
    c->ring = ct_malloc(c->capacity);
    int rc =
        c->ring != NULL ? connect_ends(c, comm, err) : ct_err_set(err, CT_ENOMEM, "out of memory");
    if (rc != 0) {
        c->link.dead = rc;
        net_channel_close(&c->link);
        return rc;
    }
    *out = &c->link;
    return 0;
}
