/* SPDX-License-Identifier: Apache-2.0
 *
 * The head of the screen says how the jobs are, with problems and failures; the rest is a table of
 * workers that scrolls. Workers in the same state, phase and step are one row, so that a healthy
 * job of 512 workers takes a few rows and whoever differs stands out.
 */
#include "rendezvous/ctrun-stat/stat_screen.h"

#include "common/alloc.h"
#include "common/text.h"
#include "rendezvous/ctrun-stat/stat_curve.h"
#include "rendezvous/ctrun-stat/stat_table.h"
#include "rendezvous/http/status.h"
#include "rendezvous/wire/json.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_MAX 17
#define VALUE_MAX 32

/* Lines of problems and of failures; the table below them matters as well. */
#define PROBLEMS_MAX 4
#define FAILURES_MAX 5

/* ---- lines ---------------------------------------------------------------------------------- */

struct screen {
    struct ct_buf *out;
    size_t columns, left; /* lines that may still come */
    bool begun;
};

static void put(struct screen *screen, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void put(struct screen *screen, const char *fmt, ...)
{
    /* The room for one more character lets a line that is too long be seen, and marked. */
    char text[CT_STAT_LINE_MAX + 4], line[CT_STAT_LINE_MAX];
    if (screen->left == 0) {
        return;
    }
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (screen->columns > strlen("...")) {
        (void)ct_text_cut(text, screen->columns, line, sizeof(line));
    } else {
        (void)ct_text_fit(text, screen->columns, line, sizeof(line));
    }
    ct_buf_addf(screen->out, "%s%s", screen->begun ? "\n" : "", line);
    screen->begun = true;
    screen->left--;
}

static const char *duration(double seconds, char out[VALUE_MAX])
{
    if (seconds < 100) {
        (void)snprintf(out, VALUE_MAX, "%.0f s", seconds);
    } else if (seconds < 6000) {
        (void)snprintf(out, VALUE_MAX, "%.0f min", seconds / 60);
    } else {
        (void)snprintf(out, VALUE_MAX, "%.1f h", seconds / 3600);
    }
    return out;
}

/* The columns of the id of a job, of which a longer one than a UUID is cut; and of a window that is
 * too narrow, at least. */
#define ID_COLUMNS 36
#define ID_COLUMNS_MIN 8
#define ID_MAX (4 * ID_COLUMNS + 1)

static const char *run_id(const cJSON *job, size_t columns, char out[ID_MAX])
{
    size_t room = columns > ID_COLUMNS ? ID_COLUMNS : columns;
    char whole[CT_STAT_LINE_MAX];
    (void)ct_text_cut(ct_stat_name(job, "run_id", whole),
                      room > ID_COLUMNS_MIN ? room : ID_COLUMNS_MIN, out, ID_MAX);
    return out;
}

static const char *plural(double n)
{
    return n == 1 ? "" : "s";
}

/* ---- rows of workers ------------------------------------------------------------------------ */

struct row {
    const cJSON *job, *worker; /* borrowed; the worker with the lowest rank */
    const char *state, *phase; /* borrowed from it */
    double rank, step, age_s, restarts;
    double loss, rate; /* NAN = not told */
    int workers, hosts;
    char ranks[RANKS_MAX];
    double last_rank; /* of the last range in `ranks` */
    size_t range_at;  /* where it begins there */
};

static double optional(const cJSON *object, const char *name)
{
    return ct_json_number(object, name, (double)NAN);
}

static struct row row_of(const cJSON *job, const cJSON *worker)
{
    const cJSON *progress = cJSON_GetObjectItemCaseSensitive(worker, "progress");
    struct row row = {
        .job = job,
        .worker = worker,
        .state = ct_stat_worker_state(job, worker),
        .phase = ct_json_text(progress, "phase", "-"),
        .rank = ct_json_number(worker, "rank", 0),
        .step = ct_json_number(progress, "step", -1),
        .age_s = ct_json_number(progress, "age_s", -1),
        .restarts = ct_json_number(worker, "restarts", 0),
        .loss = optional(progress, "loss"),
        .rate = optional(progress, "samples_per_s"),
        .workers = 1,
        .hosts = 1,
    };
    row.last_rank = row.rank;
    (void)snprintf(row.ranks, sizeof(row.ranks), "%.0f", row.rank);
    return row;
}

/* Rows that come first: 2 = has failed, 1 = hangs. */
static int urgency(const struct row *row)
{
    return strcmp(row->state, "failed") == 0 ? 2 : strcmp(row->state, "hangs") == 0;
}

static bool are_equal(const struct row *a, const struct row *b)
{
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(a->worker, "exit");
    const cJSON *y = cJSON_GetObjectItemCaseSensitive(b->worker, "exit");
    bool ends = cJSON_IsNumber(x) == cJSON_IsNumber(y) &&
                (!cJSON_IsNumber(x) || x->valuedouble == y->valuedouble);
    return a->job == b->job && ends && strcmp(a->state, b->state) == 0 &&
           strcmp(a->phase, b->phase) == 0 && a->step == b->step && a->restarts == b->restarts;
}

static int compare_numbers(double a, double b)
{
    return (a > b) - (a < b);
}

/* Puts equal workers next to each other, in the order of their ranks. */
static int by_kind(const void *x, const void *y)
{
    const struct row *a = x, *b = y;
    int order = compare_numbers((double)(uintptr_t)a->job, (double)(uintptr_t)b->job);
    order = order != 0 ? order : strcmp(a->state, b->state);
    order = order != 0 ? order : strcmp(a->phase, b->phase);
    order = order != 0 ? order : compare_numbers(a->step, b->step);
    order = order != 0 ? order : compare_numbers(a->restarts, b->restarts);
    order = order != 0 ? order
                       : compare_numbers(ct_json_number(a->worker, "exit", INT_MAX),
                                         ct_json_number(b->worker, "exit", INT_MAX));
    return order != 0 ? order : compare_numbers(a->rank, b->rank);
}

static int in_order(const struct row *a, const struct row *b, enum ct_stat_sort sort)
{
    int order = urgency(b) - urgency(a);
    if (order == 0 && sort == CT_STAT_BY_STEP) {
        order = compare_numbers(a->step, b->step);
    } else if (order == 0 && sort == CT_STAT_BY_AGE) {
        order = compare_numbers(b->age_s, a->age_s);
    } else if (order == 0 && sort == CT_STAT_BY_STATE) {
        order = strcmp(a->state, b->state);
    }
    return order != 0 ? order : compare_numbers(a->rank, b->rank);
}

static int by_rank(const void *a, const void *b)
{
    return in_order(a, b, CT_STAT_BY_RANK);
}

static int by_step(const void *a, const void *b)
{
    return in_order(a, b, CT_STAT_BY_STEP);
}

static int by_age(const void *a, const void *b)
{
    return in_order(a, b, CT_STAT_BY_AGE);
}

static int by_state(const void *a, const void *b)
{
    return in_order(a, b, CT_STAT_BY_STATE);
}

/* Writes "0-3,7" into `ranks`; what does not fit is "..". */
static void add_rank(struct row *row, double rank)
{
    size_t len = strlen(row->ranks);
    char text[VALUE_MAX];
    if (rank == row->last_rank + 1) {
        char first[VALUE_MAX];
        (void)snprintf(first, sizeof(first), "%s", row->ranks + row->range_at);
        first[strcspn(first, "-")] = '\0';
        (void)snprintf(text, sizeof(text), "%.12s-%.0f", first, rank);
        len = row->range_at;
    } else {
        (void)snprintf(text, sizeof(text), ",%.0f", rank);
    }
    row->last_rank = rank;
    if (len > 0 && row->ranks[len - 1] == '.') {
        return;
    }
    if (len + strlen(text) + sizeof("..") > sizeof(row->ranks)) {
        (void)snprintf(row->ranks + len, sizeof(row->ranks) - len, "..");
        row->range_at = strlen(row->ranks);
        row->last_rank = INT_MAX; /* no range grows any more */
        return;
    }
    row->range_at = text[0] == ',' ? len + 1 : len;
    (void)snprintf(row->ranks + len, sizeof(row->ranks) - len, "%s", text);
}

static void merge(struct row *into, const struct row *row)
{
    const char *host = ct_json_text(into->worker, "host", "?");
    into->hosts += strcmp(host, ct_json_text(row->worker, "host", "?")) != 0;
    into->workers++;
    into->age_s = row->age_s > into->age_s ? row->age_s : into->age_s;
    into->loss = isfinite(into->loss) ? into->loss : row->loss;
    into->rate = isfinite(into->rate) ? into->rate : row->rate;
    add_rank(into, row->rank);
}

/* Joins rows that are equal; returns how many are left. */
static size_t group(struct row *rows, size_t count)
{
    size_t kept = 0;
    qsort(rows, count, sizeof(*rows), by_kind);
    for (size_t i = 0; i < count; i++) {
        if (kept > 0 && are_equal(&rows[kept - 1], &rows[i])) {
            merge(&rows[kept - 1], &rows[i]);
        } else {
            rows[kept++] = rows[i];
        }
    }
    return kept;
}

/* Gives the rows in their order, NULL if there are none. CT_ENOMEM. */
static int collect(const cJSON *status, const struct ct_stat_view *view, struct row **out,
                   size_t *count, size_t *workers)
{
    static int (*const orders[CT_STAT_SORTS])(const void *, const void *) = {
        [CT_STAT_BY_RANK] = by_rank,
        [CT_STAT_BY_STEP] = by_step,
        [CT_STAT_BY_AGE] = by_age,
        [CT_STAT_BY_STATE] = by_state,
    };
    const cJSON *job = NULL, *worker;
    size_t n = 0;
    *out = NULL;
    *count = *workers = 0;
    while ((job = ct_status_next_job(status, job)) != NULL) {
        n += (size_t)cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(job, "workers"));
    }
    struct row *rows = n > 0 ? ct_calloc(n, sizeof(*rows)) : NULL;
    if (rows == NULL) {
        return n > 0 ? CT_ENOMEM : 0;
    }
    size_t at = 0;
    while ((job = ct_status_next_job(status, job)) != NULL) {
        cJSON_ArrayForEach(worker, cJSON_GetObjectItemCaseSensitive(job, "workers"))
        {
            rows[at++] = row_of(job, worker);
        }
    }
    *workers = at;
    *count = view->apart ? at : group(rows, at);
    qsort(rows, *count, sizeof(*rows), orders[view->sort]);
    *out = rows;
    return 0;
}

