/* SPDX-License-Identifier: Apache-2.0
 *
 * How the leaders connect. A leader that knows all addresses (worker/net/net_bootstrap.h) makes its
 * outgoing connections and sends a greeting on each without waiting for an answer, because a
 * listening socket accepts connections before accept() is called. Then it answers those that
 * connect to it, and only then reads the answers to its own greetings. So there is no circle of
 * waiting.
 *
 * A greeting proves by the first half of a secret from the store that it comes from this
 * communicator; the answer proves the same by the second half. Other connections are dropped,
 * silent ones after a time. If many strangers connect, a host's connection may be dropped, too;
 * then it connects again.
 */
#include "worker/net/net_bootstrap.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "rendezvous/wire/sock.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define VERSION 2
#define KIND_CONTROL (-1)

/* Magic and version also differ between hosts of different byte order. */
struct greeting {
    char proof[NET_PROOF_BYTES];
    uint32_t magic, version;
    int32_t from, kind;
};

/* Connections that have not greeted yet. If another one comes, one of them is dropped. */
#define INCOMING_MAX 32

/* How many connections are accepted before this host does anything else. */
#define ACCEPTS_MAX 4096

/* How long an incoming connection may take to send its greeting. */
#define GREETING_MS 5000

/* CONNECT_MS is the time after which a host that does not accept is given up. After each attempt of
 * ATTEMPT_MS this host serves its own incoming connections, because strangers may have filled the
 * backlogs of both. */
#define CONNECT_MS 10000
#define ATTEMPT_MS 1500

/* How often a host checks whether its connections were dropped, to connect again. */
#define AGAIN_MS 50

/* How often the local ranks are checked while this host waits for others. */
#define SLICE_MS 20

/* The control connection reports a silent host after about 15 s, whatever the deadline. */
#define KEEP_IDLE_S 5
#define KEEP_INTERVAL_S 2
#define KEEP_PROBES 5

struct incoming {
    int fd;
    int64_t deadline;
    struct greeting greeting;
    size_t have;
    bool known; /* it comes from the address of a host */
};

struct opening {
    struct net_bootstrap boot;
    int64_t deadline; /* of all connections; time in which this process did not run puts it off */
    struct incoming incoming[INCOMING_MAX];
    size_t incoming_count;
    int expected;       /* number of connections that other hosts still have to make to this one */
    int64_t look_again; /* when this host next checks whether it was dropped */
};

static int fail_errno(struct ct_err *err, const char *what)
{
    int saved = errno;
    return ct_err_sys(err, ct_code_from_errno(saved), saved, "%s", what);
}

/* ---- connections ----------------------------------------------------------------------------- */

static int set_option(int fd, int level, int name, int value)
{
    return setsockopt(fd, level, name, &value, sizeof(value));
}

/* Sets options whose only effect is that a failure shows earlier, so an error is ignored. */
static void tune(const struct net *net, int fd, bool control)
{
    (void)set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    (void)set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    (void)set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEP_IDLE_S);
    (void)set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEP_INTERVAL_S);
    (void)set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEP_PROBES);
    /* On a link a peer is also silent while it computes and its buffers are full. Between two ranks
     * that may last longer than the deadline, because a sender need not wait for the receiver. */
    int64_t limit = control ? (KEEP_IDLE_S + KEEP_INTERVAL_S * KEEP_PROBES) * 1000 : INT_MAX;
    if (control || net->names == NULL) {
        limit = net->timeout_ms < limit ? net->timeout_ms : limit;
    }
    (void)set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (int)limit);
}

static int *slot_of(const struct net *net, int node, int kind)
{
    return kind == KIND_CONTROL ? &net->peers[node].fd : &net->links[kind].fd;
}

/* ---- incoming connections -------------------------------------------------------------------- */

/* Takes the connection out of the list, and closes it unless it was `placed`. */
static void remove_incoming(struct opening *o, size_t i, bool placed)
{
    if (!placed) {
        (void)close(o->incoming[i].fd);
    }
    o->incoming_count--;
    memmove(&o->incoming[i], &o->incoming[i + 1], (o->incoming_count - i) * sizeof(o->incoming[0]));
}

