/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists the jobs of this machine, and finds the one that a word means. Pure: entries and status
 * documents that may be anything in, text out. A job whose store does not answer is listed all the
 * same.
 *
 * Every column but the program is as wide as its widest cell. An id is cut only behind what tells
 * it from every other one, as far as ID_MAX allows, because its beginning is what people will type.
 */
#include "rendezvous/ctrun-stat/stat_jobs.h"

#include "common/num.h"
#include "common/text.h"
#include "rendezvous/ctrun-stat/stat_table.h"
#include "rendezvous/http/status.h"
#include "rendezvous/wire/json.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- the table ------------------------------------------------------------------------------ */

enum { COLUMN_ID, COLUMN_STATE, COLUMN_WORKERS, COLUMN_AGE, COLUMN_PID, COLUMN_ADDRESS, COLUMNS };

/* Of an id: what is shown at least of a longer one, with its mark, and at most. */
#define ID_MIN 11
#define ID_MAX 32

/* Of the other columns. */
#define CELL_MAX 40

struct row {
    char cells[COLUMNS][4 * CELL_MAX];
    size_t taken[COLUMNS]; /* columns of the terminal */
};

static bool is_number(int column)
{
    return column == COLUMN_WORKERS || column == COLUMN_AGE || column == COLUMN_PID;
}

/* Returns how many columns of ids must be shown, so that two that differ look different. */
static size_t id_columns(const struct ct_stat_job *jobs, int count)
{
    size_t columns = ID_MIN;
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < i; j++) {
            const char *a = jobs[i].entry->name, *b = jobs[j].entry->name;
            size_t same = 0;
            while (a[same] == b[same] && a[same] != '\0') {
                same++;
            }
            /* No character takes more columns than it has bytes. */
            size_t needed = same + 1 + strlen("...");
            if (strcmp(a, b) != 0 && needed > columns) {
                columns = needed;
            }
        }
    }
    return columns < ID_MAX ? columns : ID_MAX;
}

/* "12s", "59m", "47h", "3d" */
static void write_age(int64_t seconds, char *out, size_t size)
{
    if (seconds < 0) {
        (void)snprintf(out, size, "?");
    } else if (seconds < 120) {
        (void)snprintf(out, size, "%" PRId64 "s", seconds);
    } else if (seconds < 2 * 3600) {
        (void)snprintf(out, size, "%" PRId64 "m", seconds / 60);
    } else if (seconds < 2 * 86400) {
        (void)snprintf(out, size, "%" PRId64 "h", seconds / 3600);
    } else {
        (void)snprintf(out, size, "%" PRId64 "d", seconds / 86400);
    }
}

static void set_cell(struct row *row, int column, const char *text, size_t columns)
{
    row->taken[column] = ct_text_cut(text, columns, row->cells[column], sizeof(row->cells[column]));
}

static bool is_stopped(const struct ct_job_entry *entry)
{
    return entry->state == 'T' || entry->state == 't';
}

/* What is shown as the state of a job whose store does not answer. */
static const char *silence(const struct ct_job_entry *entry)
{
    return entry->elsewhere ? "elsewhere" : is_stopped(entry) ? "stopped" : "no answer";
}

/* Writes why the store of the job does not answer; "" = that is not known. */
static void why_silent(const struct ct_job_entry *entry, char out[CT_STAT_HINT_MAX])
{
    out[0] = '\0';
    if (entry->elsewhere) {
        (void)snprintf(out, CT_STAT_HINT_MAX,
                       "not reachable from here (another network namespace); nsenter -n -t %ld",
                       (long)entry->pid);
    } else if (is_stopped(entry)) {
        (void)snprintf(out, CT_STAT_HINT_MAX,
                       "stopped (process %ld is in state %c); kill -CONT %ld lets it go on",
                       (long)entry->pid, entry->state, (long)entry->pid);
    }
}

/* What is shown as the state of a job whose store has answered. It is "running" only of a job with
 * which all is well, so that the list shows which one makes the exit code. */
static const char *state_of(const struct cJSON *status, const struct cJSON *job)
{
    const char *state = ct_json_text(job, "state", "?");
    bool running = strcmp(state, "running") == 0;
    if (running && ct_stat_hang_s(job) >= 0) {
        return "hangs";
    }
    return running && strcmp(ct_json_text(status, "health", ""), "degraded") == 0 ? "degraded"
                                                                                  : state;
}

