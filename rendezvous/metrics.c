/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/metrics.h"

#include "rendezvous/json.h"

#include <math.h>
#include <string.h>

/* A number of the document. */
struct metric {
    const char *object; /* NULL = the document itself */
    const char *field;
    const char *name; /* behind "ctrun_" */
    const char *type;
    const char *help;
};

static const struct metric metrics[] = {
    {NULL, "uptime_s", "uptime_seconds", "gauge", "Time since the store was opened."},
    {NULL, "ready", "ready", "gauge", "1 when everything that belongs to the job is running."},
    {"store", "keys", "store_keys", "gauge", "Keys in the store."},
    {"store", "queued", "store_queued", "gauge", "Elements in all queues."},
    {"store", "bytes", "store_bytes", "gauge", "Bytes of all keys, values and elements."},
    {"store", "memory", "store_memory_bytes", "gauge", "Memory that clients make the store take."},
    {"store", "memory_refused", "store_memory_refused_total", "counter",
     "Requests refused because they would have passed the cap on memory."},
    {"store", "connections", "store_connections", "gauge", "Open connections of store clients."},
    {"store", "waiters", "store_waiters", "gauge", "Clients that wait for keys."},
    {"store", "accepted", "store_connections_accepted_total", "counter",
     "Connections accepted, HTTP ones included."},
    {"store", "refused", "store_connections_refused_total", "counter",
     "Connections that could not be accepted."},
    {"store", "denied", "store_connections_denied_total", "counter",
     "Connections ended because the address of the peer is not admitted."},
    {"store", "protocol_errors", "store_protocol_errors_total", "counter",
     "Connections ended because the peer broke the protocol or a limit."},
    {"store", "journal_bytes", "store_journal_bytes", "gauge", "Size of the journal's file."},
    {"store", "journal_refused", "store_journal_refused_total", "counter",
     "Changes that were not made because they could not be journalled."},
    {"http", "connections", "http_connections", "gauge", "Open HTTP connections."},
    {"http", "requests", "http_requests_total", "counter", "HTTP requests answered."},
    {"http", "refused", "http_connections_refused_total", "counter",
     "HTTP connections refused because too many were open."},
    {"http", "timeouts", "http_timeouts_total", "counter",
     "HTTP connections ended because they were too slow or idle."},
    {"http", "denied", "http_denied_total", "counter",
     "HTTP requests denied because the address of the peer is not admitted."},
    {"job", "generation", "job_generation", "gauge", "How often the workers were restarted."},
    {"job", "world_size", "job_world_size", "gauge", "Workers of the job."},
    {"job", "failure_count", "job_failures_total", "counter",
     "Worker failures that were acted on."},
};

static int put_head(struct ct_buf *out, const char *name, const char *type, const char *help)
{
    return ct_buf_printf(out, "# HELP ctrun_%s %s\n# TYPE ctrun_%s %s\n", name, help, name, type);
}

/* Whole numbers as such: others have more digits than anybody reads. */
static int put_value(struct ct_buf *out, double value)
{
    bool whole = value == floor(value) && fabs(value) < 9e15;
    return whole ? ct_buf_printf(out, " %.0f\n", value) : ct_buf_printf(out, " %.9g\n", value);
}

static int put_metric(struct ct_buf *out, const cJSON *status, const struct metric *m)
{
    const cJSON *object =
        m->object != NULL ? cJSON_GetObjectItemCaseSensitive(status, m->object) : status;
    if (cJSON_GetObjectItemCaseSensitive(object, m->field) == NULL) {
        return 0;
    }
    int rc = put_head(out, m->name, m->type, m->help);
    rc = rc != 0 ? rc : ct_buf_printf(out, "ctrun_%s", m->name);
    return rc != 0 ? rc : put_value(out, ct_json_number(object, m->field, 0));
}

/* {label="value"} with the three characters escaped that the format names. */
static int put_label(struct ct_buf *out, const char *label, const char *value)
{
    int rc = ct_buf_printf(out, "{%s=\"", label);
    for (const char *p = value; rc == 0 && *p != '\0'; p++) {
        if (*p == '\n') {
            rc = ct_buf_append(out, "\\n", 2);
        } else if (*p == '"' || *p == '\\') {
            rc = ct_buf_printf(out, "\\%c", *p);
        } else {
            rc = ct_buf_append(out, p, 1);
        }
    }
    return rc != 0 ? rc : ct_buf_append(out, "\"}", 2);
}

