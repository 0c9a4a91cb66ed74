/* SPDX-License-Identifier: Apache-2.0
 *
 * The report of a failure, as text for stderr. Pure: facts in, lines out.
 *
 * The headline comes the moment the first worker fails; the rest follows when the others are gone
 * and everything they wrote has arrived, which may be a grace period later.
 *
 * All functions append to `out` and return ct_buf_status(out), 0 or CT_ENOMEM; a caller that adds
 * more to the same buffer may look at the status once, at the end.
 */
#ifndef CT_LAUNCHER_REPORT_REPORT_H
#define CT_LAUNCHER_REPORT_REPORT_H

#include "common/buf.h"
#include "common/err.h"
#include "launcher/report/worker_end.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* What each line of ctrun's own begins with, so that it is told from the workers' lines. */
#define CT_REPORT_PREFIX "ctrun: "
/* In front of what is quoted from a worker. */
#define CT_REPORT_INDENT "    "

/* A clause of ct_oom_find(). */
#define CT_REPORT_MEMORY_MAX 256

/* How a worker of the generation that failed ended. */
struct ct_report_worker {
    int rank;
    pid_t pid;      /* 0 = never started */
    bool ended;     /* false: was never started, or is stuck in the kernel */
    bool was_asked; /* it ended after it had been told to stop */
    bool killed;    /* it had not stopped in time, so ctrun killed it */
    struct ct_worker_end end;
    int64_t max_rss_kib;
    /* Why memory is what it was killed for; "" = no sign of it. */
    char memory[CT_REPORT_MEMORY_MAX];
};

struct ct_report {
    const char *host;
    const char *start_error;                /* why the failed one never started; NULL = it did */
    const struct ct_report_worker *workers; /* by local rank */
    int count;
    int failed;                 /* index of the one that failed first */
    int restarts, max_restarts; /* used up before this generation, and allowed */
    bool will_restart;
    int64_t shutdown_timeout_ms;
    const char *tail;       /* its last lines on stderr, indented, each with '\n'; "" = none */
    bool tail_is_seen;      /* they stand right above on the same screen: not repeated */
    const char *message;    /* of its error file; NULL = none */
    const char *traceback;  /* the same */
    const char *advice;     /* what to do, as in --report; NULL = nothing is known */
    const char *log_folder; /* of its log files; NULL = none were asked for */
    size_t strays;          /* leftover processes of workers that were ended */
    size_t killed;          /* processes that had to be killed */
    size_t left;            /* processes that could not be killed */
};

/* "ctrun: rank 1 failed on host h: process 42 exited with code 3" and, when others live, who is
 * stopped now. */
int ct_report_headline(const struct ct_report *report, struct ct_buf *out);

/* Only who is stopped now, when somebody lives. */
int ct_report_stopping(const struct ct_report *report, struct ct_buf *out);

/* Which workers did not stop in time and were killed, when there is one. A stop after a failure
 * here has its own line for that, in ct_report_failure(). */
int ct_report_killed(const struct ct_report *report, struct ct_buf *out);

/* Each line of `text` indented, control characters made harmless. */
int ct_report_quote(const char *text, struct ct_buf *out);

/* What a worker has left in words. A text is NULL or "" where there is none. */
struct ct_report_said {
    int rank;
    const char *message, *traceback; /* of its error file */
    const char *tail;                /* its last lines on stderr, as they are to be shown */
    bool tail_is_seen;               /* they stand on the same screen already */
};

/* Quotes it, no line twice: the error in a message often ends the traceback, and Python writes both
 * on stderr as well. */
int ct_report_said(const struct ct_report_said *said, struct ct_buf *out);

/* Everything else, ending in what happens now. */
int ct_report_failure(const struct ct_report *report, struct ct_buf *out);

#endif
