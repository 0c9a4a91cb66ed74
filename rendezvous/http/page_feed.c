/* SPDX-License-Identifier: Apache-2.0
 *
 * A sample is made beside the one before and takes its place when all of it is there, so that
 * memory that runs out loses one sample and nothing else. The cells of a job stand in the order of
 * ranks, those of the jobs one behind the other.
 *
 * Who frees: ct_page_feed_fini().
 */
#include "rendezvous/http/page_feed.h"

#include "common/alloc.h"
#include "common/progress_page.h"
#include "rendezvous/http/status.h"
#include "rendezvous/wire/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void ct_page_feed_init(struct ct_page_feed *feed, struct ct_budget *budget, double opened)
{
    *feed = (struct ct_page_feed){.budget = budget, .opened = opened};
}

/* What the feed keeps now counts instead of what it kept before. */
static void charge(struct ct_page_feed *feed, size_t bytes)
{
    if (feed->budget != NULL) {
        ct_budget_give(feed->budget, feed->charged);
        ct_budget_force(feed->budget, bytes);
        feed->charged = bytes;
    }
}

void ct_page_feed_fini(struct ct_page_feed *feed)
{
    charge(feed, 0);
    ct_free(feed->cells);
    ct_free(feed->before);
    ct_buf_fini(&feed->head);
    ct_buf_fini(&feed->nodes);
    *feed = (struct ct_page_feed){.budget = NULL};
}

/* ---- cells ---------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static bool tells_step(const struct ct_worker_row *row)
{
    return row->phase != CT_ROW_UNTOLD && row->state == CT_ROW_RUNNING;
}

/* The lower median of the steps of a job; -1 = none tells. CT_ENOMEM. */
static int median_step(const struct ct_status_rows *rows, int job, int64_t *out)
{
    size_t room = (size_t)rows->taken + 1, count = 0;
    int64_t *steps = ct_calloc(room, sizeof(steps[0]));
    if (steps == NULL) {
        return CT_ENOMEM;
    }
    for (size_t s = 0; s < rows->count; s++) {
        const struct ct_row_span *span = &rows->spans[s];
        for (int i = 0; span->job == job && i < span->count; i++) {
            if (tells_step(&span->rows[i]) && count < room) {
                steps[count++] = span->rows[i].step;
            }
        }
    }
    qsort(steps, count, sizeof(steps[0]), by_value);
    *out = count > 0 ? steps[(count - 1) / 2] : -1;
    ct_free(steps);
    return 0;
}

static int16_t lag_of(const struct ct_worker_row *row, int64_t median)
{
    if (!tells_step(row) || median < 0) {
        return 0;
    }
    int64_t lag = median - row->step;
    lag = lag > CT_PAGE_LAG_MAX ? CT_PAGE_LAG_MAX : lag;
    return (int16_t)(lag < -CT_PAGE_LAG_MAX ? -CT_PAGE_LAG_MAX : lag);
}

static struct ct_page_cell cell_of(const struct ct_worker_row *row, int64_t median)
{
    int64_t quiet = tells_step(row) ? row->age_ms / (CT_PAGE_QUIET_S * INT64_C(1000)) : 0;
    return (struct ct_page_cell){
        .state = (uint8_t)row->state,
        .lag = lag_of(row, median),
        .quiet = (uint8_t)(quiet > 255 ? 255 : quiet),
    };
}

