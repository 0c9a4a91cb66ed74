/* SPDX-License-Identifier: Apache-2.0
 *
 * Each section prints nothing if the document does not have its field, or has it in another type.
 * struct text remembers its first failure, so that one check at the end is enough.
 */
#include "rendezvous/ctrun-stat/stat_table.h"

#include "common/alloc.h"
#include "common/text.h"
#include "rendezvous/http/status.h"
#include "rendezvous/wire/json.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the line of --health this much is shown at least. */
#define HEALTH_MIN 20

/* This much is shown at least of the name of a host, of the id of a job and of the store's address,
 * for whose line as many columns stay free. */
#define HOST_MIN 16
#define ID_MIN 8
#define WHERE_MIN 40

/* Of a problem on a terminal; the last one is cut. */
#define PROBLEM_LINES 4

/* Collects lines. `rc` is the first failure. */
struct text {
    struct ct_buf *out;
    size_t columns;
    int rc;
};

static void put(struct text *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Adds one line, cut to the width with a mark, without blanks at its end and without control
 * characters. */
static void put(struct text *text, const char *fmt, ...)
{
    /* The room for one more character lets a line that is too long be seen, and marked. */
    char whole[CT_STAT_LINE_MAX + 4], line[CT_STAT_LINE_MAX];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(whole, sizeof(whole), fmt, args);
    va_end(args);
    (void)ct_text_cut(whole, text->columns, line, sizeof(line));
    size_t len = strlen(line);
    while (len > 0 && line[len - 1] == ' ') {
        len--;
    }
    line[len] = '\0';
    if (text->rc == 0) {
        text->rc = ct_buf_printf(text->out, "%s\n", line);
    }
}

static const char *plural(double n)
{
    return n == 1 ? "" : "s";
}

/* ---- values --------------------------------------------------------------------------------- */

/* Room for a number, which is cut if it is longer. */
#define VALUE_MAX 32

#define NAME_MAX_BYTES 512

/* Gives the text, or its beginning and a mark if it does not fit into what `taken` leaves of the
 * columns, and not into `least`. */
static const char *cut(const char *text, size_t columns, size_t taken, size_t least,
                       char out[NAME_MAX_BYTES])
{
    size_t room = columns > taken && columns - taken > least ? columns - taken : least;
    (void)ct_text_cut(text, room, out, NAME_MAX_BYTES);
    return out;
}

static int hex_value(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c != '\0' ? strchr(digits, c) : NULL;
    return at != NULL ? (int)(at - digits) : -1;
}

/* Gives the byte that is escaped at `text` and its length there; 0 = none is. */
static size_t unescape(const char *text, char *byte)
{
    if (text[0] != '\\') {
        return 0;
    }
    int high = text[1] == 'x' ? hex_value(text[2]) : -1;
    int low = high >= 0 ? hex_value(text[3]) : -1;
    *byte = low >= 0 ? (char)(high << 4 | low) : '\\';
    return low >= 0 ? 4 : text[1] == '\\' ? 2 : 1;
}

const char *ct_stat_name(const struct cJSON *object, const char *field, char out[CT_STAT_LINE_MAX])
{
    const char *text = ct_json_text(object, field, "?");
    size_t len = 0;
    while (*text != '\0' && len + 1 < CT_STAT_LINE_MAX) {
        char byte = *text;
        size_t escaped = unescape(text, &byte);
        out[len++] = byte != '\0' ? byte : '?';
        text += escaped > 0 ? escaped : 1;
    }
    out[len] = '\0';
    return out;
}

static const char *uptime(double seconds, char out[VALUE_MAX])
{
    if (seconds < 120) {
        (void)snprintf(out, VALUE_MAX, "%.0f s", seconds);
    } else if (seconds < 7200) {
        (void)snprintf(out, VALUE_MAX, "%.0f min", seconds / 60);
    } else {
        (void)snprintf(out, VALUE_MAX, "%.1f h", seconds / 3600);
    }
    return out;
}

static const char *size(double bytes, char out[VALUE_MAX])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    while (bytes >= 10000 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        bytes /= 1024;
        unit++;
    }
    (void)snprintf(out, VALUE_MAX, "%.0f %s", bytes, units[unit]);
    return out;
}

