/* SPDX-License-Identifier: Apache-2.0
 *
 * The status document and the workers' rows in Prometheus's text format. Two tables say which field
 * becomes which metric. In this format all series of a metric stand together, so each metric of a
 * job is printed for all jobs before the next one. Nothing but memory can fail.
 */
#include "rendezvous/http/prometheus.h"

#include "rendezvous/http/status.h"
#include "rendezvous/wire/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
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
     "Requests refused because of --max-memory."},
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
     "HTTP requests answered with 403: the address is not admitted, or another page asks."},
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
    {NULL, "warm_wanted", "job_warm_spares_wanted", "gauge",
     "Spares that --warm is to keep ready."},
    {NULL, "warm_ready", "job_warm_spares_ready", "gauge", "Spares that are ready."},
    {NULL, "warm_workers", "job_warm_workers", "gauge",
     "Workers of this generation that were spares."},
    {NULL, "warm_spare_mib", "job_warm_spare_mebibytes", "gauge",
     "Memory that the largest spare takes alone."},
    {NULL, "failure_count", "job_failures_total", "counter",
     "Failures of workers and nodes that were acted on."},
    {NULL, "hang_count", "job_hangs", "gauge", "Hangs that were reported and are not over."},
};

static int put_head(struct ct_buf *out, const char *name, const char *type, const char *help)
{
    return ct_buf_printf(out, "# HELP ctrun_%s %s\n# TYPE ctrun_%s %s\n", name, help, name, type);
}

/* Prints whole numbers in full, and others with nine digits. */
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
    if (put_head(out, m->name, m->type, m->help) != 0 ||
        ct_buf_printf(out, "ctrun_%s", m->name) != 0) {
        return CT_ENOMEM;
    }
    return put_value(out, ct_json_number(object, m->field, 0));
}

/* Prints label="value". The format wants quotes, backslashes and newlines escaped. */
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
    return rc == 0 ? ct_buf_append(out, "\"", 1) : rc;
}

/* Prints ctrun_NAME{label="value". The caller adds further labels and the closing brace. */
static int put_labelled(struct ct_buf *out, const char *name, const char *label, const char *value)
{
    int rc = ct_buf_printf(out, "ctrun_%s{", name);
    return rc == 0 ? put_label(out, label, value) : rc;
}

static int put_of_job(struct ct_buf *out, const char *name, const cJSON *job)
{
    return put_labelled(out, name, "run_id", ct_json_text(job, "run_id", ""));
}

static int end_labels(struct ct_buf *out, double value)
{
    int rc = ct_buf_append(out, "}", 1);
    return rc == 0 ? put_value(out, value) : rc;
}

static int put_version(struct ct_buf *out, const char *version)
{
    if (version == NULL) {
        return 0;
    }
    if (put_head(out, "build_info", "gauge", "The version that runs; always 1.") != 0 ||
        put_labelled(out, "build_info", "version", version) != 0) {
        return CT_ENOMEM;
    }
    return end_labels(out, 1);
}

