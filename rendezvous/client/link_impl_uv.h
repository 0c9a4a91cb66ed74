/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two halves of a link share: link_uv.c talks, link_dial_uv.c connects.
 */
#ifndef CT_RENDEZVOUS_CLIENT_LINK_IMPL_UV_H
#define CT_RENDEZVOUS_CLIENT_LINK_IMPL_UV_H

#include "common/addr.h"
#include "rendezvous/client/link_uv.h"
#include "rendezvous/control/line_uv.h"
#include "rendezvous/control/proof.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ct_link_state {
    CT_LINK_RESOLVING,
    CT_LINK_CONNECTING,
    CT_LINK_PROVING,
    CT_LINK_UP,
    CT_LINK_RETRYING,
    CT_LINK_LOST
};

struct ct_link_try {
    struct ct_line line;
    uv_connect_t connect;
    struct ct_link *link; /* NULL = given up; only to be closed */
};

struct ct_link {
    struct ct_link_options options;
    uv_loop_t *loop;
    enum ct_link_state state;
    uv_timer_t timer;
    uv_getaddrinfo_t resolver;
    struct ct_link_try *attempt; /* NULL = none */
    bool resolving;              /* `resolver` is in the loop's hands */
    int64_t begun_ns, heard_ns, stranger_ns;
    int64_t told_ns; /* when it was last said that there is no way through; 0 = never */
    int64_t beat_ns; /* the last one of ours */
    uint64_t retry_ms;
    int64_t heartbeat_ms; /* 0 = not known yet */
    uint64_t beat_ms;     /* from beat to beat */
    struct ct_err last;   /* why the last try failed */
    struct ct_msg *msg;   /* for what we say ourselves */
    struct ct_proof proof;
    char host[CT_HOST_MAX];
    char own_address[CT_HOST_MAX];
    bool timer_open, closing;
    size_t attempts; /* lines not closed yet */
    ct_link_close_fn close_cb;
    void *close_data;
};

/* ---- link_dial_uv.c ------------------------------------------------------------------------- */

/* Resolves and connects, again and again; then calls ct_link_prove(). */
void ct_link_dial(struct ct_link *link);

/* This try failed: the next one, or the end. */
void ct_link_fail_try(struct ct_link *link, int code, const char *why);

/* ---- link_uv.c ------------------------------------------------------------------------------ */

/* Gives *out: a try's line without a socket, or with that of `fd`, which it takes. CT_ENOMEM. */
CT_MUST_CHECK int ct_link_try_new(struct ct_link *link, int fd, struct ct_link_try **out);

/* Gives up the connection there is, if any. */
void ct_link_hang_up(struct ct_link *link);

/* Connected: begins the proof. */
void ct_link_prove(struct ct_link *link);

/* The link is lost for good. `err` is copied. */
void ct_link_lose(struct ct_link *link, const struct ct_err *err);

/* While closing: frees the link when nothing of it is in the loop's hands any more. */
void ct_link_finish_if_last(struct ct_link *link);

int64_t ct_link_elapsed_ms(int64_t since_ns);

#endif
