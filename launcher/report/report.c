/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of a report: first what the worker itself wrote, then the consequences of its failure,
 * then what to do. Whoever reads only three lines knows which worker failed, how and why.
 *
 * Failure modes: without memory the text is incomplete, and ct_buf_status() says so.
 */
#include "launcher/report/report.h"

#include "common/ranges.h"
#include "common/text.h"

#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Consequences are not the cause: more of them than this only push the cause out of sight. */
#define OTHER_FAILURES_SHOWN 4

/* A list of ranks takes no more bytes than this, so that its line fits into two of a terminal. */
#define RANKS_ROOM 80

size_t ct_report_line(char *line, size_t size, const char *fmt, va_list args)
{
    int len = snprintf(line, size, "%s", CT_REPORT_PREFIX);
    len += vsnprintf(line + len, size - (size_t)len - 1, fmt, args);
    size_t end = (size_t)len < size - 2 ? (size_t)len : size - 2;
    line[end] = '\n';
    return end + 1;
}

typedef bool (*member_fn)(const struct ct_report_worker *worker);

static bool is_alive(const struct ct_report_worker *worker)
{
    return worker->pid != 0 && !worker->ended;
}

static bool was_killed(const struct ct_report_worker *worker)
{
    return worker->killed;
}

static bool was_stopped(const struct ct_report_worker *worker)
{
    return worker->ended && worker->was_asked;
}

/* Ended by itself with an error although it had been asked to stop: most often because the peer
 * that failed first no longer answers. */
static bool failed_too(const struct ct_report_worker *worker)
{
    bool by_us = worker->end.kind == CT_END_SIGNALED &&
                 (worker->end.value == SIGTERM || worker->end.value == SIGKILL);
    return was_stopped(worker) && !ct_worker_end_is_success(&worker->end) && !by_us;
}

static bool stopped_cleanly(const struct ct_report_worker *worker)
{
    return (was_stopped(worker) && !failed_too(worker)) ||
           (worker->ended && worker->end.kind == CT_END_ALL_HUNG);
}

static int count_of(const struct ct_report *report, member_fn member)
{
    int count = 0;
    for (int i = 0; i < report->count; i++) {
        count += member(&report->workers[i]);
    }
    return count;
}

struct members {
    const struct ct_report *report;
    member_fn member;
};

static bool has(const void *set, int local_rank)
{
    const struct members *members = set;
    return members->member(&members->report->workers[local_rank]);
}

/* "ranks 0, 2-3" of those that are members, or "ranks 0, 2-3 and 7 more"; the one that failed first
 * never is. */
static void add_ranks(const struct ct_report *report, member_fn member, struct ct_buf *out)
{
    const struct members members = {report, member};
    const struct ct_ranges ranges = {
        .has = has, .set = &members, .count = report->count, .first = report->workers[0].rank};
    (void)ct_ranges_add_some_ranks(&ranges, RANKS_ROOM, out);
}

int ct_report_headline(const struct ct_report *report, struct ct_buf *out)
{
    const struct ct_report_worker *failed = &report->workers[report->failed];
    bool all = failed->end.kind == CT_END_ALL_HUNG;
    if (failed->end.kind == CT_END_UNFIT) {
        ct_buf_addf(out, CT_REPORT_PREFIX "machine %s is not fit: ", report->host);
    } else if (all) {
        ct_buf_addf(out, CT_REPORT_PREFIX "the job hung on %s: ", report->host);
    } else {
        ct_buf_addf(out, CT_REPORT_PREFIX "rank %d failed on %s: ", failed->rank, report->host);
    }
    if (report->start_error != NULL) {
        ct_buf_addf(out, "%s", report->start_error);
    } else {
        if (!all) {
            ct_buf_addf(out, "process %ld ", (long)failed->pid);
        }
        ct_worker_end_describe(&failed->end, out);
    }
    ct_buf_addf(out, "\n");
    return ct_report_stopping(report, out);
}

