/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: ct_server_open() binds and listens; on_connection accepts into a struct ct_conn,
 * which serves itself; ct_server_close() closes listener, idle handle, HTTP and connections, and
 * the last close callback frees the server and tells the owner.
 *
 * Other paths: ct_server_reset() ends all connections and forgets all keys, and the listener goes
 * on.
 *
 * Failure modes: a bind that fails is closed through the loop like any handle, so ct_server_open()
 * runs no callback of its own and its memory goes with the next turn of the loop. Out of
 * descriptors: libuv takes the waiting connections and closes them without telling us (clients try
 * again), so the warning comes with the connection that takes the last one. Out of memory: the
 * connection waits in the kernel until another one ends.
 */
#include "rendezvous/server_uv.h"

#include "common/addr.h"
#include "common/alloc.h"
#include "rendezvous/conn_uv.h"
#include "rendezvous/port_holder.h"
#include "rendezvous/status_uv.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

struct ct_server {
    uv_tcp_t listener;
    struct ct_conn_hub hub;
    struct ct_status_desk desk;
    uint16_t port;
    unsigned handles; /* listener, idle and check handle and HTTP, until closed */
    bool closing;
    bool accept_waits; /* libuv holds a connection that we had no memory for */
    bool full;         /* no descriptor is left, and that was said */
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
    ct_free(server);
    if (cb != NULL) {
        cb(data);
    }
}

static void on_listener_close(uv_handle_t *handle)
{
    struct ct_server *server = CT_CONTAINER_OF(handle, struct ct_server, listener);
    server->handles--;
    finish_if_last(server);
}

static void on_flusher_close(uv_handle_t *handle)
{
    struct ct_server *server = CT_CONTAINER_OF(handle, struct ct_server, hub.flusher);
    server->handles--;
    finish_if_last(server);
}

static void on_check_close(uv_handle_t *handle)
{
    struct ct_server *server = CT_CONTAINER_OF(handle, struct ct_server, hub.turn_end);
    server->handles--;
    finish_if_last(server);
}

static void on_desk_close(void *data)
{
    struct ct_server *server = data;
    server->handles--;
    finish_if_last(server);
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
    server->handles += ct_status_desk_close(&server->desk, on_desk_close, server);
    uv_close((uv_handle_t *)&server->listener, on_listener_close);
    uv_close((uv_handle_t *)&server->hub.flusher, on_flusher_close);
    uv_close((uv_handle_t *)&server->hub.turn_end, on_check_close);
}

void ct_server_reset(struct ct_server *server)
{
    ct_conn_hub_close_all(&server->hub);
    ct_store_clear(server->hub.service.store);
    struct ct_err err = {0};
    if (server->hub.journal != NULL && ct_journal_clear(server->hub.journal, &err) != 0) {
        ct_log(server->hub.log, CT_LOG_ERROR, "store: %s", err.text);
    }
}

/* ---- accepting ------------------------------------------------------------------------------ */

/* The kernel gives the lowest free number, so the highest one means that all others are taken. */
static void warn_if_last_descriptor(struct ct_server *server)
{
    if (ct_list_empty(&server->hub.conns)) {
        return; /* the first to come was a stranger */
    }
    struct ct_conn *conn = CT_CONTAINER_OF(server->hub.conns.prev, struct ct_conn, at_hub);
    uv_os_fd_t fd = -1;
    struct rlimit limit;
    if (uv_fileno((const uv_handle_t *)&conn->tcp, &fd) != 0 ||
        getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return;
    }
    bool was_full = server->full;
    server->full = (rlim_t)fd + 1 >= limit.rlim_cur;
    if (server->full && !was_full) {
        ct_log(server->hub.log, CT_LOG_WARNING,
               "store: out of descriptors with %zu connections open; further clients are turned "
               "away; raise the limit (ulimit -n)",
               server->hub.open);
    }
}

static void accept_one(struct ct_server *server)
{
    int rc = ct_conn_accept(&server->hub, (uv_stream_t *)&server->listener);
    server->accept_waits = rc == CT_ENOMEM;
    server->refused += rc == CT_EIO;
    if (rc == 0) {
        server->accepted++;
        warn_if_last_descriptor(server);
    }
}

static void on_conn_closed(struct ct_conn_hub *hub)
{
    struct ct_server *server = CT_CONTAINER_OF(hub, struct ct_server, hub);
    if (server->accept_waits && !server->closing) {
        accept_one(server);
    }
    finish_if_last(server);
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct ct_server *server = CT_CONTAINER_OF(listener, struct ct_server, listener);
    if (server->closing) {
        return;
    }
    if (status == 0) {
        accept_one(server);
    } else {
        server->refused++;
        ct_log(server->hub.log, CT_LOG_WARNING, "store: cannot accept a connection: %s",
               uv_strerror(status));
    }
}

/* ---- opening -------------------------------------------------------------------------------- */

static int listen_failed(int uv_rc, const char *host, uint16_t port, struct ct_err *err)
{
    if (uv_rc != UV_EADDRINUSE) {
        return ct_err_set(err, ct_code_from_errno(-uv_rc), "cannot listen on %s port %u: %s", host,
                          (unsigned)port, uv_strerror(uv_rc));
    }
    char holder[320];
    ct_port_holder(port, holder, sizeof(holder));
    return ct_err_set(
        err, CT_EBUSY, "port %u on %s is in use by %s; stop it or choose another port",
        (unsigned)port, host, holder[0] != '\0' ? holder : "a process that /proc does not show");
}