static int put_operations(struct ct_buf *out, const cJSON *store)
{
    static const char name[] = "store_requests_total";
    int rc = put_head(out, name, "counter", "Requests served, by operation.");
    const cJSON *op;
    cJSON_ArrayForEach(op, cJSON_GetObjectItemCaseSensitive(store, "operations"))
    {
        if (rc != 0 || put_labelled(out, name, "operation", op->string) != 0) {
            return CT_ENOMEM;
        }
        rc = end_labels(out, cJSON_IsNumber(op) ? op->valuedouble : 0);
    }
    return rc;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static int put_job_infos(struct ct_buf *out, const cJSON *status)
{
    static const char name[] = "job_info";
    int rc = put_head(out, name, "gauge", "A job that runs; always 1.");
    const cJSON *job = NULL;
    while (rc == 0 && (job = ct_status_next_job(status, job)) != NULL) {
        if (put_of_job(out, name, job) != 0) {
            return CT_ENOMEM;
        }
        rc = end_labels(out, 1);
    }
    return rc;
}

/* Prints a number of each job, or the length if the field is an array. */
static int put_job_metric(struct ct_buf *out, const cJSON *status, const struct metric *m)
{
    int rc = 0;
    bool first = true;
    const cJSON *job = NULL;
    while (rc == 0 && (job = ct_status_next_job(status, job)) != NULL) {
        const cJSON *value = cJSON_GetObjectItemCaseSensitive(job, m->field);
        if (value == NULL) {
            continue;
        }
        if ((first && put_head(out, m->name, m->type, m->help) != 0) ||
            put_of_job(out, m->name, job) != 0) {
            return CT_ENOMEM;
        }
        first = false;
        rc = end_labels(out, cJSON_IsArray(value) ? cJSON_GetArraySize(value)
                                                  : ct_json_number(job, m->field, 0));
    }
    return rc;
}

/* Prints for how long each hang has lasted. The label is empty where no rank stands out. */
static int put_hangs(struct ct_buf *out, const cJSON *status)
{
    static const char name[] = "job_hang_seconds";
    const cJSON *job = NULL, *hang;
    bool first = true;
    while ((job = ct_status_next_job(status, job)) != NULL) {
        cJSON_ArrayForEach(hang, cJSON_GetObjectItemCaseSensitive(job, "hangs"))
        {
            double rank = ct_json_number(hang, "rank", -1);
            char text[32] = "";
            if (rank >= 0) {
                (void)snprintf(text, sizeof(text), "%.0f", rank);
            }
            if ((first && put_head(out, name, "gauge",
                                   "For how long the workers have stood still in a hang that was "
                                   "reported, and the rank that holds them up.") != 0) ||
                put_of_job(out, name, job) != 0 || ct_buf_append(out, ",", 1) != 0 ||
                put_label(out, "rank", text) != 0 ||
                end_labels(out, ct_json_number(hang, "for_s", 0)) != 0) {
                return CT_ENOMEM;
            }
            first = false;
        }
    }
    return 0;
}

/* Prints how many workers of the job are in each state. The job's rows begin at span *at, which is
 * then set to the next job's. */
static int put_workers(struct ct_buf *out, const cJSON *job, const struct ct_status_rows *rows,
                       int number, size_t *at)
{
    int counts[CT_ROW_STATES] = {0};
    for (; *at < rows->count && rows->spans[*at].job == number; ++*at) {
        const struct ct_row_span *span = &rows->spans[*at];
        for (int i = 0; i < span->count; i++) {
            counts[span->rows[i].state]++;
        }
    }
    int rc = 0;
    for (int i = 0; rc == 0 && i < CT_ROW_STATES; i++) {
        if (put_of_job(out, "job_workers", job) != 0 || ct_buf_append(out, ",", 1) != 0 ||
            put_label(out, "state", ct_row_state_name((enum ct_row_state)i)) != 0) {
            return CT_ENOMEM;
        }
        rc = end_labels(out, counts[i]);
    }
    return rc;
}

/* ---- what workers report --------------------------------------------------------------------- */

/* Room for a number of a row. Each put_ function writes one; "" = not known. */
#define NUMBER_MAX 32

static void put_step(const struct ct_worker_row *row, char out[NUMBER_MAX])
{
    (void)snprintf(out, NUMBER_MAX, "%" PRId64, row->step);
}

static void put_age(const struct ct_worker_row *row, char out[NUMBER_MAX])
{
    (void)snprintf(out, NUMBER_MAX, "%" PRId64 ".%03d", row->age_ms / 1000,
                   (int)(row->age_ms % 1000));
}

static void put_loss(const struct ct_worker_row *row, char out[NUMBER_MAX])
{
    (void)snprintf(out, NUMBER_MAX, "%s", row->loss_text);
}

static void put_rate(const struct ct_worker_row *row, char out[NUMBER_MAX])
{
    (void)snprintf(out, NUMBER_MAX, "%s", row->rate_text);
}

struct row_metric {
    const char *name, *help;
    void (*put)(const struct ct_worker_row *row, char out[NUMBER_MAX]);
};

/* `begin` is the line up to the rank. */
static int put_span(struct ct_buf *out, const struct row_metric *metric,
                    const struct ct_row_span *span, const struct ct_buf *begin, bool *headed)
{
    for (int i = 0; i < span->count; i++) {
        char number[NUMBER_MAX] = "", end[2 * NUMBER_MAX];
        if (span->rows[i].phase != CT_ROW_UNTOLD) {
            metric->put(&span->rows[i], number);
        }
        if (number[0] == '\0') {
            continue;
        }
        if (!*headed && put_head(out, metric->name, "gauge", metric->help) != 0) {
            return CT_ENOMEM;
        }
        *headed = true;
        int len = snprintf(end, sizeof(end), "%d\"} %s\n", span->first_rank + i, number);
        if (ct_buf_append(out, ct_buf_bytes(begin), begin->len) != 0 ||
            ct_buf_append(out, end, (size_t)len) != 0) {
            return CT_ENOMEM;
        }
    }
    return 0;
}

static int put_row_metric(struct ct_buf *out, const cJSON *status,
                          const struct ct_status_rows *rows, const struct row_metric *metric)
{
    struct ct_buf begin = CT_BUF_INIT;
    const cJSON *job = NULL;
    int rc = 0, at = -1;
    bool headed = false;
    for (size_t i = 0; rc == 0 && i < rows->count; i++) {
        bool another = at != rows->spans[i].job;
        for (; at < rows->spans[i].job; at++) {
            job = ct_status_next_job(status, job);
        }
        if (another) {
            ct_buf_reset(&begin);
            if (put_of_job(&begin, metric->name, job) != 0 ||
                ct_buf_append(&begin, ",rank=\"", 7) != 0) {
                rc = CT_ENOMEM;
                break;
            }
        }
        rc = put_span(out, metric, &rows->spans[i], &begin, &headed);
    }
    ct_buf_fini(&begin);
    return rc;
}

static int put_progress(struct ct_buf *out, const cJSON *status, const struct ct_status_rows *rows)
{
    static const struct row_metric all[] = {
        {"worker_step", "The step a worker is in.", put_step},
        {"worker_progress_age_seconds", "Time since a worker last reported progress.", put_age},
        {"worker_loss", "The loss that a worker reports.", put_loss},
        {"worker_samples_per_second", "Samples per second that a worker reports.", put_rate},
    };
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof(all) / sizeof(all[0]); i++) {
        rc = put_row_metric(out, status, rows, &all[i]);
    }
    return rc;
}