/* A text that is worth knowing: the value is always 1. */
static int put_info(struct ct_buf *out, const char *name, const char *help, const char *label,
                    const char *value)
{
    if (value == NULL) {
        return 0;
    }
    int rc = put_head(out, name, "gauge", help);
    rc = rc != 0 ? rc : ct_buf_printf(out, "ctrun_%s", name);
    rc = rc != 0 ? rc : put_label(out, label, value);
    return rc != 0 ? rc : put_value(out, 1);
}

static int put_operations(struct ct_buf *out, const cJSON *store)
{
    static const char name[] = "store_requests_total";
    int rc = put_head(out, name, "counter", "Requests served, by operation.");
    const cJSON *op;
    cJSON_ArrayForEach(op, cJSON_GetObjectItemCaseSensitive(store, "operations"))
    {
        rc = rc != 0 ? rc : ct_buf_printf(out, "ctrun_%s", name);
        rc = rc != 0 ? rc : put_label(out, "operation", op->string);
        rc = rc != 0 ? rc : put_value(out, cJSON_IsNumber(op) ? op->valuedouble : 0);
    }
    return rc;
}

static int put_workers(struct ct_buf *out, const cJSON *job)
{
    static const char *const states[] = {"waiting",   "starting", "running",
                                         "succeeded", "stopped",  "failed"};
    static const char name[] = "job_workers";
    const cJSON *workers = cJSON_GetObjectItemCaseSensitive(job, "workers");
    if (workers == NULL) {
        return 0;
    }
    int rc = put_head(out, name, "gauge", "Workers of this machine, by state.");
    for (size_t i = 0; rc == 0 && i < sizeof(states) / sizeof(states[0]); i++) {
        int count = 0;
        const cJSON *worker;
        cJSON_ArrayForEach(worker, workers)
        {
            count += strcmp(ct_json_text(worker, "state", ""), states[i]) == 0;
        }
        rc = ct_buf_printf(out, "ctrun_%s", name);
        rc = rc != 0 ? rc : put_label(out, "state", states[i]);
        rc = rc != 0 ? rc : put_value(out, count);
    }
    return rc;
}

/* What workers say of themselves; one series for each of them. */
static int put_progress(struct ct_buf *out, const cJSON *job)
{
    static const struct metric told[] = {
        {NULL, "step", "worker_step", "gauge", "The step a worker is in."},
        {NULL, "age_s", "worker_progress_age_seconds", "gauge",
         "Time since a worker said anything of itself."},
        {NULL, "loss", "worker_loss", "gauge", "The loss that a worker tells."},
        {NULL, "samples_per_s", "worker_samples_per_second", "gauge",
         "Samples per second that a worker tells."},
    };
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof(told) / sizeof(told[0]); i++) {
        bool headed = false;
        const cJSON *worker;
        cJSON_ArrayForEach(worker, cJSON_GetObjectItemCaseSensitive(job, "workers"))
        {
            const cJSON *progress = cJSON_GetObjectItemCaseSensitive(worker, "progress");
            const cJSON *value = cJSON_GetObjectItemCaseSensitive(progress, told[i].field);
            if (rc != 0 || !cJSON_IsNumber(value)) {
                continue;
            }
            rc = headed ? 0 : put_head(out, told[i].name, told[i].type, told[i].help);
            headed = true;
            rc = rc != 0 ? rc
                         : ct_buf_printf(out, "ctrun_%s{rank=\"%.0f\"}", told[i].name,
                                         ct_json_number(worker, "rank", 0));
            rc = rc != 0 ? rc : put_value(out, value->valuedouble);
        }
    }
    return rc;
}

int ct_metrics_print(const struct cJSON *status, struct ct_buf *out)
{
    const cJSON *job = cJSON_GetObjectItemCaseSensitive(status, "job");
    int rc = put_info(out, "build_info", "The version that runs; always 1.", "version",
                      ct_json_text(status, "version", NULL));
    rc = rc != 0 ? rc
                 : put_info(out, "job_info", "The job that runs; always 1.", "run_id",
                            ct_json_text(job, "run_id", NULL));
    for (size_t i = 0; rc == 0 && i < sizeof(metrics) / sizeof(metrics[0]); i++) {
        rc = put_metric(out, status, &metrics[i]);
    }
    rc = rc != 0 ? rc : put_operations(out, cJSON_GetObjectItemCaseSensitive(status, "store"));
    rc = rc != 0 ? rc : put_workers(out, job);
    return rc != 0 ? rc : put_progress(out, job);
}