/* How many cells each job has, and where they begin. Returns how many there are in all. */
static int lay_out(struct ct_page_job *jobs, int num_jobs, const cJSON *status,
                   const struct ct_status_rows *rows)
{
    int first = 0, n = 0;
    for (const cJSON *job = ct_status_next_job(status, NULL); job != NULL && n < num_jobs;
         job = ct_status_next_job(status, job), n++) {
        double world = ct_json_number(job, "world_size", 0);
        int cells = world > 0 && world <= CT_PAGE_CELLS_MAX ? (int)world : 0;
        for (size_t s = 0; s < rows->count; s++) {
            const struct ct_row_span *span = &rows->spans[s];
            if (span->job == n && span->first_rank >= 0 &&
                span->first_rank <= CT_PAGE_CELLS_MAX - span->count &&
                span->first_rank + span->count > cells) {
                cells = span->first_rank + span->count;
            }
        }
        cells = cells > CT_PAGE_CELLS_MAX - first ? CT_PAGE_CELLS_MAX - first : cells;
        jobs[n] = (struct ct_page_job){.first_cell = first, .cells = cells, .median = -1};
        first += cells;
    }
    return first;
}

static void fill_cells(const struct ct_page_job *jobs, int num_jobs,
                       const struct ct_status_rows *rows, struct ct_page_cell *cells)
{
    for (size_t s = 0; s < rows->count; s++) {
        const struct ct_row_span *span = &rows->spans[s];
        if (span->job >= num_jobs || span->first_rank < 0) {
            continue;
        }
        const struct ct_page_job *job = &jobs[span->job];
        for (int i = 0; i < span->count; i++) {
            int rank = span->first_rank + i;
            if (rank >= 0 && rank < job->cells) {
                cells[job->first_cell + rank] = cell_of(&span->rows[i], job->median);
            }
        }
    }
}

/* Has the only job ended? */
static bool is_done(const cJSON *status)
{
    const cJSON *job = ct_status_next_job(status, NULL);
    const cJSON *state = cJSON_GetObjectItemCaseSensitive(job, "state");
    return job != NULL && ct_status_next_job(status, job) == NULL && cJSON_IsString(state) &&
           strcmp(state->valuestring, "done") == 0;
}

/* Nodes do not tell how their workers ended when the job ends, but the job does. */
static void settle(const cJSON *status, const struct ct_page_job *place, struct ct_page_cell *cells)
{
    const cJSON *job = ct_status_next_job(status, NULL), *failure;
    bool failed = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(status, "problems")) > 0;
    for (int i = 0; i < place->cells; i++) {
        struct ct_page_cell *cell = &cells[place->first_cell + i];
        bool ended = cell->state == CT_ROW_SUCCEEDED || cell->state == CT_ROW_STOPPED ||
                     cell->state == CT_ROW_FAILED;
        cell->state = (uint8_t)(ended ? cell->state : failed ? CT_ROW_STOPPED : CT_ROW_SUCCEEDED);
        cell->quiet = 0;
    }
    cJSON_ArrayForEach(failure, cJSON_GetObjectItemCaseSensitive(job, "failures"))
    {
        int rank = (int)ct_json_number(failure, "rank", -1);
        if (rank >= 0 && rank < place->cells &&
            (int)ct_json_number(failure, "generation", -1) ==
                (int)ct_json_number(job, "generation", -2)) {
            cells[place->first_cell + rank].state = CT_ROW_FAILED;
        }
    }
}

/* ---- the document --------------------------------------------------------------------------- */

/* A comma and the member, which stays in its object. */
static void put_member(struct ct_buf *out, const cJSON *object, const char *name, bool *ok)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    char *text = item != NULL ? cJSON_PrintUnformatted(item) : NULL;
    *ok = *ok && (text != NULL || item == NULL);
    ct_buf_addf(out, ",%s", text != NULL ? text : "null");
    cJSON_free(text);
}

