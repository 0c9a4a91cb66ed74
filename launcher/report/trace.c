/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: an event becomes one line of JSON as soon as it is complete. The end of the job
 * closes what is open and puts brackets around the lines.
 *
 * Failure modes: without memory, and beyond the limit, events are left out; the document then says
 * how many.
 *
 * Who frees: ct_trace_fini().
 */
#include "launcher/report/trace.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/hash.h"
#include "rendezvous/wire/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Counters are taken this often at first, and half as often after each thousand times, so that a
 * job of a month has some ten thousand of them. */
#define COUNTERS_EVERY (1 * CT_NS_PER_S)
#define COUNTERS_PER_INTERVAL 1000

#define JOB_TRACK 0

int ct_trace_init(struct ct_trace *trace, int workers, int64_t unix_ns, const char *host,
                  int64_t pid)
{
    *trace = (struct ct_trace){.unix_ns = unix_ns, .interval_ns = COUNTERS_EVERY};
    trace->workers = ct_calloc((size_t)workers, sizeof(*trace->workers));
    if (trace->workers == NULL) {
        return CT_ENOMEM;
    }
    uint64_t hash = ct_hash(&(struct ct_hash_key){0, 0}, host, strlen(host)) + (uint64_t)pid;
    trace->process = (uint32_t)(hash & INT32_MAX);
    trace->count = workers;
    return 0;
}

