/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: ct_server_open() binds and listens. on_readable() makes a struct ct_conn of each
 * connection, which then serves itself. ct_server_close() closes all handles and connections. The
 * last close callback frees the server and tells the owner.
 *
 * Other paths: ct_server_reset() ends all connections and forgets all keys. The listeners stay
 * open.
 *
 * ct_server_drain() closes the listeners, and each connection when it is idle. After the last one,
 * or when the timer fires, ct_server_close() follows.
 *
 * If very many connections come, a turn of the loop accepts CT_TURN_ACCEPTS of them at each
 * listener, so that a flood at one address does not close the others.
 *
 * Failure modes: sockets are bound and listen before a handle is made, so that nothing has to be
 * undone if the port is in use. Without descriptors a spare one is given up for a moment to accept
 * waiting connections and close them (clients try again). If not even that is possible, as when the
 * whole machine has no descriptors left, connections wait in the kernel, and we look again after
 * CT_ACCEPT_PAUSE_MS. libuv's own uv_listen() would try for ever in one call then. Without memory a
 * connection waits for the end of this turn or a later one.
 */
#include "rendezvous/server/server_uv.h"

#include "common/addr.h"
#include "common/alloc.h"
#include "rendezvous/admission/peer_user.h"
#include "rendezvous/server/conn_gate_uv.h"
#include "rendezvous/server/conn_uv.h"
#include "rendezvous/server/control_uv.h"
#include "rendezvous/server/status_uv.h"
#include "rendezvous/wire/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

struct listener {
    uv_poll_t poll;
    int fd;
    struct ct_server *server;
    int held;              /* a connection that waits for memory; -1 = none */
    bool stale;            /* that connection is of a generation that is over */
    unsigned turn_accepts; /* connections taken in this turn of the loop */
};

struct ct_server {
    struct listener listeners[CT_MAX_LISTENERS];
    size_t num_listeners;
    uv_timer_t drain_timer, pause_timer;
    int spare_fd; /* given up for a moment when no other is left; -1 = it could not be opened */
    struct ct_refusal_log shortage;
    struct ct_conn_hub hub;
    struct ct_status_pages pages;
    struct ct_control *control; /* NULL = agents are not served */
    uint16_t port;
    unsigned handles; /* listeners, timers, idle and check handle, HTTP and agents, until closed */
    bool closing;
    uint64_t accepted, refused;
    ct_server_close_fn close_cb;
    void *close_data;
};

/* ---- closing -------------------------------------------------------------------------------- */

static void finish_if_last(struct ct_server *server)
{
    if (!server->closing || server->handles > 0 || server->hub.open > 0) {
        return;
    }
    ct_server_close_fn cb = server->close_cb;
    void *data = server->close_data;
    ct_conn_hub_fini(&server->hub);
    ct_journal_close(server->hub.journal);
    ct_store_free(server->hub.service.store);
    if (server->spare_fd >= 0) {
        (void)close(server->spare_fd);
    }
    ct_free(server);
    if (cb != NULL) {
        cb(data);
    }
}

static void on_part_close(void *data)
{
    struct ct_server *server = data;
    server->handles--;
    finish_if_last(server);
}

/* Each handle's data is the server. */
static void on_handle_close(uv_handle_t *handle)
{
    on_part_close(handle->data);
}

static void close_listeners(struct ct_server *server)
{
    for (size_t i = 0; i < server->num_listeners; i++) {
        struct listener *listener = &server->listeners[i];
        if (!uv_is_closing((const uv_handle_t *)&listener->poll)) {
            uv_close((uv_handle_t *)&listener->poll, on_handle_close);
            (void)close(listener->fd);
            if (listener->held >= 0) {
                (void)close(listener->held);
                listener->held = -1;
            }
        }
    }
}

void ct_server_close(struct ct_server *server, ct_server_close_fn cb, void *data)
{
    if (server == NULL || server->closing) {
        return;
    }
    server->closing = true;
    server->close_cb = cb;
    server->close_data = data;
    ct_conn_hub_close_all(&server->hub);
    server->handles += ct_status_pages_close(&server->pages, on_part_close, server);
    server->hub.on_agent = NULL;
    if (server->control != NULL) {
        server->handles++;
        ct_control_close(server->control, on_part_close, server);
        server->control = NULL;
    }
    close_listeners(server);
    uv_close((uv_handle_t *)&server->drain_timer, on_handle_close);
    uv_close((uv_handle_t *)&server->pause_timer, on_handle_close);
    uv_close((uv_handle_t *)&server->hub.flusher, on_handle_close);
    uv_close((uv_handle_t *)&server->hub.turn_end, on_handle_close);
}

