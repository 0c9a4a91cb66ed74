/* SPDX-License-Identifier: Apache-2.0
 *
 * A request for /end, which the store answers when the job has ended. Part of stat_watch_uv.c.
 */
#ifndef CT_RENDEZVOUS_CTRUN_STAT_STAT_END_UV_H
#define CT_RENDEZVOUS_CTRUN_STAT_STAT_END_UV_H

#include "common/addr.h"
#include "common/buf.h"
#include "common/err.h"
#include "rendezvous/admission/http_proof.h"

#include <stdbool.h>
#include <sys/socket.h>
#include <uv.h>

struct cJSON;

/* The object of /end, borrowed; NULL = the connection has ended without it. Called at most once
 * with an object. It may call ct_stat_end_close(). */
typedef void (*ct_stat_end_fn)(void *data, const struct cJSON *verdict);

struct ct_stat_end {
    uv_loop_t *loop;
    struct sockaddr_storage address;
    uv_tcp_t tcp;
    uv_connect_t connect;
    uv_timer_t again;
    char piece[4096];  /* that was read last */
    struct ct_buf got; /* the reply so far */
    const struct ct_token *token;
    struct ct_http_proof proof;
    int64_t asked_ns;
    bool is_open, is_dropped; /* `tcp` is open; it is being closed */
    bool given_up;            /* this store does not answer such a request */
    bool closing;
    ct_stat_end_fn fn;
    void *data;
};

/* Looks up the address, which may block, and begins to ask. The token, NULL = none, is borrowed,
 * and proved to a store that does not admit us. CT_ENOENT and others: the address is not known;
 * then nothing needs to be closed. */
CT_MUST_CHECK int ct_stat_end_open(struct ct_stat_end *end, uv_loop_t *loop,
                                   const struct ct_endpoint *where, const struct ct_token *token,
                                   ct_stat_end_fn fn, void *data);

/* Is a request under way, of which the callback will hear? */
bool ct_stat_end_is_asking(const struct ct_stat_end *end);

/* Its memory must last until the loop has closed its handles. Repeated calls are allowed, and a
 * call without ct_stat_end_open() on zeroed memory. */
void ct_stat_end_close(struct ct_stat_end *end);

#endif