/* Where no rank stands out, the one that was ended first is stopped like the others. */
static bool is_to_stop(const struct ct_report_worker *worker)
{
    return is_alive(worker) || (worker->ended && worker->end.kind == CT_END_ALL_HUNG);
}

int ct_report_stopping(const struct ct_report *report, struct ct_buf *out)
{
    if (count_of(report, is_alive) > 0) {
        int64_t tenths = report->shutdown_timeout_ms / 100;
        ct_buf_addf(out, CT_REPORT_PREFIX "stopping ");
        add_ranks(report, is_to_stop, out);
        ct_buf_addf(out, " because of it (SIGTERM, after %g s SIGKILL)\n", (double)tenths / 10);
    }
    return ct_buf_status(out);
}

static void add_left(const struct ct_report *report, struct ct_buf *out)
{
    if (report->left > 0) {
        ct_buf_addf(out,
                    CT_REPORT_PREFIX
                    "processes that cannot be killed (stuck in the kernel, see dmesg): %zu\n",
                    report->left);
    }
}

int ct_report_killed(const struct ct_report *report, struct ct_buf *out)
{
    if (count_of(report, was_killed) > 0) {
        ct_buf_addf(out, CT_REPORT_PREFIX);
        add_ranks(report, was_killed, out);
        ct_buf_addf(out, " did not stop in time and %s killed\n",
                    count_of(report, was_killed) == 1 ? "was" : "were");
    }
    add_left(report, out);
    return ct_buf_status(out);
}

/* A line of a text, without its line break. */
struct line {
    const char *at;
    size_t len;
};

/* Takes the next line from *text. NULL is a text without lines. */
static bool next_line(const char **text, struct line *line)
{
    if (*text == NULL || **text == '\0') {
        return false;
    }
    line->at = *text;
    line->len = strcspn(*text, "\n");
    *text += line->len + ((*text)[line->len] == '\n');
    return true;
}

int ct_report_quote(const char *text, struct ct_buf *out)
{
    for (struct line line; next_line(&text, &line);) {
        ct_buf_addf(out, CT_REPORT_INDENT);
        for (size_t i = 0; i < line.len; i++) {
            size_t unwanted = line.at[i] != '\t' ? ct_text_unwanted(line.at + i) : 0;
            ct_buf_add(out, unwanted > 0 ? "?" : line.at + i, 1);
            i += unwanted > 1 ? unwanted - 1 : 0;
        }
        ct_buf_addf(out, "\n");
    }
    return ct_buf_status(out);
}

/* ---- nothing twice -------------------------------------------------------------------------- */

/* Blanks around it do not make a line another one. */
static struct line trimmed(struct line line)
{
    while (line.len > 0 && strchr(" \t\r", line.at[line.len - 1]) != NULL) {
        line.len--;
    }
    while (line.len > 0 && strchr(" \t", *line.at) != NULL) {
        line.at++;
        line.len--;
    }
    return line;
}

/* Is `end` the line, or its end behind a blank, as in "program: message"? */
static bool ends_with(struct line line, struct line end)
{
    line = trimmed(line);
    end = trimmed(end);
    return end.len > 0 && end.len <= line.len &&
           memcmp(line.at + line.len - end.len, end.at, end.len) == 0 &&
           (end.len == line.len || line.at[line.len - end.len - 1] == ' ');
}

static bool is_end_of(struct line end, struct line line)
{
    return ends_with(line, end);
}

static bool is_same(struct line line, struct line other)
{
    line = trimmed(line);
    other = trimmed(other);
    return line.len == other.len && memcmp(line.at, other.at, line.len) == 0;
}

/* Is there a line in the text for which `fits` is true, compared with `other`? */
static bool any_line(const char *text, bool (*fits)(struct line line, struct line other),
                     struct line other)
{
    for (struct line line; next_line(&text, &line);) {
        if (fits(line, other)) {
            return true;
        }
    }
    return false;
}

/* A line of blanks is in every text. */
static bool has_line(const char *text, struct line line)
{
    return trimmed(line).len == 0 || any_line(text, is_same, line);
}