/* Writes a number with `digits`, or "-" if there is none. */
static const char *number(double value, int digits, char out[VALUE_MAX])
{
    (void)snprintf(out, VALUE_MAX, "-");
    if (isfinite(value)) {
        (void)snprintf(out, VALUE_MAX, "%.*g", digits, value);
    }
    return out;
}

/* The columns of a row and of the heading. The host has what is left of the window, because a mark
 * of what is cut must not take the place of numbers. */
#define HEADING "%-16s %5s %-10s %-10s %8s %-6s %7s %9s%s"
#define ROW "%-16s %5d %-10.10s %-10.10s %8.8s %-6.6s %7.7s %9.9s%s"
#define ROW_COLUMNS 78
#define HOST " HOST"

static bool has_room_for_host(const struct screen *screen)
{
    return screen->columns >= ROW_COLUMNS + strlen(HOST);
}

static void put_row(struct screen *screen, const struct row *row)
{
    char step[VALUE_MAX], age[VALUE_MAX] = "-", loss[VALUE_MAX], rate[VALUE_MAX];
    char state[2 * VALUE_MAX], hosts[CT_STAT_LINE_MAX], host[CT_STAT_LINE_MAX] = "";
    char name[CT_STAT_LINE_MAX];
    double code = optional(row->worker, "exit");
    bool tells = isfinite(code) && code != 0; /* a negative one is that of a signal */
    (void)snprintf(state, sizeof(state), "%.9s", row->state);
    if (tells) {
        (void)snprintf(state, sizeof(state), "%.9s %.0f", row->state, code);
    }
    if (row->age_s >= 0) {
        (void)duration(row->age_s, age);
    }
    if (has_room_for_host(screen)) {
        (void)snprintf(hosts, sizeof(hosts), "%.900s%s", ct_stat_name(row->worker, "host", name),
                       row->hosts > 1 ? " and others" : "");
        host[0] = ' ';
        (void)ct_text_cut(hosts, screen->columns - ROW_COLUMNS - 1, host + 1, sizeof(host) - 1);
    }
    put(screen, ROW, row->ranks, row->workers, state, row->phase,
        number(row->step >= 0 ? row->step : (double)NAN, 15, step), age, number(row->loss, 4, loss),
        number(row->rate, 6, rate), host);
}

