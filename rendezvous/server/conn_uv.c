/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: on_read feeds the session, which serves every complete request in the bytes and
 * queues the replies; they leave in one uv_try_write, with no allocation. Clients woken by those
 * requests stand on hub->woken and are written to right after.
 *
 * With a journal replies wait for the end of the loop's turn: on_turn_end writes to the journal
 * once for all that were fed, then to them. No reply leaves by any path before its changes are
 * there.
 *
 * Other paths:
 * - The socket takes less than all: the rest goes through uv_write, one slice at a time; on_write
 *   goes on. Meanwhile new replies collect in session.out.
 * - The session stalls on unsent replies: reading stops until they are sent, so a client that does
 *   not read holds up itself alone, and the kernel's window tells it so.
 * - One that sends much, or asks for much work: the bytes of a turn of the loop are shared, and a
 *   request that copies a large value or lists a large store waits for a turn that has room for it,
 *   so that a small request of anybody else is served within milliseconds.
 * - A peer whose address is not admitted: its connection ends with its first bytes, unless they are
 *   those of HTTP, or when too many like it wait.
 * - The first byte is that of another dialect: nothing is read; the socket goes to whoever serves
 *   that. Only looking at the byte shows it, which costs each connection one more system call in
 *   its life.
 * - A key that a client watches changes: the notice waits in session.out like an answer to a WAIT.
 *   A client that does not read is ended once too many of them wait behind a write.
 * - End of file: what is queued is still sent, then the connection closes.
 *
 * Failure modes: a protocol violation, no memory, or a socket error end this connection and nothing
 * else. What earlier requests of it stored stays. A journal that fails ends all connections that
 * were about to hear of the changes it lost.
 *
 * Who frees: ct_conn_close() frees the session and closes the handle; what is being written and the
 * connection itself go in on_close, as libuv may use them until then.
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

/* malloc makes 384 of it, libuv's table of descriptors adds 8: within the 400 bytes that an idle
 * connection may cost. */
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

/* Logged at a limited rate: no peer must be able to fill the log. */
static void say_fault(struct ct_conn *conn, int rc, const char *text)
{
    enum ct_conn_fault kind = rc == CT_ENOMEM   ? CT_FAULT_MEMORY
                              : rc == CT_ELIMIT ? CT_FAULT_LIMIT
                                                : CT_FAULT_PROTOCOL;
    char why[sizeof(((struct ct_err *)0)->text) + CT_REFUSALS_TEXT_MAX];
    char others[CT_REFUSALS_TEXT_MAX];
    if (rc == CT_EIO) { /* a journal's trouble is said once, by the journal */
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

/* Its answers go out with the next flush. */
static void defer(struct ct_conn *conn)
{
    ct_list_remove(&conn->at_hub);
    ct_list_append(&ct_conn_hub_of(conn)->woken, &conn->at_hub);
}

/* Feeds the session; what came of it is to be sent by advance(). False when it must wait for
 * another turn of the loop. */
static bool feed(struct ct_conn *conn, const void *bytes, size_t len)
{
    struct ct_err err;
    err.text[0] = '\0'; /* clearing all of it would cost more than many a request */
    int rc = ct_session_feed(&conn->session, bytes, len, &err);
    conn->stalled = rc == CT_SESSION_E_STALLED || rc == CT_SESSION_E_YIELDED;
    if (rc == CT_SESSION_E_YIELDED) {
        defer(conn);
        return false;
    }
    if (rc < 0) {
        ct_conn_hub_of(conn)->protocol_errors += rc != CT_ENOMEM && rc != CT_EIO;
        /* Earlier requests of the same read were good: their answers are still due. */
        conn->ending = true;
        say_fault(conn, rc, err.text);
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
        if (!conn->ending) { /* else it was said why */
            ct_conn_log_end(conn, CT_LOG_WARNING,
                            rc == CT_ELIMIT ? CT_SESSION_LAGS : "out of memory");
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

/* Before anything is told of them, changes go to the journal. False when they could not: then they
 * are told to nobody. */
static bool commit(struct ct_conn_hub *hub)
{
    if (hub->journal == NULL || ct_journal_commit(hub->journal) == 0) {
        return true;
    }
    close_all(&hub->woken);
    return false;
}

/* Does what can be done now: sends; serves on when a stall is over; closes at the end. A loop, not
 * callbacks calling each other, as one read may hold thousands of requests that each stall. */
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

/* Reading follows the state that advance() left. */
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

/* Serves `bytes`, or with none goes on where it stood; sends what there is to send. */
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

/* While the hub drains: ends the connection when no request is on its way. */
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
    /* Each time, since one that is run may change what the next is told, and that one may be busy
     * writing: then it leaves the list, and a commit that failed later would not end it. */
    for (int i = 0; i < CT_WAKE_SLICE && commit(hub) && !ct_list_empty(&hub->woken); i++) {
        struct ct_conn *conn = CT_CONTAINER_OF(hub->woken.next, struct ct_conn, at_hub);
        ct_list_remove(&conn->at_hub);
        ct_list_append(&hub->conns, &conn->at_hub);
        run(conn, NULL, 0);
        wind_down(conn);
    }
    /* Requests without a reply, served when a stall was over. */
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
    /* Writes that ended before do not count, so that the first request in the queue has its turn.
     */
    hub->service.turn_bytes = 0;
    flush_slice(hub);
}

/* Sends the replies of up to CT_WAKE_SLICE woken connections, the rest from the idle handle. */
static void flush_woken(struct ct_conn_hub *hub)
{
    /* Of a storm one slice goes out per turn of the loop, however many clients were read from. */
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

/* Bytes that may be read from it now: few when the others sent much in this turn of the loop, and
 * none a second time. libuv alone would read 2 MiB from each. */
static size_t read_share(struct ct_conn_hub *hub, const struct ct_conn *conn)
{
    bool again = hub->reader == conn;
    hub->reader = conn;
    if (hub->service.turn_bytes < CT_TURN_BYTES) {
        return CT_READ_CHUNK;
    }
    return again ? 0 : CT_CROWDED_CHUNK;
}

/* An empty buffer keeps libuv from reading; on_read() hears UV_ENOBUFS, and again in the next turn.
 */
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
    /* Those whose WAIT is over are answered first, by the idle handle if they are many. */
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

int ct_conn_accept(struct ct_conn_hub *hub, uv_stream_t *listener, int fd, bool stale)
{
    struct ct_conn *conn = ct_calloc(1, sizeof(*conn));
    if (conn == NULL) {
        return CT_ENOMEM;
    }
    int rc = uv_tcp_init(listener->loop, &conn->tcp);
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
    if (fd < 0) {
        rc = uv_accept(listener, (uv_stream_t *)&conn->tcp);
    } else {
        rc = uv_tcp_open(&conn->tcp, fd);
        if (rc != 0) {
            (void)close(fd);
        }
    }
    if (rc != 0) {
        ct_conn_close(conn);
    } else if (hub->max_live > 0 && hub->live > hub->max_live) {
        ct_conn_gate_refuse(conn, &hub->too_many, "beyond --max-connections");
    } else {
        ct_conn_gate_enroll(conn);
        set_reading(conn);
    }
    return conn->closing ? CT_EIO : 0;
}
