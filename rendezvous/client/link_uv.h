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

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct ct_link;
struct ct_server;

struct ct_link_options {
    const char *host; /* resolved again for each attempt, because a name may become known late */
    uint16_t port;
    struct ct_server *local; /* instead of host and port: the server in this process, which must
                                have been opened with `agents` */
    const struct ct_token *token; /* borrowed until closed; NULL = none */
    int64_t connect_ms;           /* how long to try to connect, refused connections included */
    int64_t pause_ms;             /* before the first attempt */
    bool once; /* the first failure ends the link. Where nobody listened, the `sys` of
                  its error is ECONNREFUSED */
    const struct ct_log *log; /* borrowed, may be NULL */
    /* Called when the channel is up and proved; JOIN can be sent now. `address` is that of this
     * machine as the server sees it; "" for a local link. */
    void (*on_up)(void *data, const char *address);
    /* Called for each message, which is borrowed. BEATs come only with a verdict on a hang. */
    void (*on_message)(void *data, struct ct_msg *msg);
    /* Called when the channel is lost or could not be made; no other callback follows. CT_ECLOSED,
     * CT_ETIMEDOUT (silence, or connecting), CT_EPERM (token, address), CT_EPROTO (no store of
     * ctrun). */
    void (*on_lost)(void *data, const struct ct_err *err);
    /* Called before each BEAT is sent, to fill in its `workers`; may be NULL. */
    void (*on_beat)(void *data, struct ct_msg *msg);
    /* Called when the server has given a lease: what it decides until `lease_ms` after `sent_ns` it
     * decides with this agent (docs/FAILOVER.md). The link is lost when the last lease ends,
     * whatever else is heard and whatever this process did meanwhile. May be NULL. */
    void (*on_lease)(void *data, int64_t sent_ns, int64_t lease_ms);
    /* Called before the next attempt when nobody listened at host and port; may be NULL. Returns
     * what is then used like `local`, or NULL to go on trying. */
    struct ct_server *(*on_refused)(void *data);
    void *data;
};

/* Gives *out. Calls no callback, not even on_up of a local link. CT_ENOMEM, CT_EINVAL. */
CT_MUST_CHECK int ct_link_open(uv_loop_t *loop, const struct ct_link_options *options,
                               struct ct_link **out, struct ct_err *err);

/* Queues the message; NULL is a link that is lost. Errors end the link through on_lost, which is
 * not called inside this call. */
void ct_link_send(struct ct_link *link, const struct ct_msg *msg);

/* The local address of the connection, as text; "" before on_up, for a local link and for
 * NULL. */
const char *ct_link_local_address(const struct ct_link *link);

/* Who hosts the job there, and in which term, in a job that outlives its host; id 0 before on_up,
 * if the server has not said so, and for a local link. `name` is that of its machine. */
struct ct_link_host {
    struct ct_voter voter;
    uint64_t term;
    bool daemon; /* it is a ctrdzvd */
    char name[CT_HOST_MAX];
};
const struct ct_link_host *ct_link_host(const struct ct_link *link);

typedef void (*ct_link_close_fn)(void *data);

/* Sends what is queued, for at most `flush_ms`, then closes and frees the link and calls cb, which
 * may be NULL. No other callback is called any more. NULL is allowed. */
void ct_link_close(struct ct_link *link, uint64_t flush_ms, ct_link_close_fn cb, void *data);

#endif