/* ---- the head ------------------------------------------------------------------------------- */

static void put_job(struct screen *screen, const cJSON *job)
{
    double world_size = ct_json_number(job, "world_size", 0);
    double max_restarts = ct_json_number(job, "max_restarts", 0);
    double hang_s = ct_stat_hang_s(job);
    char restarts[2 * VALUE_MAX] = "", hang[2 * VALUE_MAX] = "", time[VALUE_MAX], id[ID_MAX];
    char how[CT_STAT_COLUMNS];
    if (hang_s >= 0) {
        (void)snprintf(hang, sizeof(hang), ", hangs for %s", duration(hang_s, time));
    }
    if (max_restarts > 0) {
        (void)snprintf(restarts, sizeof(restarts), ", restarts %.0f of %.0f",
                       ct_json_number(job, "restarts", 0), max_restarts);
    }
    /* If the line is too long, the run id is cut and not what follows. */
    (void)snprintf(how, sizeof(how), "%.8s, %.0f worker%s, generation %.0f%s%s",
                   ct_json_text(job, "state", "?"), world_size, plural(world_size),
                   ct_json_number(job, "generation", 0), hang, restarts);
    size_t taken = strlen("job : ") + strlen(how);
    size_t left = screen->columns > taken ? screen->columns - taken : 0;
    put(screen, "job %s: %s", run_id(job, left, id), how);
}

