/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the document from the facts, and lets the membership add its job and problems. Nothing but
 * memory can fail; then there is no document.
 */
#include "rendezvous/http/status.h"

#include "rendezvous/wire/json.h"

#include <ctype.h>
#include <string.h>

static bool add_operations(cJSON *store, const uint64_t *by_op)
{
    static const struct {
        enum ct_op op;
        const char *name;
    } ops[] = {
#define OP_ROW(name, value, fields) {CT_OP_##name, #name},
        CT_OPS(OP_ROW)
#undef OP_ROW
    };
    cJSON *object = cJSON_AddObjectToObject(store, "operations");
    bool ok = object != NULL;
    for (size_t i = 0; ok && i < sizeof(ops) / sizeof(ops[0]); i++) {
        char name[32] = "";
        for (size_t k = 0; ops[i].name[k] != '\0' && k < sizeof(name) - 1; k++) {
            name[k] = (char)tolower((unsigned char)ops[i].name[k]);
        }
        ok = ct_json_add_number(object, name, (double)by_op[ops[i].op]);
    }
    return ok;
}

static bool add_waiting(cJSON *store, const struct ct_status_facts *facts)
{
    cJSON *array = cJSON_AddArrayToObject(store, "waiting");
    bool ok = array != NULL;
    for (size_t i = 0; ok && i < facts->waiting_count; i++) {
        const struct ct_status_waited *waited = &facts->waiting[i];
        cJSON *item = ct_json_append_object(array);
        ok = item != NULL && ct_json_add_bytes(item, "key", waited->key) &&
             ct_json_add_number(item, "clients", (double)waited->clients) &&
             ct_json_add_text(item, "peer", waited->peer);
    }
    return ok && ct_json_add_bool(store, "waiting_more", facts->waiting_more);
}

static bool add_memory(cJSON *store, const struct ct_status_facts *facts)
{
    bool capped = facts->memory_max != SIZE_MAX;
    return ct_json_add_number(store, "memory", (double)facts->memory) &&
           (capped ? ct_json_add_number(store, "memory_max", (double)facts->memory_max)
                   : cJSON_AddNullToObject(store, "memory_max") != NULL) &&
           ct_json_add_number(store, "memory_refused", (double)facts->memory_refused);
}

static bool add_store(cJSON *root, const struct ct_status_facts *facts)
{
    cJSON *store = cJSON_AddObjectToObject(root, "store");
    return store != NULL && ct_json_add_number(store, "keys", (double)facts->keys) &&
           ct_json_add_number(store, "queued", (double)facts->queued) &&
           ct_json_add_number(store, "bytes", (double)facts->bytes) && add_memory(store, facts) &&
           ct_json_add_number(store, "connections", (double)facts->connections) &&
           ct_json_add_number(store, "accepted", (double)facts->accepted) &&
           ct_json_add_number(store, "refused", (double)facts->refused) &&
           ct_json_add_number(store, "denied", (double)facts->denied) &&
           ct_json_add_number(store, "protocol_errors", (double)facts->protocol_errors) &&
           ct_json_add_number(store, "journal_bytes", (double)facts->journal_bytes) &&
           ct_json_add_number(store, "journal_refused", (double)facts->journal_refused) &&
           add_operations(store, facts->by_op) &&
           ct_json_add_number(store, "waiters", (double)facts->waiters) &&
           add_waiting(store, facts);
}

static bool add_http(cJSON *root, const struct ct_status_facts *facts)
{
    cJSON *http = cJSON_AddObjectToObject(root, "http");
    return http != NULL &&
           ct_json_add_number(http, "connections", (double)facts->http_connections) &&
           ct_json_add_number(http, "requests", (double)facts->http_requests) &&
           ct_json_add_number(http, "refused", (double)facts->http_refused) &&
           ct_json_add_number(http, "timeouts", (double)facts->http_timeouts) &&
           ct_json_add_number(http, "denied", (double)facts->http_denied);
}

const struct cJSON *ct_status_next_job(const struct cJSON *status, const struct cJSON *prev)
{
    const cJSON *only = cJSON_GetObjectItemCaseSensitive(status, "job");
    const cJSON *jobs = cJSON_GetObjectItemCaseSensitive(status, "jobs");
    if (only != NULL) {
        return prev == NULL ? only : NULL;
    }
    if (prev != NULL) {
        return prev->next;
    }
    return jobs != NULL ? jobs->child : NULL;
}

bool ct_status_hangs(const struct cJSON *job, double rank)
{
    const cJSON *hang;
    cJSON_ArrayForEach(hang, cJSON_GetObjectItemCaseSensitive(job, "hangs"))
    {
        if (ct_json_number(hang, "rank", -1) == rank) {
            return rank >= 0;
        }
    }
    return false;
}

static bool all_run(const cJSON *root)
{
    const cJSON *job = NULL;
    bool all = true;
    while (all && (job = ct_status_next_job(root, job)) != NULL) {
        all = strcmp(ct_json_text(job, "state", ""), "running") == 0;
    }
    return all;
}

static int fill(cJSON *root, const struct ct_status_facts *facts, ct_status_fn fn, void *data,
                struct ct_status_rows *rows)
{
    bool ok = ct_json_add_text(root, "version", CT_VERSION) &&
              ct_json_add_number(root, "uptime_s", (double)facts->uptime_ms / 1000);
    cJSON *problems = ok ? cJSON_AddArrayToObject(root, "problems") : NULL;
    if (problems == NULL) {
        return CT_ENOMEM;
    }
    int rc = fn != NULL ? fn(data, rows, root, problems) : 0;
    if (rc != 0) {
        return rc;
    }
    bool healthy = cJSON_GetArraySize(problems) == 0;
    ok = ct_json_add_text(root, "health", healthy ? "healthy" : "degraded") &&
         ct_json_add_bool(root, "ready", healthy && all_run(root)) && add_store(root, facts) &&
         add_http(root, facts);
    return ok ? 0 : CT_ENOMEM;
}

int ct_status_make(const struct ct_status_facts *facts, ct_status_fn fn, void *data,
                   struct ct_status_rows *rows, struct cJSON **out)
{
    ct_json_use_our_memory();
    cJSON *root = cJSON_CreateObject();
    int rc = root != NULL ? fill(root, facts, fn, data, rows) : CT_ENOMEM;
    if (rc != 0) {
        cJSON_Delete(root);
        return rc;
    }
    *out = root;
    return 0;
}

bool ct_status_is_ready(const struct cJSON *status)
{
    return ct_json_number(status, "ready", 0) != 0;
}