static void on_drain_timer(uv_timer_t *timer)
{
    struct ct_server *server = CT_CONTAINER_OF(timer, struct ct_server, drain_timer);
    ct_server_close(server, server->close_cb, server->close_data);
}

static void close_if_drained(struct ct_server *server)
{
    if (server->hub.draining && server->hub.live == 0) {
        ct_server_close(server, server->close_cb, server->close_data);
    }
}

void ct_server_drain(struct ct_server *server, uint64_t bound_ms, ct_server_close_fn cb, void *data)
{
    if (server == NULL || server->closing || server->hub.draining) {
        return;
    }
    server->close_cb = cb;
    server->close_data = data;
    close_listeners(server);
    (void)uv_timer_start(&server->drain_timer, on_drain_timer, bound_ms, 0);
    ct_conn_hub_drain(&server->hub);
    close_if_drained(server);
}

/* ---- accepting ------------------------------------------------------------------------------ */

static void on_pause_over(uv_timer_t *timer);

static void open_spare(struct ct_server *server)
{
    server->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* Takes an accepted socket; without memory the listener holds it. */
static void take(struct listener *listener, int fd, bool stale)
{
    struct ct_server *server = listener->server;
    int rc = ct_conn_accept(&server->hub, listener->poll.loop, fd, stale);
    listener->held = rc == CT_ENOMEM ? fd : -1;
    listener->stale = stale && rc == CT_ENOMEM;
    server->refused += rc == CT_EIO;
    server->accepted += rc == 0;
}

/* Out of descriptors: gives up the spare one to close the next connection, so that its client need
 * not wait. Returns 0, or EAGAIN if no connection waits (accept4() looks for a descriptor first),
 * or why it is not possible. */
static int shed(struct listener *listener, int errnum)
{
    struct ct_server *server = listener->server;
    if (server->spare_fd < 0) {
        return errnum;
    }
    (void)close(server->spare_fd);
    int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);
    errnum = fd >= 0 ? 0 : errno;
    if (fd >= 0) {
        (void)close(fd);
    }
    open_spare(server);
    if (errnum != 0) {
        return errnum;
    }
    server->refused++;
    if (ct_refusal_log_add(&server->shortage, uv_now(listener->poll.loop)) > 0) {
        ct_log(server->hub.log, CT_LOG_WARNING,
               "store: out of descriptors with %zu connections open; further clients are refused; "
               "raise the limit (ulimit -n)",
               server->hub.open);
    }
    return 0;
}

/* A listener from which nothing can be accepted stays readable, so polling it would take all of a
 * processor. */
static void pause_listener(struct listener *listener, int errnum)
{
    struct ct_server *server = listener->server;
    (void)uv_poll_stop(&listener->poll);
    if (!uv_is_active((const uv_handle_t *)&server->pause_timer)) {
        (void)uv_timer_start(&server->pause_timer, on_pause_over, CT_ACCEPT_PAUSE_MS, 0);
    }
    if (ct_refusal_log_add(&server->shortage, uv_now(listener->poll.loop)) > 0) {
        ct_log(server->hub.log, CT_LOG_WARNING,
               "store: cannot accept connections now: %s; further clients wait", strerror(errnum));
    }
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct listener *listener = CT_CONTAINER_OF(poll, struct listener, poll);
    (void)status; /* what is wrong is told by accept4() */
    (void)events;
    while (listener->held < 0 && listener->turn_accepts < CT_TURN_ACCEPTS) {
        listener->turn_accepts++;
        int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        int errnum = fd >= 0 ? 0 : errno;
        if (errnum == EMFILE || errnum == ENFILE) {
            errnum = shed(listener, errnum);
        }
        if (fd >= 0) {
            take(listener, fd, false);
        } else if (errnum == EAGAIN) {
            return;
        } else if (errnum != 0 && errnum != EINTR && errnum != ECONNABORTED) {
            pause_listener(listener, errnum);
            return;
        }
    }
    if (listener->held >= 0) {
        (void)uv_poll_stop(poll);
    }
}

static void poll_listener(struct listener *listener)
{
    if (!uv_is_closing((const uv_handle_t *)&listener->poll) && listener->held < 0) {
        /* Cannot fail: uv_poll_init() has tried the descriptor. */
        (void)uv_poll_start(&listener->poll, UV_READABLE, on_readable);
    }
}

