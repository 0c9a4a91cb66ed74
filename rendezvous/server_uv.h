/* SPDX-License-Identifier: Apache-2.0
 *
 * The store on a socket: a libuv listener around the engine. Runs on the caller's loop.
 *
 * The process must ignore SIGPIPE: libuv writes to sockets whose peer may be gone. One connection
 * costs one descriptor, so raise the soft RLIMIT_NOFILE for large jobs.
 */
#ifndef CT_RENDEZVOUS_SERVER_UV_H
#define CT_RENDEZVOUS_SERVER_UV_H

#include "common/err.h"
#include "common/log.h"
#include "rendezvous/proto.h"
#include "rendezvous/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct ct_access;
struct ct_server;

struct ct_server_options {
    const char *host; /* address to bind: a name or literal; NULL = loopback 127.0.0.1; "*" = all
                         addresses, IPv6 and IPv4 */
    uint16_t port;    /* 0 = the kernel chooses; read it back with ct_server_port() */
    const struct ct_log *log; /* borrowed, may be NULL */
    /* Borrowed until the server is closed. NULL = whoever reaches the port is admitted. */
    const struct ct_access *access;
    bool http_keys;      /* answer GET /keys */
    const char *journal; /* file that keeps the keys over the end of the process; NULL = none */
    bool journal_sync;   /* also over the end of the machine: each write waits for the disk */
};

/* Binds and listens before it returns; the socket is held until ct_server_close(). CT_EBUSY names
 * the process that holds the port where /proc tells (pid and command line). Gives *out. After a
 * failure the loop must be run once more before it can be closed. */
CT_MUST_CHECK int ct_server_open(uv_loop_t *loop, const struct ct_server_options *options,
                                 struct ct_server **out, struct ct_err *err);

uint16_t ct_server_port(const struct ct_server *server);

/* A new generation: forgets every key and ends every client connection (a worker of the old
 * generation must not write into the new one). The journal is emptied. The listener stays as it is.
 */
void ct_server_reset(struct ct_server *server);

/* The status that is served over HTTP on the same port gets what `fn` adds; called on the loop,
 * until the server is closed. */
void ct_server_set_status(struct ct_server *server, ct_status_fn fn, void *data);

struct ct_server_stats {
    size_t keys, bytes, connections, waiters;
    uint64_t accepted, refused, protocol_errors, requests;
    uint64_t denied;             /* of those accepted: peers whose address is not admitted */
    uint64_t journal_bytes;      /* of its file; 0 without one */
    uint64_t journal_refused;    /* changes that could not be journalled, and so were not made */
    uint64_t by_op[CT_OP_LIMIT]; /* requests by opcode (rendezvous/proto.h) */
};

void ct_server_stats(const struct ct_server *server, struct ct_server_stats *out);

/* Ends listener and connections; calls cb (may be NULL) when the last handle is closed, after which
 * the server is freed. */
typedef void (*ct_server_close_fn)(void *data);
void ct_server_close(struct ct_server *server, ct_server_close_fn cb, void *data);

#endif
