/* SPDX-License-Identifier: Apache-2.0
 *
 * The jobs of this user on this machine, what they do now, and the store that is meant.
 */
#ifndef CT_RENDEZVOUS_CTRUN_STAT_STAT_HERE_H
#define CT_RENDEZVOUS_CTRUN_STAT_STAT_HERE_H

#include "common/buf.h"
#include "common/err.h"
#include "common/job_registry.h"
#include "rendezvous/ctrun-stat/stat_jobs.h"
#include "rendezvous/ctrun-stat/stat_options.h"

#include <stdbool.h>
#include <sys/types.h>

struct ct_stat_here {
    struct ct_job_entry entries[CT_JOBS_MAX];
    int count;
    struct ct_job_entry others[CT_JOBS_MAX]; /* while they are read */
};

/* Names the second folder in which jobs of the user may be listed. Without a path in `runtime_dir`
 * it is that of jobs which were started with XDG_RUNTIME_DIR; with the user's usual path it is that
 * of jobs which were started without. Returns false if there is no second folder. */
bool ct_stat_here_other_folder(const char *runtime_dir, uid_t uid, char out[CT_JOB_FOLDER_MAX]);

/* What is known of all of them. A job in another network namespace that does not answer is not
 * judged. */
struct ct_stat_here_sum {
    bool any;     /* there is one that is judged */
    bool healthy; /* all of these have answered, and are */
};

/* Asks all of them at once, waiting at most `timeout_s` in all, and appends their table, which is
 * `columns` wide. Call ct_json_use_our_memory() before. CT_ENOMEM. */
CT_MUST_CHECK int ct_stat_here_list(const struct ct_stat_here *here, int timeout_s, size_t columns,
                                    struct ct_buf *out, struct ct_stat_here_sum *sum);

/* The environment, as far as it matters; NULL = not set. */
struct ct_stat_vars {
    const char *runtime_dir; /* XDG_RUNTIME_DIR */
    const char *master_addr, *master_port;
};

enum ct_stat_choice {
    CT_STAT_CHOICE_STORE,       /* options->where is set */
    CT_STAT_CHOICE_LIST,        /* nothing names one of several jobs */
    CT_STAT_CHOICE_ONE_OF,      /* the same, but what is asked for needs one */
    CT_STAT_CHOICE_WRONG,       /* *err says what is wrong with the command line */
    CT_STAT_CHOICE_UNREACHABLE, /* *err says why */
};

/* Finds the store that the options mean, with the jobs of `here`, which it reads. */
enum ct_stat_choice ct_stat_here_choose(struct ct_stat_here *here, const struct ct_stat_vars *vars,
                                        struct ct_stat_options *options, struct ct_err *err);

/* Longer than every complaint. */
#define CT_STAT_COMPLAINT_MAX (CT_ADDR_JOIN_MAX + CT_ERR_TEXT_MAX + CT_STAT_HINT_MAX + 160)

/* Writes one line about the store at options->where, which gives no status because of `failure`,
 * and what to do about that. Reads `here`. */
void ct_stat_here_complaint(struct ct_stat_here *here, const struct ct_stat_vars *vars,
                            const struct ct_stat_options *options, const struct ct_err *failure,
                            char out[CT_STAT_COMPLAINT_MAX]);

#endif
