/* SPDX-License-Identifier: Apache-2.0
 *
 * Deadlines are kept on the monotonic clock, so that no timer expires when the wall clock is set.
 */
#include "launcher/hang/file_timer.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "launcher/process/stop.h"
#include "rendezvous/wire/json.h"

#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* As good as never, and far from overflow. */
#define SECONDS_MAX (100.0 * 365 * 86400)

/* ---- lines ----------------------------------------------------------------------------------- */

size_t ct_file_timer_cut(struct ct_file_timer_lines *lines, const char *bytes, size_t len,
                         const char **line)
{
    const char *end = memchr(bytes, '\n', len);
    size_t taken = end != NULL ? (size_t)(end - bytes) : len;
    size_t room = CT_FILE_TIMER_LINE_MAX - lines->len;
    *line = NULL;
    lines->too_long = lines->too_long || taken > room;
    if (!lines->too_long) {
        memcpy(lines->text + lines->len, bytes, taken);
        lines->len += taken;
    }
    if (end == NULL) {
        return taken;
    }
    if (!lines->too_long) {
        lines->text[lines->len] = '\0';
        /* A line with a '\0' inside is dropped, because what follows it would be ignored. */
        *line = memchr(lines->text, '\0', lines->len) == NULL ? lines->text : NULL;
    }
    lines->len = 0;
    lines->too_long = false;
    return taken + 1;
}

/* Reads a whole number in this range. */
static bool read_whole(const cJSON *object, const char *name, int min, int max, int *out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    if (!cJSON_IsNumber(item) || item->valuedouble < min || item->valuedouble > max ||
        item->valuedouble != floor(item->valuedouble)) {
        return false;
    }
    *out = (int)item->valuedouble;
    return true;
}

static int read_request(const cJSON *json, struct ct_file_timer_request *out, struct ct_err *err)
{
    const cJSON *expires = cJSON_GetObjectItemCaseSensitive(json, "expiration_time");
    const char *scope = ct_json_text(json, "scope_id", NULL);
    int pid;
    if (!read_whole(json, "pid", 1, INT_MAX, &pid)) {
        return ct_err_set(err, CT_EFORMAT, "pid is no process number");
    }
    if (scope == NULL) {
        return ct_err_set(err, CT_EFORMAT, "scope_id is no text");
    }
    if (!cJSON_IsNumber(expires) || !isfinite(expires->valuedouble)) {
        return ct_err_set(err, CT_EFORMAT, "expiration_time is no number");
    }
    /* A release needs no signal. With a signal of zero or less the timer ends nobody. */
    out->signal = 0;
    if (expires->valuedouble >= 0 && !read_whole(json, "signal", INT_MIN, SIGRTMAX, &out->signal)) {
        return ct_err_set(err, CT_EFORMAT, "signal is no signal number");
    }
    out->signal = out->signal > 0 ? out->signal : 0;
    out->pid = pid;
    out->expires = expires->valuedouble;
    (void)snprintf(out->scope, sizeof(out->scope), "%s", scope);
    return 0;
}

int ct_file_timer_parse(const char *line, struct ct_file_timer_request *out, struct ct_err *err)
{
    cJSON *json = cJSON_ParseWithOpts(line, NULL, true);
    int rc = cJSON_IsObject(json) ? read_request(json, out, err)
                                  : ct_err_set(err, CT_EFORMAT, "it is no JSON object");
    cJSON_Delete(json);
    return rc;
}

/* ---- the table ------------------------------------------------------------------------------- */

struct timer {
    pid_t pid;
    int signal;
    int64_t due_ns;
    char *scope;
};

struct ct_file_timers_worker {
    struct timer *list;
    int count, cap;
    int64_t
        kill_ns; /* when the grace of a signal that was sent is over; INT64_MAX = none was sent */
};

int ct_file_timers_init(struct ct_file_timers *timers, int workers)
{
    *timers = (struct ct_file_timers){.workers = workers, .next_ns = INT64_MAX};
    timers->worker = ct_calloc((size_t)workers, sizeof(*timers->worker));
    if (timers->worker == NULL) {
        timers->workers = 0;
        return CT_ENOMEM;
    }
    for (int i = 0; i < workers; i++) {
        timers->worker[i].kill_ns = INT64_MAX;
    }
    return 0;
}

/* The last timer takes the free place, since the order has no meaning. */
static void drop(struct ct_file_timers_worker *worker, int index)
{
    ct_free(worker->list[index].scope);
    worker->list[index] = worker->list[--worker->count];
}

void ct_file_timers_reset(struct ct_file_timers *timers, int local_rank)
{
    struct ct_file_timers_worker *worker = &timers->worker[local_rank];
    while (worker->count > 0) {
        drop(worker, 0);
    }
    worker->kill_ns = INT64_MAX;
}

void ct_file_timers_fini(struct ct_file_timers *timers)
{
    for (int i = 0; i < timers->workers; i++) {
        ct_file_timers_reset(timers, i);
        ct_free(timers->worker[i].list);
    }
    ct_free(timers->worker);
    *timers = (struct ct_file_timers){0};
}

