/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: on_read() feeds the session, which serves every complete request in the bytes and
 * queues the replies. They are sent with one uv_try_write, without an allocation. Clients that
 * these requests have woken are in hub->woken and are written to right after.
 *
 * With a journal replies wait for the end of the loop's turn. Then the changes of all clients are
 * written to the journal at once, and the replies are sent. No reply is ever sent before its
 * changes are in the journal.
 *
 * Other paths:
 * - The socket does not take everything: uv_write sends the rest, one slice at a time. Meanwhile
 *   new replies collect in session.out.
 * - The session stalls on unsent replies: nothing is read until they are sent. So a client that
 *   does not read only delays itself, and TCP's window makes it wait.
 * - A client sends much, or asks for much work: all clients share the bytes of a turn of the loop,
 *   and a request that copies a large value or lists a large store waits for a turn that has room
 *   for it. So a small request of another client is served within milliseconds.
 * - A peer is not admitted: its connection ends when its first bytes come, unless they are HTTP, or
 *   earlier if too many such peers wait.
 * - The first byte is of another dialect: nothing is read, and the socket is handed over to what
 *   serves that dialect. To see that, each connection needs one more system call in its life.
 * - A key that a client watches changes: the notice waits in session.out like an answer to a WAIT.
 *   A client that does not read is ended when too many notices wait behind a write.
 * - End of file: what is queued is sent, then the connection is closed.
 *
 * Failure modes: a protocol violation, lack of memory, or a socket error ends this connection and
 * nothing else. What its earlier requests stored stays. If the journal fails, all connections end
 * that were about to get replies to the changes that are lost.
 *
 * Who frees: ct_conn_close() frees the session and closes the handle. on_close() frees what is
 * being written and the connection itself, because libuv may use them until then.
 */
#include "rendezvous/server/conn_uv.h"

#include "common/addr.h"
#include "common/alloc.h"
#include "rendezvous/server/conn_gate_uv.h"
#include "rendezvous/server/conn_write_uv.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* malloc(3) rounds this up to 384 bytes, and libuv's table of descriptors adds 8. An idle
 * connection may cost 400 bytes. */
_Static_assert(sizeof(struct ct_conn) <= 376, "a connection must stay small");

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf);
static void on_read(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buf);

static struct ct_conn *conn_of(uv_handle_t *handle)
{
    return CT_CONTAINER_OF(handle, struct ct_conn, tcp);
}

void ct_conn_log_end(const struct ct_conn *conn, enum ct_log_level level, const char *why)
{
    if (ct_conn_hub_of(conn)->log == NULL || level > ct_conn_hub_of(conn)->log->threshold) {
        return;
    }
    char text[CT_ADDR_TEXT_MAX];
    ct_conn_gate_peer(conn, text, sizeof(text));
    ct_log(ct_conn_hub_of(conn)->log, level, "store: connection from %s ended: %s", text, why);
}

/* ---- closing -------------------------------------------------------------------------------- */

static void on_close(uv_handle_t *handle)
{
    struct ct_conn *conn = conn_of(handle);
    struct ct_conn_hub *hub = ct_conn_hub_of(conn);
    ct_conn_write_free(conn);
    ct_free(conn);
    hub->open--;
    hub->on_closed(hub);
}

void ct_conn_close(struct ct_conn *conn)
{
    if (conn->closing) {
        return;
    }
    conn->closing = true;
    ct_conn_hub_of(conn)->live--;
    if (!conn->admitted) {
        ct_source_quota_remove(&ct_conn_hub_of(conn)->gate.quota, conn->source);
    }
    ct_list_remove(&conn->at_hub);
    ct_session_fini(&conn->session);
    uv_close((uv_handle_t *)&conn->tcp, on_close);
}

/* ---- serving -------------------------------------------------------------------------------- */

void ct_conn_log_fault(struct ct_conn *conn, int rc, const char *text)
{
    enum ct_conn_fault kind = rc == CT_ENOMEM   ? CT_FAULT_MEMORY
                              : rc == CT_ELIMIT ? CT_FAULT_LIMIT
                                                : CT_FAULT_PROTOCOL;
    char why[sizeof(((struct ct_err *)0)->text) + CT_REFUSALS_TEXT_MAX];
    char others[CT_REFUSALS_TEXT_MAX];
    if (rc == CT_EIO) { /* the journal itself has logged that, once */
        ct_conn_log_end(conn, CT_LOG_DEBUG, text);
        return;
    }
    uint64_t unreported =
        ct_refusal_log_add(&ct_conn_hub_of(conn)->faults[kind], uv_now(conn->tcp.loop));
    if (unreported > 0) {
        (void)snprintf(why, sizeof(why), "%s%s", text, ct_refusals_others(unreported, others));
        ct_conn_log_end(conn, CT_LOG_WARNING, why);
    }
}

