/* SPDX-License-Identifier: Apache-2.0
 *
 * The detached jobs of this user: which there are, which of them is meant by a word, and which have
 * ended so long ago that nobody asks for them any more.
 */
#ifndef CT_LAUNCHER_DETACH_DETACHED_LIST_H
#define CT_LAUNCHER_DETACH_DETACHED_LIST_H

#include "launcher/detach/detached_job.h"

/* Jobs that are kept in memory. */
#define CT_DETACHED_JOBS_MAX 1024

/* How long the folder of a job stays after its end. */
#define CT_DETACHED_KEEP_S (INT64_C(7) * 24 * 3600)
/* On a machine that only leads to the job, which does not know of its end: since the start. */
#define CT_DETACHED_KEEP_VIA_S (INT64_C(90) * 24 * 3600)

enum ct_detached_state {
    CT_DETACHED_RUNS,
    CT_DETACHED_ENDED,
    CT_DETACHED_LOST,      /* its ctrun is gone and has left no exit code */
    CT_DETACHED_VIA,       /* this machine has started it on others, and does not know */
    CT_DETACHED_ELSEWHERE, /* it has not ended, and its ctrun cannot be seen from here */
};

struct ct_detached_entry {
    struct ct_detached_job job;
    enum ct_detached_state state;
    enum ct_detached_where where;
    int exit_code;   /* if it has ended */
    int64_t ended_s; /* Unix time; of a job that is lost, when its console was written last */
};

/* Says where this process is. `host` is borrowed. */
void ct_detached_list_here(const char *host, struct ct_detached_here *out);

/* Reads the jobs below the folder, in the order of their begin. If there are more than
 * CT_DETACHED_JOBS_MAX, keeps those that ct_detached_list_choose() would rather choose for `word`,
 * and then the newest. Returns their number, and gives *out, which the caller frees. CT_ENOMEM,
 * CT_EIO. */
CT_MUST_CHECK int ct_detached_list_read(int root, const char *word, const char *host,
                                        struct ct_detached_entry **out, struct ct_err *err);

/* Finds the job that `word` means: its id, a beginning of that or of its run id, or the address of
 * its store. NULL means the only one that runs here, or else that was started from here. Of several
 * jobs with one beginning, one that runs here is meant first, then one that was started from here.
 * Returns its index. If none or more than one is meant, returns CT_EINVAL, and `why` gets lines
 * that say so and list them. Pure. */
CT_MUST_CHECK int ct_detached_list_choose(const struct ct_detached_entry *entries, int count,
                                          const char *word, const char *host, struct ct_buf *why);

/* Removes the folders of jobs that ended before `now_s` - CT_DETACHED_KEEP_S. */
void ct_detached_list_prune(int root, const char *host, int64_t now_s);

#endif