/* Compares in constant time, so that a proof cannot be guessed byte by byte. */
static bool is_proof(const char *given, const char *proof)
{
    unsigned char differs = 0;
    for (size_t i = 0; i < NET_PROOF_BYTES; i++) {
        differs |= (unsigned char)(given[i] ^ proof[i]);
    }
    return differs == 0;
}

/* Is the greeting from a host that must connect to this one and has not yet? */
static bool is_awaited(const struct opening *o, const struct greeting *hello)
{
    const struct net *net = o->boot.net;
    if (!is_proof(hello->proof, o->boot.secret) || hello->magic != NET_MAGIC ||
        hello->version != VERSION || hello->from < 0 || hello->from >= net->nodes ||
        hello->from == net->node) {
        return false;
    }
    if (hello->kind == KIND_CONTROL) {
        return hello->from > net->node && net->peers[hello->from].fd < 0;
    }
    return hello->kind >= SCHEDULE_PREV && hello->kind < net->link_count &&
           net->links[hello->kind].node == hello->from && net->links[hello->kind].fd < 0;
}

/* Reads what has arrived. Returns true if the connection is `placed` or must be dropped. */
static bool read_greeting(struct opening *o, struct incoming *conn, bool *placed)
{
    ssize_t n = recv(conn->fd, (char *)&conn->greeting + conn->have,
                     sizeof(conn->greeting) - conn->have, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return ct_clock_now(NULL) >= conn->deadline;
    }
    if (n <= 0) {
        return true;
    }
    conn->have += (size_t)n;
    const struct greeting *hello = &conn->greeting;
    if (conn->have < sizeof(*hello)) {
        return false;
    }
    if (is_awaited(o, hello)) {
        tune(o->boot.net, conn->fd, hello->kind == KIND_CONTROL);
        /* The answer fits into a new socket's buffer, if the connection is not broken. */
        (void)send(conn->fd, o->boot.secret + NET_PROOF_BYTES, NET_PROOF_BYTES,
                   MSG_NOSIGNAL | MSG_DONTWAIT);
        *slot_of(o->boot.net, hello->from, hello->kind) = conn->fd;
        o->expected--;
        *placed = true;
    }
    return true;
}

/* Does the address belong to a host? A host with several addresses may use another one. */
static bool is_known(const struct opening *o, const struct sockaddr_storage *from)
{
    struct in6_addr theirs, ours;
    bool found = false;
    if (ct_addr_as_v6((const struct sockaddr *)from, &theirs)) {
        for (int n = 0; n < o->boot.net->nodes && !found; n++) {
            struct sockaddr_storage at;
            socklen_t len;
            found = ct_addr_literal(o->boot.where[n].host, 0, &at, &len) &&
                    ct_addr_as_v6((struct sockaddr *)&at, &ours) &&
                    memcmp(&ours, &theirs, sizeof(ours)) == 0;
        }
    }
    return found;
}

/* Drops the oldest connection from an unknown address, or else the oldest one, except one whose
 * greeting has just arrived. */
static void drop_one(struct opening *o)
{
    size_t i = 0;
    while (i < o->incoming_count && o->incoming[i].known) {
        i++;
    }
    i = i < o->incoming_count ? i : 0;
    bool placed = false;
    (void)read_greeting(o, &o->incoming[i], &placed);
    remove_incoming(o, i, placed);
}

static void read_greetings(struct opening *o)
{
    for (size_t i = o->incoming_count; i-- > 0;) {
        bool placed = false;
        if (read_greeting(o, &o->incoming[i], &placed)) {
            remove_incoming(o, i, placed);
        }
    }
}

/* Accepts connections and reads each at once. A host's greeting usually arrives with its
 * connection, so the host does not compete with silent strangers for a place. Fails if no more
 * files can be opened: what waits would never be accepted, and poll() would not wait for it. */
