/* SPDX-License-Identifier: Apache-2.0
 *
 * One function for each page; choose() finds it by method and path. Other pages are made elsewhere
 * (http_uv.c), but those for people and programs stand in the list of all. If memory runs out for a
 * page, the answer is empty and has code 500.
 */
#include "rendezvous/http/http_answer.h"

#include "rendezvous/http/page_key.h"
#include "rendezvous/http/prometheus.h"
#include "rendezvous/http/status.h"
#include "rendezvous/wire/json.h"

#include <string.h>

#define JSON_TYPE "application/json"

typedef int (*make_fn)(const struct ct_http_source *source, struct ct_http_answer *out);

static int healthz(const struct ct_http_source *source, struct ct_http_answer *out)
{
    (void)source;
    return ct_buf_printf(&out->body, "{\"health\":\"serving\"}\n");
}

static int readyz(const struct ct_http_source *source, struct ct_http_answer *out)
{
    struct ct_status_rows rows = {.print = false};
    cJSON *status = NULL;
    int rc = source->status(source->data, &rows, &status);
    ct_status_rows_fini(&rows);
    if (rc != 0) {
        return rc;
    }
    bool ready = ct_status_is_ready(status);
    out->code = ready ? 200 : 503;
    cJSON *json = cJSON_CreateObject();
    cJSON *problems = cJSON_DetachItemFromObjectCaseSensitive(status, "problems");
    rc = CT_ENOMEM;
    if (json != NULL && ct_json_add_bool(json, "ready", ready) &&
        cJSON_AddItemToObject(json, "problems", problems)) {
        problems = NULL;
        rc = ct_json_print(json, &out->body);
    }
    cJSON_Delete(problems);
    cJSON_Delete(json);
    cJSON_Delete(status);
    return rc;
}

static int status(const struct ct_http_source *source, struct ct_http_answer *out)
{
    struct ct_status_rows rows = {.print = true};
    cJSON *json = NULL;
    int rc = source->status(source->data, &rows, &json);
    if (rc == 0) {
        rc = ct_json_print(json, &out->body);
        cJSON_Delete(json);
    }
    ct_status_rows_fini(&rows);
    return rc;
}

static int metrics(const struct ct_http_source *source, struct ct_http_answer *out)
{
    struct ct_status_rows rows = {.print = false};
    cJSON *json = NULL;
    out->type = CT_METRICS_TYPE;
    int rc = source->status(source->data, &rows, &json);
    if (rc == 0) {
        rc = ct_prometheus_print(json, &rows, &out->body);
        cJSON_Delete(json);
    }
    ct_status_rows_fini(&rows);
    return rc;
}

static int keys(const struct ct_http_source *source, struct ct_http_answer *out)
{
    if (source->keys == NULL) {
        out->code = 404;
        return ct_buf_printf(&out->body, "{\"error\":\"keys are listed only by a store that was "
                                         "started with --http-keys\"}\n");
    }
    cJSON *json = NULL;
    int rc = source->keys(source->data, &json);
    if (rc == 0) {
        rc = ct_json_print(json, &out->body);
        cJSON_Delete(json);
    }
    return rc;
}

static int not_found(const struct ct_http_source *source, struct ct_http_answer *out)
{
    (void)source;
    out->code = 404;
    return ct_buf_printf(&out->body, "{\"error\":\"no such page; there are /status, /metrics, "
                                     "/healthz, /readyz and /end, and / tells of each\"}\n");
}

static int forbidden(const struct ct_http_source *source, struct ct_http_answer *out)
{
    bool has_token = source->key != NULL && source->key->token != NULL;
    out->code = 403;
    return ct_buf_printf(&out->body,
                         "{\"error\":\"this address is not admitted; %sit may ask for /healthz "
                         "only\"}\n",
                         has_token ? "without the job's read key (ctrun-stat --read-key) " : "");
}

static int not_allowed(const struct ct_http_source *source, struct ct_http_answer *out)
{
    (void)source;
    out->code = 405;
    out->allow = "GET, HEAD";
    return ct_buf_printf(&out->body, "{\"error\":\"only GET and HEAD are understood\"}\n");
}

bool ct_http_method_is_known(const char *method)
{
    return strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
}

static int list(const struct ct_http_source *source, struct ct_http_answer *out);

/* `make` is NULL for a page that is made elsewhere. */
static const struct {
    const char *path;
    make_fn make;
    const char *what;
} pages[] = {
    {"/", list, "the live page of the job, in a browser"},
    {"/status", status, "the job, its machines and workers; ctrun-stat shows it as text"},
    {"/metrics", metrics, "the same in numbers, for Prometheus"},
    {"/healthz", healthz, "200 as long as the store serves"},
    {"/readyz", readyz, "200 if the job runs and has no problem, else 503"},
    {"/end", NULL, "waits up to 5 s for the end of the job, and tells how it has ended"},
    {"/keys", keys, "the keys of the store"},
};

#define PAGES (sizeof(pages) / sizeof(pages[0]))

/* For who asks for / and is no browser: one page on each line. The texts need no escapes. */
static int list(const struct ct_http_source *source, struct ct_http_answer *out)
{
    ct_buf_addf(&out->body, "{\"pages\":{");
    for (size_t i = 0; i < PAGES; i++) {
        if (pages[i].make != keys || source->keys != NULL) {
            ct_buf_addf(&out->body, "%s\n  \"%s\": \"%s\"", i > 0 ? "," : "", pages[i].path,
                        pages[i].what);
        }
    }
    ct_buf_addf(&out->body, "\n}}\n");
    return ct_buf_status(&out->body);
}

static make_fn choose(const char *method, const char *path)
{
    if (!ct_http_method_is_known(method)) {
        return not_allowed;
    }
    for (size_t i = 0; i < PAGES; i++) {
        if (pages[i].make != NULL && strcmp(path, pages[i].path) == 0) {
            return pages[i].make;
        }
    }
    return not_found;
}

void ct_http_answer_make(const struct ct_http_source *source, bool admitted, const char *method,
                         const char *path, struct ct_http_answer *out)
{
    make_fn make = choose(method, path);
    *out = (struct ct_http_answer){.code = 200, .type = JSON_TYPE};
    ct_json_use_our_memory();
    if (!admitted && make != healthz) {
        make = forbidden;
    }
    if (make(source, out) != 0) {
        ct_buf_fini(&out->body);
        *out = (struct ct_http_answer){.code = 500, .type = JSON_TYPE};
    }
}

void ct_http_answer_error(struct ct_http_answer *answer, unsigned code, const char *why)
{
    ct_buf_fini(&answer->body);
    *answer = (struct ct_http_answer){.code = code, .type = JSON_TYPE};
    ct_json_use_our_memory();
    cJSON *json = cJSON_CreateObject();
    if (json == NULL || !ct_json_add_text(json, "error", why) ||
        ct_json_print(json, &answer->body) != 0) {
        ct_buf_fini(&answer->body);
    }
    cJSON_Delete(json);
}
