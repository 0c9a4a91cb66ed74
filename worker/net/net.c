/* SPDX-License-Identifier: Apache-2.0
 *
 * Control frames between leaders. A frame, or a connection that closes, ends the communicator with
 * a message that names the host, and is passed on to all. Sockets are non-blocking, and net_close()
 * closes them.
 */
#include "worker/net/net.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "worker/shm/host.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Longest sleep between two looks at what has no descriptor, and so the delay until the abort of a
 * local rank is noticed. */
#define SLICE_NS (5 * CT_NS_PER_MS)

/* How long to sleep while local ranks add: about as long as they need for a chunk. */
#define STARVING_NS (50 * 1000)

/* How long to wait, after a link breaks, for the reason, which comes on the control connection. */
#define REASON_MS 200

/* FRAME_OWN_STORY tells a failure of the sender, FRAME_STORY one that it has heard of. A host that
 * hears of a failure ends, too, and the hosts that notice that should report the first reason. */
enum frame_kind { FRAME_BYE, FRAME_WAITING, FRAME_OWN_STORY, FRAME_STORY };

/* ---- sending --------------------------------------------------------------------------------- */

/* Sends a frame without waiting for room. There is room, because little is sent on this connection.
 */
static void send_frame(const struct net_peer *peer, enum frame_kind kind, const void *text,
                       size_t len)
{
    len = len < NET_TEXT_MAX ? len : NET_TEXT_MAX;
    unsigned char frame[sizeof(struct net_frame) + NET_TEXT_MAX];
    const struct net_frame head = {.kind = kind, .len = (uint32_t)len};
    memcpy(frame, &head, sizeof(head));
    if (len > 0) {
        memcpy(frame + sizeof(head), text, len);
    }
    (void)send(peer->fd, frame, sizeof(head) + len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void send_to_all(struct net *net, enum frame_kind kind, const void *text, size_t len)
{
    for (int n = 0; n < net->nodes && net->peers != NULL; n++) {
        if (net->peers[n].fd >= 0) {
            send_frame(&net->peers[n], kind, text, len);
        }
    }
}

void net_tell(struct net *net, const char *why)
{
    if (net->story[0] != '\0') {
        send_to_all(net, FRAME_STORY, net->story, strlen(net->story));
    } else {
        send_to_all(net, FRAME_OWN_STORY, why, strlen(why));
    }
}

void net_close(struct net *net, bool failed)
{
    if (net->nodes == 0) {
        return;
    }
    if (!failed) {
        send_to_all(net, FRAME_BYE, NULL, 0);
    }
    for (int n = 0; n < net->nodes && net->peers != NULL; n++) {
        if (net->peers[n].fd >= 0) {
            (void)close(net->peers[n].fd);
        }
    }
    for (int l = 0; l < net->link_count && net->links != NULL; l++) {
        if (net->links[l].fd >= 0) {
            (void)close(net->links[l].fd);
        }
    }
    if (net->epoll >= 0) {
        (void)close(net->epoll);
    }
    ct_free(net->links);
    ct_free(net->peers);
    *net = (struct net){0};
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Takes a whole frame out of the buffer. Returns 0, or the failure that the frame reports. */
static int read_frame(struct net *net, struct net_peer *peer, struct ct_err *err)
{
    struct net_frame head;
    memcpy(&head, peer->in, sizeof(head));
    char text[NET_TEXT_MAX + 1];
    memcpy(text, peer->in + sizeof(head), head.len);
    text[head.len] = '\0';
    size_t whole = sizeof(head) + head.len;
    peer->have -= whole;
    memmove(peer->in, peer->in + whole, peer->have);
    if (head.kind == FRAME_BYE) {
        peer->left = true;
        return 0;
    }
    if (head.kind == FRAME_WAITING) {
        memcpy(&peer->waits_for, text, sizeof(peer->waits_for));
        return 0;
    }
    if (head.kind == FRAME_OWN_STORY) {
        (void)snprintf(net->story, sizeof(net->story), "%s says: %s", peer->name, text);
    } else {
        (void)snprintf(net->story, sizeof(net->story), "%s", text);
    }
    return ct_err_set(err, CT_EPEER, "%s", net->story);
}

static int has_left(const struct net *net, const struct net_peer *peer, struct ct_err *err)
{
    return ct_err_set(err, CT_EPEER, "%s closed its %s", peer->name,
                      net->names != NULL ? "link" : "communicator");
}

/* The control connection has ended: closed, if the leader has died, or with an error, if the host
 * cannot be reached any more. */
static int lost_control(const struct net *net, struct net_peer *peer, int errnum,
                        struct ct_err *err)
{
    /* If a forked child has the connection, too, close() alone leaves it in the set of epoll. */
    (void)epoll_ctl(net->epoll, EPOLL_CTL_DEL, peer->fd, NULL);
    (void)close(peer->fd);
    peer->fd = -1;
    if (peer->left) {
        return 0;
    }
    if (errnum == 0 || errnum == ECONNRESET || errnum == EPIPE) {
        return net->names != NULL
                   ? ct_err_set(err, CT_EPEER, "%s has died", peer->name)
                   : ct_err_set(err, CT_EPEER, "rank %d on %s has died", peer->first, peer->name);
    }
    return ct_err_set(err, CT_EPEER, "lost the connection to %s: %s", peer->name, strerror(errnum));
}

static bool is_frame(const struct net_frame *head)
{
    return head->len <= NET_TEXT_MAX &&
           (head->kind == FRAME_WAITING ? head->len == sizeof(int32_t) : head->kind <= FRAME_STORY);
}

static int look_at(struct net *net, struct net_peer *peer, struct ct_err *err)
{
    while (peer->fd >= 0) {
        ssize_t n =
            recv(peer->fd, peer->in + peer->have, sizeof(peer->in) - peer->have, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            break;
        }
        if (n <= 0) {
            return lost_control(net, peer, n == 0 ? 0 : errno, err);
        }
        peer->have += (size_t)n;
        struct net_frame head;
        while (peer->have >= sizeof(head)) {
            memcpy(&head, peer->in, sizeof(head));
            if (!is_frame(&head)) {
                return ct_err_set(err, CT_EPROTO, "%s has sent an invalid message", peer->name);
            }
            if (peer->have < sizeof(head) + head.len) {
                break;
            }
            int rc = read_frame(net, peer, err);
            if (rc != 0) {
                return rc;
            }
        }
    }
    return 0;
}

int net_look(struct net *net, struct ct_err *err)
{
    struct epoll_event event;
    while (epoll_wait(net->epoll, &event, 1, 0) == 1) {
        int rc = look_at(net, &net->peers[event.data.u32], err);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

int net_anyone_left(const struct net *net, struct ct_err *err)
{
    for (int n = 0; n < net->nodes; n++) {
        if (net->peers[n].left) {
            return has_left(net, &net->peers[n], err);
        }
    }
    return 0;
}

int net_lost(struct net *net, const struct net_link *link, int errnum, struct ct_err *err)
{
    const struct net_peer *peer = &net->peers[link->node];
    int64_t deadline = ct_deadline_in(NULL, REASON_MS);
    for (;;) {
        int rc = net_look(net, err);
        if (rc != 0) {
            return rc;
        }
        struct pollfd news = {.fd = net->epoll, .events = POLLIN};
        int left = ct_deadline_left_ms(NULL, deadline);
        if (peer->left || left <= 0 || (poll(&news, 1, left) < 0 && errno != EINTR)) {
            break;
        }
    }
    if (peer->left) {
        return has_left(net, peer, err);
    }
    return ct_err_set(err, CT_EPEER, "lost the connection to %s: %s", peer->name,
                      errnum != 0 ? strerror(errnum) : "it has ended");
}

/* ---- do all hosts call the same? ------------------------------------------------------------- */

int net_check(const struct net *net, int node, const struct net_header *theirs,
              const struct net_header *mine, struct ct_err *err)
{
    const struct net_peer *peer = &net->peers[node];
    if (theirs->magic != NET_MAGIC) {
        return ct_err_set(err, CT_EPROTO, "%s has sent an invalid message", peer->name);
    }
    if (theirs->op != mine->op) {
        return ct_err_set(err, CT_EPROTO, "%s called %s, rank %d %s", peer->name,
                          host_op_name(theirs->op), net->rank, host_op_name(mine->op));
    }
    if (theirs->size != mine->size || theirs->arg != mine->arg) {
        return ct_err_set(err, CT_EPROTO,
                          "%s asks for %llu (kind or root %d), rank %d for %llu (%d)", peer->name,
                          (unsigned long long)theirs->size, theirs->arg, net->rank,
                          (unsigned long long)mine->size, mine->arg);
    }
    if (theirs->number != mine->number) {
        return ct_err_set(err, CT_EPROTO, "%s is at operation %llu, rank %d at %llu", peer->name,
                          (unsigned long long)theirs->number, net->rank,
                          (unsigned long long)mine->number);
    }
    return 0;
}

/* Looks at all links, because a host that calls something else may wait on another link. */
static int check_links(struct net *net, const struct net_header *mine, struct ct_err *err)
{
    for (int l = 0; l < net->link_count; l++) {
        const struct net_link *link = &net->links[l];
        struct net_header theirs;
        if (!link->within &&
            recv(link->fd, &theirs, sizeof(theirs), MSG_PEEK | MSG_DONTWAIT) == sizeof(theirs)) {
            /* A host that has finished this operation may have begun the next. */
            int rc =
                theirs.number == mine->number ? net_check(net, link->node, &theirs, mine, err) : 0;
            if (rc != 0) {
                return rc;
            }
        }
    }
    return 0;
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Tells the other hosts, once, that this one waits for host `node`; -1 = for none. */
static void tell_waiting(struct net *net, int32_t node)
{
    int32_t *told = &net->peers[net->node].waits_for;
    if (*told != node) {
        *told = node;
        send_to_all(net, FRAME_WAITING, told, sizeof(*told));
    }
}

void net_moved(struct net *net)
{
    tell_waiting(net, -1);
}

/* Follows the chain of waiting hosts from `node`, and returns the host that waits for none. */
static int find_culprit(const struct net *net, int node)
{
    for (int i = 0; i < net->nodes; i++) {
        int next = net->peers[node].waits_for;
        if (next < 0 || next >= net->nodes || next == net->node) {
            break;
        }
        node = next;
    }
    return node;
}

static int timed_out(const struct net *net, const struct net_link *link, bool in,
                     struct ct_err *err)
{
    double seconds = (double)net->timeout_ms / 1000;
    if (link == NULL) {
        return ct_err_set(err, CT_ETIMEDOUT,
                          "gave up after %.1f s: ranks of this host make no progress", seconds);
    }
    int node = find_culprit(net, link->node);
    const char *what = node != link->node ? "makes no progress"
                       : in               ? "has sent nothing"
                                          : "takes nothing";
    return ct_err_set(err, CT_ETIMEDOUT, "gave up after %.1f s: %s %s", seconds,
                      net->peers[node].name, what);
}

int net_wait(struct net *net, const struct net_link *out, const struct net_link *in, bool starving,
             const struct net_header *mine, int64_t *deadline, struct ct_err *err)
{
    int64_t began = ct_clock_now(NULL);
    struct pollfd waiting[4] = {
        {.fd = net->epoll, .events = POLLIN},
        {.fd = net->sync->epoll, .events = POLLIN},
        {.fd = out != NULL ? out->fd : -1, .events = POLLOUT},
        {.fd = in != NULL ? in->fd : -1, .events = POLLIN},
    };
    const struct timespec slice = {.tv_nsec = starving ? STARVING_NS : SLICE_NS};
    int n = ppoll(waiting, 4, &slice, NULL);
    if (n < 0 && errno != EINTR) {
        int saved = errno;
        return ct_err_sys(err, ct_code_from_errno(saved), saved, "cannot wait for hosts");
    }
    if (n > 0 && (waiting[0].revents | waiting[1].revents) == 0) {
        return 0;
    }
    int rc = net_look(net, err);
    if (rc == 0) {
        rc = sync_poll(net->sync, err);
    }
    if (rc == 0 && n == 0 && !starving) {
        rc = check_links(net, mine, err);
    }
    const struct net_link *link = in != NULL ? in : out;
    int64_t now = ct_clock_now(NULL);
    ct_deadline_put_off(deadline, began, now);
    int64_t left = *deadline - now;
    if (rc == 0 && link != NULL && left < net->timeout_ms * CT_NS_PER_MS / 2) {
        tell_waiting(net, link->node);
    }
    if (rc == 0 && left <= 0) {
        rc = timed_out(net, link, in != NULL, err);
    }
    return rc;
}
