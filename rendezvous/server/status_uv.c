/* SPDX-License-Identifier: Apache-2.0
 *
 * Everything here is computed when somebody asks. It is only necessary to look at all connections
 * while a client waits for keys; that takes some 0.1 ms for a thousand of them.
 */
#include "rendezvous/server/status_uv.h"

#include "common/addr.h"
#include "common/clock.h"
#include "rendezvous/server/control_uv.h"
#include "rendezvous/wire/json.h"
#include "rendezvous/wire/limits.h"

#include <string.h>

/* ---- keys that clients wait for -------------------------------------------------------------- */

/* Finds the entry of a key, by address because the store has each key once, or adds one. */
static struct ct_status_waited *find_waited(struct ct_status_facts *facts,
                                            struct ct_status_waited *waiting, struct ct_bytes key)
{
    for (size_t i = 0; i < facts->waiting_count; i++) {
        if (waiting[i].key.ptr == key.ptr) {
            return &waiting[i];
        }
    }
    if (facts->waiting_count == CT_STATUS_WAITING_MAX) {
        facts->waiting_more = true;
        return NULL;
    }
    struct ct_status_waited *waited = &waiting[facts->waiting_count++];
    *waited = (struct ct_status_waited){.key = key};
    return waited;
}

static void gather_waiting(const struct ct_conn_hub *hub, struct ct_status_facts *facts,
                           struct ct_status_waited *waiting)
{
    facts->waiting = waiting;
    size_t left = facts->waiters;
    for (const struct ct_list *at = hub->conns.next; left > 0 && at != &hub->conns; at = at->next) {
        const struct ct_conn *conn = CT_CONTAINER_OF(at, struct ct_conn, at_hub);
        struct ct_bytes key = ct_store_waited_key(&conn->session.waiter);
        if (key.ptr == NULL) {
            continue;
        }
        left--;
        struct ct_status_waited *waited = find_waited(facts, waiting, key);
        if (waited != NULL && waited->clients++ == 0) {
            struct sockaddr_storage addr = {0};
            int len = sizeof(addr);
            (void)uv_tcp_getpeername(&conn->tcp, (struct sockaddr *)&addr, &len);
            ct_addr_format((const struct sockaddr *)&addr, waited->peer, sizeof(waited->peer));
        }
    }
}

/* ---- documents ------------------------------------------------------------------------------ */

static int make_status(void *data, struct ct_status_rows *rows, cJSON **out)
{
    const struct ct_status_pages *pages = data;
    struct ct_server_stats stats;
    struct ct_http_stats http;
    ct_server_stats(pages->server, &stats);
    ct_http_stats(pages->http, &http);
    struct ct_status_facts facts = {
        .uptime_ms = (ct_clock_now(NULL) - pages->opened_ns) / CT_NS_PER_MS,
        .keys = stats.keys,
        .queued = ct_store_num_queued(pages->hub->service.store),
        .bytes = stats.bytes,
        .memory = stats.memory,
        .memory_max = ct_store_budget(pages->hub->service.store)->max,
        .memory_refused = stats.over_memory,
        .connections = stats.connections,
        .waiters = stats.waiters,
        .accepted = stats.accepted,
        .refused = stats.refused,
        .protocol_errors = stats.protocol_errors,
        .denied = stats.denied,
        .journal_bytes = stats.journal_bytes,
        .journal_refused = stats.journal_refused,
        .http_connections = http.connections,
        .http_requests = http.requests,
        .http_refused = http.refused,
        .http_timeouts = http.timeouts,
        .http_denied = http.denied,
    };
    struct ct_status_waited waiting[CT_STATUS_WAITING_MAX];
    memcpy(facts.by_op, stats.by_op, sizeof(facts.by_op));
    gather_waiting(pages->hub, &facts, waiting);
    return ct_status_make(&facts, pages->fn, pages->data, rows, out);
}

struct listing {
    struct ct_store *store;
    cJSON *array;
    size_t listed;
    bool failed;
};

static void list_key(void *data, struct ct_bytes key)
{
    struct listing *listing = data;
    if (listing->failed || listing->listed == CT_HTTP_KEYS_MAX) {
        return;
    }
    const struct ct_blob *value = ct_store_get(listing->store, key);
    cJSON *item = ct_json_append_object(listing->array);
    listing->failed = item == NULL || !ct_json_add_bytes(item, "key", key) ||
                      !ct_json_add_number(item, "bytes", (double)value->len);
    listing->listed++;
}

static int make_keys(void *data, cJSON **out)
{
    const struct ct_status_pages *pages = data;
    struct ct_store *store = pages->hub->service.store;
    ct_json_use_our_memory();
    cJSON *root = cJSON_CreateObject();
    struct listing listing = {.store = store, .array = cJSON_AddArrayToObject(root, "keys")};
    if (listing.array != NULL) {
        ct_store_list(store, list_key, &listing);
    }
    if (listing.array == NULL || listing.failed ||
        !ct_json_add_bool(root, "more", listing.listed < ct_store_num_keys(store))) {
        cJSON_Delete(root);
        return CT_ENOMEM;
    }
    *out = root;
    return 0;
}

/* ---- questions of the live page ------------------------------------------------------------- */

static int ask(void *data, int job, int rank, const char *kind, ct_query_fn fn, void *fn_data,
               int *id, struct ct_err *err)
{
    const struct ct_status_pages *pages = data;
    return pages->control != NULL
               ? ct_control_ask(pages->control, job, rank, kind, fn, fn_data, id, err)
               : ct_err_set(err, CT_ENOENT, "this store has no agents");
}