void ct_trace_fini(struct ct_trace *trace)
{
    if (trace == NULL) {
        return;
    }
    ct_buf_fini(&trace->events);
    ct_free(trace->workers);
    *trace = (struct ct_trace){0};
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Returns the event and its empty arguments, or NULL. `when` is Unix time in nanoseconds. */
static cJSON *make_event(const struct ct_trace *trace, const char *type, const char *name,
                         int track, int64_t when, cJSON **args)
{
    int64_t when_us = when / 1000;
    cJSON *event = cJSON_CreateObject();
    bool ok =
        event != NULL && ct_json_add_text(event, "ph", type) &&
        ct_json_add_name(event, "name", name) && ct_json_add_number(event, "pid", trace->process) &&
        ct_json_add_number(event, "tid", track) && ct_json_add_number(event, "ts", (double)when_us);
    *args = ok ? cJSON_AddObjectToObject(event, "args") : NULL;
    if (*args == NULL) {
        cJSON_Delete(event);
        return NULL;
    }
    return event;
}

/* Takes `event`, which may be NULL; `ok` says whether it is whole. */
static void add_event(struct ct_trace *trace, cJSON *event, bool ok)
{
    struct ct_buf *events = &trace->events;
    char *line = event != NULL && ok ? cJSON_PrintUnformatted(event) : NULL;
    size_t len = line != NULL ? strlen(line) : 0;
    if (line == NULL || len > CT_TRACE_MAX || events->len > CT_TRACE_MAX - len ||
        ct_buf_reserve(events, len + 2) != 0) {
        trace->dropped++;
    } else {
        ct_buf_add(events, line, len);
        ct_buf_add(events, ",\n", 2);
    }
    cJSON_free(line);
    cJSON_Delete(event);
}

/* Returns the event of a span, to which the caller adds arguments. */
static cJSON *make_span(const struct ct_trace *trace, const char *name, int track, int64_t begin_ns,
                        int64_t end_ns, cJSON **args)
{
    cJSON *event = make_event(trace, "X", name, track, trace->unix_ns + begin_ns, args);
    /* Both ends are rounded down, so that spans stay within each other. */
    int64_t begin_us = (trace->unix_ns + begin_ns) / 1000,
            end_us = (trace->unix_ns + end_ns) / 1000;
    double taken_us = end_us > begin_us ? (double)(end_us - begin_us) : 0;
    if (event != NULL && !ct_json_add_number(event, "dur", taken_us)) {
        cJSON_Delete(event);
        return NULL;
    }
    return event;
}

/* ---- the job --------------------------------------------------------------------------------- */

void ct_trace_job_begin(struct ct_trace *trace, enum ct_trace_job span, int64_t now_ns)
{
    if (trace->count > 0 && trace->open_ns[span] == 0) {
        trace->open_ns[span] = now_ns;
    }
}

static const char *job_span_name(const struct ct_trace *trace, enum ct_trace_job span, char *out,
                                 size_t size)
{
    static const char *const names[CT_TRACE_JOB_SPANS] = {
        [CT_TRACE_CONNECT] = "connect",
        [CT_TRACE_RENDEZVOUS] = "rendezvous",
        [CT_TRACE_SPAWN] = "start workers",
        [CT_TRACE_STOP] = "stop workers",
    };
    if (span != CT_TRACE_GENERATION) {
        return names[span];
    }
    (void)snprintf(out, size, "generation %d", trace->generation);
    return out;
}

void ct_trace_job_end(struct ct_trace *trace, enum ct_trace_job span, const char *why,
                      int64_t now_ns)
{
    char text[32];
    if (trace->count == 0 || trace->open_ns[span] == 0) {
        return;
    }
    cJSON *args;
    cJSON *event = make_span(trace, job_span_name(trace, span, text, sizeof(text)), JOB_TRACK,
                             trace->open_ns[span], now_ns, &args);
    bool ok = event != NULL && (why == NULL || ct_json_add_name(args, "why", why));
    if (ok && span == CT_TRACE_GENERATION) {
        ok = ct_json_add_number(args, "restarts", trace->restarts) &&
             ct_json_add_number(args, "nodes", trace->nodes) &&
             ct_json_add_number(args, "world_size", trace->world_size);
    }
    add_event(trace, event, ok);
    trace->open_ns[span] = 0;
}

void ct_trace_world(struct ct_trace *trace, int generation, int restarts, int nodes, int world_size,
                    int64_t now_ns)
{
    ct_trace_job_end(trace, CT_TRACE_CONNECT, NULL, now_ns);
    ct_trace_job_end(trace, CT_TRACE_RENDEZVOUS, NULL, now_ns);
    ct_trace_job_end(trace, CT_TRACE_GENERATION, NULL, now_ns);
    trace->generation = generation;
    trace->restarts = restarts;
    trace->nodes = nodes;
    trace->world_size = world_size;
    ct_trace_job_begin(trace, CT_TRACE_GENERATION, now_ns);
}

void ct_trace_instant(struct ct_trace *trace, int local_rank, const char *text, int64_t now_ns)
{
    if (trace->count == 0) {
        return;
    }
    cJSON *args;
    cJSON *event = make_event(trace, "i", text, 1 + local_rank, trace->unix_ns + now_ns, &args);
    /* The scope of the mark in the picture: all of this machine, or one track. */
    bool ok = event != NULL && ct_json_add_text(event, "s", local_rank < 0 ? "p" : "t");
    add_event(trace, event, ok);
}

/* ---- workers --------------------------------------------------------------------------------- */

/* Writes the phase that a worker was in, if it was seen there more than once. Checkpoints are
 * written by sample_checkpoint(). */
static void end_phase(struct ct_trace *trace, int local_rank)
{
    const struct ct_trace_worker *worker = &trace->workers[local_rank];
    cJSON *args;
    if (!worker->seen || !worker->stepped || worker->sampled_ns <= worker->phase_ns ||
        worker->last.phase == CT_PHASE_CHECKPOINT || worker->last.phase == CT_PHASE_DONE) {
        return;
    }
    cJSON *event = make_span(trace, ct_phase_name(worker->last.phase), 1 + local_rank,
                             worker->phase_ns, worker->sampled_ns, &args);
    add_event(trace, event,
              event != NULL && ct_json_add_number(args, "step", (double)worker->last.step));
}

void ct_trace_worker_begin(struct ct_trace *trace, int local_rank, int rank, int64_t pid,
                           int64_t now_ns)
{
    if (local_rank < trace->count) {
        trace->workers[local_rank] =
            (struct ct_trace_worker){.rank = rank, .pid = pid, .started_ns = now_ns};
    }
}

void ct_trace_worker_end(struct ct_trace *trace, int local_rank, const char *how, int64_t now_ns)
{
    if (local_rank >= trace->count || trace->workers[local_rank].pid == 0) {
        return;
    }
    struct ct_trace_worker *worker = &trace->workers[local_rank];
    char name[32];
    cJSON *args;
    end_phase(trace, local_rank);
    (void)snprintf(name, sizeof(name), "rank %d", worker->rank);
    cJSON *event = make_span(trace, name, 1 + local_rank, worker->started_ns, now_ns, &args);
    bool ok = event != NULL && ct_json_add_number(args, "pid", (double)worker->pid) &&
              ct_json_add_number(args, "generation", trace->generation) &&
              ct_json_add_name(args, "end", how) &&
              (!worker->seen || ct_json_add_number(args, "step", (double)worker->last.step));
    add_event(trace, event, ok);
    *worker = (struct ct_trace_worker){0};
}

/* Writes a checkpoint that is complete, unless it was written before. It ends any other phase. */
static void sample_checkpoint(struct ct_trace *trace, int local_rank,
                              const struct ct_progress *page)
{
    struct ct_trace_worker *worker = &trace->workers[local_rank];
    if (page->checkpoint_begin_ns <= worker->checkpoint_ns ||
        page->checkpoint_begin_ns < worker->started_ns) {
        return;
    }
    cJSON *args;
    cJSON *event = make_span(trace, ct_phase_name(CT_PHASE_CHECKPOINT), 1 + local_rank,
                             page->checkpoint_begin_ns, page->checkpoint_end_ns, &args);
    add_event(trace, event, event != NULL);
    worker->checkpoint_ns = page->checkpoint_begin_ns;
}

/* Was the worker seen in the same phase of the same step before? */
static bool goes_on(const struct ct_trace_worker *worker, const struct ct_progress *page)
{
    return worker->seen && worker->last.phase == page->phase && worker->last.step == page->step &&
           worker->last.turns == page->turns;
}

static void sample_worker(struct ct_trace *trace, int local_rank, const struct ct_progress *page,
                          int64_t now_ns)
{
    struct ct_trace_worker *worker = &trace->workers[local_rank];
    if (!worker->stepped && page->first_ns > worker->started_ns) {
        cJSON *args;
        cJSON *event =
            make_span(trace, "start-up", 1 + local_rank, worker->started_ns, page->first_ns, &args);
        add_event(trace, event, event != NULL);
        worker->stepped = true;
        worker->seen = false; /* what came before is part of the start-up */
    }
    sample_checkpoint(trace, local_rank, page);
    if (goes_on(worker, page)) {
        worker->sampled_ns = now_ns;
    } else {
        end_phase(trace, local_rank);
        worker->phase_ns = page->stamp_ns > worker->started_ns ? page->stamp_ns : now_ns;
        worker->sampled_ns = worker->phase_ns;
    }
    worker->last = *page;
    worker->seen = true;
}

/* One event with a number for each rank that has told one. */
static void add_counter(struct ct_trace *trace, const char *name,
                        double (*of)(const struct ct_progress *page), int64_t now_ns)
{
    cJSON *args;
    cJSON *event = make_event(trace, "C", name, JOB_TRACK, trace->unix_ns + now_ns, &args);
    bool ok = event != NULL;
    for (int i = 0; ok && i < trace->count; i++) {
        const struct ct_trace_worker *worker = &trace->workers[i];
        double value = worker->seen ? of(&worker->last) : (double)NAN;
        char series[32];
        (void)snprintf(series, sizeof(series), "rank %d", worker->rank);
        ok = !isfinite(value) || ct_json_add_number(args, series, value);
    }
    if (ok && args->child == NULL) { /* nobody has told it */
        cJSON_Delete(event);
        return;
    }
    add_event(trace, event, ok);
}

static double step_of(const struct ct_progress *page)
{
    return (double)page->step;
}

static double loss_of(const struct ct_progress *page)
{
    return page->loss;
}

static double rate_of(const struct ct_progress *page)
{
    return page->rate;
}

void ct_trace_sample(struct ct_trace *trace, const struct ct_progress *pages, const bool *valid,
                     int64_t now_ns)
{
    for (int i = 0; i < trace->count; i++) {
        if (valid[i] && trace->workers[i].pid != 0) {
            sample_worker(trace, i, &pages[i], now_ns);
        }
    }
    if (trace->count == 0 || now_ns - trace->counted_ns < trace->interval_ns) {
        return;
    }
    trace->counted_ns = now_ns;
    if (++trace->counts % COUNTERS_PER_INTERVAL == 0) {
        trace->interval_ns *= 2;
    }
    add_counter(trace, "step", step_of, now_ns);
    add_counter(trace, "loss", loss_of, now_ns);
    add_counter(trace, "samples/s", rate_of, now_ns);
}

/* ---- the document ---------------------------------------------------------------------------- */

static void add_metadata(struct ct_trace *trace, const char *what, int track, const char *name,
                         double number)
{
    cJSON *args;
    cJSON *event = make_event(trace, "M", what, track, 0, &args);
    bool ok = event != NULL && (name != NULL ? ct_json_add_name(args, "name", name)
                                             : ct_json_add_number(args, "sort_index", number));
    add_event(trace, event, ok);
}

/* Names this machine and its tracks, in the order in which they are shown. */
static void add_names(struct ct_trace *trace, const char *host, int node_rank)
{
    char name[CT_HOST_MAX + 32];
    (void)snprintf(name, sizeof(name), "node %d (%s)", node_rank, host);
    add_metadata(trace, "process_name", JOB_TRACK, name, 0);
    add_metadata(trace, "process_sort_index", JOB_TRACK, NULL, node_rank);
    add_metadata(trace, "thread_name", JOB_TRACK, "job", 0);
    add_metadata(trace, "thread_sort_index", JOB_TRACK, NULL, 0);
    for (int i = 0; i < trace->count; i++) {
        (void)snprintf(name, sizeof(name), "worker %d", i);
        add_metadata(trace, "thread_name", 1 + i, name, 0);
        add_metadata(trace, "thread_sort_index", 1 + i, NULL, 1 + i);
    }
}

/* Failures here were marked when they happened. */
static void add_failures_elsewhere(struct ct_trace *trace, int node_rank,
                                   const struct ct_failure_history *history)
{
    uint64_t count = history->num_failures;
    for (uint64_t i = count > CT_FAILURE_HISTORY_KEPT ? count - CT_FAILURE_HISTORY_KEPT : 0;
         i < count; i++) {
        const struct ct_failure *failure = &history->failures[i % CT_FAILURE_HISTORY_KEPT];
        char text[2 * CT_HOST_MAX + CT_FAILURE_WHAT_MAX];
        /* The time comes over the wire, which allows more than there are nanoseconds. */
        if (failure->node_rank == node_rank || failure->time_ms > INT64_MAX / CT_NS_PER_MS) {
            continue;
        }
        (void)snprintf(text, sizeof(text), "node %d (%s): %s", failure->node_rank, failure->host,
                       failure->what);
        ct_trace_instant(trace, -1, text, failure->time_ms * CT_NS_PER_MS - trace->unix_ns);
    }
}

int ct_trace_print(struct ct_trace *trace, const char *host, int node_rank,
                   const struct ct_failure_history *history, int64_t now_ns, struct ct_buf *out)
{
    char lost[80];
    for (int i = 0; i < trace->count; i++) {
        ct_trace_worker_end(trace, i, "it outlived ctrun", now_ns);
    }
    for (int span = CT_TRACE_JOB_SPANS - 1; span >= 0; span--) {
        ct_trace_job_end(trace, (enum ct_trace_job)span, NULL, now_ns);
    }
    add_failures_elsewhere(trace, node_rank, history);
    add_names(trace, host, node_rank);
    if (trace->dropped > 0) {
        (void)snprintf(lost, sizeof(lost), "%llu events were left out",
                       (unsigned long long)trace->dropped);
        ct_trace_instant(trace, -1, lost, now_ns);
    }
    /* The last event has no comma behind it. */
    size_t len = trace->events.len >= 2 ? trace->events.len - 2 : 0;
    ct_buf_add(out, "[\n", 2);
    ct_buf_add(out, ct_buf_bytes(&trace->events), len);
    ct_buf_add(out, "\n]\n", 3);
    return ct_buf_status(out);
}