static int accept_incoming(struct opening *o, struct ct_err *err)
{
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        struct sockaddr_storage from = {0};
        socklen_t len = sizeof(from);
        int fd =
            accept4(o->boot.listener, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EMFILE) {
                return fail_errno(err, "cannot accept connections of other hosts (ulimit -n)");
            }
            return errno == ENFILE || errno == ENOBUFS || errno == ENOMEM
                       ? fail_errno(err, "cannot accept connections of other hosts")
                       : 0;
        }
        struct incoming conn = {.fd = fd, .deadline = ct_deadline_in(NULL, GREETING_MS)};
        bool placed = false;
        if (read_greeting(o, &conn, &placed)) {
            if (!placed) {
                (void)close(fd);
            }
            continue;
        }
        conn.known = is_known(o, &from);
        if (o->incoming_count == INCOMING_MAX) {
            drop_one(o);
        }
        o->incoming[o->incoming_count++] = conn;
    }
    return 0;
}

/* ---- outgoing connections -------------------------------------------------------------------- */

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int connect_host(struct opening *o, int node, int *fd, struct ct_err *err)
{
    const struct ct_endpoint *at = &o->boot.where[node];
    int64_t end = sooner(o->deadline, ct_deadline_in(NULL, CONNECT_MS)), now;
    int rc;
    do {
        read_greetings(o);
        rc = accept_incoming(o, err);
        int64_t until = sooner(end, ct_deadline_in(NULL, ATTEMPT_MS));
        if (rc == 0) {
            rc = ct_sock_connect(at->host, at->port, until, fd, err);
        }
        now = ct_clock_now(NULL); /* long after `until` if this process did not run */
        ct_deadline_put_off(&end, until, now);
        ct_deadline_put_off(&o->deadline, until, now);
    } while (rc == CT_ETIMEDOUT && now < end);
    return rc;
}

/* `kind` is the link's place on this host; the other end of "next" is "prev". */
static int connect_and_greet(struct opening *o, int node, int kind, struct ct_err *err)
{
    struct net *net = o->boot.net;
    int *fd = slot_of(net, node, kind);
    int rc = connect_host(o, node, fd, err);
    if (rc == 0) {
        tune(net, *fd, kind == KIND_CONTROL);
        struct greeting hello = {.magic = NET_MAGIC,
                                 .version = VERSION,
                                 .from = net->node,
                                 .kind = kind == SCHEDULE_NEXT ? SCHEDULE_PREV : kind};
        memcpy(hello.proof, o->boot.secret, NET_PROOF_BYTES);
        struct iovec iov = {&hello, sizeof(hello)};
        rc = ct_sock_send(*fd, &iov, 1, o->deadline, err);
        if (rc == CT_ECLOSED) {
            return 0; /* already dropped, which a look at the connection will show */
        }
    }
    if (rc != 0) {
        (void)ct_err_wrap(err, "cannot reach %s", net->peers[node].name);
    }
    return rc;
}

/* Connects again. This fails if the host has ended, because it does not listen any more. */
static int reconnect(struct opening *o, int node, int kind, struct ct_err *err)
{
    int *fd = slot_of(o->boot.net, node, kind);
    (void)close(*fd);
    *fd = -1;
    return connect_and_greet(o, node, kind, err);
}