static void put_failure(struct screen *screen, const cJSON *item)
{
    static const char word[] = "FAILED ";
    size_t taken = strlen(word);
    char line[CT_STAT_FAILURE_MAX];
    ct_stat_failure(item, screen->columns > taken ? screen->columns - taken : 0, line);
    put(screen, "%s%s", word, line);
}

/* The last failures of a job, the newest first. */
static void put_failures(struct screen *screen, const cJSON *job)
{
    const cJSON *failures = cJSON_GetObjectItemCaseSensitive(job, "failures");
    int count = cJSON_GetArraySize(failures), shown = count < FAILURES_MAX ? count : FAILURES_MAX;
    for (int i = 1; i <= shown; i++) {
        put_failure(screen, cJSON_GetArrayItem(failures, count - i));
    }
    double more = ct_json_number(job, "failure_count", 0) - shown;
    if (shown > 0 && more > 0) {
        put(screen, "       and %.0f earlier failure%s", more, plural(more));
    }
}

/* In two lines if it needs them. The reason stands at the end, behind the name of a host. */
static void put_problem(struct screen *screen, const char *problem)
{
    char line[CT_STAT_LINE_MAX];
    size_t head = strlen(CT_STAT_PROBLEM);
    size_t room = screen->columns > head ? screen->columns - head : 0;
    const char *rest = ct_stat_line(problem, room, line);
    put(screen, CT_STAT_PROBLEM "%s", *rest != '\0' ? line : problem);
    if (*rest != '\0') {
        put(screen, CT_STAT_PROBLEM_MORE "%s", rest);
    }
}