/* Puts off sending the answers until the next flush. */
static void defer(struct ct_conn *conn)
{
    ct_list_remove(&conn->at_hub);
    ct_list_append(&ct_conn_hub_of(conn)->woken, &conn->at_hub);
}

/* Feeds the session; advance() then sends the replies. Returns false when the session must wait for
 * another turn of the loop. */
static bool feed(struct ct_conn *conn, const void *bytes, size_t len)
{
    struct ct_err err;
    err.text[0] = '\0'; /* clearing the whole struct would take longer than many requests */
    int rc = ct_session_feed(&conn->session, bytes, len, &err);
    conn->stalled = rc == CT_SESSION_E_STALLED || rc == CT_SESSION_E_YIELDED;
    if (rc == CT_SESSION_E_YIELDED) {
        defer(conn);
        return false;
    }
    if (rc < 0) {
        ct_conn_hub_of(conn)->protocol_errors += rc != CT_ENOMEM && rc != CT_EIO;
        /* Earlier requests of the same read were good, so their answers are still sent. */
        conn->ending = true;
        ct_conn_log_fault(conn, rc, err.text);
    }
    return true;
}

static void on_woken(struct ct_session *session)
{
    defer(CT_CONTAINER_OF(session, struct ct_conn, session));
}

static void answer_wait(struct ct_conn *conn)
{
    int rc = ct_session_answer_wait(&conn->session);
    if (rc != 0) {
        if (!conn->ending) { /* otherwise the reason has been logged */
            ct_conn_hub_of(conn)->protocol_errors += rc == CT_ELIMIT;
            ct_conn_log_fault(conn, rc, rc == CT_ELIMIT ? CT_SESSION_LAGS : "out of memory");
        }
        ct_conn_close(conn);
    }
}

static void close_all(struct ct_list *conns)
{
    while (!ct_list_empty(conns)) {
        ct_conn_close(CT_CONTAINER_OF(conns->next, struct ct_conn, at_hub));
    }
}

/* Writes changes to the journal before any reply to them is sent. On failure returns false and ends
 * all connections with such replies. */
static bool commit(struct ct_conn_hub *hub)
{
    if (hub->journal == NULL || ct_journal_commit(hub->journal) == 0) {
        return true;
    }
    close_all(&hub->woken);
    return false;
}

/* Does what can be done now: sends, serves on when a stall is over, closes at the end. It is a loop
 * and not a recursion, because one read may have thousands of requests that each stall. */
static void advance(struct ct_conn *conn)
{
    answer_wait(conn);
    struct ct_conn_hub *hub = ct_conn_hub_of(conn);
    for (int round = 0; !conn->closing && !ct_conn_write_busy(conn); round++) {
        if (ct_conn_write_wanted(conn)) {
            if (!commit(hub)) {
                ct_conn_close(conn);
                return;
            }
            /* A peer that reads as fast as we write must not keep the loop for itself. */
            ct_conn_write_slice(conn, round == 0 || hub->turn_written < CT_TURN_WRITE_BYTES);
        } else if (conn->ending) {
            ct_conn_close(conn);
        } else if (!conn->stalled || !feed(conn, NULL, 0)) {
            return;
        }
    }
}

/* Starts or stops reading, as the state after advance() requires. */
static void set_reading(struct ct_conn *conn)
{
    if (conn->closing) {
        return;
    }
    bool want = !conn->stalled && !conn->ending;
    if (want == conn->reading) {
        return;
    }
    conn->reading = want;
    int rc = want ? uv_read_start((uv_stream_t *)&conn->tcp, on_alloc, on_read)
                  : uv_read_stop((uv_stream_t *)&conn->tcp);
    if (rc != 0) {
        ct_conn_close(conn);
    }
}