static int reconnect_if_dropped(struct opening *o, int node, int kind, struct ct_err *err)
{
    char byte;
    ssize_t n = recv(*slot_of(o->boot.net, node, kind), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    bool stands = n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
    return stands ? 0 : reconnect(o, node, kind, err);
}

/* Waits for a moment until one of the descriptors is ready. */
static int wait_for_any(struct opening *o, struct pollfd *waiting, nfds_t count, struct ct_err *err)
{
    int64_t began = ct_clock_now(NULL);
    int n = poll(waiting, count, SLICE_MS);
    if (n < 0 && errno != EINTR) {
        return fail_errno(err, "cannot wait for hosts");
    }
    ct_deadline_put_off(&o->deadline, began, ct_clock_now(NULL));
    return 0;
}

static int receive_answer(struct opening *o, int fd, char answer[NET_PROOF_BYTES],
                          struct ct_err *err)
{
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    int rc = 0;
    while (rc == 0 && waiting.revents == 0 && ct_clock_now(NULL) < o->deadline) {
        rc = wait_for_any(o, &waiting, 1, err);
    }
    return rc == 0 ? ct_sock_recv(fd, answer, NET_PROOF_BYTES, o->deadline, err) : rc;
}

static int read_answer(struct opening *o, int node, int kind, struct ct_err *err)
{
    char answer[NET_PROOF_BYTES];
    int rc;
    while ((rc = receive_answer(o, *slot_of(o->boot.net, node, kind), answer, err)) == CT_ECLOSED &&
           ct_clock_now(NULL) < o->deadline) {
        (void)poll(NULL, 0, AGAIN_MS);
        rc = reconnect(o, node, kind, err);
        if (rc != 0) {
            return rc;
        }
    }
    if (rc == 0 && !is_proof(answer, o->boot.secret + NET_PROOF_BYTES)) {
        rc = ct_err_set(err, CT_EPROTO, "another program answers there");
    }
    if (rc != 0) {
        (void)ct_err_wrap(err, "no answer from %s", o->boot.net->peers[node].name);
    }
    return rc;
}

/* Calls `what` for every connection that this host must make. */
static int each_outgoing(struct opening *o,
                         int (*what)(struct opening *o, int node, int kind, struct ct_err *err),
                         struct ct_err *err)
{
    const struct net *net = o->boot.net;
    int rc = what(o, net->links[SCHEDULE_NEXT].node, SCHEDULE_NEXT, err);
    for (int n = 0; n < net->node && rc == 0; n++) {
        rc = what(o, n, KIND_CONTROL, err);
    }
    for (int l = SCHEDULE_PARTNER; l < net->link_count && rc == 0; l++) {
        if (net->links[l].node < net->node) {
            rc = what(o, net->links[l].node, l, err);
        }
    }
    return rc;
}

/* ---- until all have connected ---------------------------------------------------------------- */

/* Counts the connections that others make to this host: control connections of later hosts, "prev",
 * and the partner links that each_outgoing() does not make. */
static int count_incoming(const struct net *net)
{
    int count = net->nodes - 1 - net->node + 1;
    for (int l = SCHEDULE_PARTNER; l < net->link_count; l++) {
        count += net->links[l].node > net->node;
    }
    return count;
}

/* Connects again where this host was dropped. It does so while it waits for others, because two
 * hosts that have dropped each other would otherwise wait for ever. */
static int check_outgoing(struct opening *o, struct ct_err *err)
{
    if (ct_clock_now(NULL) < o->look_again) {
        return 0;
    }
    o->look_again = ct_deadline_in(NULL, AGAIN_MS);
    return each_outgoing(o, reconnect_if_dropped, err);
}

static int first_absent(const struct net *net)
{
    for (int n = net->node + 1; n < net->nodes; n++) {
        if (net->peers[n].fd < 0) {
            return n;
        }
    }
    return net->links[SCHEDULE_PREV].node;
}

static int await_incoming(struct opening *o, struct ct_err *err)
{
    for (;;) {
        struct pollfd waiting[INCOMING_MAX + 1] = {{.fd = o->boot.listener, .events = POLLIN}};
        for (size_t i = 0; i < o->incoming_count; i++) {
            waiting[i + 1] = (struct pollfd){.fd = o->incoming[i].fd, .events = POLLIN};
        }
        int rc = wait_for_any(o, waiting, (nfds_t)o->incoming_count + 1, err);
        read_greetings(o);
        if (rc != 0) {
            return rc;
        }
        rc = accept_incoming(o, err);
        if (rc != 0) {
            return rc;
        }
        rc = o->boot.net->sync != NULL ? sync_poll(o->boot.net->sync, err)
                                       : order_reader_check(o->boot.setup->handover, err);
        if (rc != 0 || o->expected == 0) {
            return rc;
        }
        rc = check_outgoing(o, err);
        if (rc == 0 && ct_clock_now(NULL) >= o->deadline) {
            rc = ct_err_set(err, CT_ETIMEDOUT, "gave up after %.1f s: %s has not connected",
                            (double)o->boot.net->timeout_ms / 1000,
                            o->boot.net->peers[first_absent(o->boot.net)].name);
        }
        if (rc != 0) {
            return rc;
        }
    }
}

/* ---- opening --------------------------------------------------------------------------------- */

static int watch_controls(struct net *net, struct ct_err *err)
{
    net->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (net->epoll < 0) {
        return fail_errno(err, "cannot watch hosts");
    }
    for (int n = 0; n < net->nodes; n++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)n};
        if (n != net->node && epoll_ctl(net->epoll, EPOLL_CTL_ADD, net->peers[n].fd, &event) != 0) {
            return fail_errno(err, "cannot watch hosts");
        }
    }
    return 0;
}