static double total(const cJSON *numbers)
{
    double sum = 0;
    const cJSON *number;
    cJSON_ArrayForEach(number, numbers)
    {
        sum += cJSON_IsNumber(number) ? number->valuedouble : 0;
    }
    return sum;
}

double ct_stat_hang_s(const struct cJSON *job)
{
    double longest = -1;
    const cJSON *hang;
    cJSON_ArrayForEach(hang, cJSON_GetObjectItemCaseSensitive(job, "hangs"))
    {
        double seconds = ct_json_number(hang, "for_s", -1);
        longest = seconds > longest ? seconds : longest;
    }
    return longest;
}

/* ---- parts ---------------------------------------------------------------------------------- */

static void put_store(struct text *text, const cJSON *status)
{
    const cJSON *store = cJSON_GetObjectItemCaseSensitive(status, "store");
    double connections = ct_json_number(store, "connections", 0);
    double waiters = ct_json_number(store, "waiters", 0), keys = ct_json_number(store, "keys", 0);
    double requests = total(cJSON_GetObjectItemCaseSensitive(store, "operations"));
    char bytes[VALUE_MAX];
    put(text, "store: %.0f key%s, %s, %.0f connection%s, %.0f waiter%s, %.0f request%s", keys,
        plural(keys), size(ct_json_number(store, "bytes", 0), bytes), connections,
        plural(connections), waiters, plural(waiters), requests, plural(requests));
}

static void put_job(struct text *text, const cJSON *job)
{
    const char *state = ct_json_text(job, "state", "?");
    double world_size = ct_json_number(job, "world_size", 0);
    double max_restarts = ct_json_number(job, "max_restarts", 0);
    double hang_s = ct_stat_hang_s(job);
    char whole_id[CT_STAT_LINE_MAX];
    char how[CT_STAT_COLUMNS], restarts[CT_STAT_COLUMNS] = "", id[NAME_MAX_BYTES];
    char hang[CT_STAT_COLUMNS] = "", time[VALUE_MAX];
    if (strcmp(state, "waiting") == 0) {
        (void)snprintf(how, sizeof(how), "%.0f of %.0f nodes are there",
                       (double)cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(job, "nodes")),
                       ct_json_number(job, "min_nodes", 0));
    } else {
        (void)snprintf(how, sizeof(how), "%.0f worker%s, generation %.0f", world_size,
                       plural(world_size), ct_json_number(job, "generation", 0));
    }
    if (hang_s >= 0) {
        (void)snprintf(hang, sizeof(hang), ", hangs for %s", uptime(hang_s, time));
    }
    if (max_restarts > 0) {
        (void)snprintf(restarts, sizeof(restarts), ", restarts %.0f of %.0f",
                       ct_json_number(job, "restarts", 0), max_restarts);
    }
    /* If the line is too long, the run id is cut and not the numbers. */
    size_t taken = strlen("job : , ") + 8 + strlen(how) + strlen(hang) + strlen(restarts);
    put(text, "job %s: %.8s, %s%s%s",
        cut(ct_stat_name(job, "run_id", whole_id), text->columns, taken, ID_MIN, id), state, how,
        hang, restarts);
}

/* Is this the state of the spares of any node? */
static bool any_spares(const cJSON *job, const char *state)
{
    const cJSON *node;
    cJSON_ArrayForEach(node, cJSON_GetObjectItemCaseSensitive(job, "nodes"))
    {
        const cJSON *warm = cJSON_GetObjectItemCaseSensitive(node, "warm");
        if (strcmp(ct_json_text(warm, "state", ""), state) == 0) {
            return true;
        }
    }
    return false;
}

/* What --warm keeps ready, in all and where there is a reason for less. While more are made, what
 * one takes is not known for sure, and the line has no room for it. */