/* Serves `bytes`, or goes on with earlier ones if there are none, and sends the replies. */
static void run(struct ct_conn *conn, const void *bytes, size_t len)
{
    struct ct_outq *out = &conn->session.out;
    struct ct_conn_hub *hub = ct_conn_hub_of(conn);
    ct_outq_lend(out, &hub->spare_out);
    if (len > 0) {
        (void)feed(conn, bytes, len);
    }
    if (len > 0 && hub->journal != NULL) {
        defer(conn);
    } else {
        advance(conn);
    }
    set_reading(conn);
    conn->session.blocked = ct_conn_write_busy(conn);
    ct_outq_take_back(out, &hub->spare_out);
    ct_conn_write_charge(conn);
}

/* While the hub drains: ends the connection unless a request has begun to come. */
static void wind_down(struct ct_conn *conn)
{
    unsigned char byte;
    uv_os_fd_t fd = -1;
    if (!ct_conn_hub_of(conn)->draining || conn->closing || conn->stalled ||
        ct_session_mid_request(&conn->session) ||
        uv_fileno((const uv_handle_t *)&conn->tcp, &fd) != 0 ||
        recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0) {
        return;
    }
    conn->ending = true;
    run(conn, NULL, 0);
}

static void on_flusher(uv_idle_t *idle);

static void flush_slice(struct ct_conn_hub *hub)
{
    /* The commit is made before each connection. The run of one may change what the next one is
     * told. That one may be writing, leave the list, and outlive a later commit that fails. */
    for (int i = 0; i < CT_WAKE_SLICE && commit(hub) && !ct_list_empty(&hub->woken); i++) {
        struct ct_conn *conn = CT_CONTAINER_OF(hub->woken.next, struct ct_conn, at_hub);
        ct_list_remove(&conn->at_hub);
        ct_list_append(&hub->conns, &conn->at_hub);
        run(conn, NULL, 0);
        wind_down(conn);
    }
    /* This commits requests without a reply that were served after a stall. */
    (void)commit(hub);
    if (uv_is_closing((uv_handle_t *)&hub->flusher)) {
        return;
    }
    if (ct_list_empty(&hub->woken)) {
        (void)uv_idle_stop(&hub->flusher);
    } else {
        (void)uv_idle_start(&hub->flusher, on_flusher);
    }
}

static void on_flusher(uv_idle_t *idle)
{
    struct ct_conn_hub *hub = CT_CONTAINER_OF(idle, struct ct_conn_hub, flusher);
    /* Earlier work does not count, so that the first request in the queue is served. */
    hub->service.turn_bytes = 0;
    flush_slice(hub);
}

/* Sends the replies of up to CT_WAKE_SLICE woken connections. The idle handle sends the rest. */
static void flush_woken(struct ct_conn_hub *hub)
{
    /* Of very many that are woken, each turn of the loop sends one slice at least. */
    if (!ct_list_empty(&hub->woken) && !uv_is_active((const uv_handle_t *)&hub->flusher)) {
        flush_slice(hub);
    }
}

void ct_conn_resume(struct ct_conn *conn)
{
    run(conn, NULL, 0);
    flush_woken(ct_conn_hub_of(conn));
    wind_down(conn);
}

void ct_conn_hub_end_turn(struct ct_conn_hub *hub)
{
    hub->service.turn_bytes = 0;
    hub->turn_written = 0;
    hub->reader = NULL;
    (void)commit(hub);
    flush_woken(hub);
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Returns how many bytes may be read now: few if much has been read in this turn of the loop, and
 * none for a second time. libuv by itself would read 2 MiB from each client. */
static size_t read_share(struct ct_conn_hub *hub, const struct ct_conn *conn)
{
    bool again = hub->reader == conn;
    hub->reader = conn;
    if (hub->service.turn_bytes < CT_TURN_BYTES) {
        return CT_READ_CHUNK;
    }
    return again ? 0 : CT_CROWDED_CHUNK;
}

/* With an empty buffer on_read() gets UV_ENOBUFS, and libuv tries again in the next turn. */
static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    struct ct_conn *conn = conn_of(handle);
    struct ct_conn_hub *hub = ct_conn_hub_of(conn);
    if (!conn->spoke && ct_conn_gate_is_foreign(conn)) {
        conn->foreign = true;
        *buf = uv_buf_init(NULL, 0);
        return;
    }
    *buf = uv_buf_init(hub->read_buf, (unsigned)read_share(hub, conn));
}