static void put_problems(struct screen *screen, const cJSON *status)
{
    const cJSON *problems = cJSON_GetObjectItemCaseSensitive(status, "problems"), *problem;
    int count = cJSON_GetArraySize(problems), shown = 0;
    cJSON_ArrayForEach(problem, problems)
    {
        if (shown++ < PROBLEMS_MAX) {
            put_problem(screen, cJSON_IsString(problem) ? problem->valuestring : "?");
        }
    }
    if (count > PROBLEMS_MAX) {
        put(screen, CT_STAT_PROBLEM_MORE "and %d more", count - PROBLEMS_MAX);
    }
}

static void put_head(struct screen *screen, const cJSON *status, const char *where)
{
    const cJSON *job = NULL;
    char up[VALUE_MAX];
    put(screen, "%.64s: %.16s, up %s", where, ct_json_text(status, "health", "?"),
        duration(ct_json_number(status, "uptime_s", 0), up));
    while ((job = ct_status_next_job(status, job)) != NULL) {
        put_failures(screen, job);
    }
    put_problems(screen, status);
    while ((job = ct_status_next_job(status, job)) != NULL) {
        put_job(screen, job);
    }
}

static void put_curve(struct screen *screen, const struct ct_page_history *losses)
{
    char line[CT_STAT_CURVE_MAX] = "";
    if (losses != NULL) {
        ct_stat_curve_print(losses, screen->columns, line);
    }
    if (line[0] != '\0') {
        put(screen, "%s", line);
    }
}

/* ---- the screen ----------------------------------------------------------------------------- */

static void put_foot(struct screen *screen, const struct ct_stat_view *view, size_t count,
                     size_t shown, size_t workers, const char *note)
{
    static const char *const sorts[CT_STAT_SORTS] = {"rank", "step", "silence", "state"};
    if (note[0] != '\0') {
        put(screen, "%s", note);
        return;
    }
    int first = shown > 0 ? view->top + 1 : 0;
    put(screen, "rows %d-%d of %zu, %zu worker%s; q quits, s sorts (%s), g %s, arrows scroll",
        first, view->top + (int)shown, count, workers, plural((double)workers), sorts[view->sort],
        view->apart ? "groups" : "ungroups");
}

int ct_stat_screen(const struct cJSON *status, const char *where, const char *note,
                   struct ct_stat_view *view, struct ct_buf *out)
{
    struct row *rows;
    size_t count, workers;
    int rc = collect(status, view, &rows, &count, &workers);
    if (rc != 0) {
        return rc;
    }
    /* In any window the table keeps its heading and one row, and the foot its line. */
    size_t below = count > 0 ? 3 : 1;
    struct screen screen = {out, view->columns, view->rows, false};
    screen.left = view->rows > below ? view->rows - below : view->rows > 0 ? 1 : 0;
    size_t head = screen.left;
    put_head(&screen, status, where);
    put_curve(&screen, view->losses);
    head -= screen.left;
    screen.left = view->rows - head;
    size_t page = screen.left > 2 ? screen.left - 2 : 0;
    int last = count > page ? (int)(count - page) : 0;
    view->page = (int)page;
    view->top = view->top > last ? last : view->top < 0 ? 0 : view->top;
    if (page > 0 && count > 0) {
        put(&screen, HEADING, "RANKS", "COUNT", "STATE", "PHASE", "STEP", "FOR", "LOSS",
            "SAMPLES/S", has_room_for_host(&screen) ? HOST : "");
    }
    size_t shown = 0;
    for (; shown < page && (size_t)view->top + shown < count; shown++) {
        put_row(&screen, &rows[(size_t)view->top + shown]);
    }
    put_foot(&screen, view, count, shown, workers, note);
    ct_free(rows);
    return ct_buf_status(out);
}

/* The highest step of its workers; -1 = none is known. */
static double last_step(const cJSON *job)
{
    double step = -1;
    const cJSON *worker;
    cJSON_ArrayForEach(worker, cJSON_GetObjectItemCaseSensitive(job, "workers"))
    {
        struct row row = row_of(job, worker);
        step = row.step > step ? row.step : step;
    }
    return step;
}

