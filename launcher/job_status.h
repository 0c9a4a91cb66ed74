/* SPDX-License-Identifier: Apache-2.0
 *
 * The job's part of the status document (man/ctstatus.5). Pure: facts in, JSON out.
 */
#ifndef CT_LAUNCHER_JOB_STATUS_H
#define CT_LAUNCHER_JOB_STATUS_H

#include "common/err.h"
#include "launcher/agent.h"
#include "launcher/contract.h"
#include "launcher/pages.h"
#include "launcher/report.h"

#include <stddef.h>
#include <stdint.h>

struct cJSON;

/* The last failures are told; a job that fails more often has said enough by then. */
#define CT_JOB_FAILURES_KEPT 16

struct ct_job_failure {
    int generation;
    int rank;
    pid_t pid; /* 0 = never started */
    struct ct_end end;
};

/* Zeroed memory is "none". */
struct ct_job_failures {
    struct ct_job_failure kept[CT_JOB_FAILURES_KEPT]; /* the n-th at n modulo the size */
    uint64_t total;
};

void ct_job_failures_add(struct ct_job_failures *failures, const struct ct_job_failure *failure);

/* Everything is borrowed. */
struct ct_job_facts {
    const char *host;
    const struct ct_agent *agent;
    const struct ct_plan *plan;
    const struct ct_report_worker *workers; /* by local rank; holds what the agent says is there */
    const struct ct_job_failures *failures;
    const struct ct_pages *pages; /* what workers say of themselves; may be NULL */
    int64_t now_ns;               /* monotonic */
};

/* Adds `job` to `root`, and a line of text to the array `problems` for each thing that is not as it
 * should be. CT_ENOMEM. */
CT_MUST_CHECK int ct_job_status_add(const struct ct_job_facts *facts, struct cJSON *root,
                                    struct cJSON *problems);

#endif