static void on_read(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buf)
{
    struct ct_conn *conn = conn_of((uv_handle_t *)stream);
    if (conn->closing || nread == 0) {
        return;
    }
    if (conn->foreign) {
        ct_conn_gate_hand_over(conn);
        return;
    }
    if (nread == UV_ENOBUFS) {
        return;
    }
    conn->spoke = true;
    if (conn->stale) {
        ct_conn_close(conn);
        return;
    }
    if (nread == UV_EOF) {
        ct_conn_log_end(conn, CT_LOG_DEBUG,
                        ct_session_mid_request(&conn->session)
                            ? "closed by the peer inside a request"
                            : "closed by the peer");
        conn->ending = true;
        ct_conn_resume(conn);
        return;
    }
    if (nread < 0) {
        ct_conn_log_end(conn, CT_LOG_DEBUG, uv_strerror((int)nread));
        ct_conn_close(conn);
        return;
    }
    if (!conn->admitted) {
        ct_conn_gate_refuse_unadmitted(conn);
        return;
    }
    ct_conn_hub_of(conn)->service.turn_bytes += (size_t)nread;
    run(conn, buf->base, (size_t)nread);
    if (ct_conn_hub_of(conn)->journal == NULL) {
        flush_woken(ct_conn_hub_of(conn));
    }
    wind_down(conn);
}

/* ---- the hub -------------------------------------------------------------------------------- */

int ct_conn_hub_init(struct ct_conn_hub *hub, struct ct_store *store)
{
    hub->read_buf = ct_malloc(CT_READ_CHUNK);
    if (hub->read_buf == NULL) {
        return CT_ENOMEM;
    }
    hub->service.store = store;
    hub->service.on_woken = on_woken;
    ct_list_init(&hub->conns);
    ct_list_init(&hub->woken);
    ct_conn_gate_init(&hub->gate);
    return 0;
}

void ct_conn_hub_drain(struct ct_conn_hub *hub)
{
    hub->draining = true;
    close_all(&hub->gate.unadmitted);
    /* Clients whose WAIT is over are in `woken`; they get their answers first. */
    for (struct ct_list *at = hub->conns.next, *next; at != &hub->conns; at = next) {
        next = at->next;
        wind_down(CT_CONTAINER_OF(at, struct ct_conn, at_hub));
    }
}

void ct_conn_hub_reset(struct ct_conn_hub *hub)
{
    close_all(&hub->woken);
    for (struct ct_list *at = hub->conns.next, *next; at != &hub->conns; at = next) {
        struct ct_conn *conn = CT_CONTAINER_OF(at, struct ct_conn, at_hub);
        next = at->next;
        if (conn->spoke) {
            ct_conn_close(conn);
        }
        conn->stale = true;
    }
}

void ct_conn_hub_close_all(struct ct_conn_hub *hub)
{
    close_all(&hub->conns);
    close_all(&hub->woken);
    close_all(&hub->gate.unadmitted);
}

void ct_conn_hub_fini(struct ct_conn_hub *hub)
{
    ct_outq_body_free(hub->spare_out);
    hub->spare_out = NULL;
    ct_free(hub->read_buf);
    hub->read_buf = NULL;
    ct_conn_gate_fini(&hub->gate);
}

/* ---- accepting ------------------------------------------------------------------------------ */

int ct_conn_accept(struct ct_conn_hub *hub, uv_loop_t *loop, int fd, bool stale)
{
    struct ct_conn *conn = ct_calloc(1, sizeof(*conn));
    if (conn == NULL) {
        return CT_ENOMEM;
    }
    int rc = uv_tcp_init(loop, &conn->tcp);
    if (rc != 0) {
        ct_free(conn);
        return CT_ENOMEM;
    }
    conn->tcp.data = hub;
    hub->open++;
    hub->live++;
    conn->admitted = true; /* until its address is known */
    ct_list_init(&conn->at_hub);
    ct_session_init(&conn->session, &hub->service);
    conn->stale = stale;
    if (uv_tcp_open(&conn->tcp, fd) != 0) {
        (void)close(fd);
        ct_conn_close(conn);
    } else if (hub->max_live > 0 && hub->live > hub->max_live) {
        ct_conn_gate_refuse(conn, &hub->too_many, "beyond --max-connections");
    } else {
        ct_conn_gate_enroll(conn);
        set_reading(conn);
    }
    return conn->closing ? CT_EIO : 0;
}
