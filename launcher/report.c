/* SPDX-License-Identifier: Apache-2.0
 *
 * Order of the story: what the worker itself said, then what followed from its failure, then what
 * to do. A reader who stops after three lines knows who, how and why.
 */
#include "launcher/report.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>

/* Consequences are not the cause: more of them than this only push the cause out of sight. */
#define OTHER_FAILURES_SHOWN 4

/* Runs an append unless an earlier one failed. */
#define THEN(rc, call)     \
    do {                   \
        if ((rc) == 0) {   \
            (rc) = (call); \
        }                  \
    } while (0)

typedef bool (*member_fn)(const struct ct_report_worker *worker);

static bool is_alive(const struct ct_report_worker *worker)
{
    return worker->pid != 0 && !worker->ended;
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
    return was_stopped(worker) && !ct_end_is_success(&worker->end) && !by_us;
}

static bool stopped_cleanly(const struct ct_report_worker *worker)
{
    return was_stopped(worker) && !failed_too(worker);
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
static int add_ranks(const struct ct_report *report, member_fn member, struct ct_buf *out)
{
    const struct ct_report_worker *workers = report->workers;
    const char *comma = "";
    int rc = ct_buf_printf(out, count_of(report, member) == 1 ? "rank " : "ranks ");
    for (int i = 0; rc == 0 && i < report->count; i++) {
        if (!member(&workers[i])) {
            continue;
        }
        int last = i;
        while (last + 1 < report->count && member(&workers[last + 1])) {
            last++;
        }
        rc = ct_buf_printf(out, last > i ? "%s%d-%d" : "%s%d", comma, workers[i].rank,
                           workers[last].rank);
        comma = ", ";
        i = last;
    }
    return rc;
}

int ct_report_headline(const struct ct_report *report, struct ct_buf *out)
{
    const struct ct_report_worker *failed = &report->workers[report->failed];
    int rc =
        ct_buf_printf(out, CT_REPORT_PREFIX "rank %d failed on %s: ", failed->rank, report->host);
    if (report->start_error != NULL) {
        THEN(rc, ct_buf_printf(out, "%s", report->start_error));
    } else {
        THEN(rc, ct_buf_printf(out, "process %ld ", (long)failed->pid));
        THEN(rc, ct_end_describe(&failed->end, out));
    }
    THEN(rc, ct_buf_printf(out, "\n"));
    THEN(rc, ct_report_stopping(report, out));
    return rc;
}

int ct_report_stopping(const struct ct_report *report, struct ct_buf *out)
{
    int rc = 0;
    if (count_of(report, is_alive) > 0) {
        THEN(rc, ct_buf_printf(out, CT_REPORT_PREFIX "stopping "));
        THEN(rc, add_ranks(report, is_alive, out));
        THEN(rc, ct_buf_printf(out, " because of it (SIGTERM, after %" PRId64 " s SIGKILL)\n",
                               report->shutdown_timeout_ms / 1000));
    }
    return rc;
}

int ct_report_quote(const char *text, struct ct_buf *out)
{
    int rc = 0;
    while (rc == 0 && *text != '\0') {
        size_t len = strcspn(text, "\n");
        rc = ct_buf_append(out, CT_REPORT_INDENT, strlen(CT_REPORT_INDENT));
        for (size_t i = 0; rc == 0 && i < len; i++) {
            unsigned char c = (unsigned char)text[i];
            char shown = (c < ' ' && c != '\t') || c == 0x7f ? '?' : (char)c;
            rc = ct_buf_append(out, &shown, 1);
        }
        THEN(rc, ct_buf_append(out, "\n", 1));
        text += len + (text[len] == '\n');
    }
    return rc;
}

static int add_cause(const struct ct_report *report, const struct ct_report_worker *failed,
                     struct ct_buf *out)
{
    int rc = 0, rank = failed->rank;
    if (failed->end.kind == CT_END_SIGNALED && failed->end.value == SIGKILL) {
        /* The evidence for or against the out-of-memory killer. */
        THEN(rc, ct_buf_printf(out, CT_REPORT_PREFIX "rank %d had used up to %" PRId64 " MiB\n",
                               rank, failed->max_rss_kib / 1024));
        if (failed->memory[0] != '\0') {
            THEN(rc, ct_buf_printf(out, CT_REPORT_PREFIX "rank %d was probably out of memory: %s\n",
                                   rank, failed->memory));
        }
    }
    if (report->message != NULL) {
        THEN(rc, ct_buf_printf(out, CT_REPORT_PREFIX "rank %d says in its error file:\n", rank));
        THEN(rc, ct_report_quote(report->message, out));
    }
    if (report->traceback != NULL) {
        THEN(rc, ct_buf_printf(out, CT_REPORT_PREFIX "with the traceback:\n"));
        THEN(rc, ct_report_quote(report->traceback, out));
    }
    if (report->tail[0] != '\0' && !report->tail_is_seen) {
        THEN(rc, ct_buf_printf(out, CT_REPORT_PREFIX "rank %d wrote last on stderr:\n", rank));
        THEN(rc, ct_buf_append(out, report->tail, strlen(report->tail)));
    }
    return rc;
}

static int add_other_failures(const struct ct_report *report, struct ct_buf *out)
{
    int rc = 0, shown = 0, total = count_of(report, failed_too);
    for (int i = 0; rc == 0 && i < report->count && shown < OTHER_FAILURES_SHOWN; i++) {
        const struct ct_report_worker *worker = &report->workers[i];
        if (!failed_too(worker)) {
            continue;
        }
        THEN(rc, ct_buf_printf(out, CT_REPORT_PREFIX "later, rank %d ", worker->rank));
        THEN(rc, ct_end_describe(&worker->end, out));
        THEN(rc, ct_buf_append(out, "\n", 1));
        shown++;
    }
    if (total > shown) {
        THEN(rc, ct_buf_printf(out, CT_REPORT_PREFIX "and %d more failed later\n", total - shown));
    }
    return rc;
}

static int add_consequences(const struct ct_report *report, struct ct_buf *out)
{
    int rc = add_other_failures(report, out);
    if (count_of(report, stopped_cleanly) > 0) {
        THEN(rc, ct_buf_printf(out, CT_REPORT_PREFIX "stopped because of it: "));
        THEN(rc, add_ranks(report, stopped_cleanly, out));
        THEN(rc, ct_buf_append(out, "\n", 1));
    }
    if (report->strays > 0) {
        THEN(rc, ct_buf_printf(
                     out, CT_REPORT_PREFIX "processes that workers left behind, now ended: %zu\n",
                     report->strays));
    }
    if (report->killed > 0) {
        THEN(rc, ct_buf_printf(out,
                               CT_REPORT_PREFIX
                               "processes that did not stop in time and were killed: %zu\n",
                               report->killed));
    }
    if (report->left > 0) {
        THEN(rc, ct_buf_printf(
                     out,
                     CT_REPORT_PREFIX
                     "processes that cannot be killed (stuck in the kernel, see dmesg): %zu\n",
                     report->left));
    }
    return rc;
}

int ct_report_story(const struct ct_report *report, struct ct_buf *out)
{
    const struct ct_report_worker *failed = &report->workers[report->failed];
    bool has_message = report->message != NULL || report->tail[0] != '\0';
    int rc = add_cause(report, failed, out);
    THEN(rc, add_consequences(report, out));
    if (report->will_restart) {
        /* Not "all workers": some may live on in place (launcher/handover.h). */
        THEN(rc, ct_buf_printf(out, CT_REPORT_PREFIX "restarting the job (restart %d of %d)\n",
                               report->restarts + 1, report->max_restarts));
        return rc;
    }
    bool restart_left = report->restarts < report->max_restarts;
    if (restart_left && failed->end.kind == CT_END_EXITED && failed->end.final) {
        THEN(rc, ct_buf_printf(out,
                               CT_REPORT_PREFIX
                               "rank %d says that a restart cannot help: the job ends\n",
                               failed->rank));
    }
    THEN(rc, ct_buf_printf(out, CT_REPORT_PREFIX "what to do: %s\n",
                           ct_end_advice(&failed->end, has_message)));
    if (report->log_folder != NULL) {
        THEN(rc, ct_buf_printf(out, CT_REPORT_PREFIX "log files of rank %d: %s\n", failed->rank,
                               report->log_folder));
    }
    if (report->restarts > 0 && !restart_left) {
        THEN(rc, ct_buf_printf(out, CT_REPORT_PREFIX "no restart is left of %d\n",
                               report->max_restarts));
    }
    return rc;
}
