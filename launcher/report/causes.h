/* SPDX-License-Identifier: Apache-2.0
 *
 * Well-known causes of a failure, and what to do about each. Pure: what a worker left behind in,
 * one line of advice out.
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
};

/* What a person can do: one line, without its end. Where no cause is known it is what the kind of
 * its end suggests. CT_ENOMEM. */
CT_MUST_CHECK int ct_cause_advice(const struct ct_cause_facts *facts, struct ct_buf *out);

#endif
