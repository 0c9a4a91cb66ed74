/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: one uv_try_write() sends all replies; nothing is allocated.
 *
 * Other paths: the socket does not take everything, or the turn has written its share. Then the
 * replies move into a struct ct_conn_write, uv_write() sends them slice by slice, and on_write()
 * goes on.
 *
 * Failure modes: an error of the socket, or no memory, ends the connection.
 *
 * Who frees: ct_conn_write_free(), when all is sent or in the close callback of the connection.
 */
#include "rendezvous/server/conn_write_uv.h"

#include "common/alloc.h"

/* uv_buf_t is laid out as struct iovec on Unix, which libuv promises. */
_Static_assert(sizeof(uv_buf_t) == sizeof(struct iovec), "uv_buf_t must be an iovec");

/* Replies that the socket did not take at once, and that the loop sends. */
struct ct_conn_write {
    uv_write_t req;
    struct ct_conn *conn;
    struct ct_outq sending; /* new replies go to session.out */
    size_t len;             /* bytes that `req` carries */
    size_t charged;         /* what was charged to the store's budget */
    bool busy;              /* on_write() has not been called yet */
};

static void on_write(uv_write_t *req, int status);

void ct_conn_write_free(struct ct_conn *conn)
{
    if (conn->write != NULL) {
        ct_budget_give(ct_store_budget(ct_conn_hub_of(conn)->service.store), conn->write->charged);
        ct_outq_fini(&conn->write->sending);
        ct_free(conn->write);
        conn->write = NULL;
    }
}

bool ct_conn_write_busy(const struct ct_conn *conn)
{
    return conn->write != NULL && conn->write->busy;
}

/* Returns the queue that is sent first. */
static struct ct_outq *unsent(struct ct_conn *conn)
{
    return conn->write != NULL ? &conn->write->sending : &conn->session.out;
}

bool ct_conn_write_wanted(const struct ct_conn *conn)
{
    return (conn->write != NULL ? conn->write->sending.total : conn->session.out.total) > 0;
}

/* Lets the loop write the slice. on_write() goes on with the rest. */
static int write_later(struct ct_conn *conn, struct iovec *iov, size_t count)
{
    struct ct_conn_write *write = conn->write;
    if (write == NULL) {
        write = ct_calloc(1, sizeof(*write));
        if (write == NULL) {
            return UV_ENOMEM;
        }
        write->conn = conn;
        write->sending = conn->session.out;
        conn->session.out = (struct ct_outq){0};
        conn->write = write;
    }
    write->len = 0;
    for (size_t i = 0; i < count; i++) {
        write->len += iov[i].iov_len;
    }
    int rc = uv_write(&write->req, (uv_stream_t *)&conn->tcp, (const uv_buf_t *)(void *)iov,
                      (unsigned)count, on_write);
    write->busy = rc == 0;
    ct_conn_hub_of(conn)->turn_written += write->len;
    return rc;
}

/* Cuts the pieces down to `bytes` in all. Returns the number of pieces that are left. */
static size_t cut(struct iovec *iov, size_t count, size_t bytes)
{
    for (size_t i = 0; i < count; i++) {
        if (iov[i].iov_len >= bytes) {
            iov[i].iov_len = bytes;
            return i + 1;
        }
        bytes -= iov[i].iov_len;
    }
    return count;
}

void ct_conn_write_slice(struct ct_conn *conn, bool now)
{
    struct ct_outq *q = unsent(conn);
    struct iovec iov[CT_OUT_IOV_MAX];
    bool crowded = ct_conn_hub_of(conn)->turn_written >= CT_TURN_WRITE_BYTES;
    size_t count =
        cut(iov, ct_outq_iov(q, iov, CT_OUT_IOV_MAX), crowded ? CT_CROWDED_CHUNK : CT_WRITE_BYTES);
    int rc = UV_EAGAIN;
    if (now) {
        rc =
            uv_try_write((uv_stream_t *)&conn->tcp, (const uv_buf_t *)(void *)iov, (unsigned)count);
    }
    if (rc > 0) {
        ct_outq_consume(q, (size_t)rc);
        ct_conn_hub_of(conn)->turn_written += (size_t)rc;
    } else if (rc == UV_EAGAIN) {
        rc = write_later(conn, iov, count);
    }
    if (rc < 0) {
        ct_conn_log_end(conn, CT_LOG_DEBUG, uv_strerror(rc));
        ct_conn_close(conn);
    } else if (conn->write != NULL && conn->write->sending.total == 0) {
        ct_conn_write_free(conn);
    }
}

void ct_conn_write_charge(struct ct_conn *conn)
{
    struct ct_conn_write *write = conn->write;
    if (write != NULL) {
        struct ct_budget *budget = ct_store_budget(ct_conn_hub_of(conn)->service.store);
        ct_budget_give(budget, write->charged);
        write->charged = sizeof(*write) + CT_BLOCK_COST + ct_outq_memory(&write->sending) +
                         ct_outq_memory(&conn->session.out);
        ct_budget_force(budget, write->charged);
    }
}

static void on_write(uv_write_t *req, int status)
{
    struct ct_conn_write *write = CT_CONTAINER_OF(req, struct ct_conn_write, req);
    struct ct_conn *conn = write->conn;
    write->busy = false;
    if (conn->closing) {
        return;
    }
    if (status != 0) {
        ct_conn_log_end(conn, CT_LOG_DEBUG, uv_strerror(status));
        ct_conn_close(conn);
        return;
    }
    ct_outq_consume(&write->sending, write->len);
    if (write->sending.total == 0) {
        ct_conn_write_free(conn);
    }
    ct_conn_resume(conn);
}