static void forget(void *data, int id)
{
    const struct ct_status_pages *pages = data;
    ct_control_forget(pages->control, id);
}

/* ---- the end of the job --------------------------------------------------------------------- */

/* Says which failure ended the job: the first one of the last generation that had any. */
static void add_failure(const cJSON *status, struct ct_buf *out)
{
    const cJSON *job = ct_status_next_job(status, NULL);
    const cJSON *failures = cJSON_GetObjectItemCaseSensitive(job, "failures");
    int at = cJSON_GetArraySize(failures) - 1;
    if (at < 0) {
        return;
    }
    const cJSON *first = cJSON_GetArrayItem(failures, at);
    double generation = ct_json_number(first, "generation", 0);
    while (at > 0 &&
           ct_json_number(cJSON_GetArrayItem(failures, at - 1), "generation", -1) == generation) {
        first = cJSON_GetArrayItem(failures, --at);
    }
    double rank = ct_json_number(first, "rank", -1);
    ct_buf_addf(out, ": ");
    if (rank >= 0) {
        ct_buf_addf(out, "rank %.0f on ", rank);
    }
    ct_buf_addf(out, "%s: %s", ct_json_text(first, "host", "?"),
                ct_json_text(first, "reason", "failed"));
}

/* Names in the status are escaped already. */
static bool add_text(cJSON *root, const struct ct_server_end *end, struct ct_buf *text)
{
    const char *words = ct_buf_cstr(text);
    return end->text != NULL ? ct_json_add_name(root, "text", words)
                             : ct_json_add_text(root, "text", words);
}

static int find_text(struct ct_status_pages *pages, const struct ct_server_end *end,
                     struct ct_buf *out)
{
    struct ct_status_rows rows = {.print = false};
    cJSON *status = NULL;
    ct_buf_addf(out, "%s", end->text != NULL ? end->text : end->outcome);
    if (end->text == NULL && end->exit_code != 0 && make_status(pages, &rows, &status) == 0) {
        add_failure(status, out);
        cJSON_Delete(status);
    }
    ct_status_rows_fini(&rows);
    return ct_buf_status(out);
}

void ct_status_pages_tell_end(struct ct_status_pages *pages, const struct ct_server_end *end)
{
    struct ct_buf text = CT_BUF_INIT, json = CT_BUF_INIT;
    ct_json_use_our_memory();
    cJSON *root = cJSON_CreateObject();
    if (root != NULL && find_text(pages, end, &text) == 0 &&
        ct_json_add_bool(root, "ended", true) && ct_json_add_name(root, "run_id", end->run_id) &&
        ct_json_add_text(root, "outcome", end->outcome) &&
        ct_json_add_number(root, "exit_code", end->exit_code) && add_text(root, end, &text) &&
        ct_json_print(root, &json) == 0) {
        ct_http_tell_end(pages->http, ct_buf_cstr(&json));
    }
    cJSON_Delete(root);
    ct_buf_fini(&text);
    ct_buf_fini(&json);
}

/* ---- opening and closing -------------------------------------------------------------------- */

static void on_http(struct ct_conn_hub *hub, int fd, bool ours, bool admitted)
{
    struct ct_status_pages *pages = hub->http_data;
    struct ct_err err = {0};
    int rc = pages->http != NULL ? ct_http_add(pages->http, fd, ours, admitted, &err)
                                 : ct_err_set(&err, CT_EUNSUPPORTED,
                                              "this ctrun was built without libmicrohttpd, so "
                                              "/healthz is the only page");
    if (rc == 0) {
        return;
    }
    uint64_t unreported = ct_refusal_log_add(&pages->unanswered, uv_now(pages->loop));
    if (unreported > 0) {
        char others[CT_REFUSALS_TEXT_MAX];
        ct_log(hub->log, CT_LOG_WARNING,
               "store: an HTTP request can be answered for /healthz only: %s%s", err.text,
               ct_refusals_others(unreported, others));
    }
    ct_http_reserve_add(pages->reserve, fd, rc == CT_EBUSY ? 503 : 501, err.text);
}

int ct_status_pages_open(struct ct_status_pages *pages, uv_loop_t *loop, bool keys,
                         struct ct_err *err)
{
    const struct ct_http_source source = {
        .status = make_status,
        .keys = keys ? make_keys : NULL,
        .data = pages,
        .budget = ct_store_budget(pages->hub->service.store),
        .key = &pages->key,
        .page_name = pages->name,
        .ask = ask,
        .forget = forget,
    };
    pages->opened_ns = ct_clock_now(NULL);
    pages->loop = loop;
    int rc = ct_http_reserve_open(loop, &pages->reserve, err);
    if (rc == 0) {
        pages->hub->http_data = pages;
        pages->hub->on_http = on_http;
        rc = ct_http_open(loop, &source, CT_HTTP_REQUEST_MS, pages->hub->log, &pages->http, err);
    }
    return rc;
}

unsigned ct_status_pages_close(struct ct_status_pages *pages, ct_http_close_fn cb, void *data)
{
    ct_page_key_wipe(&pages->key);
    struct ct_http *http = pages->http;
    struct ct_http_reserve *reserve = pages->reserve;
    pages->http = NULL;
    pages->reserve = NULL;
    pages->hub->on_http = NULL;
    if (http != NULL) {
        ct_http_close(http, cb, data);
    }
    if (reserve != NULL) {
        ct_http_reserve_close(reserve, cb, data);
    }
    return (http != NULL) + (reserve != NULL);
}
