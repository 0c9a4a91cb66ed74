/* SPDX-License-Identifier: Apache-2.0
 *
 * What this node tells of its workers in the job's status (man/ctstatus.5). Pure: facts in, JSON
 * out.
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

/* Everything is borrowed. */
struct ct_job_facts {
    const char *host;
    const struct ct_agent *agent;
    const struct ct_plan *plan;
    const struct ct_report_worker *workers; /* by local rank; holds what the agent says is there */
    const struct ct_pages *pages;           /* what workers say of themselves; may be NULL */
    int64_t now_ns;                         /* monotonic */
};

/* Gives the array `workers`, as the membership passes it on; NULL when memory is out. */
struct cJSON *ct_job_status_workers(const struct ct_job_facts *facts);

#endif