/* 0 or libuv's code. */
static int bind_and_listen(struct ct_server *server, const struct sockaddr *addr)
{
    int rc = uv_tcp_bind(&server->listener, addr, 0);
    if (rc == 0) {
        /* Accepted sockets inherit both, which saves five calls for each. Neither is vital: without
         * them replies are only slower and dead peers live longer. */
        (void)uv_tcp_nodelay(&server->listener, 1);
        (void)uv_tcp_keepalive(&server->listener, 1, CT_KEEPALIVE_S);
        rc = uv_listen((uv_stream_t *)&server->listener, CT_LISTEN_BACKLOG, on_connection);
    }
    struct sockaddr_storage bound;
    int len = sizeof(bound);
    if (rc == 0) {
        rc = uv_tcp_getsockname(&server->listener, (struct sockaddr *)&bound, &len);
    }
    if (rc == 0) {
        server->port = ct_addr_port((const struct sockaddr *)&bound);
    }
    return rc;
}

/* Does this machine speak IPv6 at all? A container may not. */
static bool has_ipv6(void)
{
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return false;
    }
    struct sockaddr_in6 any = {.sin6_family = AF_INET6};
    bool ok = bind(fd, (const struct sockaddr *)&any, sizeof(any)) == 0;
    (void)close(fd);
    return ok;
}

static int resolve(const struct ct_server_options *options, struct sockaddr_storage *addr,
                   struct ct_err *err)
{
    const char *host = options->host != NULL ? options->host : "127.0.0.1";
    if (strcmp(host, "*") == 0) {
        host = has_ipv6() ? "::" : "0.0.0.0";
    }
    socklen_t len;
    return ct_addr_resolve(host, options->port, addr, &len, err);
}

static int server_new(uv_loop_t *loop, const struct ct_server_options *options,
                      struct ct_server **out, struct ct_err *err)
{
    struct ct_server *server = ct_calloc(1, sizeof(*server));
    struct ct_store *store = NULL;
    if (server == NULL || ct_store_new(&store) != 0) {
        ct_free(server);
        return ct_err_set(err, CT_ENOMEM, "no memory for the store");
    }
    server->hub.log = options->log;
    server->hub.access = options->access;
    server->hub.on_closed = on_conn_closed;
    server->desk.server = server;
    server->desk.hub = &server->hub;
    ct_conn_hub_init(&server->hub, store);
    /* None can fail: no socket is made before the bind. */
    CT_ASSERT(uv_tcp_init(loop, &server->listener) == 0);
    CT_ASSERT(uv_idle_init(loop, &server->hub.flusher) == 0);
    CT_ASSERT(uv_check_init(loop, &server->hub.turn_end) == 0);
    server->handles = 3;
    *out = server;
    return 0;
}

static void on_turn_end(uv_check_t *check)
{
    ct_conn_hub_end_turn(CT_CONTAINER_OF(check, struct ct_conn_hub, turn_end));
}

static int open_journal(struct ct_server *server, const struct ct_server_options *options,
                        struct ct_err *err)
{
    const struct ct_journal_options journal = {
        .path = options->journal,
        .sync = options->journal_sync,
        .log = options->log,
    };
    int rc = ct_journal_open(&journal, server->hub.service.store, &server->hub.journal, err);
    if (rc == 0) {
        (void)uv_check_start(&server->hub.turn_end, on_turn_end);
    }
    return rc;
}

int ct_server_open(uv_loop_t *loop, const struct ct_server_options *options, struct ct_server **out,
                   struct ct_err *err)
{
    struct sockaddr_storage addr;
    int rc = resolve(options, &addr, err);
    if (rc != 0) {
        return rc;
    }
    struct ct_server *server = NULL;
    rc = server_new(loop, options, &server, err);
    if (rc != 0) {
        return rc;
    }
    int uv_rc = bind_and_listen(server, (const struct sockaddr *)&addr);
    if (uv_rc != 0) {
        ct_server_close(server, NULL, NULL);
        const char *host = options->host != NULL ? options->host : "127.0.0.1";
        return listen_failed(uv_rc, host, options->port, err);
    }
    rc = ct_status_desk_open(&server->desk, loop, options->http_keys, err);
    if (rc == 0 && options->journal != NULL) {
        rc = open_journal(server, options, err);
    }
    if (rc != 0) {
        ct_server_close(server, NULL, NULL);
        return rc;
    }
    *out = server;
    return 0;
}

void ct_server_set_status(struct ct_server *server, ct_status_fn fn, void *data)
{
    server->desk.fn = fn;
    server->desk.data = data;
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
        .accepted = server->accepted,
        .refused = server->refused,
        .protocol_errors = server->hub.protocol_errors,
        .requests = server->hub.service.requests,
        .denied = server->hub.refusals.total,
        .journal_bytes = journal.size,
        .journal_refused = journal.refused,
    };
    memcpy(out->by_op, server->hub.service.by_op, sizeof(out->by_op));
}