/* [[job, node rank, host, address, state, workers], ...], without what changes all the time. */
static int print_nodes(const cJSON *status, int num_jobs, int *num_nodes, struct ct_buf *out)
{
    bool ok = true;
    int n = 0;
    ct_buf_add(out, "[", 1);
    for (const cJSON *job = ct_status_next_job(status, NULL); job != NULL && n < num_jobs;
         job = ct_status_next_job(status, job), n++) {
        const cJSON *node;
        cJSON_ArrayForEach(node, cJSON_GetObjectItemCaseSensitive(job, "nodes"))
        {
            ct_buf_addf(out, "%s[%d,%d", *num_nodes > 0 ? "," : "", n,
                        (int)ct_json_number(node, "index", -1));
            put_member(out, node, "host", &ok);
            put_member(out, node, "address", &ok);
            put_member(out, node, "state", &ok);
            ct_buf_addf(out, ",%d]", (int)ct_json_number(node, "workers", 0));
            (*num_nodes)++;
        }
    }
    ct_buf_add(out, "]", 1);
    return ok ? ct_buf_status(out) : CT_ENOMEM;
}

/* The jobs as the status has them, without their nodes and workers and with their cells. */
static int print_jobs(cJSON *status, const struct ct_page_job *jobs, int num_jobs,
                      struct ct_buf *out)
{
    int n = 0;
    bool ok = true;
    ct_buf_add(out, "\"jobs\":[", 8);
    for (cJSON *job = (cJSON *)ct_status_next_job(status, NULL); job != NULL && n < num_jobs;
         job = (cJSON *)ct_status_next_job(status, job), n++) {
        cJSON_DeleteItemFromObjectCaseSensitive(job, "nodes");
        cJSON_DeleteItemFromObjectCaseSensitive(job, "workers");
        cJSON_DeleteItemFromObjectCaseSensitive(job, "workers_more");
        ok = ok && ct_json_add_number(job, "first_cell", jobs[n].first_cell) &&
             ct_json_add_number(job, "cells", jobs[n].cells) &&
             ct_json_add_number(job, "median_step", (double)jobs[n].median);
        char *text = ok ? cJSON_PrintUnformatted(job) : NULL;
        ok = text != NULL;
        ct_buf_addf(out, "%s%s", n > 0 ? "," : "", ok ? text : "null");
        cJSON_free(text);
    }
    ct_buf_add(out, "]", 1);
    return ok ? ct_buf_status(out) : CT_ENOMEM;
}

/* What every frame has, whether it is whole or not. */
static int print_head(cJSON *status, const struct ct_page_job *jobs, int num_jobs, double now_s,
                      struct ct_buf *out)
{
    bool ok = true;
    ct_buf_addf(out, "\"t\":%.3f,\"about\":[%d", now_s, num_jobs);
    put_member(out, status, "version", &ok);
    put_member(out, status, "health", &ok);
    put_member(out, status, "problems", &ok);
    ct_buf_add(out, "],", 2);
    return ok ? print_jobs(status, jobs, num_jobs, out) : CT_ENOMEM;
}

/* ---- history -------------------------------------------------------------------------------- */

struct sums {
    double loss, rate;
    int rank; /* whose loss it is */
    int running, told, collective, missing;
    int64_t memory; /* of the workers that tell theirs, in MiB */
    int with_memory, most_memory;
};

static void add_row(struct sums *sums, const struct ct_worker_row *row, int rank)
{
    bool runs = row->state == CT_ROW_RUNNING;
    sums->running += runs;
    sums->memory += row->rss_mib;
    sums->with_memory += row->rss_mib > 0;
    sums->most_memory = row->rss_mib > sums->most_memory ? row->rss_mib : sums->most_memory;
    if (!runs || row->phase == CT_ROW_UNTOLD) {
        return;
    }
    sums->told++;
    sums->collective += row->phase == CT_PHASE_COLLECTIVE;
    if (rank < sums->rank && row->loss_text[0] != '\0') {
        sums->rank = rank;
        sums->loss = row->loss;
    }
    if (row->rate_text[0] != '\0') {
        /* A worker tells the rate of the whole job or leaves it out, as `train` does. */
        sums->rate = isnan(sums->rate) || row->rate > sums->rate ? row->rate : sums->rate;
    }
}