static void put_warm(struct text *text, const cJSON *job)
{
    double wanted = ct_json_number(job, "warm_wanted", 0);
    double mib = ct_json_number(job, "warm_spare_mib", 0);
    char memory[VALUE_MAX] = "";
    const cJSON *node;
    if (wanted == 0) {
        return;
    }
    if (any_spares(job, "making")) {
        (void)snprintf(memory, sizeof(memory), ", being made");
    } else if (any_spares(job, "waiting")) {
        (void)snprintf(memory, sizeof(memory), ", not yet made");
    } else if (mib > 0) {
        (void)snprintf(memory, sizeof(memory), " (%.0f MiB each)", mib);
    }
    put(text, "warm: %.0f of %.0f spares ready%s, %.0f of the workers were spares",
        ct_json_number(job, "warm_ready", 0), wanted, memory,
        ct_json_number(job, "warm_workers", 0));
    cJSON_ArrayForEach(node, cJSON_GetObjectItemCaseSensitive(job, "nodes"))
    {
        const cJSON *warm = cJSON_GetObjectItemCaseSensitive(node, "warm");
        const char *off = ct_json_text(warm, "off", ""), *cold = ct_json_text(warm, "cold", "");
        if (off[0] != '\0') {
            put(text, "no spares on %s: %s", ct_json_text(node, "host", "?"), off);
        } else if (strcmp(ct_json_text(warm, "state", ""), "memory") == 0) {
            put(text, "fewer spares on %s: there is too little memory",
                ct_json_text(node, "host", "?"));
        }
        if (cold[0] != '\0') {
            put(text, "cold start on %s: %s", ct_json_text(node, "host", "?"), cold);
        }
    }
}

/* ---- rows ----------------------------------------------------------------------------------- */

struct row {
    double number;
    int at; /* in the document */
    const cJSON *item;
};

static int compare_rows(const void *a, const void *b)
{
    const struct row *one = a, *other = b;
    return one->number != other->number
               ? (one->number > other->number) - (one->number < other->number)
               : one->at - other->at;
}

/* Gives the objects of an array in the order of their number of this name; those without one come
 * last. The store has them in the order in which they came. NULL if there are none. */
static struct row *order_rows(struct text *text, const cJSON *array, const char *name, int *count)
{
    *count = cJSON_GetArraySize(array);
    struct row *rows = *count > 0 ? ct_calloc((size_t)*count, sizeof(*rows)) : NULL;
    if (rows == NULL) {
        text->rc = *count > 0 && text->rc == 0 ? CT_ENOMEM : text->rc;
        *count = 0;
        return NULL;
    }
    int n = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, array)
    {
        double number = ct_json_number(item, name, -1);
        rows[n] = (struct row){number >= 0 ? number : INFINITY, n, item};
        n++;
    }
    qsort(rows, (size_t)n, sizeof(*rows), compare_rows);
    return rows;
}

/* Lists the nodes, unless there is just one and none is missing. */
static void put_nodes(struct text *text, const cJSON *job)
{
    const cJSON *nodes = cJSON_GetObjectItemCaseSensitive(job, "nodes");
    const cJSON *missing = cJSON_GetObjectItemCaseSensitive(job, "missing_nodes");
    if (cJSON_GetArraySize(nodes) + cJSON_GetArraySize(missing) < 2) {
        return;
    }
    put(text, "%s", "");
    put(text, " NODE STATE    WORKERS SEEN     ADDRESS         HOST");
    int count;
    struct row *rows = order_rows(text, nodes, "index", &count);
    for (int i = 0; i < count; i++) {
        const cJSON *node = rows[i].item;
        double index = ct_json_number(node, "index", -1);
        char number[VALUE_MAX] = "-", seen[VALUE_MAX], host[CT_STAT_LINE_MAX];
        if (index >= 0) {
            (void)snprintf(number, sizeof(number), "%.0f", index);
        }
        put(text, "%5.5s %-8.8s %7.0f %-8.8s %-15s %s", number, ct_json_text(node, "state", "?"),
            ct_json_number(node, "workers", 0),
            uptime(ct_json_number(node, "last_seen_s", 0), seen),
            ct_json_text(node, "address", "?"), ct_stat_name(node, "host", host));
    }
    ct_free(rows);
    const cJSON *one;
    cJSON_ArrayForEach(one, missing)
    {
        put(text, "missing: %s", cJSON_IsString(one) ? one->valuestring : "?");
    }
}

