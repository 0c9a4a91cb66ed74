/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a job on this machine: the agent's state machine on a libuv loop, with the store, the
 * workers' processes and their output around it.
 */
#ifndef CT_LAUNCHER_AGENT_AGENT_UV_H
#define CT_LAUNCHER_AGENT_AGENT_UV_H

#include "common/err.h"
#include "launcher/setup/job_spec.h"

#include <stdbool.h>

struct ct_outcome {
    int exit_code;   /* what ctrun exits with */
    bool keep_files; /* a failed worker's error file is in the log folder */
};

/* Blocks until every worker is gone and all output is written. While it runs SIGTERM, SIGINT,
 * SIGHUP and SIGQUIT stop the job, unless they were ignored before. A failure of the job is an
 * outcome; an error is what kept it from starting (CT_EBUSY: the port is in use). */
CT_MUST_CHECK int ct_agent_run(const struct ct_job_spec *job, struct ct_outcome *out,
                               struct ct_err *err);

#endif