static void make_row(const struct ct_stat_job *stat_job, size_t id, struct row *out)
{
    const struct ct_job_entry *entry = stat_job->entry;
    const struct cJSON *status = stat_job->status;
    const struct cJSON *job = status != NULL ? ct_status_next_job(status, NULL) : NULL;
    char workers[32] = "-", age[32], pid[32];
    if (job != NULL) {
        (void)snprintf(workers, sizeof(workers), "%.0f", ct_json_number(job, "world_size", 0));
    }
    write_age(entry->age_s, age, sizeof(age));
    (void)snprintf(pid, sizeof(pid), "%ld", (long)entry->pid);
    set_cell(out, COLUMN_ID, entry->name, id);
    set_cell(out, COLUMN_STATE, status != NULL ? state_of(status, job) : silence(entry), 10);
    set_cell(out, COLUMN_WORKERS, workers, CELL_MAX);
    set_cell(out, COLUMN_AGE, age, CELL_MAX);
    set_cell(out, COLUMN_PID, pid, CELL_MAX);
    set_cell(out, COLUMN_ADDRESS, entry->address, CELL_MAX);
}

/* A column without width is left out. */
static void put_row(const struct row *row, const size_t widths[COLUMNS], const char *program,
                    size_t columns, struct ct_buf *out)
{
    struct ct_buf line = CT_BUF_INIT;
    char shown[4 * CT_STAT_JOBS_COLUMNS_MAX];
    for (int i = 0; i < COLUMNS; i++) {
        if (widths[i] == 0) {
            continue;
        }
        int pad = (int)(widths[i] - row->taken[i]);
        ct_buf_addf(&line, "%*s%s%*s ", is_number(i) ? pad : 0, "", row->cells[i],
                    is_number(i) ? 0 : pad, "");
    }
    ct_buf_addf(&line, "%s", program);
    const char *text = ct_buf_cstr(&line);
    if (text == NULL || ct_buf_status(&line) != 0) {
        out->failed = true;
    } else {
        (void)ct_text_cut(text, columns, shown, sizeof(shown));
        ct_buf_addf(out, "%s\n", shown);
    }
    ct_buf_fini(&line);
}

/* `asked` = the stores were, so there is a state. */
static void put_table(const struct ct_stat_job *jobs, int count, bool asked, size_t columns,
                      struct ct_buf *out)
{
    static const struct row heading = {
        {"ID", "STATE", "WORKERS", "AGE", "PID", "ADDRESS"},
        {2, 5, 7, 3, 3, 7},
    };
    struct row row = {0};
    size_t widths[COLUMNS], id = id_columns(jobs, count);
    memcpy(widths, heading.taken, sizeof(widths));
    for (int i = 0; i < count; i++) {
        make_row(&jobs[i], id, &row);
        for (int k = 0; k < COLUMNS; k++) {
            widths[k] = row.taken[k] > widths[k] ? row.taken[k] : widths[k];
        }
    }
    if (!asked) {
        widths[COLUMN_STATE] = widths[COLUMN_WORKERS] = 0;
    }
    columns = columns < CT_STAT_JOBS_COLUMNS_MAX ? columns : CT_STAT_JOBS_COLUMNS_MAX;
    put_row(&heading, widths, "PROGRAM", columns, out);
    for (int i = 0; i < count; i++) {
        make_row(&jobs[i], id, &row);
        put_row(&row, widths, jobs[i].entry->program, columns, out);
    }
}

int ct_stat_jobs_table(const struct ct_stat_job *jobs, int count, size_t columns,
                       struct ct_buf *out)
{
    put_table(jobs, count, true, columns, out);
    for (int i = 0; i < count; i++) {
        char why[CT_STAT_HINT_MAX] = "";
        if (jobs[i].status == NULL) {
            why_silent(jobs[i].entry, why);
        }
        ct_buf_addf(out, "%s%s", why, why[0] != '\0' ? "\n" : "");
    }
    return ct_buf_status(out);
}

int ct_stat_jobs_names(const struct ct_job_entry *entries, int count, size_t columns,
                       struct ct_buf *out)
{
    struct ct_stat_job jobs[CT_JOBS_MAX] = {{NULL, NULL}};
    for (int i = 0; i < count && i < CT_JOBS_MAX; i++) {
        jobs[i].entry = &entries[i];
    }
    put_table(jobs, count < CT_JOBS_MAX ? count : CT_JOBS_MAX, false, columns, out);
    return ct_buf_status(out);
}

/* ---- the job that is meant ------------------------------------------------------------------ */

/* Gives the index of the only entry whose id is the text or, with `begins`, begins with it. Returns
 * how many there are. */
static int count_ids(const char *text, bool begins, const struct ct_job_entry *entries, int count,
                     int *index)
{
    int found = 0;
    for (int i = 0; i < count; i++) {
        if (begins ? strncmp(entries[i].name, text, strlen(text)) == 0
                   : strcmp(entries[i].name, text) == 0) {
            *index = i;
            found++;
        }
    }
    return found;
}

/* Returns the index of the entry with this process id; CT_ENOENT if there is none, or if the number
 * is the port of a store. */
static int find_pid(const char *number, const struct ct_job_entry *entries, int count)
{
    int pid, index = CT_ENOENT;
    if (ct_parse_int(number, 1, INT_MAX, &pid) != 0) {
        return CT_ENOENT;
    }
    for (int i = 0; i < count; i++) {
        const char *port = strrchr(entries[i].address, ':');
        if (port != NULL && strcmp(port + 1, number) == 0) {
            return CT_ENOENT;
        }
        index = entries[i].pid == pid ? i : index;
    }
    return index;
}