const char *ct_stat_worker_state(const struct cJSON *job, const struct cJSON *worker)
{
    return ct_status_hangs(job, ct_json_number(worker, "rank", -1))
               ? "hangs"
               : ct_json_text(worker, "state", "?");
}

static void put_workers(struct text *text, const cJSON *job)
{
    const cJSON *workers = cJSON_GetObjectItemCaseSensitive(job, "workers");
    if (cJSON_GetArraySize(workers) == 0) {
        return;
    }
    put(text, "%s", "");
    put(text, " RANK LOCAL     PID STATE     EXIT RESTARTS HOST");
    int count;
    struct row *rows = order_rows(text, workers, "rank", &count);
    for (int i = 0; i < count; i++) {
        const cJSON *worker = rows[i].item;
        const cJSON *code = cJSON_GetObjectItemCaseSensitive(worker, "exit");
        char exit_text[VALUE_MAX] = "-", host[CT_STAT_LINE_MAX];
        if (cJSON_IsNumber(code)) {
            (void)snprintf(exit_text, sizeof(exit_text), "%.0f", code->valuedouble);
        }
        put(text, "%5.0f %5.0f %7.0f %-9.9s %4.4s %8.0f %s", ct_json_number(worker, "rank", 0),
            ct_json_number(worker, "local_rank", 0), ct_json_number(worker, "pid", 0),
            ct_stat_worker_state(job, worker), exit_text, ct_json_number(worker, "restarts", 0),
            ct_stat_name(worker, "host", host));
    }
    ct_free(rows);
}

/* Writes a number, or "-" if there is none. */
static const char *optional(const cJSON *object, const char *name, int digits, char out[VALUE_MAX])
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, name);
    (void)snprintf(out, VALUE_MAX, "-");
    if (cJSON_IsNumber(value)) {
        (void)snprintf(out, VALUE_MAX, "%.*g", digits, value->valuedouble);
    }
    return out;
}

/* Lists the workers that report progress. */
static void put_progress(struct text *text, const cJSON *workers)
{
    bool headed = false;
    int count;
    struct row *rows = order_rows(text, workers, "rank", &count);
    for (int i = 0; i < count; i++) {
        const cJSON *worker = rows[i].item;
        const cJSON *progress = cJSON_GetObjectItemCaseSensitive(worker, "progress");
        char age[VALUE_MAX], loss[VALUE_MAX], rate[VALUE_MAX];
        if (!cJSON_IsObject(progress)) {
            continue;
        }
        if (!headed) {
            put(text, "%s", "");
            put(text, " RANK         STEP PHASE      FOR          LOSS    SAMPLES/S");
            headed = true;
        }
        put(text, "%5.0f %12.0f %-10.10s %-8.8s %8.8s %12.12s", ct_json_number(worker, "rank", 0),
            ct_json_number(progress, "step", 0), ct_json_text(progress, "phase", "?"),
            uptime(ct_json_number(progress, "age_s", 0), age), optional(progress, "loss", 4, loss),
            optional(progress, "samples_per_s", 6, rate));
    }
    ct_free(rows);
}

static void put_waiting(struct text *text, const cJSON *store)
{
    const cJSON *waiting = cJSON_GetObjectItemCaseSensitive(store, "waiting");
    if (cJSON_GetArraySize(waiting) == 0) {
        return;
    }
    put(text, "%s", "");
    put(text, "WAITING ONE OF THEM           FOR KEY");
    const cJSON *item;
    cJSON_ArrayForEach(item, waiting)
    {
        put(text, "%7.0f %-21s %s", ct_json_number(item, "clients", 0),
            ct_json_text(item, "peer", "?"), ct_json_text(item, "key", "?"));
    }
    if (ct_json_number(store, "waiting_more", 0) != 0) {
        put(text, "    ... and further keys");
    }
}

