/* SPDX-License-Identifier: Apache-2.0
 *
 * One accepted connection: carries bytes between a socket and a session.
 */
#ifndef CT_RENDEZVOUS_CONN_UV_H
#define CT_RENDEZVOUS_CONN_UV_H

#include "common/err.h"
#include "common/list.h"
#include "common/log.h"
#include "rendezvous/access.h"
#include "rendezvous/admit.h"
#include "rendezvous/limits.h"
#include "rendezvous/session.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

/* What all connections of a server share. The server owns it and outlives them. */
struct ct_conn_hub {
    struct ct_store *store;
    const struct ct_log *log;       /* may be NULL */
    const struct ct_access *access; /* NULL = everyone is admitted */
    struct ct_refusals refusals;    /* connections of peers that were not */
    struct ct_list conns;           /* ct_conn.at_hub, those not closing */
    struct ct_list strangers;       /* as `conns`, those not admitted; oldest first */
    size_t num_strangers;
    struct ct_list woken; /* ct_conn.at_woken, those with a reply another client caused */
    uv_idle_t flusher;    /* runs while `woken` holds more than one slice */
    size_t open;          /* connections whose handle is not closed yet */
    uint64_t requests, protocol_errors;
    uint64_t by_op[CT_OP_LIMIT]; /* requests served, by opcode */
    /* Takes the socket of a client that speaks HTTP, unread; NULL = nobody takes it. */
    void (*on_http)(struct ct_conn_hub *hub, int fd, bool admitted);
    void *http_data;
    /* A connection's handle is closed and its memory gone. */
    void (*on_closed)(struct ct_conn_hub *hub);
    char read_buf[CT_READ_CHUNK]; /* one read at a time per loop, so one buffer does */
};

struct ct_conn {
    uv_tcp_t tcp;
    uv_write_t write;
    struct ct_session session;
    struct ct_outq sending; /* what the kernel is being given; session.out fills meanwhile */
    struct ct_conn_hub *hub;
    struct ct_list at_hub, at_woken;
    size_t write_len; /* bytes that `write` carries */
    bool writing;     /* `write` is in the loop's hands */
    bool admitted;    /* by its address; else it gets nothing but what is everybody's */
    bool reading;
    bool spoke;   /* the first byte came, and is not that of HTTP */
    bool http;    /* the first byte is that of HTTP */
    bool stalled; /* not reading until replies are sent */
    bool ending;  /* peer sent its last byte: close when replies are sent */
    bool closing;
};

/* Accepts the connection that `listener` announced. On failure nothing is left behind, and either
 * no connection was taken (CT_ENOMEM) or it was closed again. */
CT_MUST_CHECK int ct_conn_accept(struct ct_conn_hub *hub, uv_stream_t *listener);

/* Ends the connection; its memory goes when the loop has closed the handle. Repeating is legal. */
void ct_conn_close(struct ct_conn *conn);

/* Sends the replies of up to CT_WAKE_SLICE woken connections, the rest from the idle handle. */
void ct_conn_hub_flush(struct ct_conn_hub *hub);

#endif
