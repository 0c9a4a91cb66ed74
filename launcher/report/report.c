/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of a report: first what the worker itself wrote, then the consequences of its failure,
 * then what to do. Whoever reads only three lines knows which worker failed, how and why.
 *
 * Failure modes: without memory the text is incomplete, and ct_buf_status() says so.
 */
#include "launcher/report/report.h"

#include "common/text.h"
#include <inttypes.h>
#include <signal.h>
#include <string.h>

/* Consequences are not the cause: more of them than this only push the cause out of sight. */
#define OTHER_FAILURES_SHOWN 4

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

/* "ranks 0, 2-3" of those that are members; the one that failed first never is. */
static void add_ranks(const struct ct_report *report, member_fn member, struct ct_buf *out)
{
    const struct ct_report_worker *workers = report->workers;
    const char *comma = "";
    ct_buf_addf(out, count_of(report, member) == 1 ? "rank " : "ranks ");
    for (int i = 0; i < report->count; i++) {
        if (!member(&workers[i])) {
            continue;
        }
        int last = i;
        while (last + 1 < report->count && member(&workers[last + 1])) {
            last++;
        }
        ct_buf_addf(out, last > i ? "%s%d-%d" : "%s%d", comma, workers[i].rank, workers[last].rank);
        comma = ", ";
        i = last;
    }
}

