/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the answer to an HTTP request: method and path go in, code and body come out. Pure.
 *
 *     /healthz   200 as long as the store serves
 *     /readyz    200 when the job runs as it should, else 503; the body says why
 *     /status    the status document
 *     /metrics   the same for Prometheus
 *     /keys      names and sizes of the keys, with --http-keys
 *     /          the list of the pages, for who is no browser
 */
#ifndef CT_RENDEZVOUS_HTTP_HTTP_ANSWER_H
#define CT_RENDEZVOUS_HTTP_HTTP_ANSWER_H

#include "common/buf.h"
#include "common/err.h"
#include "rendezvous/control/query.h"

#include <stdbool.h>

struct cJSON;
struct ct_budget;
struct ct_page_key;
struct ct_status_rows;

/* Where the answers come from. Each gives *out, to be freed by cJSON_Delete(); CT_ENOMEM. */
struct ct_http_source {
    /* Shows workers as `rows` wants; what it collects is valid until the next call. */
    int (*status)(void *data, struct ct_status_rows *rows, struct cJSON **out);
    int (*keys)(void *data, struct cJSON **out); /* NULL = not offered */
    void *data;
    /* Counts the bodies until they are sent; NULL = no limit. Borrowed. */
    struct ct_budget *budget;
    struct ct_page_key *key; /* of the live page; NULL = addresses decide. Borrowed */
    const char *page_name;   /* under which browsers may ask, beside the host name; NULL = none */
    /* Asks the agent of a worker, as ct_control_ask() does, and withdraws a question. NULL = nobody
     * can be asked. */
    int (*ask)(void *data, int job, int rank, const char *kind, ct_query_fn fn, void *fn_data,
               int *id, struct ct_err *err);
    void (*forget)(void *data, int id);
};

struct ct_http_answer {
    unsigned code;
    const char *type;  /* Content-Type; static */
    const char *allow; /* Allow, NULL = none; static */
    /* WWW-Authenticate, NULL = none; borrowed until the answer is sent. */
    const char *challenge;
    bool is_page; /* the live page */
    struct ct_buf body;
};

/* GET and HEAD; any other is answered with 405. */
bool ct_http_method_is_known(const char *method);

/* Fills in *out, whose body the caller frees. HEAD is answered as GET; the caller leaves out the
 * body when it sends the answer. A peer that is not admitted gets /healthz, and 403 for anything
 * else. There is always an answer: a 500 without a body when memory is out. */
void ct_http_answer_make(const struct ct_http_source *source, bool admitted, const char *method,
                         const char *path, struct ct_http_answer *out);

/* Frees the answer's body and replaces it by an error text, or by no body when memory is out. */
void ct_http_answer_error(struct ct_http_answer *answer, unsigned code, const char *why);

#endif
