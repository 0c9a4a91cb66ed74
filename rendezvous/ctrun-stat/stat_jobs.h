/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of the jobs of this user on this machine.
 */
#ifndef CT_RENDEZVOUS_CTRUN_STAT_STAT_JOBS_H
#define CT_RENDEZVOUS_CTRUN_STAT_STAT_JOBS_H

#include "common/buf.h"
#include "common/err.h"
#include "common/job_registry.h"

struct cJSON;

struct ct_stat_job {
    const struct ct_job_entry *entry; /* borrowed */
    const struct cJSON *status;       /* borrowed; NULL = no answer */
};

/* Appends a heading and a line of at most 80 columns for each. CT_ENOMEM. */
CT_MUST_CHECK int ct_stat_jobs_table(const struct ct_stat_job *jobs, int count, struct ct_buf *out);

#endif