static int find(const struct ct_file_timers_worker *worker, pid_t pid, const char *scope)
{
    for (int i = 0; i < worker->count; i++) {
        if (worker->list[i].pid == pid && strcmp(worker->list[i].scope, scope) == 0) {
            return i;
        }
    }
    return -1;
}

static int add(struct ct_file_timers_worker *worker, const struct ct_file_timer_request *request)
{
    if (worker->count == CT_FILE_TIMERS_MAX) {
        return CT_ELIMIT;
    }
    if (worker->count == worker->cap) {
        int cap = worker->cap > 0 ? worker->cap * 2 : 4;
        struct timer *list = ct_realloc(worker->list, (size_t)cap * sizeof(*list));
        if (list == NULL) {
            return CT_ENOMEM;
        }
        worker->list = list;
        worker->cap = cap;
    }
    char *scope = ct_strdup(request->scope);
    if (scope == NULL) {
        return CT_ENOMEM;
    }
    worker->list[worker->count++] = (struct timer){.pid = request->pid, .scope = scope};
    return 0;
}

/* This does not call fmin(), which would make every start of ctrun load libm. */
static double bounded_seconds(double seconds)
{
    if (seconds < -SECONDS_MAX) {
        return -SECONDS_MAX;
    }
    return seconds < SECONDS_MAX ? seconds : SECONDS_MAX;
}

int ct_file_timers_take(struct ct_file_timers *timers, int local_rank,
                        const struct ct_file_timer_request *request, int64_t now_ns,
                        double unix_now)
{
    struct ct_file_timers_worker *worker = &timers->worker[local_rank];
    int index = find(worker, request->pid, request->scope);
    if (request->expires < 0) {
        if (index >= 0) {
            drop(worker, index);
        }
        return 0;
    }
    if (index < 0) {
        int rc = add(worker, request);
        if (rc != 0) {
            return rc;
        }
        index = worker->count - 1;
    }
    double seconds = bounded_seconds(request->expires - unix_now);
    struct timer *timer = &worker->list[index];
    timer->signal = request->signal;
    timer->due_ns = now_ns + (int64_t)(seconds * (double)CT_NS_PER_S);
    timers->next_ns = timer->due_ns < timers->next_ns ? timer->due_ns : timers->next_ns;
    return 0;
}

void ct_file_timers_sweep(struct ct_file_timers *timers, int local_rank,
                          ct_file_timer_pid_fn is_there, void *data)
{
    struct ct_file_timers_worker *worker = &timers->worker[local_rank];
    for (int i = worker->count - 1; i >= 0; i--) {
        if (!is_there(data, local_rank, worker->list[i].pid)) {
            drop(worker, i);
        }
    }
}

/* Returns the timer that expired first, or -1. Timers with a signal come before those without. */
static int first_expired(const struct ct_file_timers_worker *worker, int64_t now_ns)
{
    int first = -1;
    for (int i = 0; i < worker->count; i++) {
        const struct timer *timer = &worker->list[i];
        if (timer->due_ns > now_ns) {
            continue;
        }
        const struct timer *best = first >= 0 ? &worker->list[first] : NULL;
        bool signals = timer->signal > 0, best_signals = best != NULL && best->signal > 0;
        if (best == NULL || (signals && !best_signals) ||
            (signals == best_signals && timer->due_ns < best->due_ns)) {
            first = i;
        }
    }
    return first;
}

static bool worker_due(struct ct_file_timers_worker *worker, int64_t now_ns, int64_t grace_ns,
                       struct ct_file_timer_due *out)
{
    int first = first_expired(worker, now_ns);
    if (worker->kill_ns <= now_ns) {
        out->again = true;
        out->signal = SIGKILL;
        worker->kill_ns = INT64_MAX;
        return true;
    }
    if (first < 0) {
        return false;
    }
    const struct timer *timer = &worker->list[first];
    out->pid = timer->pid;
    out->signal = timer->signal;
    out->late_ns = now_ns - timer->due_ns;
    (void)snprintf(out->scope, sizeof(out->scope), "%s", timer->scope);
    if (timer->signal > 0) {
        worker->kill_ns =
            now_ns + (timer->signal == SIGKILL ? CT_STOP_GIVE_UP_MS * CT_NS_PER_MS : grace_ns);
    }
    for (int i = worker->count - 1; i >= 0; i--) {
        if (worker->list[i].due_ns <= now_ns) {
            drop(worker, i);
        }
    }
    return true;
}

static int64_t next_of(const struct ct_file_timers_worker *worker)
{
    int64_t next = worker->kill_ns;
    for (int i = 0; i < worker->count; i++) {
        next = worker->list[i].due_ns < next ? worker->list[i].due_ns : next;
    }
    return next;
}

bool ct_file_timers_due(struct ct_file_timers *timers, int64_t now_ns, int64_t grace_ns,
                        struct ct_file_timer_due *out)
{
    int64_t next_ns = INT64_MAX;
    for (int i = 0; i < timers->workers; i++) {
        struct ct_file_timers_worker *worker = &timers->worker[i];
        *out = (struct ct_file_timer_due){.local_rank = i};
        if (worker_due(worker, now_ns, grace_ns, out)) {
            return true;
        }
        int64_t next = next_of(worker);
        next_ns = next < next_ns ? next : next_ns;
    }
    timers->next_ns = next_ns;
    return false;
}