static int connect_leaders(struct opening *o, struct ct_err *err)
{
    int rc = net_bootstrap_publish(&o->boot, err);
    if (rc == 0) {
        rc = net_bootstrap_learn(&o->boot, err);
    }
    if (rc == 0) {
        o->deadline = ct_deadline_in(NULL, o->boot.setup->timeout_ms);
        o->expected = count_incoming(o->boot.net);
        rc = each_outgoing(o, connect_and_greet, err);
    }
    if (rc == 0) {
        rc = await_incoming(o, err);
    }
    if (rc == 0) {
        rc = each_outgoing(o, read_answer, err);
    }
    return rc == 0 ? watch_controls(o->boot.net, err) : rc;
}

static int make_room(struct net *net, struct ct_endpoint **where)
{
    size_t nodes = (size_t)net->nodes;
    net->peers = ct_calloc(nodes, sizeof(*net->peers));
    net->links = ct_calloc((size_t)net->link_count, sizeof(*net->links));
    *where = ct_calloc(nodes, sizeof(**where));
    for (int n = 0; n < net->nodes && net->peers != NULL; n++) {
        net->peers[n].fd = net->peers[n].waits_for = -1;
    }
    for (int l = 0; l < net->link_count && net->links != NULL; l++) {
        int distance = l < SCHEDULE_PARTNER ? 0 : 1 << (l - SCHEDULE_PARTNER);
        int node = l == SCHEDULE_NEXT   ? (net->node + 1) % net->nodes
                   : l == SCHEDULE_PREV ? (net->node + net->nodes - 1) % net->nodes
                                        : net->node ^ distance;
        net->links[l] = (struct net_link){.fd = -1, .node = node};
    }
    return net->peers != NULL && net->links != NULL && *where != NULL ? 0 : CT_ENOMEM;
}

static int open_all(struct net *made, const struct comm_setup *setup, struct ct_err *err)
{
    struct opening o = {.boot = {.net = made, .setup = setup, .listener = -1}};
    int rc = make_room(made, &o.boot.where);
    if (rc != 0) {
        (void)ct_err_set(err, rc, "out of memory");
    } else {
        rc = connect_leaders(&o, err);
    }
    while (o.incoming_count > 0) {
        remove_incoming(&o, 0, false);
    }
    if (o.boot.listener >= 0) {
        (void)close(o.boot.listener);
    }
    ct_free(o.boot.where);
    if (rc != 0) {
        net_close(made, true);
    }
    return rc;
}

static struct net prepare(const struct comm_setup *setup)
{
    return (struct net){.node = setup->node,
                        .nodes = setup->nodes,
                        .rank = setup->rank,
                        .timeout_ms = setup->timeout_ms,
                        .link_count = SCHEDULE_PARTNER,
                        .epoll = -1};
}

int net_open(struct net *net, const struct comm_setup *setup, struct sync *sync, struct ct_err *err)
{
    if (setup->nodes > NET_HOSTS_MAX) {
        return ct_err_set(err, CT_ELIMIT, "%d hosts are more than %d", setup->nodes, NET_HOSTS_MAX);
    }
    struct net made = prepare(setup);
    made.sync = sync;
    made.link_count += schedule_levels(setup->nodes);
    int rc = open_all(&made, setup, err);
    if (rc == 0) {
        *net = made;
    }
    return rc;
}

int net_open_pair(struct net *net, const struct comm_setup *setup, const int names[2],
                  struct ct_err *err)
{
    struct net made = prepare(setup);
    made.names = names;
    int rc = open_all(&made, setup, err);
    if (rc == 0) {
        *net = made;
    }
    return rc;
}
