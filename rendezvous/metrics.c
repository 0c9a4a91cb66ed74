/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/metrics.h"

#include "rendezvous/json.h"
#include "rendezvous/status.h"

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
};

/* Numbers of a job; `object` is not used. */
static const struct metric job_metrics[] = {
    {NULL, "generation", "job_generation", "gauge",
     "How often the workers were started anew, for whatever reason."},
    {NULL, "restarts", "job_restarts_total", "counter",
     "Restarts after failures, of those that --max-restarts allows."},
    {NULL, "world_size", "job_world_size", "gauge", "Workers of the job."},
    {NULL, "min_nodes", "job_nodes_expected", "gauge", "Nodes without which the job does not run."},
    {NULL, "nodes", "job_nodes_present", "gauge", "Nodes that are there, spare ones included."},
    {NULL, "failure_count", "job_failures_total", "counter",
     "Failures of workers and nodes that were acted on."},
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

/* label="value" with the three characters escaped that the format names. */
static int put_label(struct ct_buf *out, const char *label, const char *value)
{
    int rc = ct_buf_printf(out, "%s=\"", label);
    for (const char *p = value; rc == 0 && *p != '\0'; p++) {
        if (*p == '\n') {
            rc = ct_buf_append(out, "\\n", 2);
        } else if (*p == '"' || *p == '\\') {
            rc = ct_buf_printf(out, "\\%c", *p);
        } else {
            rc = ct_buf_append(out, p, 1);
        }
    }
    return rc != 0 ? rc : ct_buf_append(out, "\"", 1);
}

/* ctrun_NAME{label="value",: a store may serve several jobs, so each series of one names it, and
 * whoever calls adds further labels and the brace. */
static int put_labelled(struct ct_buf *out, const char *name, const char *label, const char *value)
{
    int rc = ct_buf_printf(out, "ctrun_%s{", name);
    return rc != 0 ? rc : put_label(out, label, value);
}

static int put_of_job(struct ct_buf *out, const char *name, const cJSON *job)
{
    return put_labelled(out, name, "run_id", ct_json_text(job, "run_id", ""));
}

static int end_labels(struct ct_buf *out, double value)
{
    int rc = ct_buf_append(out, "}", 1);
    return rc != 0 ? rc : put_value(out, value);
}

static int put_version(struct ct_buf *out, const char *version)
{
    if (version == NULL) {
        return 0;
    }
    int rc = put_head(out, "build_info", "gauge", "The version that runs; always 1.");
    rc = rc != 0 ? rc : put_labelled(out, "build_info", "version", version);
    return rc != 0 ? rc : end_labels(out, 1);
}

static int put_operations(struct ct_buf *out, const cJSON *store)
{
    static const char name[] = "store_requests_total";
    int rc = put_head(out, name, "counter", "Requests served, by operation.");
    const cJSON *op;
    cJSON_ArrayForEach(op, cJSON_GetObjectItemCaseSensitive(store, "operations"))
    {
        rc = rc != 0 ? rc : put_labelled(out, name, "operation", op->string);
        rc = rc != 0 ? rc : end_labels(out, cJSON_IsNumber(op) ? op->valuedouble : 0);
    }
    return rc;
}

/* ---- jobs: all series of a name stand together, so each walks over the jobs ------------------ */

static int put_job_infos(struct ct_buf *out, const cJSON *status)
{
    static const char name[] = "job_info";
    int rc = put_head(out, name, "gauge", "A job that runs; always 1.");
    const cJSON *job = NULL;
    while (rc == 0 && (job = ct_status_next_job(status, job)) != NULL) {
        rc = put_of_job(out, name, job);
        rc = rc != 0 ? rc : end_labels(out, 1);
    }
    return rc;
}

/* A number, or how long an array is. */
static int put_job_metric(struct ct_buf *out, const cJSON *status, const struct metric *m)
{
    int rc = put_head(out, m->name, m->type, m->help);
    const cJSON *job = NULL;
    while (rc == 0 && (job = ct_status_next_job(status, job)) != NULL) {
        const cJSON *value = cJSON_GetObjectItemCaseSensitive(job, m->field);
        if (value != NULL) {
            rc = put_of_job(out, m->name, job);
            rc = rc != 0 ? rc
                         : end_labels(out, cJSON_IsArray(value) ? cJSON_GetArraySize(value)
                                                                : ct_json_number(job, m->field, 0));
        }
    }
    return rc;
}

static int put_workers(struct ct_buf *out, const cJSON *job)
{
    static const char *const states[] = {"waiting",   "starting", "running", "parked",
                                         "succeeded", "stopped",  "failed"};
    const cJSON *workers = cJSON_GetObjectItemCaseSensitive(job, "workers");
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof(states) / sizeof(states[0]); i++) {
        int count = 0;
        const cJSON *worker;
        cJSON_ArrayForEach(worker, workers)
        {
            count += strcmp(ct_json_text(worker, "state", ""), states[i]) == 0;
        }
        rc = put_of_job(out, "job_workers", job);
        rc = rc != 0 ? rc : ct_buf_append(out, ",", 1);
        rc = rc != 0 ? rc : put_label(out, "state", states[i]);
        rc = rc != 0 ? rc : end_labels(out, count);
    }
    return rc;
}

