/* SPDX-License-Identifier: Apache-2.0
 *
 * The story of a job over all its machines and generations, as one node knows it, as text for the
 * screen and as JSON for --report. Pure.
 */
#ifndef CT_LAUNCHER_REPORT_JOB_STORY_H
#define CT_LAUNCHER_REPORT_JOB_STORY_H

#include "common/buf.h"
#include "common/err.h"
#include "launcher/report/hang_log.h"
#include "rendezvous/control/control.h"
#include "rendezvous/control/failure_history.h"

#include <stdbool.h>
#include <stdint.h>

struct ct_job_story {
    /* Monotonic times on this node; 0 = not yet. The last four are those of its first world. */
    int64_t begun_ns;
    int64_t first_connected_ns, first_world_ns, first_started_ns;
    int64_t first_step_ns;              /* when a worker here completed its first step */
    int first_warm;                     /* workers here of the first world that were spares */
    int worlds;                         /* how many this node has been in */
    bool several_nodes;                 /* one of these worlds had several nodes */
    int generation;                     /* the last one; -1 = none */
    int node_rank, first_rank, workers; /* of this node in the last generation */
    int restarts;                       /* that were used up when the last generation began */
    char waited[CT_FAILURE_WHAT_MAX];   /* the last message about missing nodes */
    char why[CT_FAILURE_WHAT_MAX];      /* why the job ended; "" = there is nothing to add */
    struct ct_failure_history history;  /* as the membership has sent it */
    struct ct_hang_log hangs;           /* that this node has told of */
};

/* What is only known when the job has ended. Borrowed. */
struct ct_job_end {
    const char *run_id, *host;
    int exit_code, max_restarts;
    int signo;        /* that the job was asked to end by; 0 = none */
    bool fixed_nodes; /* it needs each of its machines: neither --nnodes MIN:MAX nor --spares */
    int since;        /* failures of an earlier generation did not end it: the job went on, or would
                         have if its store had not been lost */
    bool store_lost;  /* it ended with its store, which a job with failover would have outlived */
    const struct cJSON *preflight; /* of all machines, where node rank 0 is; NULL = none */
    struct ct_warm_facts warm; /* of this machine in the last generation; wanted 0 = no --warm */
    int warm_in_all;           /* workers of this machine that were spares, in all generations */
};

void ct_job_story_init(struct ct_job_story *story, int workers, int64_t now_ns);
void ct_job_story_fini(struct ct_job_story *story);

void ct_job_story_connected(struct ct_job_story *story, int64_t now_ns);
void ct_job_story_waiting(struct ct_job_story *story, const char *text);
void ct_job_story_world(struct ct_job_story *story, const struct ct_msg_world *world,
                        int generation, int64_t now_ns);
void ct_job_story_started(struct ct_job_story *story, int64_t now_ns);

/* To be called when a generation is over. `first_step_ns` is what
 * ct_progress_reader_first_step_ns() returned. */
void ct_job_story_stepped(struct ct_job_story *story, int64_t first_step_ns);

/* Moves the history out of a message of the membership; `history` is empty afterwards. */
void ct_job_story_take_history(struct ct_job_story *story, struct ct_failure_history *history);

/* The first failure of the last generation if it happened on another node, else NULL. */
const struct ct_failure *ct_job_story_failure_elsewhere(const struct ct_job_story *story);

/* The node that prints the story where one node prints it for all: the first that the job has not
 * lost. `link_is_lost`: this node has lost the link to node 0, which keeps the membership. */
int ct_job_story_reporting_node(const struct ct_job_story *story, bool link_is_lost);

/* "the job hung: ...", "rank 5 failed on gpu-6: process 42 exited with code 3", "node 2 (gpu-6) is
 * lost: ...". Returns ct_buf_status(out). */
int ct_job_story_headline(const struct ct_failure *failure, struct ct_buf *out);

/* Appends the whole story of a job that has failed, in lines for the screen; nothing when the job
 * has not failed. CT_ENOMEM. */
CT_MUST_CHECK int ct_job_story_text(const struct ct_job_story *story, const struct ct_job_end *end,
                                    struct ct_buf *out);

/* How the job has ended: "succeeded", "stopped" (it was asked to end) or "failed". */
const char *ct_job_story_outcome(const struct ct_job_end *end);

/* Appends in one line how the job has ended: "succeeded after 2 restarts", "was ended by SIGTERM,
 * exit code 143", "failed: rank 5 on gpu-6: process 42 exited with code 3". `here` is the failure
 * on this node; NULL = there was none. Returns ct_buf_status(out). */
int ct_job_story_verdict(const struct ct_job_story *story, const struct ct_job_end *end,
                         const struct ct_failure *here, struct ct_buf *out);

/* The document of --report (man/ctreport.5). CT_ENOMEM. */
CT_MUST_CHECK int ct_job_story_json(const struct ct_job_story *story, const struct ct_job_end *end,
                                    struct ct_buf *out);

#endif