static void on_pause_over(uv_timer_t *timer)
{
    struct ct_server *server = CT_CONTAINER_OF(timer, struct ct_server, pause_timer);
    if (server->spare_fd < 0) {
        open_spare(server);
    }
    for (size_t i = 0; i < server->num_listeners; i++) {
        poll_listener(&server->listeners[i]);
    }
}

static void accept_held(struct ct_server *server)
{
    for (size_t i = 0; i < server->num_listeners && !server->closing; i++) {
        struct listener *listener = &server->listeners[i];
        if (listener->held >= 0 && listener->turn_accepts < CT_TURN_ACCEPTS) {
            listener->turn_accepts++;
            take(listener, listener->held, listener->stale);
            poll_listener(listener);
        }
    }
}

static void on_conn_closed(struct ct_conn_hub *hub)
{
    struct ct_server *server = CT_CONTAINER_OF(hub, struct ct_server, hub);
    close_if_drained(server);
    accept_held(server);
    finish_if_last(server);
}

/* ---- generations ---------------------------------------------------------------------------- */

/* Takes the socket of a client from before a reset, unless it may ask for the status. */
static void adopt(struct listener *listener, int fd)
{
    struct ct_server *server = listener->server;
    int rc = CT_ENOMEM;
    if (!ct_conn_gate_is_of_store(fd)) {
        rc = ct_conn_accept(&server->hub, listener->poll.loop, fd, true);
    }
    if (rc == CT_ENOMEM) {
        (void)close(fd);
    }
    server->refused += rc != 0;
    server->accepted += rc == 0;
}

/* Takes the clients that connected before the reset from the kernel's queue. For a listening socket
 * tcpi_unacked is the length of that queue (tcp_get_info() of Linux). */
