/* SPDX-License-Identifier: Apache-2.0
 *
 * Questions of the live page to agents: POST /page/ask/KIND/JOB/RANK. The answer comes later from
 * another machine, so the connection is suspended until then. Part of http_uv.c.
 */
#ifndef CT_RENDEZVOUS_HTTP_PAGE_ASK_UV_H
#define CT_RENDEZVOUS_HTTP_PAGE_ASK_UV_H

#include "common/list.h"
#include "rendezvous/http/http_answer.h"
#include "rendezvous/http/http_load.h"

#define CT_PAGE_ASK_PATH "/page/ask/"

struct ct_page_ask;

struct ct_page_asks {
    const struct ct_http_source *source;
    const struct ct_mhd *mhd;
    void (*on_resumed)(void *data); /* the library has work: the connection goes on */
    void *data;
    struct ct_list list;
};

/* All are borrowed. */
void ct_page_asks_init(struct ct_page_asks *asks, const struct ct_http_source *source,
                       const struct ct_mhd *mhd, void (*on_resumed)(void *data), void *data);

/* Asks what the path says and suspends the connection, which the library then tells of again. A
 * request of somebody who is not `trusted` is refused. Returns NULL with an answer in *out when
 * there is nothing to wait for. */
struct ct_page_ask *ct_page_ask_begin(struct ct_page_asks *asks, struct MHD_Connection *connection,
                                      const char *path, bool trusted, struct ct_http_answer *out);

/* Moves the answer to *out and frees the question. */
void ct_page_ask_take(struct ct_page_ask *ask, struct ct_http_answer *out);

/* To be called when the request has ended without ct_page_ask_take(). */
void ct_page_ask_free(struct ct_page_ask *ask);

/* Resumes all connections. No answer is waited for any more. */
void ct_page_asks_wake(struct ct_page_asks *asks);

#endif
