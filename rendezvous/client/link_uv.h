/* SPDX-License-Identifier: Apache-2.0
 *
 * An agent's connection to the membership core: over TCP to the machine that hosts the store, or
 * through a socket pair to the core in the same process. The messages are the same.
 */
#ifndef CT_RENDEZVOUS_CLIENT_LINK_UV_H
#define CT_RENDEZVOUS_CLIENT_LINK_UV_H

#include "common/err.h"
#include "common/log.h"
#include "rendezvous/control/control.h"

#include <stdint.h>
#include <uv.h>

struct ct_link;
struct ct_server;

struct ct_link_options {
    const char *host; /* resolved again for each try; names may come up late */
    uint16_t port;
    struct ct_server *local; /* instead of host and port: the server in this process, which must
                                have been opened with `control` */
    const struct ct_token *token; /* borrowed until closed; NULL = none */
    int64_t connect_ms;           /* how long to try to connect, refused connections included */
    const struct ct_log *log;     /* borrowed, may be NULL */
    /* The channel is up and proved, `address` is ours as the server sees it ("" for a local one):
     * send JOIN now. */
    void (*on_up)(void *data, const char *address);
    /* `msg` is borrowed. BEATs are answered and counted inside and not seen here. */
    void (*on_message)(void *data, struct ct_msg *msg);
    /* The channel is lost or could not be made; nothing else will come. CT_ECLOSED, CT_ETIMEDOUT
     * (silence, or connecting), CT_EPERM (token, address), CT_EPROTO (it is no ctrun there). */
    void (*on_lost)(void *data, const struct ct_err *err);
    /* Every third of the heartbeat: fills the BEAT's `workers`; may be NULL. */
    void (*on_beat)(void *data, struct ct_msg *msg);
    void *data;
};

/* Gives *out at once; everything else happens on the loop, on_up of a local link too (never from
 * inside this call). CT_ENOMEM, CT_EINVAL. */
CT_MUST_CHECK int ct_link_open(uv_loop_t *loop, const struct ct_link_options *options,
                               struct ct_link **out, struct ct_err *err);

/* Queues the message; errors end the link through on_lost, never from inside this call. */
void ct_link_send(struct ct_link *link, const struct ct_msg *msg);

/* The local address of the connection (getsockname(2)), as text; "" before on_up and for a local
 * link. */
const char *ct_link_local_address(const struct ct_link *link);

typedef void (*ct_link_close_fn)(void *data);

/* Sends what is queued, for `flush_ms` at most, then closes and frees; cb (may be NULL) when done.
 * No other callback comes any more. NULL is allowed. */
void ct_link_close(struct ct_link *link, uint64_t flush_ms, ct_link_close_fn cb, void *data);

#endif