static void put_failures(struct text *text, const cJSON *job)
{
    const cJSON *failures = cJSON_GetObjectItemCaseSensitive(job, "failures");
    double left_out = ct_json_number(job, "failure_count", 0) - cJSON_GetArraySize(failures);
    if (cJSON_GetArraySize(failures) == 0) {
        return;
    }
    put(text, "%s", "");
    if (left_out > 0) {
        put(text, "%.0f earlier failure%s", left_out, plural(left_out));
    }
    const cJSON *item;
    cJSON_ArrayForEach(item, failures)
    {
        char line[CT_STAT_FAILURE_MAX];
        ct_stat_failure(item, text->columns, line);
        put(text, "%s", line);
    }
}

/* ---- documents ------------------------------------------------------------------------------- */

int ct_stat_verdict(const struct cJSON *status, bool *healthy)
{
    const char *health = ct_json_text(status, "health", "");
    bool good = strcmp(health, "healthy") == 0;
    if (!good && strcmp(health, "degraded") != 0) {
        return CT_EFORMAT;
    }
    *healthy = good;
    return 0;
}

bool ct_stat_has_job(const struct cJSON *status, const char *run_id)
{
    const cJSON *job = NULL;
    while ((job = ct_status_next_job(status, job)) != NULL) {
        if (strcmp(ct_json_text(job, "run_id", ""), run_id) == 0) {
            return true;
        }
    }
    return false;
}

static bool shares_a_job(const cJSON *a, const cJSON *b)
{
    const cJSON *job = NULL;
    while ((job = ct_status_next_job(a, job)) != NULL) {
        if (ct_stat_has_job(b, ct_json_text(job, "run_id", ""))) {
            return true;
        }
    }
    return false;
}

bool ct_stat_is_replaced(const struct cJSON *last, const struct cJSON *now, double passed_s)
{
    double uptime_s = ct_json_number(now, "uptime_s", 0);
    bool is_younger = uptime_s < ct_json_number(last, "uptime_s", 0) || uptime_s <= passed_s;
    return is_younger && ct_status_next_job(last, NULL) != NULL && !shares_a_job(last, now);
}

void ct_stat_failure(const struct cJSON *failure, size_t columns, char out[CT_STAT_FAILURE_MAX])
{
    char reason[CT_STAT_LINE_MAX] = "failed", whole_host[CT_STAT_LINE_MAX];
    double rank = ct_json_number(failure, "rank", -1);
    char generation[VALUE_MAX], who[VALUE_MAX] = "node", host[NAME_MAX_BYTES];
    char why[CT_STAT_LINE_MAX];
    (void)snprintf(generation, sizeof(generation), "%.0f",
                   ct_json_number(failure, "generation", 0));
    if (rank >= 0) {
        (void)snprintf(who, sizeof(who), "rank %.0f on", rank);
    }
    if (ct_json_text(failure, "reason", NULL) != NULL) {
        (void)ct_stat_name(failure, "reason", reason);
    }
    size_t taken = strlen("generation :  : ") + strlen(generation) + strlen(who) +
                   ct_text_fit(reason, SIZE_MAX, why, sizeof(why));
    (void)snprintf(out, CT_STAT_FAILURE_MAX, "generation %s: %s %s: %s", generation, who,
                   cut(ct_stat_name(failure, "host", whole_host), columns, taken, HOST_MIN, host),
                   reason);
}

const char *ct_stat_line(const char *text, size_t columns, char out[CT_STAT_LINE_MAX])
{
    (void)ct_text_fit(text, columns, out, CT_STAT_LINE_MAX);
    size_t len = strlen(out); /* of the text, too: a '?' takes the place of one byte */
    const char *blank = strrchr(out, ' ');
    if (text[len] != '\0' && text[len] != ' ' && blank != NULL && blank > out) {
        len = (size_t)(blank - out);
    }
    out[len] = '\0';
    return len > 0 ? text + len + strspn(text + len, " ") : "";
}