/* Does a line of the tail end in the first one of the message? The further ones follow it. */
static bool shows(const char *tail, const char *message)
{
    struct line first;
    return next_line(&message, &first) && any_line(tail, ends_with, first);
}

/* Does each line of `text` stand in one of the others? */
static bool is_said(const char *text, const char *one, const char *other)
{
    for (struct line line; next_line(&text, &line);) {
        if (!has_line(one, line) && !has_line(other, line)) {
            return false;
        }
    }
    return true;
}

/* The line in which a traceback ends: the error itself. */
static bool ends_in(const char *traceback, const char *text)
{
    struct line last = {"", 0};
    for (struct line line; next_line(&traceback, &line);) {
        last = trimmed(line).len > 0 ? line : last;
    }
    return last.len > 0 && has_line(text, last);
}

/* The lines of the tail that stand neither in the message nor in the traceback, if there are any.
 */
static void add_rest(int rank, const char *tail, const char *message, const char *traceback,
                     struct ct_buf *out)
{
    bool begun = false;
    for (struct line line; next_line(&tail, &line);) {
        if (has_line(message, line) || has_line(traceback, line) ||
            any_line(message, is_end_of, line)) {
            continue;
        }
        if (!begun) {
            ct_buf_addf(out, CT_REPORT_PREFIX "rank %d wrote last on stderr:\n", rank);
        }
        begun = true;
        ct_buf_add(out, line.at, (size_t)(tail - line.at));
    }
}

int ct_report_add_evidence(const struct ct_report_evidence *said, struct ct_buf *out)
{
    bool is_shown = said->tail_is_seen || said->tail_is_shown;
    const char *seen = said->tail_is_seen ? said->tail : NULL;
    const char *traceback = said->traceback;
    if (traceback != NULL && is_shown && said->tail != NULL && ends_in(traceback, said->tail)) {
        traceback = NULL; /* Python has written it, too */
    }
    const char *message = said->message;
    if (is_said(message, traceback, seen) || shows(seen, message)) {
        message = NULL;
    }
    if (message != NULL) {
        ct_buf_addf(out, CT_REPORT_PREFIX "rank %d says in its error file:\n", said->rank);
        ct_report_quote(message, out);
    }
    if (traceback != NULL && message != NULL) {
        ct_buf_addf(out, CT_REPORT_PREFIX "with the traceback:\n");
    } else if (traceback != NULL) {
        ct_buf_addf(out, CT_REPORT_PREFIX "rank %d has the traceback:\n", said->rank);
    }
    if (traceback != NULL) {
        ct_report_quote(traceback, out);
    }
    bool is_told = seen != NULL || (is_shown && shows(said->tail, message));
    if (!is_told) {
        add_rest(said->rank, said->tail, message, traceback, out);
    }
    return ct_buf_status(out);
}

/* ---- the whole report ----------------------------------------------------------------------- */

static void add_cause(const struct ct_report *report, const struct ct_report_worker *failed,
                      struct ct_buf *out)
{
    int rank = failed->rank;
    if (failed->end.kind == CT_END_ALL_HUNG) {
        return; /* what one of them wrote says no more than what the others did */
    }
    if (failed->end.kind == CT_END_UNFIT) {
        if (report->tail[0] != '\0') {
            ct_buf_addf(out, CT_REPORT_PREFIX "its health check wrote last:\n%s", report->tail);
        }
        return;
    }
    if (failed->end.kind == CT_END_SIGNALED && failed->end.value == SIGKILL) {
        /* The evidence for or against the out-of-memory killer. */
        ct_buf_addf(out, CT_REPORT_PREFIX "rank %d had used up to %" PRId64 " MiB\n", rank,
                    failed->max_rss_kib / 1024);
        if (failed->memory[0] != '\0' && report->will_restart) { /* else the advice says it */
            ct_buf_addf(out, CT_REPORT_PREFIX "rank %d was probably out of memory: %s\n", rank,
                        failed->memory);
        }
    }
    const struct ct_report_evidence said = {
        .rank = rank,
        .message = report->message,
        .traceback = report->traceback,
        .tail = report->tail,
        .tail_is_seen = report->tail_is_seen,
        .tail_is_shown = report->tail_is_shown,
    };
    ct_report_add_evidence(&said, out);
}

