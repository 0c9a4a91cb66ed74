/* SPDX-License-Identifier: Apache-2.0
 *
 * One function for each page; choose() finds it by method and path. If memory runs out for a page,
 * the answer is empty and has code 500.
 */
#include "rendezvous/http/http_answer.h"

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
    return ct_buf_printf(&out->body, "{\"error\":\"no such page; there are /healthz, /readyz, "
                                     "/status, /metrics and /end, and / for a browser\"}\n");
}

static int forbidden(const struct ct_http_source *source, struct ct_http_answer *out)
{
    (void)source;
    out->code = 403;
    return ct_buf_printf(&out->body, "{\"error\":\"this address is not admitted; it may ask for "
                                     "/healthz only\"}\n");
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

static make_fn choose(const char *method, const char *path)
{
    static const struct {
        const char *path;
        make_fn make;
    } pages[] = {
        {"/healthz", healthz}, {"/readyz", readyz}, {"/status", status},
        {"/metrics", metrics}, {"/keys", keys},
    };
    if (!ct_http_method_is_known(method)) {
        return not_allowed;
    }
    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
        if (strcmp(path, pages[i].path) == 0) {
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
