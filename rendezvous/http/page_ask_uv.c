/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: the question goes to the agent, the connection is suspended, the agent's answer
 * becomes the HTTP answer, and the connection is resumed.
 *
 * A request for the end of the job needs no agent: it gets its answer when the owner of the store
 * says how the job has ended, or, before the time of a request is over, that the job goes on.
 *
 * Failure modes: the source bounds the number and the rate of questions and the time of each
 * (query.h), and the answer's length. A client that goes away is noticed when the answer is there.
 *
 * Who frees: http_uv.c, when it sends the answer or the request has ended.
 */
#include "rendezvous/http/page_ask_uv.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "rendezvous/http/page_rank.h"
#include "rendezvous/wire/json.h"

#include <string.h>

struct ct_page_ask {
    struct ct_list at_asks;
    struct ct_page_asks *asks;
    struct MHD_Connection *connection;
    int id;    /* of the question to an agent; 0 = it is closed */
    bool held; /* for the end of the job; false again when there is an answer */
    struct ct_http_answer answer;
};

void ct_page_asks_init(struct ct_page_asks *asks, const struct ct_http_source *source,
                       const struct ct_mhd *mhd, void (*on_resumed)(void *data), void *data)
{
    *asks =
        (struct ct_page_asks){.source = source, .mhd = mhd, .on_resumed = on_resumed, .data = data};
    ct_list_init(&asks->list);
}

static unsigned status_of(int code)
{
    switch (code) {
    case CT_ENOENT:
        return MHD_HTTP_NOT_FOUND;
    case CT_EUNSUPPORTED: /* an answer as well; a browser would report an error on its console */
        return MHD_HTTP_OK;
    case CT_ETIMEDOUT:
        return MHD_HTTP_GATEWAY_TIMEOUT;
    case CT_ENOMEM:
        return MHD_HTTP_INTERNAL_SERVER_ERROR;
    default:
        return MHD_HTTP_SERVICE_UNAVAILABLE;
    }
}

static void print_answer(const char *text, struct ct_http_answer *out)
{
    *out = (struct ct_http_answer){.code = MHD_HTTP_OK, .type = "application/json"};
    ct_json_use_our_memory();
    cJSON *json = cJSON_CreateObject();
    if (json == NULL || !ct_json_add_text(json, "text", text) ||
        ct_json_print(json, &out->body) != 0) {
        ct_http_answer_error(out, MHD_HTTP_INTERNAL_SERVER_ERROR, "no memory");
    }
    cJSON_Delete(json);
}

static void on_answer(void *data, int code, const char *text)
{
    struct ct_page_ask *ask = data;
    struct ct_page_asks *asks = ask->asks;
    ask->id = 0;
    if (code == 0) {
        print_answer(text, &ask->answer);
    } else {
        ct_http_answer_error(&ask->answer, status_of(code), text);
    }
    asks->mhd->resume_connection(ask->connection);
    asks->on_resumed(asks->data);
}

/* Finds the worker and what is asked of it. Only kinds that the page uses are passed on. */
static const char *parse(const char *path, int *job, int *rank)
{
    static const char *const kinds[] = {CT_QUERY_OUTPUT, CT_QUERY_STACK, CT_QUERY_STACKS};
    const char *text = path + sizeof(CT_PAGE_ASK_PATH) - 1;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        size_t len = strlen(kinds[i]);
        if (strncmp(text, kinds[i], len) == 0 && text[len] == '/' &&
            ct_page_rank_parse(text + len + 1, job, rank)) {
            return kinds[i];
        }
    }
    return NULL;
}

struct ct_page_ask *ct_page_ask_begin(struct ct_page_asks *asks, struct MHD_Connection *connection,
                                      const char *path, bool trusted, struct ct_http_answer *out)
{
    const struct ct_http_source *source = asks->source;
    int job, rank;
    const char *kind = parse(path, &job, &rank);
    if (kind == NULL || source->ask == NULL) {
        ct_http_answer_error(out, MHD_HTTP_NOT_FOUND, "no such page");
        return NULL;
    }
    if (!trusted) {
        ct_http_answer_error(out, MHD_HTTP_FORBIDDEN, "this needs the key of the link");
        return NULL;
    }
    struct ct_page_ask *ask = ct_calloc(1, sizeof(*ask));
    struct ct_err err = {0};
    int rc = ask != NULL
                 ? source->ask(source->data, job, rank, kind, on_answer, ask, &ask->id, &err)
                 : ct_err_set(&err, CT_ENOMEM, "no memory");
    if (rc != 0) {
        ct_free(ask);
        ct_http_answer_error(out, status_of(rc), err.text);
        return NULL;
    }
    ask->asks = asks;
    ask->connection = connection;
    ct_list_append(&asks->list, &ask->at_asks);
    asks->mhd->suspend_connection(connection);
    return ask;
}