/* Writes the word as ct_job_registry_add() has cleaned ids. Returns its length. */
static size_t clean_word(const char *word, char out[CT_JOB_NAME_MAX])
{
    (void)ct_text_fit(word, CT_JOB_NAME_MAX, out, CT_JOB_NAME_MAX);
    return strlen(out);
}

int ct_stat_jobs_count(const char *word, const struct ct_job_entry *entries, int count)
{
    char text[CT_JOB_NAME_MAX];
    int unused;
    return clean_word(word, text) > 0 ? count_ids(text, true, entries, count, &unused) : 0;
}

int ct_stat_jobs_find(const char *word, const struct ct_job_entry *entries, int count,
                      struct ct_err *err)
{
    static const char mark[] = "...";
    char text[CT_JOB_NAME_MAX];
    int index = 0;
    size_t len = clean_word(word, text);
    int found = len > 0 ? count_ids(text, false, entries, count, &index) : 0;
    if (found == 1) {
        return index;
    }
    if (found > 1) {
        return ct_err_set(err, CT_EINVAL,
                          "%d jobs here have the id '%s': name the address of one of them, as "
                          "listed by ctrun-stat alone",
                          found, text);
    }
    bool marked = len >= strlen(mark) && strcmp(text + len - strlen(mark), mark) == 0;
    if (marked) {
        len -= strlen(mark);
        text[len] = '\0';
    }
    bool number = text[strspn(text, "0123456789")] == '\0';
    if (number && len > 0 && !marked) {
        return find_pid(text, entries, count);
    }
    /* Nobody calls a job node7:29500. */
    if (len == 0 || (strpbrk(text, ":/") != NULL && !marked)) {
        return CT_ENOENT;
    }
    found = count_ids(text, true, entries, count, &index);
    if (found > 1) {
        return ct_err_set(err, CT_EINVAL,
                          "the ids of %d jobs here begin with '%s': write more of it; "
                          "ctrun-stat alone lists them",
                          found, text);
    }
    return found == 1 ? index : CT_ENOENT;
}

/* ---- hints ---------------------------------------------------------------------------------- */

bool ct_stat_jobs_in_reach(const struct ct_job_entry *entry)
{
    struct ct_endpoint where;
    struct sockaddr_storage addr;
    socklen_t len;
    return !entry->elsewhere || ct_endpoint_parse(entry->address, 0, &where, NULL) != 0 ||
           !ct_addr_literal(where.host, where.port, &addr, &len) ||
           !ct_addr_is_loopback((const struct sockaddr *)&addr);
}

/* Writes why the job whose store is at `asked` does not answer. Returns whether that is known. A
 * job in another network namespace may have the same address as one that is here. */
static bool silence_hint(const char *asked, const struct ct_job_entry *entries, int count,
                         char out[CT_STAT_HINT_MAX])
{
    const struct ct_job_entry *found = NULL;
    for (int i = 0; i < count; i++) {
        if (strcmp(entries[i].address, asked) == 0 && (found == NULL || found->elsewhere)) {
            found = &entries[i];
        }
    }
    char why[CT_STAT_HINT_MAX] = "";
    if (found != NULL) {
        why_silent(found, why);
    }
    if (why[0] != '\0') {
        (void)snprintf(out, CT_STAT_HINT_MAX, "; %.*s", (int)sizeof(why) - 3, why);
    }
    return why[0] != '\0';
}

void ct_stat_jobs_hint(const struct ct_endpoint *where, bool refused,
                       const struct ct_job_entry *entries, int count, char out[CT_STAT_HINT_MAX])
{
    static const char port[] = "; ctrun chooses a free port, unless --master-port names one";
    char asked[CT_ADDR_JOIN_MAX];
    struct sockaddr_storage addr;
    socklen_t len;
    out[0] = '\0';
    ct_addr_join(where->host, where->port, asked, sizeof(asked));
    if (silence_hint(asked, entries, count, out) || !refused) {
        return;
    }
    bool here = ct_addr_literal(where->host, where->port, &addr, &len) &&
                ct_addr_is_loopback((const struct sockaddr *)&addr);
    if (count == 1 && strcmp(entries[0].address, asked) != 0 &&
        ct_stat_jobs_in_reach(&entries[0])) {
        (void)snprintf(out, CT_STAT_HINT_MAX, "; your job on this machine has its store at %s",
                       entries[0].address);
    } else if (count > 1) {
        (void)snprintf(out, CT_STAT_HINT_MAX,
                       "; ctrun-stat without an address lists your %d jobs on this machine", count);
    } else {
        (void)snprintf(out, CT_STAT_HINT_MAX, "%s%s", port,
                       here ? ""
                            : "; a job that has lost the machine of its store has another one, at "
                              "the address that its ctruns have printed");
    }
}