static int put_jobs(struct ct_buf *out, const cJSON *status, const struct ct_status_rows *rows)
{
    if (put_job_infos(out, status) != 0) {
        return CT_ENOMEM;
    }
    for (size_t i = 0; i < sizeof(job_metrics) / sizeof(job_metrics[0]); i++) {
        if (put_job_metric(out, status, &job_metrics[i]) != 0) {
            return CT_ENOMEM;
        }
    }
    if (put_hangs(out, status) != 0 ||
        put_head(out, "job_workers", "gauge", "Workers of a job, by state.") != 0) {
        return CT_ENOMEM;
    }
    const cJSON *job = NULL;
    size_t at = 0;
    for (int i = 0; (job = ct_status_next_job(status, job)) != NULL; i++) {
        int rc = put_workers(out, job, rows, i, &at);
        if (rc != 0) {
            return rc;
        }
    }
    return put_progress(out, status, rows);
}

int ct_prometheus_print(const struct cJSON *status, const struct ct_status_rows *rows,
                        struct ct_buf *out)
{
    int rc = put_version(out, ct_json_text(status, "version", NULL));
    for (size_t i = 0; rc == 0 && i < sizeof(metrics) / sizeof(metrics[0]); i++) {
        rc = put_metric(out, status, &metrics[i]);
    }
    if (rc != 0 || put_operations(out, cJSON_GetObjectItemCaseSensitive(status, "store")) != 0) {
        return CT_ENOMEM;
    }
    bool jobs = ct_status_next_job(status, NULL) != NULL;
    return jobs ? put_jobs(out, status, rows) : 0;
}
