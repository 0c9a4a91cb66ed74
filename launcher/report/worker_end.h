/* SPDX-License-Identifier: Apache-2.0
 *
 * How a worker ended, in a struct and in words, and which exit code of ctrun follows from it.
 */
#ifndef CT_LAUNCHER_REPORT_WORKER_END_H
#define CT_LAUNCHER_REPORT_WORKER_END_H

#include "common/buf.h"
#include "common/err.h"
#include "common/exit_code.h"
#include "launcher/util/code_set.h"

#include <stdbool.h>

enum ct_worker_end_kind {
    CT_END_EXITED,      /* value = exit code, 0-255 */
    CT_END_SIGNALED,    /* value = signal number */
    CT_END_NOT_STARTED, /* value = errno of the exec, or 0 when its set-up failed before, or
                           CT_END_NO_LACK */
    CT_END_UNFIT,       /* never started, because its machine failed a check; value = 126 or 127 if
                           the command of the check could not be run */
    CT_END_HUNG, /* value = seconds without progress; ctrun killed it as the suspect of a hang */
    CT_END_ALL_HUNG,        /* the same, but the whole job hung and no worker stood out */
    CT_END_EXPIRED,         /* value = signal by which ctrun ended it, as its timer had expired */
    CT_END_UNINTERRUPTIBLE, /* value = seconds it was in uninterruptible sleep; it may be still */
};

/* Nothing was missing for the worker, so nothing has to be made room for. */
#define CT_END_NO_LACK (-1)

/* Room for a timer's name, or for a place in a program. */
#define CT_END_DETAIL_MAX 160

struct ct_worker_end {
    enum ct_worker_end_kind kind;
    int value;
    bool core_dumped;
    bool final;   /* no restart follows, whatever budget is left */
    bool stopped; /* CT_END_HUNG: it was stopped, by SIGSTOP or by a terminal */
    /* For a terminal. Of CT_END_EXPIRED the timer's name; of CT_END_HUNG where the worker stood, as
     * "train.py:15 in main", or "". */
    char detail[CT_END_DETAIL_MAX];
};

/* Can a restart help? A program that cannot be executed will not become executable by itself. */
bool ct_worker_end_may_restart(const struct ct_worker_end *end);

/* Does --no-restart-on name it? It does if it has ctrun's exit code for this end. */
bool ct_worker_end_is_barred(const struct ct_worker_end *end, const struct ct_code_set *barred);

/* Was it ended by a signal that others send, and not by one that its own error causes? */
bool ct_worker_end_by_another(const struct ct_worker_end *end);

bool ct_worker_end_is_success(const struct ct_worker_end *end);

/* "exited with code 3", "was killed by signal 9 (SIGKILL)", "could not be started: ...". Returns
 * ct_buf_status(out). */
int ct_worker_end_describe(const struct ct_worker_end *end, struct ct_buf *out);

/* As Python's subprocess has it: the exit code, or minus the signal. */
int ct_worker_end_python_code(const struct ct_worker_end *end);

/* ctrun's exit code when this end is what the job failed of. */
int ct_worker_end_exit_code(const struct ct_worker_end *end);

/* The same for a failure of ct_command_resolve(). */
int ct_worker_end_of_command(int code);

/* What a person can do about it: one line, static. `has_message` = its output or error file already
 * says something. */
const char *ct_worker_end_advice(const struct ct_worker_end *end, bool has_message);

#endif
