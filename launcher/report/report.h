/* SPDX-License-Identifier: Apache-2.0
 *
 * The report of a failure, as text for stderr. Pure: facts go in, lines come out.
 *
 * The headline is printed as soon as the first worker fails. The rest follows when the other
 * workers have ended and all their output has arrived, which may take as long as
 * --shutdown-timeout.
 *
 * All functions append to `out` and return ct_buf_status(out), 0 or CT_ENOMEM. A caller that
 * appends more may check the status once, at the end.
 */
#ifndef CT_LAUNCHER_REPORT_REPORT_H
#define CT_LAUNCHER_REPORT_REPORT_H

#include "common/buf.h"
#include "common/err.h"
#include "launcher/report/worker_end.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Each line of ctrun's own begins with it, so that users can tell it from the workers' lines. */
#define CT_REPORT_PREFIX "ctrun: "
/* Writes a line of ctrun's own: the prefix, what `fmt` makes of `args`, and a newline. Cuts what
 * does not fit. Returns its length. */
size_t ct_report_line(char *line, size_t size, const char *fmt, va_list args)
    __attribute__((format(printf, 3, 0)));

/* In front of what is quoted from a worker. */
#define CT_REPORT_INDENT "    "

/* A clause of ct_oom_find(). */
#define CT_REPORT_MEMORY_MAX 256

/* How a worker of the generation that failed ended. */
struct ct_report_worker {
    int rank;
    pid_t pid;      /* 0 = never started */
    bool ended;     /* false: it was never started, or SIGKILL did not end it */
    bool stopped;   /* it lives, and a signal (SIGSTOP) had stopped it at the last look */
    bool was_asked; /* it ended after it had been told to stop */
    bool killed;    /* it had not stopped in time, so ctrun killed it */
    struct ct_worker_end end;
    int64_t max_rss_kib;
    /* Evidence that it was killed because memory ran out; "" = none. */
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
    bool alone;  /* no other machine can take the place of this one */
    bool barred; /* --no-restart-on names how the worker ended */
    int64_t shutdown_timeout_ms;
    const char *tail;         /* its last lines on stderr, indented, each with '\n'; "" = none */
    bool tail_is_seen;        /* the user sees them right above, so they are not repeated */
    bool tail_is_shown;       /* the user has seen them, perhaps among lines of other workers */
    const char *message;      /* of its error file; NULL = none */
    const char *traceback;    /* the same */
    const char *kernel_stack; /* of a worker that hung, in indented lines, if it is not on the
                                 screen yet; NULL = none */
    const char *advice;       /* what to do, as in --report; NULL = nothing is known */
    const char *log_folder;   /* of its log files; NULL = none were asked for */
    size_t strays;            /* leftover processes of workers that were ended */
    size_t killed;            /* processes that had to be killed */
    size_t left;              /* processes that could not be killed */
};

/* "ctrun: rank 1 failed on host h: process 42 exited with code 3" and, when others live, who is
 * stopped now. */
int ct_report_headline(const struct ct_report *report, struct ct_buf *out);

/* Only the second line: which workers are stopped now. Nothing when none is alive. */
int ct_report_stopping(const struct ct_report *report, struct ct_buf *out);

/* Which workers did not stop in time and were killed, when there is one. A stop after a failure
 * here has its own line for that, in ct_report_failure(). */
int ct_report_killed(const struct ct_report *report, struct ct_buf *out);

/* Appends each line of `text` indented, with '?' for control characters. */
int ct_report_quote(const char *text, struct ct_buf *out);

/* What a worker that failed has written. A text is NULL or "" where there is none. */
struct ct_report_evidence {
    int rank;
    const char *message, *traceback; /* of its error file */
    const char *tail;                /* its last lines on stderr, as they are to be shown */
    bool tail_is_seen;  /* the user sees them above, and no worker's lines after them */
    bool tail_is_shown; /* the user has seen them among lines of other workers */
};

/* Quotes the evidence, but no line twice: the last line of a traceback is often the message, and
 * Python writes both to stderr, too. Of a tail that was shown the message is enough. */
int ct_report_add_evidence(const struct ct_report_evidence *evidence, struct ct_buf *out);

/* Everything after the headline. The last lines say what happens next. */
int ct_report_failure(const struct ct_report *report, struct ct_buf *out);

#endif
