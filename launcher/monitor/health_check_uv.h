/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a check of this machine once, with a deadline: the command of --health-check, or a program
 * of ctrun's own.
 */
#ifndef CT_LAUNCHER_MONITOR_HEALTH_CHECK_UV_H
#define CT_LAUNCHER_MONITOR_HEALTH_CHECK_UV_H

#include "common/err.h"
#include "launcher/process/proc_uv.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <uv.h>

/* What is kept of what the command wrote last, in bytes and in whole lines. */
#define CT_HEALTH_TAIL_MAX 2048
#define CT_HEALTH_TAIL_LINES 10
#define CT_HEALTH_WHY_MAX 256

struct ct_health_check;

/* How a check has ended. Borrowed. */
struct ct_health_result {
    const char
        *why; /* "" if it exited with 0, else such as "its health check exited with code 3" */
    const char *tail; /* what it wrote last, on either stream */
    bool late;        /* it did not end in time */
    int not_run; /* the exit code of a shell that could not run the command, 126 or 127; 126 also if
                  * it could not read the command; else 0 */
};

typedef void (*ct_health_done_fn)(void *data, const struct ct_health_result *result);

/* Everything is borrowed for the call, but `data` and `name`. */
struct ct_health_options {
    const char *name;            /* in messages: "health check" */
    const char *command;         /* for /bin/sh -c */
    const char *path;            /* the program instead, if there is no command */
    char *const *argv;           /* its words */
    char *const *env;            /* of the command */
    const struct rlimit *nofile; /* its RLIMIT_NOFILE; NULL = ours, which ctrun has raised */
    size_t keep;                 /* bytes that are kept of what it wrote last */
    int64_t timeout_ms;
    const char *timeout_option; /* that sets this time; NULL = none does */
    ct_health_done_fn done; /* called once, unless the check is cancelled; never inside of a call */
    void *data;
};

/* Gives *out, which frees itself after `done` or ct_health_check_cancel(). Borrows the loop and the
 * set of processes until then. CT_ENOMEM, and whatever ct_proc_start() returns. */
CT_MUST_CHECK int ct_health_check_start(uv_loop_t *loop, struct ct_procs *procs,
                                        const struct ct_health_options *options,
                                        struct ct_health_check **out, struct ct_err *err);

/* What it has written until now, borrowed until the next call; "" without memory. */
const char *ct_health_check_written(struct ct_health_check *check);

/* Kills the command, which the set reaps; `done` is not called. NULL is allowed. */
void ct_health_check_cancel(struct ct_health_check *check);

#endif