static void add_other_failures(const struct ct_report *report, struct ct_buf *out)
{
    int shown = 0, total = count_of(report, failed_too);
    for (int i = 0; i < report->count && shown < OTHER_FAILURES_SHOWN; i++) {
        const struct ct_report_worker *worker = &report->workers[i];
        if (failed_too(worker)) {
            ct_buf_addf(out, CT_REPORT_PREFIX "later, rank %d ", worker->rank);
            ct_worker_end_describe(&worker->end, out);
            ct_buf_addf(out, "\n");
            shown++;
        }
    }
    if (total > shown) {
        ct_buf_addf(out, CT_REPORT_PREFIX "and %d more failed later\n", total - shown);
    }
}

static void add_consequences(const struct ct_report *report, struct ct_buf *out)
{
    bool unfit = report->workers[report->failed].end.kind == CT_END_UNFIT;
    add_other_failures(report, out);
    if (count_of(report, stopped_cleanly) > 0) {
        ct_buf_addf(out, CT_REPORT_PREFIX "stopped because of it: ");
        add_ranks(report, stopped_cleanly, out);
        ct_buf_addf(out, "\n");
    }
    if (report->strays > 0) {
        ct_buf_addf(out, CT_REPORT_PREFIX "processes that %s left behind, now ended: %zu\n",
                    unfit ? "its check" : "workers", report->strays);
    }
    if (report->killed > 0) {
        ct_buf_addf(out,
                    CT_REPORT_PREFIX "processes that did not stop in time and were killed: %zu\n",
                    report->killed);
    }
    add_left(report, out);
}

int ct_report_failure(const struct ct_report *report, struct ct_buf *out)
{
    const struct ct_report_worker *failed = &report->workers[report->failed];
    add_cause(report, failed, out);
    if (report->kernel_stack != NULL) {
        ct_buf_addf(out, CT_REPORT_PREFIX "stack of rank %d in the kernel:\n%s", failed->rank,
                    report->kernel_stack);
    }
    add_consequences(report, out);
    if (report->will_restart && failed->end.kind == CT_END_UNFIT && !report->alone) {
        ct_buf_addf(out, CT_REPORT_PREFIX "the next generation forms, without this machine if "
                                          "another one can take its place\n");
        return ct_buf_status(out);
    }
    if (report->will_restart) {
        /* Not "all workers": some may live on in place (launcher/worker/order_writer.h). */
        ct_buf_addf(out, CT_REPORT_PREFIX "restarting the job (restart %d", report->restarts + 1);
        if (report->max_restarts < INT_MAX) { /* else --restart-budget is the only limit */
            ct_buf_addf(out, " of %d", report->max_restarts);
        }
        ct_buf_addf(out, ")\n");
        return ct_buf_status(out);
    }
    bool restart_left = report->restarts < report->max_restarts;
    if (report->barred) {
        ct_buf_addf(out,
                    CT_REPORT_PREFIX "--no-restart-on excludes a restart after this: the job "
                                     "ends with %d\n",
                    CT_EXIT_NO_REQUEUE);
    }
    if (restart_left && failed->end.kind == CT_END_EXITED && failed->end.final) {
        ct_buf_addf(out, CT_REPORT_PREFIX "rank %d says that a restart cannot help: the job ends\n",
                    failed->rank);
    }
    if (report->advice != NULL) {
        ct_buf_addf(out, CT_REPORT_PREFIX "what to do: %s\n", report->advice);
    }
    if (report->log_folder != NULL && failed->end.kind != CT_END_ALL_HUNG) {
        ct_buf_addf(out, CT_REPORT_PREFIX "log files of rank %d: %s\n", failed->rank,
                    report->log_folder);
    }
    return ct_buf_status(out);
}
