/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of the jobs of this user on this machine.
 */
#ifndef CT_RENDEZVOUS_CTRUN_STAT_STAT_JOBS_H
#define CT_RENDEZVOUS_CTRUN_STAT_STAT_JOBS_H

#include "common/addr.h"
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

/* Longer than every hint. */
#define CT_STAT_HINT_MAX (CT_JOB_ADDRESS_MAX + 200)

/* What to add to the message that nobody listens at `where`: where this user's jobs on this machine
 * have their stores, else which port or machine it may be. `count` entries, 0 or less = none. */
void ct_stat_jobs_hint(const struct ct_endpoint *where, const struct ct_job_entry *entries,
                       int count, char out[CT_STAT_HINT_MAX]);

#endif
