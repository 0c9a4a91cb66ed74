/* SPDX-License-Identifier: Apache-2.0
 *
 * One accepted connection: carries bytes between a socket and a session.
 */
#ifndef CT_RENDEZVOUS_SERVER_CONN_UV_H
#define CT_RENDEZVOUS_SERVER_CONN_UV_H

#include "common/err.h"
#include "common/list.h"
#include "common/log.h"
#include "rendezvous/admission/access.h"
#include "rendezvous/admission/agent_addresses.h"
#include "rendezvous/admission/refusal_log.h"
#include "rendezvous/admission/source_quota.h"
#include "rendezvous/store/journal_file.h"
#include "rendezvous/store/session.h"
#include "rendezvous/wire/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

enum ct_conn_fault { CT_FAULT_PROTOCOL, CT_FAULT_LIMIT, CT_FAULT_MEMORY, CT_CONN_FAULTS };

/* Which peers are admitted, and the connections of those that are not (conn_gate_uv.h). */
struct ct_conn_gate {
    const struct ct_access *access; /* NULL = everyone is admitted */
    /* A descriptor of ct_peer_user_open(): peers on this machine must be of our user or root; -1 =
     * peers of all users are admitted. */
    int users_fd;
    bool agents_prove; /* agents need the job's token instead of an admitted address */
    struct ct_agent_addresses agent_addresses; /* addresses of agents that have proved the token */
    struct ct_list unadmitted;    /* connections of peers that are not admitted, the oldest first */
    struct ct_source_quota quota; /* limits `unadmitted` */
    struct ct_refusal_log refusals; /* peers that were refused */
};

/* What all connections of a server share. The server owns it and outlives them. */
struct ct_conn_hub {
    struct ct_service service;
    struct ct_journal *journal;     /* of the store; NULL = none */
    struct ct_outq_body *spare_out; /* lent to the connection that is served now; may be NULL */
    const struct ct_log *log;       /* may be NULL */
    struct ct_conn_gate gate;
    /* An open connection is in one of these or in gate.unadmitted, by ct_conn.at_hub. */
    struct ct_list conns;
    /* Connections with a reply caused by others; with a journal, also those served in this turn. */
    struct ct_list woken;
    uv_idle_t flusher;              /* runs while `woken` holds more than one slice */
    uv_check_t turn_end;            /* calls ct_conn_hub_end_turn() */
    size_t live;                    /* connections that are not closing */
    size_t max_live;                /* one more is closed at once; 0 = no limit */
    size_t open;                    /* connections whose handle is not closed yet */
    bool draining;                  /* each connection ends when it is idle */
    struct ct_refusal_log too_many; /* connections beyond max_live */
    uint64_t protocol_errors;
    /* Limits log lines about clients that broke protocol or limits, and lack of memory. */
    struct ct_refusal_log faults[CT_CONN_FAULTS];
    /* Takes the socket of a client that speaks HTTP, from which nothing has been read; NULL = HTTP
     * is not served. `ours`: address and user are admitted; `admitted`: the address is. */
    void (*on_http)(struct ct_conn_hub *hub, int fd, bool ours, bool admitted);
    void *http_data;
    /* The same for agents' control connections. */
    void (*on_agent)(struct ct_conn_hub *hub, int fd);
    void *agent_data;
    /* Called when a connection's handle is closed and its memory freed. */
    void (*on_closed)(struct ct_conn_hub *hub);
    char *read_buf; /* CT_READ_CHUNK bytes; one buffer is enough, because a loop makes one read at a
                       time */
    /* The connection that was last read from. It may have been freed, so it is only compared. */
    const struct ct_conn *reader;
    size_t turn_written; /* bytes written in this turn of the loop */
};

struct ct_conn_write;

/* This struct is kept small, because most of ten thousand connections are idle, and each should
 * take 400 bytes, with what malloc(3) and libuv add. What only a busy connection needs is allocated
 * when it is busy. */
struct ct_conn {
    uv_tcp_t tcp; /* its data: the hub */
    struct ct_session session;
    struct ct_list at_hub;
    struct ct_conn_write *write; /* what the socket did not take at once; NULL = nothing */
    bool admitted : 1; /* by address and user; if not, only HTTP and agent control are served */
    bool reading : 1;
    bool spoke : 1;   /* the first byte came, and is of the store's protocol */
    bool foreign : 1; /* the first byte is that of another dialect */
    bool stale : 1;   /* accepted in a generation that is over: only other dialects are served */
    /* Nothing is read until its replies are sent, or until a turn has room for its next request. */
    bool stalled : 1;
    bool ending : 1; /* nothing more is read; it closes when the replies are sent */
    bool closing : 1;
    bool left : 1;  /* not admitted only because the peer had closed it before it was accepted */
    uint8_t source; /* of ct_source_quota_add(); only if it is not admitted */
};

/* `hub` is zeroed memory; borrows `store`. The caller starts and ends the idle and check handles.
 * CT_ENOMEM. */
CT_MUST_CHECK int ct_conn_hub_init(struct ct_conn_hub *hub, struct ct_store *store);

/* From now on each connection is closed when nothing is left to read from it or to send to it. */
void ct_conn_hub_drain(struct ct_conn_hub *hub);

/* Ends the connections of a generation that is over. One that has sent nothing yet may be an agent,
 * or ask for the status. It ends only when its first byte shows that it is neither. */
void ct_conn_hub_reset(struct ct_conn_hub *hub);

/* Ends all connections. */
void ct_conn_hub_close_all(struct ct_conn_hub *hub);

/* No connection may be left. */
void ct_conn_hub_fini(struct ct_conn_hub *hub);

/* Takes the accepted socket `fd`. A `stale` connection began in a generation that is over. On
 * failure either the socket was not taken (CT_ENOMEM) or it was closed (CT_EIO). */
CT_MUST_CHECK int ct_conn_accept(struct ct_conn_hub *hub, uv_loop_t *loop, int fd, bool stale);

/* Ends the connection; frees it when the loop has closed the handle. May be repeated. */
void ct_conn_close(struct ct_conn *conn);

/* To be called at the end of each turn of the loop. Writes the changes of the turn to the journal,
 * if there is one, then sends the replies of woken connections. */
void ct_conn_hub_end_turn(struct ct_conn_hub *hub);

/* ---- for conn_gate_uv.c and conn_write_uv.c ------------------------------------------------- */

static inline struct ct_conn_hub *ct_conn_hub_of(const struct ct_conn *conn)
{
    return conn->tcp.data;
}

/* Logs that the connection ends, with the address of its peer. */
void ct_conn_log_end(const struct ct_conn *conn, enum ct_log_level level, const char *why);

/* Logs a warning that the connection ends, at most one a second for each kind of fault, so that no
 * peer can fill the log. `rc` tells the kind: CT_ENOMEM, CT_ELIMIT, or any other code for a peer
 * that breaks the protocol. CT_EIO is only logged for debugging, because the journal has already
 * warned of it. */
void ct_conn_log_fault(struct ct_conn *conn, int rc, const char *text);

/* Called when a write is done: goes on with what waited for it. */
void ct_conn_resume(struct ct_conn *conn);

#endif
