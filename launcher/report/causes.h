/* SPDX-License-Identifier: Apache-2.0
 *
 * Well-known causes of a failure, and what to do about each. Pure: what a worker has left behind
 * goes in, one line of advice comes out.
 */
#ifndef CT_LAUNCHER_REPORT_CAUSES_H
#define CT_LAUNCHER_REPORT_CAUSES_H

#include "common/buf.h"
#include "common/err.h"
#include "launcher/report/worker_end.h"

#include <stdbool.h>

/* Everything is borrowed; a text is NULL or "" where there is none. */
struct ct_cause_facts {
    struct ct_worker_end end;
    const char *message, *traceback; /* of its error file */
    const char *tail;                /* its last lines on stderr */
    const char *memory;              /* a clause of ct_oom_find() */
    bool shm_is_full;                /* /dev/shm has no room left */
    bool logged;                     /* log files have what it wrote */
    bool own_python;                 /* ctrun chose the interpreter, as for ctrun x.py */
    char *const *arguments;          /* of the program; NULL = unknown */
};

/* Appends what the user can do, as one line without '\n'. When no known cause fits, the advice
 * follows from how the worker ended. CT_ENOMEM. */
CT_MUST_CHECK int ct_cause_advice(const struct ct_cause_facts *facts, struct ct_buf *out);

#endif