/* Only of the first job: a store of several jobs belongs to a daemon, whose jobs come and go. */
static void add_point(struct ct_page_feed *feed, const cJSON *status,
                      const struct ct_status_rows *rows, double now_s)
{
    const cJSON *job = ct_status_next_job(status, NULL);
    struct sums sums = {.loss = NAN, .rate = NAN, .rank = INT32_MAX};
    for (size_t s = 0; s < rows->count; s++) {
        const struct ct_row_span *span = &rows->spans[s];
        for (int i = 0; span->job == 0 && i < span->count; i++) {
            add_row(&sums, &span->rows[i], span->first_rank + i);
        }
    }
    const struct ct_page_point point = {
        .t_s = now_s,
        .generation = (int)ct_json_number(job, "generation", 0),
        .step = feed->jobs[0].median,
        .loss = sums.loss,
        .rate = sums.rate,
        .collective = sums.told > 0 ? (double)sums.collective / sums.told : NAN,
        .memory = sums.with_memory > 0 ? (double)sums.memory / sums.with_memory : NAN,
        .most_memory = sums.with_memory > 0 ? sums.most_memory : NAN,
        .running = sums.running,
        .missing = feed->jobs[0].cells - sums.running,
    };
    ct_page_history_add(&feed->history, &point);
}

/* ---- a sample ------------------------------------------------------------------------------- */

struct sample {
    struct ct_page_cell *cells;
    size_t count;
    struct ct_page_job jobs[CT_PAGE_JOBS_MAX];
    int num_jobs, num_nodes;
    struct ct_buf head, nodes;
};

static void sample_fini(struct sample *sample)
{
    ct_free(sample->cells);
    ct_buf_fini(&sample->head);
    ct_buf_fini(&sample->nodes);
}

static int make_sample(cJSON *status, const struct ct_status_rows *rows, double now_s,
                       struct sample *out)
{
    for (const cJSON *job = ct_status_next_job(status, NULL);
         job != NULL && out->num_jobs < CT_PAGE_JOBS_MAX; job = ct_status_next_job(status, job)) {
        out->num_jobs++;
    }
    out->count = (size_t)lay_out(out->jobs, out->num_jobs, status, rows);
    out->cells = ct_calloc(out->count + 1, sizeof(out->cells[0]));
    if (out->cells == NULL) {
        return CT_ENOMEM;
    }
    for (size_t i = 0; i < out->count; i++) {
        out->cells[i].state = CT_PAGE_NOBODY;
    }
    for (int n = 0; n < out->num_jobs; n++) {
        int rc = median_step(rows, n, &out->jobs[n].median);
        if (rc != 0) {
            return rc;
        }
    }
    fill_cells(out->jobs, out->num_jobs, rows, out->cells);
    if (is_done(status)) {
        settle(status, &out->jobs[0], out->cells);
    }
    int rc = print_nodes(status, out->num_jobs, &out->num_nodes, &out->nodes);
    return rc == 0 ? print_head(status, out->jobs, out->num_jobs, now_s, &out->head) : rc;
}

