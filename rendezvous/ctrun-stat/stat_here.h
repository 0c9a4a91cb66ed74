/* SPDX-License-Identifier: Apache-2.0
 *
 * The jobs of this user on this machine, and what they do now.
 */
#ifndef CT_RENDEZVOUS_CTRUN_STAT_STAT_HERE_H
#define CT_RENDEZVOUS_CTRUN_STAT_STAT_HERE_H

#include "common/addr.h"
#include "common/buf.h"
#include "common/err.h"
#include "common/job_registry.h"

#include <stdbool.h>

struct ct_stat_here {
    struct ct_job_entry entries[CT_JOBS_MAX];
    int count;
};

/* `runtime_dir` is $XDG_RUNTIME_DIR, may be NULL. Errors as of ct_job_registry_list(); there are no
 * jobs then. */
CT_MUST_CHECK int ct_stat_here_read(struct ct_stat_here *here, const char *runtime_dir,
                                    struct ct_err *err);

/* The address of one of them. CT_EINVAL: the entry has none. */
CT_MUST_CHECK int ct_stat_here_where(const struct ct_stat_here *here, int index,
                                     struct ct_endpoint *out, struct ct_err *err);

/* Asks all of them at once, waiting at most `timeout_s` in all, and appends their table, which is
 * `columns` wide. Call ct_json_use_our_memory() before. *healthy: all have answered and are.
 * CT_ENOMEM. */
CT_MUST_CHECK int ct_stat_here_list(const struct ct_stat_here *here, int timeout_s, size_t columns,
                                    struct ct_buf *out, bool *healthy);

#endif
