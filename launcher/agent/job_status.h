/* SPDX-License-Identifier: Apache-2.0
 *
 * What this node tells of its workers in the job's status (man/ctstatus.5). Pure: facts in, rows
 * out.
 */
#ifndef CT_LAUNCHER_AGENT_JOB_STATUS_H
#define CT_LAUNCHER_AGENT_JOB_STATUS_H

#include "common/err.h"
#include "launcher/agent/agent.h"
#include "launcher/report/report.h"
#include "launcher/worker/progress_reader.h"
#include "launcher/worker/worker_env.h"
#include "rendezvous/control/worker_rows.h"

#include <stddef.h>
#include <stdint.h>

/* Everything is borrowed. */
struct ct_job_facts {
    const struct ct_agent *agent;
    const struct ct_worker_env *worker_env;
    const struct ct_report_worker *workers;    /* by local rank */
    const struct ct_progress_reader *progress; /* what workers say of themselves; may be NULL */
    int64_t now_ns;                            /* monotonic */
};

/* Fills in a row for each worker of the agent. */
void ct_job_status_rows(const struct ct_job_facts *facts, struct ct_worker_row *rows);

#endif