/* ---- the end of the job --------------------------------------------------------------------- */

static void copy_end(const struct ct_page_asks *asks, struct ct_http_answer *out)
{
    *out = (struct ct_http_answer){.code = MHD_HTTP_OK, .type = "application/json"};
    ct_buf_add(&out->body, ct_buf_bytes(&asks->end), asks->end.len);
    if (ct_buf_status(&out->body) != 0) {
        ct_http_answer_error(out, MHD_HTTP_INTERNAL_SERVER_ERROR, "no memory");
    }
}

struct ct_page_ask *ct_page_ask_end(struct ct_page_asks *asks, struct MHD_Connection *connection,
                                    struct ct_http_answer *out)
{
    if (asks->end.len > 0) {
        copy_end(asks, out);
        return NULL;
    }
    struct ct_page_ask *ask = ct_calloc(1, sizeof(*ask));
    if (ask == NULL) {
        ct_http_answer_error(out, MHD_HTTP_INTERNAL_SERVER_ERROR, "no memory");
        return NULL;
    }
    *ask = (struct ct_page_ask){.asks = asks, .connection = connection, .held = true};
    ct_list_append(&asks->list, &ask->at_asks);
    asks->mhd->suspend_connection(connection);
    return ask;
}

bool ct_page_ask_goes_on(struct ct_page_ask *ask)
{
    if (!ask->held) {
        return false;
    }
    ask->held = false;
    ask->answer = (struct ct_http_answer){.code = MHD_HTTP_OK, .type = "application/json"};
    if (ct_buf_printf(&ask->answer.body, "{\"ended\":false}\n") != 0) {
        ct_http_answer_error(&ask->answer, MHD_HTTP_INTERNAL_SERVER_ERROR, "no memory");
    }
    ask->asks->expected_ns = ct_clock_now(NULL) + CT_PAGE_END_AGAIN_MS * CT_NS_PER_MS;
    ask->asks->mhd->resume_connection(ask->connection);
    return true;
}

void ct_page_asks_tell_end(struct ct_page_asks *asks, const char *json)
{
    bool any = false;
    ct_buf_reset(&asks->end);
    if (ct_buf_printf(&asks->end, "%s\n", json) != 0) {
        ct_buf_fini(&asks->end);
        return;
    }
    for (struct ct_list *at = asks->list.next; at != &asks->list; at = at->next) {
        struct ct_page_ask *ask = CT_CONTAINER_OF(at, struct ct_page_ask, at_asks);
        if (ask->held) {
            ask->held = false;
            any = true;
            copy_end(asks, &ask->answer);
            asks->mhd->resume_connection(ask->connection);
        }
    }
    if (any) {
        asks->on_resumed(asks->data);
    }
}

/* ---- answers -------------------------------------------------------------------------------- */

void ct_page_ask_take(struct ct_page_ask *ask, struct ct_http_answer *out)
{
    *out = ask->answer;
    ask->answer = (struct ct_http_answer){.code = 0};
    ct_page_ask_free(ask);
}

void ct_page_ask_free(struct ct_page_ask *ask)
{
    if (ask->id > 0) {
        ask->asks->source->forget(ask->asks->source->data, ask->id);
    }
    ct_list_remove(&ask->at_asks);
    ct_buf_fini(&ask->answer.body);
    ct_free(ask);
}

void ct_page_asks_wake(struct ct_page_asks *asks)
{
    for (struct ct_list *at = asks->list.next; at != &asks->list; at = at->next) {
        struct ct_page_ask *ask = CT_CONTAINER_OF(at, struct ct_page_ask, at_asks);
        if (ask->id > 0) {
            asks->source->forget(asks->source->data, ask->id);
        }
        if (ask->id > 0 || ask->held) {
            ask->id = 0;
            ask->held = false;
            ct_http_answer_error(&ask->answer, MHD_HTTP_SERVICE_UNAVAILABLE, "the store ends");
            asks->mhd->resume_connection(ask->connection);
        }
    }
}

void ct_page_asks_fini(struct ct_page_asks *asks)
{
    ct_buf_fini(&asks->end);
}