static int put_verdict(struct screen *screen, const cJSON *status, const cJSON *verdict)
{
    double step = last_step(ct_status_next_job(status, NULL));
    char id[ID_MAX];
    put(screen, "job %s %.512s", run_id(verdict, ID_COLUMNS, id),
        ct_json_text(verdict, "text", "has ended"));
    if (step >= 0) {
        put(screen, "last seen at step %.0f", step);
    }
    ct_buf_addf(screen->out, "\n");
    return ct_buf_status(screen->out);
}

int ct_stat_screen_end(const struct cJSON *status, const struct cJSON *verdict, const char *where,
                       struct ct_buf *out)
{
    struct screen screen = {out, CT_STAT_LINE_MAX, SIZE_MAX, false};
    const cJSON *job = NULL;
    if (verdict != NULL) {
        return put_verdict(&screen, status, verdict);
    }
    if (ct_status_next_job(status, NULL) == NULL) {
        put(&screen, "%.64s: the store has ended", where);
    }
    while ((job = ct_status_next_job(status, job)) != NULL) {
        const cJSON *failures = cJSON_GetObjectItemCaseSensitive(job, "failures");
        const char *state = ct_json_text(job, "state", "?");
        double step = last_step(job);
        char id[ID_MAX];
        put(&screen, "job %s has ended; last seen %.8s%s%.0f", run_id(job, ID_COLUMNS, id), state,
            step >= 0 ? " at step " : ", generation ",
            step >= 0 ? step : ct_json_number(job, "generation", 0));
        if (cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(job, "nodes")) > 1) {
            put(&screen, "unless it goes on without the machine of its store: then its other "
                         "ctruns have printed where the store is now");
        }
        if (cJSON_GetArraySize(failures) > 0) {
            put_failures(&screen, job);
        }
    }
    put_problems(&screen, status);
    ct_buf_addf(out, "\n");
    return ct_buf_status(out);
}

/* ---- keys ----------------------------------------------------------------------------------- */

static void scroll(struct ct_stat_view *view, int rows)
{
    int64_t top = (int64_t)view->top + rows;
    view->top = top < 0 ? 0 : top > INT_MAX ? INT_MAX : (int)top;
}

/* Takes a byte of "ESC [ A" (up), "ESC [ 6 ~" (page down) and the like; others are skipped. */
static void take_escape(struct ct_stat_view *view, char key)
{
    bool begins = view->escape_len == 1 && (key == '[' || key == 'O');
    bool digit = view->escape_len >= 2 && key >= '0' && key <= ';';
    if (begins || digit) {
        view->escape_len += view->escape_len < sizeof(view->escape);
        view->escape[view->escape_len - 1] = key;
        return;
    }
    char code = view->escape_len == 2                 ? key
                : view->escape_len == 3 && key == '~' ? view->escape[2]
                                                      : '\0';
    view->escape_len = 0;
    if (code == 'A' || code == 'B') {
        scroll(view, code == 'A' ? -1 : 1);
    } else if (code == '5' || code == '6') {
        scroll(view, code == '5' ? -view->page : view->page);
    } else if (code == 'H' || code == 'F') {
        view->top = code == 'H' ? 0 : INT_MAX;
    }
}

bool ct_stat_screen_key(struct ct_stat_view *view, char key)
{
    if (view->escape_len > 0) {
        take_escape(view, key);
        return false;
    }
    switch (key) {
    case '\x1b':
        view->escape[0] = key;
        view->escape_len = 1;
        break;
    case 'q':
    case 'Q':
    case '\x04': /* ^D */
        return true;
    case 's':
        view->sort = (enum ct_stat_sort)((view->sort + 1) % CT_STAT_SORTS);
        view->top = 0;
        break;
    case 'g':
        view->apart = !view->apart;
        view->top = 0;
        break;
    case 'k':
    case 'j':
        scroll(view, key == 'k' ? -1 : 1);
        break;
    case ' ':
    case 'b':
        scroll(view, key == 'b' ? -view->page : view->page);
        break;
    default:
        break;
    }
    return false;
}
