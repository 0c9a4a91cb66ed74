/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of PMI-1 by which ranks on different hosts exchange values. PMI-1 is the wire protocol
 * between MPICH's launchers and their processes, lines of "cmd=... key=value". Workers do not get
 * the descriptor, so this is the only user of it.
 */
#ifndef CT_LAUNCHER_SCHEDULER_PMI_H
#define CT_LAUNCHER_SCHEDULER_PMI_H

#include "common/err.h"
#include "launcher/scheduler/scheduler.h"

#include <stdbool.h>
#include <stdint.h>

/* Longest line either side sends; MPICH's own limit. */
#define CT_PMI_LINE_MAX 1024

struct ct_pmi {
    int fd;                              /* PMI_FD, borrowed */
    int64_t deadline_ns;                 /* on the monotonic clock */
    char space[CT_SCHEDULER_JOB_ID_MAX]; /* name of the job's key space, the same for all its ranks
                                          */
};

/* Asks for the name of the key space. CT_EPROTO (the peer does not speak PMI-1), CT_ECLOSED,
 * CT_ETIMEDOUT.
 */
CT_MUST_CHECK int ct_pmi_open(int fd, int64_t timeout_ms, struct ct_pmi *out, struct ct_err *err);

/* For ct_scheduler_input.pmi: opens, shares if asked to, closes. Waits at most half a minute. */
CT_MUST_CHECK int ct_pmi_ask(void *data, int fd, bool share, bool is_first,
                             char space[CT_SCHEDULER_JOB_ID_MAX], char first_host[CT_HOST_MAX],
                             struct ct_err *err);

#endif