/* What the workers of a job say of themselves, and `headed` once somebody has said it. */
static int put_told(struct ct_buf *out, const cJSON *job, const struct metric *m, bool *headed)
{
    const cJSON *worker;
    int rc = 0;
    cJSON_ArrayForEach(worker, cJSON_GetObjectItemCaseSensitive(job, "workers"))
    {
        const cJSON *progress = cJSON_GetObjectItemCaseSensitive(worker, "progress");
        const cJSON *value = cJSON_GetObjectItemCaseSensitive(progress, m->field);
        if (rc != 0 || !cJSON_IsNumber(value)) {
            continue;
        }
        rc = *headed ? 0 : put_head(out, m->name, m->type, m->help);
        *headed = true;
        rc = rc != 0 ? rc : put_of_job(out, m->name, job);
        rc = rc != 0 ? rc : ct_buf_printf(out, ",rank=\"%.0f\"", ct_json_number(worker, "rank", 0));
        rc = rc != 0 ? rc : end_labels(out, value->valuedouble);
    }
    return rc;
}

static int put_progress(struct ct_buf *out, const cJSON *status)
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
        const cJSON *job = NULL;
        while (rc == 0 && (job = ct_status_next_job(status, job)) != NULL) {
            rc = put_told(out, job, &told[i], &headed);
        }
    }
    return rc;
}

static int put_jobs(struct ct_buf *out, const cJSON *status)
{
    int rc = put_job_infos(out, status);
    for (size_t i = 0; rc == 0 && i < sizeof(job_metrics) / sizeof(job_metrics[0]); i++) {
        rc = put_job_metric(out, status, &job_metrics[i]);
    }
    rc = rc != 0 ? rc : put_head(out, "job_workers", "gauge", "Workers of a job, by state.");
    const cJSON *job = NULL;
    while (rc == 0 && (job = ct_status_next_job(status, job)) != NULL) {
        rc = put_workers(out, job);
    }
    return rc != 0 ? rc : put_progress(out, status);
}

int ct_metrics_print(const struct cJSON *status, struct ct_buf *out)
{
    int rc = put_version(out, ct_json_text(status, "version", NULL));
    for (size_t i = 0; rc == 0 && i < sizeof(metrics) / sizeof(metrics[0]); i++) {
        rc = put_metric(out, status, &metrics[i]);
    }
    rc = rc != 0 ? rc : put_operations(out, cJSON_GetObjectItemCaseSensitive(status, "store"));
    bool jobs = ct_status_next_job(status, NULL) != NULL;
    return rc != 0 || !jobs ? rc : put_jobs(out, status);
}