static void put_problem(struct text *text, const char *problem)
{
    char line[CT_STAT_LINE_MAX];
    const char *head = CT_STAT_PROBLEM;
    size_t room = text->columns - strlen(head);
    for (int i = 1; text->columns != SIZE_MAX && i < PROBLEM_LINES; i++) {
        const char *rest = ct_stat_line(problem, room, line);
        if (*rest == '\0') {
            break;
        }
        put(text, "%s%s", head, line);
        head = CT_STAT_PROBLEM_MORE;
        problem = rest;
    }
    put(text, "%s%s", head, problem);
}

int ct_stat_table(const struct cJSON *status, const char *where, size_t columns, struct ct_buf *out)
{
    struct text text = {out, columns, 0};
    const cJSON *job = NULL;
    char up[VALUE_MAX], store[NAME_MAX_BYTES], id[CT_STAT_LINE_MAX];
    put(&text, "%s: %s, up %s, version %s", cut(where, columns, WHERE_MIN, WHERE_MIN, store),
        ct_json_text(status, "health", "?"), uptime(ct_json_number(status, "uptime_s", 0), up),
        ct_json_text(status, "version", "?"));
    const cJSON *problem;
    cJSON_ArrayForEach(problem, cJSON_GetObjectItemCaseSensitive(status, "problems"))
    {
        put_problem(&text, cJSON_IsString(problem) ? problem->valuestring : "?");
    }
    while ((job = ct_status_next_job(status, job)) != NULL) {
        put_job(&text, job);
        put_warm(&text, job);
    }
    put_store(&text, status);
    put_waiting(&text, cJSON_GetObjectItemCaseSensitive(status, "store"));
    bool several = cJSON_GetObjectItemCaseSensitive(status, "jobs") != NULL;
    while ((job = ct_status_next_job(status, job)) != NULL) {
        if (several) {
            put(&text, "%s", "");
            put(&text, "job %s", ct_stat_name(job, "run_id", id));
        }
        put_nodes(&text, job);
        put_workers(&text, job);
        put_progress(&text, cJSON_GetObjectItemCaseSensitive(job, "workers"));
        put_failures(&text, job);
    }
    return text.rc;
}

int ct_stat_health(const struct cJSON *status, size_t columns, struct ct_buf *out)
{
    const cJSON *problems = cJSON_GetObjectItemCaseSensitive(status, "problems");
    const cJSON *first = cJSON_GetArrayItem(problems, 0);
    int more = cJSON_GetArraySize(problems) - 1;
    const char *health = ct_json_text(status, "health", "?");
    char hang[2 * VALUE_MAX] = "", count[VALUE_MAX] = "", tail[4 * VALUE_MAX] = "", time[VALUE_MAX];
    double hang_s = -1;
    for (const cJSON *job = NULL; (job = ct_status_next_job(status, job)) != NULL;) {
        double seconds = ct_stat_hang_s(job);
        hang_s = seconds > hang_s ? seconds : hang_s;
    }
    if (hang_s >= 0) {
        (void)snprintf(hang, sizeof(hang), "hangs for %s", uptime(hang_s, time));
    }
    if (more > 0) {
        (void)snprintf(count, sizeof(count), "and %d more%s", more, hang_s >= 0 ? ", " : "");
    }
    if (more > 0 || hang_s >= 0) {
        (void)snprintf(tail, sizeof(tail), " (%s%s)", count, hang);
    }
    /* Every character has a byte at least, and '?' takes the place of a byte. */
    const char *why = cJSON_IsString(first) ? first->valuestring : "";
    size_t size = strlen(health) + strlen(": ") + strlen(why) + sizeof(tail) + 1;
    size_t room = columns > strlen(tail) + HEALTH_MIN ? columns - strlen(tail) : HEALTH_MIN;
    char *whole = ct_malloc(size), *line = ct_malloc(size);
    int rc = CT_ENOMEM;
    if (whole != NULL && line != NULL) {
        (void)snprintf(whole, size, "%s%s%s", health, why[0] != '\0' ? ": " : "", why);
        (void)ct_text_cut(whole, room, line, size);
        rc = ct_buf_printf(out, "%s%s\n", line, tail);
    }
    ct_free(whole);
    ct_free(line);
    return rc;
}
