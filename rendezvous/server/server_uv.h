/* SPDX-License-Identifier: Apache-2.0
 *
 * The store on a socket: a libuv listener around the engine. Runs on the caller's loop.
 *
 * The process must ignore SIGPIPE: libuv writes to sockets whose peer may be gone. One connection
 * costs one descriptor, so raise the soft RLIMIT_NOFILE for large jobs.
 */
#ifndef CT_RENDEZVOUS_SERVER_SERVER_UV_H
#define CT_RENDEZVOUS_SERVER_SERVER_UV_H

#include "common/err.h"
#include "common/log.h"
#include "rendezvous/wire/proto.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct ct_arbiter_pledge;
struct ct_access;
struct ct_control_station;
struct ct_members_failover;
struct ct_voter;
struct ct_msg_join;
struct ct_server;
struct ct_token;

/* Membership of jobs (control_uv.h). All is borrowed until the server is closed. */
struct ct_server_agents {
    /* The only agent is in this process, so the port does not serve agents. */
    bool in_process;
    /* The parameters of the job; NULL = those of the first agent that joins. */
    const struct ct_msg_join *job;
    /* The token that agents must have. The address of a connected agent may use the store. NULL =
     * every peer that may use the store may be an agent. */
    const struct ct_token *token;
    const char *run_id;          /* of the only job that is served; NULL = any */
    const char *const *expected; /* names of its hosts by node rank; NULL = unknown */
    int num_expected;
    bool keep_job; /* keep the job's status after its last agent has left */
    /* Called for each agent that has joined; may be NULL. */
    void (*on_join)(void *data, const struct ct_msg_join *join);
    void *data;
    /* This process can host jobs that outlive their host (control_uv.h); NULL = it cannot. Then no
     * agent may join before ct_server_host(). */
    const struct ct_control_station *station;
};

struct ct_server_options {
    /* Addresses to bind, as in ct_listen(); none = 127.0.0.1 alone. */
    const char *const *hosts;
    size_t num_hosts;
    uint16_t port;            /* 0 = the kernel chooses; read it back with ct_server_port() */
    size_t max_memory;        /* bytes that clients may make the store take; 0 = no cap */
    size_t max_connections;   /* one more is closed at once; 0 = as many as descriptors allow */
    const struct ct_log *log; /* borrowed, may be NULL */
    /* Borrowed until the server is closed. NULL = everybody who reaches the port is admitted. */
    const struct ct_access *access;
    /* Peers on this machine must be of this process's user, or root. If the kernel does not tell
     * the user of a connection, all are admitted. */
    bool own_user;
    bool http_keys; /* answer GET /keys */
    /* The name of this machine under which its user tells browsers of it, beside its host name.
     * Borrowed until the server is closed; NULL = none. */
    const char *page_name;
    const char *journal; /* file that keeps the keys when the process ends; NULL = none */
    const struct ct_server_agents *agents; /* NULL = none are served */
    bool journal_sync; /* and also when the machine crashes: each write waits for the disk */
};

/* Binds and listens before it returns; the sockets are held until ct_server_close(). CT_EBUSY names
 * the process that holds the port where /proc tells (pid and command line). Gives *out. After a
 * failure the loop must be run once more before it can be closed. */
CT_MUST_CHECK int ct_server_open(uv_loop_t *loop, const struct ct_server_options *options,
                                 struct ct_server **out, struct ct_err *err);

uint16_t ct_server_port(const struct ct_server *server);

/* Begins a new generation: forgets every key, empties the journal and ends every client connection,
 * including those that wait in the kernel to be accepted, since a worker of the old generation must
 * not write into the new one. Agents stay connected. The listeners stay as they are. */
void ct_server_reset(struct ct_server *server);

/* Takes one end of a socket pair whose other end an agent in this process holds. The server must
 * have been opened with `agents`. */
void ct_server_take_agent(struct ct_server *server, int fd);

/* As the functions of control_uv.h. */
void ct_server_arbiter(struct ct_server *server, const struct ct_arbiter_pledge *pledge);
bool ct_server_stands_no_more(const struct ct_server *server, uint64_t id);
void ct_server_host(struct ct_server *server, const struct ct_members_failover *failover);
void ct_server_unhost(struct ct_server *server, const struct ct_voter *next);
void ct_server_move(struct ct_server *server, const char *run_id, const struct ct_voter *next);

/* Is any agent still in its job here? */
bool ct_server_has_agents(const struct ct_server *server);

/* Sets a key from inside this process, as a client would. CT_ENOMEM, CT_ELIMIT. */
CT_MUST_CHECK int ct_server_set(struct ct_server *server, const char *key, const char *value);

/* Lets the live page see the job as it is now. */
void ct_server_page_sample(struct ct_server *server);

/* How the job of a server has ended. */
struct ct_server_end {
    const char *run_id;
    const char *outcome; /* "succeeded", "stopped" or "failed" */
    int exit_code;
    const char *text; /* one line, as in "job j failed: rank 5 on gpu-6: ..." without "job j"; NULL
                         = the outcome, and the failure that the membership knows */
};

/* Tells whoever asks for /end or watches the live page how the job has ended. The server is to be
 * kept for a moment while ct_server_is_telling_end(), which a client can draw out, so the caller
 * sets a limit. */
void ct_server_tell_end(struct ct_server *server, const struct ct_server_end *end);
bool ct_server_is_telling_end(const struct ct_server *server);

/* Does the server serve a live page? It does not in a build without HTTP. */
bool ct_server_has_page(const struct ct_server *server);

/* Makes the key of a link that shows the live page once to somebody who has the right of the token;
 * the last one is no longer valid. *out is empty in a store without a token. CT_EUNSUPPORTED
 * without libmicrohttpd, CT_EIO. */
CT_MUST_CHECK int ct_server_page_link(struct ct_server *server, struct ct_token *out);

struct ct_server_stats {
    size_t keys, bytes, connections, waiters;
    size_t memory;        /* bytes that clients make the store take, of max_memory */
    uint64_t over_memory; /* requests refused because of it */
    uint64_t accepted, refused, protocol_errors, requests;
    uint64_t denied;             /* accepted connections whose peer was not admitted */
    uint64_t journal_bytes;      /* of its file; 0 without one */
    uint64_t journal_refused;    /* changes that could not be journalled, and so were not made */
    uint64_t by_op[CT_OP_LIMIT]; /* requests by opcode (rendezvous/wire/proto.h) */
};

void ct_server_stats(const struct ct_server *server, struct ct_server_stats *out);

typedef void (*ct_server_close_fn)(void *data);

/* As ct_server_close(), but first answers requests that were already sent. It accepts no more
 * connections, and ends each one when there is nothing left to read from it or to send to it, at
 * the latest after `bound_ms`. WAITs get no answer. ct_server_close() ends all at once. */
void ct_server_drain(struct ct_server *server, uint64_t bound_ms, ct_server_close_fn cb,
                     void *data);

/* Ends listeners and connections, then frees the server and calls cb, which may be NULL. */
void ct_server_close(struct ct_server *server, ct_server_close_fn cb, void *data);

#endif
