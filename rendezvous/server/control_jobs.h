/* SPDX-License-Identifier: Apache-2.0
 *
 * The jobs whose agents a store serves, each with its membership core, by run id. Pure.
 */
#ifndef CT_RENDEZVOUS_SERVER_CONTROL_JOBS_H
#define CT_RENDEZVOUS_SERVER_CONTROL_JOBS_H

#include "common/err.h"
#include "common/list.h"
#include "rendezvous/election/arbiter.h"
#include "rendezvous/members/members.h"

#include <stddef.h>
#include <stdint.h>

struct cJSON;

struct ct_control_job {
    struct ct_list at_jobs;
    struct ct_members *members;
    size_t agents; /* agents that belong to it */
    int number;    /* no other job of the store has it, or has had it */
    char run_id[CT_RUN_ID_MAX];
};

struct ct_control_jobs {
    struct ct_list list;
    size_t count;
    int begun;        /* jobs that have begun so far */
    bool keep;        /* jobs stay when their last agent has left */
    const char *only; /* run id of the only job allowed, borrowed; NULL = any */
    struct ct_members_options options;
};

/* `options` is copied, what it points to borrowed. */
void ct_control_jobs_init(struct ct_control_jobs *jobs, const struct ct_members_options *options,
                          const char *only);
void ct_control_jobs_fini(struct ct_control_jobs *jobs);

/* Adds an agent to the job of this id, and gives the job. Begins it if there is none. CT_EINVAL
 * (the store belongs to another job), CT_ELIMIT, CT_ENOMEM; the text is for the agent. */
CT_MUST_CHECK int ct_control_jobs_take(struct ct_control_jobs *jobs, const char *run_id,
                                       struct ct_control_job **out, struct ct_err *err);

/* Takes an agent from the job. The last one frees it, unless jobs are kept, because nobody needs
 * its history. */
void ct_control_jobs_release(struct ct_control_jobs *jobs, struct ct_control_job *job);

/* Frees the membership of all jobs. Their agents have still to be released. */
void ct_control_jobs_end(struct ct_control_jobs *jobs);

/* Frees the membership of one job. */
void ct_control_jobs_end_one(struct ct_control_jobs *jobs, struct ct_control_job *job);

/* Returns the job of this id if it has had no world yet and outlives its host, or NULL. */
struct ct_control_job *ct_control_jobs_waiting(const struct ct_control_jobs *jobs,
                                               const char *run_id);

/* As ct_members_dead(). */
void ct_control_jobs_dead(struct ct_control_jobs *jobs, uint64_t id, int64_t now_ns);

/* As ct_members_arbiter_pledged() or, if `pledge` is NULL, as ct_members_arbiter_lost(). */
void ct_control_jobs_arbiter(struct ct_control_jobs *jobs, const struct ct_arbiter_pledge *pledge,
                             int64_t now_ns);

/* Does ct_members_stands_no_more() hold in any job? */
bool ct_control_jobs_stands_no_more(const struct ct_control_jobs *jobs, uint64_t id);

/* Returns the job with this number, or NULL. */
struct ct_control_job *ct_control_jobs_numbered(const struct ct_control_jobs *jobs, int number);

/* Ticks the jobs whose time has come. */
void ct_control_jobs_tick(struct ct_control_jobs *jobs, int64_t now_ns);

/* Returns the time of the next tick; INT64_MAX = none is needed. */
int64_t ct_control_jobs_next(const struct ct_control_jobs *jobs);

/* Adds the jobs to the document, each with its number: one as `job`, several as the array `jobs`.
 * CT_ENOMEM. */
CT_MUST_CHECK int ct_control_jobs_status(const struct ct_control_jobs *jobs, int64_t now_ns,
                                         struct ct_status_rows *rows, struct cJSON *root,
                                         struct cJSON *problems);

#endif
