/* SPDX-License-Identifier: Apache-2.0
 *
 * The jobs of this user on this machine: their table, and the one that the command line means.
 */
#ifndef CT_RENDEZVOUS_CTRUN_STAT_STAT_JOBS_H
#define CT_RENDEZVOUS_CTRUN_STAT_STAT_JOBS_H

#include "common/addr.h"
#include "common/buf.h"
#include "common/err.h"
#include "common/job_registry.h"

#include <stdbool.h>

struct cJSON;

struct ct_stat_job {
    const struct ct_job_entry *entry; /* borrowed */
    const struct cJSON *status;       /* borrowed; NULL = no answer */
};

/* Wider terminals are not filled. */
#define CT_STAT_JOBS_COLUMNS_MAX 400

/* Appends a heading and a line for each, of at most `columns` of a terminal, 80 or more, and a line
 * for each whose store does not answer, if it is known why. What does not fit ends with "...".
 * CT_ENOMEM. */
CT_MUST_CHECK int ct_stat_jobs_table(const struct ct_stat_job *jobs, int count, size_t columns,
                                     struct ct_buf *out);

/* The same table without what only the store knows, so that one of the jobs can be chosen. At most
 * CT_JOBS_MAX. CT_ENOMEM. */
CT_MUST_CHECK int ct_stat_jobs_names(const struct ct_job_entry *entries, int count, size_t columns,
                                     struct ct_buf *out);

/* Returns the index of the entry whose id is `word`, else of the only one whose id begins with it.
 * The "..." of an id that was cut may follow. A text with a colon or a slash, which is an address,
 * must be the whole id. A number must be the whole id or the process id, and is neither if it is
 * the port of an entry. CT_ENOENT: there is none. CT_EINVAL: it may be any of several. */
CT_MUST_CHECK int ct_stat_jobs_find(const char *word, const struct ct_job_entry *entries, int count,
                                    struct ct_err *err);

/* Returns of how many entries the id begins with `word`, which may be an address, too. */
int ct_stat_jobs_count(const char *word, const struct ct_job_entry *entries, int count);

/* Longer than every hint. */
#define CT_STAT_HINT_MAX (CT_JOB_ADDRESS_MAX + 200)

/* False if the address of the job's store means this process' own loopback interface, but the store
 * is in another network namespace. Another job's store may be at that address here. */
bool ct_stat_jobs_in_reach(const struct ct_job_entry *entry);

/* What to add to the message that the store at `where` does not answer: why it does not, or, if the
 * connection was `refused`, where this user's jobs on this machine have their stores, else which
 * port or machine it may be. "" = nothing. `count` entries, 0 or less = none. */
void ct_stat_jobs_hint(const struct ct_endpoint *where, bool refused,
                       const struct ct_job_entry *entries, int count, char out[CT_STAT_HINT_MAX]);

#endif
