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

/* What all connections of a server share. The server owns it and outlives them. */
struct ct_conn_hub {
    struct ct_service service;
    struct ct_journal *journal;     /* of the store; NULL = none */
    struct ct_outq_body *spare_out; /* lent to the connection that is being served; may be NULL */
    const struct ct_log *log;       /* may be NULL */
    const struct ct_access *access; /* NULL = everyone is admitted */
    /* ct_peer_user_open(): peers on this machine must be of our user or root; -1 = of any. */
    int users_fd;
    struct ct_refusal_log refusals; /* connections of peers that were not */
    /* Each connection that is not closing is in one of these lists, by ct_conn.at_hub. */
    struct ct_list conns;
    /* Those with an answer that another client caused; with a journal also those that were served
     * in this turn of the loop. */
    struct ct_list woken;
    struct ct_list unadmitted;    /* those of peers that are not admitted; oldest first */
    struct ct_source_quota quota; /* of them */
    uv_idle_t flusher;            /* runs while `woken` holds more than one slice */
    uv_check_t turn_end;          /* calls ct_conn_hub_end_turn() */
    size_t live;                  /* connections that are not closing */
    size_t max_live;              /* one more is closed at once; 0 = no limit */
    size_t open;                  /* connections whose handle is not closed yet */
    bool draining;                /* each ends when it is idle */
    struct ct_refusal_log crowd;  /* connections beyond max_live */
    uint64_t protocol_errors;
    /* Lines about them, by kind: what broke the protocol, a limit, the memory. */
    struct ct_refusal_log faults[CT_CONN_FAULTS];
    /* Takes the socket of a client that speaks HTTP, unread; NULL = nobody takes it. `ours`: its
     * address and user are admitted, else at most its address is. */
    void (*on_http)(struct ct_conn_hub *hub, int fd, bool ours, bool admitted);
    void *http_data;
    /* The same for agents' control connections. */
    void (*on_agent)(struct ct_conn_hub *hub, int fd);
    void *agent_data;
    bool agents_prove; /* they need the job's token, not an address that is admitted */
    struct ct_agent_addresses agent_addresses; /* of those agents that have proved it */
    /* A connection's handle is closed and its memory gone. */
    void (*on_closed)(struct ct_conn_hub *hub);
    char *read_buf; /* CT_READ_CHUNK bytes: one read at a time per loop, so one buffer does */
    /* Who was read from last, to be compared only: it may be gone. */
    const struct ct_conn *reader;
    size_t turn_written; /* bytes, in this turn of the loop */
};

struct ct_conn_write;

/* Kept small: most of ten thousand connections are idle, and should cost 400 bytes each with what
 * malloc and libuv add. What only a busy one needs is allocated then. */
struct ct_conn {
    uv_tcp_t tcp; /* its data: the hub */
    struct ct_session session;
    struct ct_list at_hub;
    struct ct_conn_write *write; /* what the socket did not take at once; NULL = nothing */
    bool admitted : 1; /* by address and user; else it gets nothing but what is everybody's */
    bool reading : 1;
    bool spoke : 1;   /* the first byte came, and is for us */
    bool foreign : 1; /* the first byte is that of another dialect */
    bool stale : 1;   /* of a generation that is over: gets nothing but other dialects */
    bool stalled : 1; /* not reading until replies are sent, or its next request may be served */
    bool ending : 1;  /* peer sent its last byte: close when replies are sent */
    bool closing : 1;
    uint8_t source; /* where it comes from, as the quota counts it; only if it is not admitted */
};

/* `hub` is zeroed memory; borrows `store`. The idle and check handles are the caller's to start and
 * end. CT_ENOMEM. */
CT_MUST_CHECK int ct_conn_hub_init(struct ct_conn_hub *hub, struct ct_store *store);

/* From now on each connection ends when nothing is left to read from it or to send to it. */
void ct_conn_hub_drain(struct ct_conn_hub *hub);

/* Ends the generation: all connections, but for those that have not said anything, which may be
 * an agent or somebody who asks for the status: they end when it turns out that they are not. */
void ct_conn_hub_reset(struct ct_conn_hub *hub);

/* Ends all connections. */
void ct_conn_hub_close_all(struct ct_conn_hub *hub);

/* No connection may be left. */
void ct_conn_hub_fini(struct ct_conn_hub *hub);

/* Accepts the connection that `listener` announced, or that is accepted already as `fd` (else -1).
 * One that is `stale` began in a generation that is over. On failure nothing is left behind, and
 * either no connection was taken (CT_ENOMEM) or it was closed again (CT_EIO). */
CT_MUST_CHECK int ct_conn_accept(struct ct_conn_hub *hub, uv_stream_t *listener, int fd,
                                 bool stale);

/* Ends the connection; its memory goes when the loop has closed the handle. Repeating is legal. */
void ct_conn_close(struct ct_conn *conn);

/* At the end of each turn of the loop. With a journal: writes there what was changed in it, then
 * sends the replies of woken connections. */
void ct_conn_hub_end_turn(struct ct_conn_hub *hub);

#endif