int ct_page_feed_take(struct ct_page_feed *feed, struct cJSON *status,
                      const struct ct_status_rows *rows, double now_s)
{
    struct sample sample = {.cells = NULL};
    feed->points_before = feed->history.count;
    feed->merges_before = feed->history.merges;
    bool done = is_done(status);
    feed->over =
        (ct_status_next_job(status, NULL) == NULL && feed->had_job) || (done && feed->done);
    if (feed->over) {
        feed->nodes_changed = false;
        feed->seq++;
        return 0;
    }
    int rc = make_sample(status, rows, now_s, &sample);
    if (rc != 0) {
        sample_fini(&sample);
        return rc;
    }
    if (done && sample.num_nodes < feed->num_nodes && sample.count == feed->count) {
        /* Nodes leave a job that has ended before the page hears of its end. */
        struct ct_buf before = feed->nodes;
        feed->nodes = sample.nodes;
        sample.nodes = before;
        sample.num_nodes = feed->num_nodes;
        feed->nodes_changed = false;
    } else {
        feed->nodes_changed =
            sample.nodes.len != feed->nodes.len ||
            memcmp(ct_buf_bytes(&sample.nodes), ct_buf_bytes(&feed->nodes), feed->nodes.len) != 0;
    }
    feed->num_nodes = sample.num_nodes;
    ct_free(feed->before);
    feed->before = feed->cells;
    feed->count_before = feed->count;
    feed->cells = sample.cells;
    feed->count = sample.count;
    memcpy(feed->jobs, sample.jobs, sizeof(feed->jobs));
    feed->num_jobs = sample.num_jobs;
    ct_buf_fini(&feed->head);
    ct_buf_fini(&feed->nodes);
    feed->head = sample.head;
    feed->nodes = sample.nodes;
    feed->seq++;
    feed->done = done;
    if (feed->num_jobs > 0) {
        feed->had_job = true;
        add_point(feed, status, rows, now_s);
    }
    charge(feed, sizeof(*feed) + (feed->count + feed->count_before + 2) * sizeof(feed->cells[0]) +
                     feed->head.cap + feed->nodes.cap + 4 * CT_BLOCK_COST);
    return 0;
}

/* ---- frames --------------------------------------------------------------------------------- */

static bool is_same(const struct ct_page_cell *a, const struct ct_page_cell *b)
{
    return a->state == b->state && a->lag == b->lag && a->quiet == b->quiet;
}

static bool has_changed(const struct ct_page_feed *feed, size_t i)
{
    return !feed->over && (i >= feed->count_before || !is_same(&feed->cells[i], &feed->before[i]));
}

/* [[first, count, state, lag, quiet], ...]: equal neighbours are one run. */
static void print_cells(const struct ct_page_feed *feed, bool whole, struct ct_buf *out)
{
    bool any = false;
    ct_buf_add(out, "[", 1);
    for (size_t i = 0; i < feed->count;) {
        if (!whole && !has_changed(feed, i)) {
            i++;
            continue;
        }
        const struct ct_page_cell *cell = &feed->cells[i];
        size_t end = i + 1;
        while (end < feed->count && is_same(&feed->cells[end], cell) &&
               (whole || has_changed(feed, end))) {
            end++;
        }
        ct_buf_addf(out, "%s[%zu,%zu,%d,%d,%d]", any ? "," : "", i, end - i, cell->state, cell->lag,
                    cell->quiet);
        any = true;
        i = end;
    }
    ct_buf_add(out, "]", 1);
}

int ct_page_feed_print(const struct ct_page_feed *feed, bool whole, struct ct_buf *out)
{
    bool merged = feed->history.merges != feed->merges_before;
    /* The last point known to the reader may have changed since. */
    unsigned from = whole || merged || feed->points_before == 0 ? 0 : feed->points_before - 1;
    ct_buf_addf(out, "{\"seq\":%" PRIu64 ",\"whole\":%s,\"opened\":%.3f,\"total\":%zu", feed->seq,
                whole ? "true" : "false", feed->opened, feed->count);
    if (feed->head.len > 0) {
        ct_buf_add(out, ",", 1);
        ct_buf_add(out, ct_buf_bytes(&feed->head), feed->head.len);
    }
    if (feed->nodes.len > 0 && (whole || feed->nodes_changed)) {
        ct_buf_addf(out, ",\"nodes\":");
        ct_buf_add(out, ct_buf_bytes(&feed->nodes), feed->nodes.len);
    }
    ct_buf_addf(out, ",\"cells\":");
    print_cells(feed, whole, out);
    ct_buf_addf(out, ",\"from\":%u,\"points\":", from);
    ct_page_history_print(&feed->history, from, out);
    ct_buf_add(out, "}", 1);
    return ct_buf_status(out);
}
