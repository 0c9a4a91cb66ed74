/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests whose answer comes later, so that their connection is suspended until then. Part of
 * http_uv.c.
 *
 *     POST /page/ask/KIND/JOB/RANK   a question of the live page to an agent
 *     GET /end                       how the job ends
 */
#ifndef CT_RENDEZVOUS_HTTP_PAGE_ASK_UV_H
#define CT_RENDEZVOUS_HTTP_PAGE_ASK_UV_H

#include "common/list.h"
#include "rendezvous/http/http_answer.h"
#include "rendezvous/http/http_load.h"

#define CT_PAGE_ASK_PATH "/page/ask/"
#define CT_PAGE_END_PATH "/end"

/* Who has heard that the job goes on asks again at once, and is expected for so long. */
#define CT_PAGE_END_AGAIN_MS 100

struct ct_page_ask;

struct ct_page_asks {
    const struct ct_http_source *source;
    const struct ct_mhd *mhd;
    void (*on_resumed)(void *data); /* the library has work: the connection goes on */
    void *data;
    struct ct_list list;
    struct ct_buf end;   /* how the job has ended, as JSON; empty = it goes on */
    int64_t expected_ns; /* until when somebody is expected to ask for it again; 0 = nobody is */
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

/* Asks how the job ends. As ct_page_ask_begin(), but anybody may ask. */
struct ct_page_ask *ct_page_ask_end(struct ct_page_asks *asks, struct MHD_Connection *connection,
                                    struct ct_http_answer *out);

/* Answers a request of ct_page_ask_end() that the job goes on. It resumes the connection, but does
 * not call on_resumed(). Returns false, and does nothing, if the request has an answer already. */
bool ct_page_ask_goes_on(struct ct_page_ask *ask);

/* Tells all who asked, and all who will ask, how the job has ended: a JSON object. Without memory
 * it is lost. */
void ct_page_asks_tell_end(struct ct_page_asks *asks, const char *json);

/* Resumes all connections. No answer is waited for any more. */
void ct_page_asks_wake(struct ct_page_asks *asks);

void ct_page_asks_fini(struct ct_page_asks *asks);

#endif
