/* SPDX-License-Identifier: Apache-2.0
 *
 * The status pages of a server: collects the facts from its connections and its store, and serves
 * them over HTTP on connections that the server hands over.
 */
#ifndef CT_RENDEZVOUS_SERVER_STATUS_UV_H
#define CT_RENDEZVOUS_SERVER_STATUS_UV_H

#include "common/err.h"
#include "rendezvous/http/http_reserve_uv.h"
#include "rendezvous/http/http_uv.h"
#include "rendezvous/http/page_key.h"
#include "rendezvous/http/status.h"
#include "rendezvous/server/conn_uv.h"
#include "rendezvous/server/server_uv.h"

#include <stdbool.h>
#include <stdint.h>

/* Part of a server, which sets `server`, `hub`, `fn`, `data`, `control`, `name` and `key.token`. */
struct ct_status_pages {
    const struct ct_server *server;
    uv_loop_t *loop;
    struct ct_conn_hub *hub;
    ct_status_fn fn; /* may be NULL */
    void *data;
    struct ct_control *control; /* whose agents the live page may ask; may be NULL */
    const char *name; /* under which browsers may ask, beside the host name; may be NULL */
    int64_t opened_ns;
    struct ct_http *http; /* NULL in a build without HTTP */
    struct ct_http_reserve *reserve;
    struct ct_page_key key;
    struct ct_refusal_log unanswered; /* requests that got the reserve's answer instead of a page */
};

/* Opens HTTP and lets the hub hand connections over. Must be closed even after a failure. */
CT_MUST_CHECK int ct_status_pages_open(struct ct_status_pages *pages, uv_loop_t *loop, bool keys,
                                       struct ct_err *err);

/* As ct_server_tell_end(). */
void ct_status_pages_tell_end(struct ct_status_pages *pages, const struct ct_server_end *end);

/* Calls `cb` for each part when it is closed. Returns how often `cb` will be called. */
unsigned ct_status_pages_close(struct ct_status_pages *pages, ct_http_close_fn cb, void *data);

#endif