int ct_report_headline(const struct ct_report *report, struct ct_buf *out)
{
    const struct ct_report_worker *failed = &report->workers[report->failed];
    bool all = failed->end.kind == CT_END_ALL_HUNG;
    if (all) {
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

int ct_report_stopping(const struct ct_report *report, struct ct_buf *out)
{
    if (count_of(report, is_alive) > 0) {
        ct_buf_addf(out, CT_REPORT_PREFIX "stopping ");
        add_ranks(report, is_alive, out);
        ct_buf_addf(out, " because of it (SIGTERM, after %" PRId64 " s SIGKILL)\n",
                    report->shutdown_timeout_ms / 1000);
    }
    return ct_buf_status(out);
}

int ct_report_killed(const struct ct_report *report, struct ct_buf *out)
{
    if (count_of(report, was_killed) > 0) {
        ct_buf_addf(out, CT_REPORT_PREFIX);
        add_ranks(report, was_killed, out);
        ct_buf_addf(out, " did not stop in time and %s killed\n",
                    count_of(report, was_killed) == 1 ? "was" : "were");
    }
    return ct_buf_status(out);
}

int ct_report_quote(const char *text, struct ct_buf *out)
{
    while (*text != '\0') {
        size_t len = strcspn(text, "\n");
        ct_buf_addf(out, CT_REPORT_INDENT);
        for (size_t i = 0; i < len; i++) {
            size_t unwanted = text[i] != '\t' ? ct_text_unwanted(text + i) : 0;
            ct_buf_add(out, unwanted > 0 ? "?" : text + i, 1);
            i += unwanted > 1 ? unwanted - 1 : 0;
        }
        ct_buf_addf(out, "\n");
        text += len + (text[len] == '\n');
    }
    return ct_buf_status(out);
}

/* ---- nothing twice -------------------------------------------------------------------------- */

/* Blanks around it do not make a line another one. */
static size_t trim(const char **line, size_t len)
{
    while (len > 0 && strchr(" \t\r", (*line)[len - 1]) != NULL) {
        len--;
    }
    while (len > 0 && strchr(" \t", **line) != NULL) {
        (*line)++;
        len--;
    }
    return len;
}

static bool has_line(const char *text, const char *line, size_t len)
{
    len = trim(&line, len);
    while (text != NULL && *text != '\0') {
        size_t whole = strcspn(text, "\n");
        const char *other = text;
        if (trim(&other, whole) == len && memcmp(other, line, len) == 0) {
            return true;
        }
        text += whole + (text[whole] == '\n');
    }
    return len == 0;
}

/* Is `end` the line, or what stands in it behind "program: "? */
static bool is_end_of(const char *line, size_t len, const char *end, size_t size)
{
    len = trim(&line, len);
    size = trim(&end, size);
    return size > 0 && size <= len && memcmp(line + len - size, end, size) == 0 &&
           (size == len || line[len - size - 1] == ' ');
}

/* Does the line end in one of the message's? */
static bool quotes(const char *line, size_t len, const char *message)
{
    while (message != NULL && *message != '\0') {
        size_t size = strcspn(message, "\n");
        if (is_end_of(line, len, message, size)) {
            return true;
        }
        message += size + (message[size] == '\n');
    }
    return false;
}

/* Does a line of the tail end in the first one of the message? The further ones follow it. */
static bool shows(const char *tail, const char *message)
{
    while (tail != NULL && message != NULL && *tail != '\0') {
        size_t len = strcspn(tail, "\n");
        if (is_end_of(tail, len, message, strcspn(message, "\n"))) {
            return true;
        }
        tail += len + (tail[len] == '\n');
    }
    return false;
}

/* Does each line of `text` stand in one of the others? */
static bool is_said(const char *text, const char *one, const char *other)
{
    while (text != NULL && *text != '\0') {
        size_t len = strcspn(text, "\n");
        if (!has_line(one, text, len) && !has_line(other, text, len)) {
            return false;
        }
        text += len + (text[len] == '\n');
    }
    return true;
}

/* The line in which a traceback ends: the error itself. */
static bool ends_in(const char *traceback, const char *text)
{
    const char *last = NULL;
    for (const char *line = traceback; *line != '\0';) {
        size_t len = strcspn(line, "\n");
        const char *begin = line;
        last = trim(&begin, len) > 0 ? line : last;
        line += len + (line[len] == '\n');
    }
    return last != NULL && has_line(text, last, strcspn(last, "\n"));
}

static bool is_quoted(const char *line, size_t len, const char *message, const char *traceback)
{
    return has_line(message, line, len) || has_line(traceback, line, len) ||
           quotes(line, len, message);
}

static bool has_rest(const char *tail, const char *message, const char *traceback)
{
    while (tail != NULL && *tail != '\0') {
        size_t len = strcspn(tail, "\n");
        if (!is_quoted(tail, len, message, traceback)) {
            return true;
        }
        tail += len + (tail[len] == '\n');
    }
    return false;
}

/* The lines of the tail that stand neither in the message nor in the traceback. */
static void add_rest(const char *tail, const char *message, const char *traceback,
                     struct ct_buf *out)
{
    while (tail != NULL && *tail != '\0') {
        size_t len = strcspn(tail, "\n");
        size_t whole = len + (tail[len] == '\n');
        if (!is_quoted(tail, len, message, traceback)) {
            ct_buf_add(out, tail, whole);
        }
        tail += whole;
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
    if (!is_told && has_rest(said->tail, message, traceback)) {
        ct_buf_addf(out, CT_REPORT_PREFIX "rank %d wrote last on stderr:\n", said->rank);
        add_rest(said->tail, message, traceback, out);
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
    add_other_failures(report, out);
    if (count_of(report, stopped_cleanly) > 0) {
        ct_buf_addf(out, CT_REPORT_PREFIX "stopped because of it: ");
        add_ranks(report, stopped_cleanly, out);
        ct_buf_addf(out, "\n");
    }
    if (report->strays > 0) {
        ct_buf_addf(out, CT_REPORT_PREFIX "processes that workers left behind, now ended: %zu\n",
                    report->strays);
    }
    if (report->killed > 0) {
        ct_buf_addf(out,
                    CT_REPORT_PREFIX "processes that did not stop in time and were killed: %zu\n",
                    report->killed);
    }
    if (report->left > 0) {
        ct_buf_addf(out,
                    CT_REPORT_PREFIX
                    "processes that cannot be killed (stuck in the kernel, see dmesg): %zu\n",
                    report->left);
    }
}

int ct_report_failure(const struct ct_report *report, struct ct_buf *out)
{
    const struct ct_report_worker *failed = &report->workers[report->failed];
    add_cause(report, failed, out);
    add_consequences(report, out);
    if (report->will_restart) {
        /* Not "all workers": some may live on in place (launcher/worker/order_writer.h). */
        ct_buf_addf(out, CT_REPORT_PREFIX "restarting the job (restart %d of %d)\n",
                    report->restarts + 1, report->max_restarts);
        return ct_buf_status(out);
    }
    bool restart_left = report->restarts < report->max_restarts;
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
    if (report->restarts > 0 && !restart_left) {
        ct_buf_addf(out, CT_REPORT_PREFIX "no restarts are left (--max-restarts %d)\n",
                    report->max_restarts);
    }
    return ct_buf_status(out);
}