static void drop_backlog(struct listener *listener)
{
    listener->stale = listener->held >= 0;
    struct tcp_info info = {0};
    socklen_t len = sizeof(info);
    if (getsockopt(listener->fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0) {
        return;
    }
    for (uint32_t i = 0; i < info.tcpi_unacked; i++) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            adopt(listener, fd);
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

void ct_server_reset(struct ct_server *server)
{
    ct_conn_hub_reset(&server->hub);
    for (size_t i = 0; i < server->num_listeners; i++) {
        drop_backlog(&server->listeners[i]);
    }
    ct_store_clear(server->hub.service.store);
    struct ct_err err = {0};
    if (server->hub.journal != NULL && ct_journal_clear(server->hub.journal, &err) != 0) {
        ct_log(server->hub.log, CT_LOG_ERROR, "store: %s", err.text);
    }
}

/* ---- opening -------------------------------------------------------------------------------- */

/* Takes the socket. */
static int add_listener(struct ct_server *server, uv_loop_t *loop, int fd, struct ct_err *err)
{
    struct listener *listener = &server->listeners[server->num_listeners];
    int on = 1, idle_s = CT_KEEPALIVE_S;
    *listener = (struct listener){.server = server, .fd = fd, .held = -1};
    int rc = uv_poll_init(loop, &listener->poll, fd);
    if (rc != 0) {
        (void)close(fd);
        return ct_err_set(err, ct_code_from_errno(-rc), "cannot listen: %s", uv_strerror(rc));
    }
    listener->poll.data = server;
    server->num_listeners++;
    server->handles++;
    /* Accepted sockets inherit these options, which saves calls for each. Without them replies are
     * only slower, and dead peers are noticed later. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    poll_listener(listener);
    return 0;
}

static void on_turn_end(uv_check_t *check)
{
    struct ct_server *server = CT_CONTAINER_OF(check, struct ct_server, hub.turn_end);
    ct_conn_hub_end_turn(&server->hub);
    for (size_t i = 0; i < server->num_listeners; i++) {
        server->listeners[i].turn_accepts = 0;
    }
    accept_held(server);
}

static int server_new(uv_loop_t *loop, const struct ct_server_options *options,
                      struct ct_server **out, struct ct_err *err)
{
    struct ct_server *server = ct_calloc(1, sizeof(*server));
    struct ct_store *store = NULL;
    if (server == NULL || ct_store_new(&store) != 0 || ct_conn_hub_init(&server->hub, store) != 0) {
        ct_store_free(store);
        ct_free(server);
        return ct_err_set(err, CT_ENOMEM, "no memory for the store");
    }
    server->hub.log = options->log;
    server->hub.gate.access = options->access;
    server->hub.on_closed = on_conn_closed;
    server->pages.server = server;
    server->pages.hub = &server->hub;
    server->hub.max_live = options->max_connections;
    /* None of these can fail. */
    CT_ASSERT(uv_timer_init(loop, &server->drain_timer) == 0);
    CT_ASSERT(uv_timer_init(loop, &server->pause_timer) == 0);
    CT_ASSERT(uv_idle_init(loop, &server->hub.flusher) == 0);
    CT_ASSERT(uv_check_init(loop, &server->hub.turn_end) == 0);
    CT_ASSERT(uv_check_start(&server->hub.turn_end, on_turn_end) == 0);
    server->drain_timer.data = server->pause_timer.data = server;
    server->hub.flusher.data = server->hub.turn_end.data = server;
    server->handles = 4;
    open_spare(server);
    *out = server;
    return 0;
}

static int open_journal(struct ct_server *server, const struct ct_server_options *options,
                        struct ct_err *err)
{
    const struct ct_journal_options journal = {
        .path = options->journal,
        .sync = options->journal_sync,
        .log = options->log,
    };
    return ct_journal_open(&journal, server->hub.service.store, &server->hub.journal, err);
}

/* ---- agents --------------------------------------------------------------------------------- */

static void on_agent(struct ct_conn_hub *hub, int fd)
{
    ct_control_take(hub->agent_data, fd, false);
}

static bool on_admit(void *data, const struct sockaddr *peer, bool yes)
{
    struct ct_server *server = data;
    if (!yes) {
        ct_agent_addresses_remove(&server->hub.gate.agent_addresses, peer);
        return true;
    }
    if (ct_agent_addresses_add(&server->hub.gate.agent_addresses, peer) != 0) {
        ct_log(server->hub.log, CT_LOG_WARNING, "store: no memory to admit an agent's address");
        return false;
    }
    return true;
}

static int add_job_status(void *data, struct ct_status_rows *rows, struct cJSON *root,
                          struct cJSON *problems)
{
    return ct_control_status(data, rows, root, problems);
}

/* Returns how many connections that are not admitted may be open, and also how many agents that
 * have not proved the token: a part of the descriptors for each. */
static size_t pending_max(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
        limit.rlim_cur / CT_CONTROL_PENDING_PART > CT_CONTROL_MAX_PENDING) {
        return CT_CONTROL_MAX_PENDING;
    }
    size_t part = (size_t)limit.rlim_cur / CT_CONTROL_PENDING_PART;
    return part > CT_CONTROL_MIN_PENDING ? part : CT_CONTROL_MIN_PENDING;
}

static int open_agents(struct ct_server *server, uv_loop_t *loop,
                       const struct ct_server_agents *agents, struct ct_err *err)
{
    const struct ct_control_options options = {
        .token = agents->token,
        .max_pending = pending_max(),
        .run_id = agents->run_id,
        .job = agents->job,
        .expected = agents->expected,
        .num_expected = agents->num_expected,
        .keep_job = agents->keep_job,
        .log = server->hub.log,
        .budget = ct_store_budget(server->hub.service.store),
        .on_admit = on_admit,
        .data = server,
        .on_join = agents->on_join,
        .join_data = agents->data,
        .station = agents->station,
    };
    int rc = ct_control_open(loop, &options, &server->control, err);
    if (rc != 0) {
        return rc;
    }
    server->hub.on_agent = agents->in_process ? NULL : on_agent;
    server->hub.agent_data = server->control;
    server->hub.gate.agents_prove = agents->token != NULL;
    if (server->hub.gate.agents_prove) {
        server->hub.gate.quota.max = options.max_pending;
    }
    server->pages.fn = add_job_status;
    server->pages.data = server->control;
    server->pages.control = server->control;
    return 0;
}

void ct_server_take_agent(struct ct_server *server, int fd)
{
    CT_ASSERT(server->control != NULL);
    ct_control_take(server->control, fd, true);
}

void ct_server_host(struct ct_server *server, const struct ct_members_failover *failover)
{
    ct_control_host(server->control, failover);
}

void ct_server_arbiter(struct ct_server *server, const struct ct_arbiter_pledge *pledge)
{
    ct_control_arbiter(server->control, pledge);
}

bool ct_server_stands_no_more(const struct ct_server *server, uint64_t id)
{
    return ct_control_stands_no_more(server->control, id);
}

void ct_server_unhost(struct ct_server *server, const struct ct_voter *next)
{
    if (server->control != NULL) {
        ct_control_unhost(server->control, next);
    }
}

void ct_server_move(struct ct_server *server, const char *run_id, const struct ct_voter *next)
{
    ct_control_move(server->control, run_id, next);
}

bool ct_server_has_agents(const struct ct_server *server)
{
    return server->control != NULL && ct_control_busy(server->control);
}

int ct_server_set(struct ct_server *server, const char *key, const char *value)
{
    const struct ct_bytes name = {(const unsigned char *)key, strlen(key)};
    const struct ct_bytes text = {(const unsigned char *)value, strlen(value)};
    int rc = ct_store_set(server->hub.service.store, name, text);
    ct_conn_hub_end_turn(&server->hub);
    return rc;
}

bool ct_server_has_page(const struct ct_server *server)
{
    return server->pages.http != NULL;
}

void ct_server_page_sample(struct ct_server *server)
{
    ct_http_sample(server->pages.http);
}

void ct_server_tell_end(struct ct_server *server, const struct ct_server_end *end)
{
    ct_status_pages_tell_end(&server->pages, end);
}

bool ct_server_is_telling_end(const struct ct_server *server)
{
    return ct_http_is_telling_end(server->pages.http);
}

int ct_server_page_link(struct ct_server *server, struct ct_token *out)
{
    struct ct_page_key *key = &server->pages.key;
    *out = (struct ct_token){.len = 0};
    if (server->pages.http == NULL) {
        return CT_EUNSUPPORTED;
    }
    int rc = key->token != NULL ? ct_page_key_make_link(key) : 0;
    *out = rc == 0 ? key->link : *out;
    return rc;
}

/* Opens listeners, HTTP, agents and journal. Takes the sockets out of `sockets`. */
static int open_parts(struct ct_server *server, uv_loop_t *loop, struct ct_listeners *sockets,
                      const struct ct_server_options *options, struct ct_err *err)
{
    while (sockets->count > 0) {
        int rc = add_listener(server, loop, sockets->fds[--sockets->count], err);
        if (rc != 0) {
            return rc;
        }
    }
    server->pages.key.token = options->agents != NULL ? options->agents->token : NULL;
    server->pages.name = options->page_name;
    int rc = ct_status_pages_open(&server->pages, loop, options->http_keys, err);
    if (rc != 0) {
        return rc;
    }
    if (options->agents != NULL) {
        rc = open_agents(server, loop, options->agents, err);
        if (rc != 0) {
            return rc;
        }
    }
    return options->journal != NULL ? open_journal(server, options, err) : 0;
}

int ct_server_open(uv_loop_t *loop, const struct ct_server_options *options, struct ct_server **out,
                   struct ct_err *err)
{
    static const char *const loopback[] = {"127.0.0.1"};
    bool named = options->num_hosts > 0;
    struct ct_listeners sockets;
    int rc = ct_listen(named ? options->hosts : loopback, named ? options->num_hosts : 1,
                       options->port, &sockets, err);
    if (rc != 0) {
        return rc;
    }
    struct ct_server *server = NULL;
    rc = server_new(loop, options, &server, err);
    if (rc != 0) {
        ct_listeners_fini(&sockets);
        return rc;
    }
    server->port = sockets.port;
    if (options->own_user && ct_peer_user_open(sockets.fds[0], &server->hub.gate.users_fd) != 0) {
        ct_log(options->log, CT_LOG_INFO,
               "store: this kernel does not tell the user of a connection, so every user of this "
               "machine is admitted");
    }
    rc = open_parts(server, loop, &sockets, options, err);
    if (rc != 0) {
        ct_listeners_fini(&sockets);
        ct_server_close(server, NULL, NULL);
        return rc;
    }
    /* The limit is set after the journal was read, so that its content is not refused. */
    if (options->max_memory > 0) {
        ct_store_budget(server->hub.service.store)->max = options->max_memory;
    }
    *out = server;
    return 0;
}

uint16_t ct_server_port(const struct ct_server *server)
{
    return server->port;
}

void ct_server_stats(const struct ct_server *server, struct ct_server_stats *out)
{
    struct ct_journal_stats journal = {0};
    if (server->hub.journal != NULL) {
        ct_journal_stats(server->hub.journal, &journal);
    }
    *out = (struct ct_server_stats){
        .keys = ct_store_num_keys(server->hub.service.store),
        .bytes = ct_store_num_bytes(server->hub.service.store),
        .connections = server->hub.open,
        .waiters = ct_store_num_waiters(server->hub.service.store),
        .memory = ct_store_budget(server->hub.service.store)->used,
        .over_memory = ct_store_budget(server->hub.service.store)->refused,
        .accepted = server->accepted,
        .refused = server->refused,
        .protocol_errors = server->hub.protocol_errors,
        .requests = server->hub.service.requests,
        .denied = server->hub.gate.refusals.total,
        .journal_bytes = journal.size,
        .journal_refused = journal.refused,
    };
    memcpy(out->by_op, server->hub.service.by_op, sizeof(out->by_op));
}
