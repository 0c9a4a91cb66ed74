/* SPDX-License-Identifier: Apache-2.0
 *
 * The story of a job over all its machines and generations, as one node knows it: put into words
 * for the screen and into JSON for --report. Pure.
 */
#ifndef CT_LAUNCHER_REPORT_JOB_STORY_H
#define CT_LAUNCHER_REPORT_JOB_STORY_H

#include "common/buf.h"
#include "common/err.h"
#include "rendezvous/control/control.h"
#include "rendezvous/control/failure_history.h"

#include <stdbool.h>
#include <stdint.h>

struct ct_job_story {
    int64_t begun_ns; /* monotonic, as the next four; of the first world here; 0 = not yet */
    int64_t first_connected_ns, first_world_ns, first_started_ns;
    int64_t first_step_ns;              /* the first that a worker here completed in it */
    int worlds;                         /* that this node has been in */
    bool wide;                          /* one of them had several nodes */
    int generation;                     /* of the last one; -1 = none */
    int node_rank, first_rank, workers; /* ours, in the last one */
    int restarts;                       /* of the budget that were used up when it began */
    char waited[CT_FAILURE_WHAT_MAX];   /* the last that was said about who is waited for */
    char why[CT_FAILURE_WHAT_MAX];      /* the job ended, "" = there is nothing to add */
    struct ct_failure_history told;     /* by the membership */
};

/* What only the end knows. Borrowed. */
struct ct_job_end {
    const char *run_id, *host;
    int exit_code, max_restarts;
    int signo; /* that the job was asked to end by; 0 = none */
};

void ct_job_story_init(struct ct_job_story *story, int workers, int64_t now_ns);
void ct_job_story_fini(struct ct_job_story *story);

void ct_job_story_connected(struct ct_job_story *story, int64_t now_ns);
void ct_job_story_waiting(struct ct_job_story *story, const char *text);
void ct_job_story_world(struct ct_job_story *story, const struct ct_msg_world *world,
                        int generation, int64_t now_ns);
void ct_job_story_started(struct ct_job_story *story, int64_t now_ns);

/* The generation is over; `first_step_ns` as ct_progress_reader_first_step_ns() has it. */
void ct_job_story_stepped(struct ct_job_story *story, int64_t first_step_ns);

/* Takes the membership's story out of a message: `told` is empty afterwards. */
void ct_job_story_take(struct ct_job_story *story, struct ct_failure_history *told);

/* The first failure of the last generation, unless it happened on this node; NULL. */
const struct ct_failure *ct_job_story_elsewhere(const struct ct_job_story *story);

/* The node that tells the story where one tells it for all: the first that the job has not lost.
 * `line_is_lost`: nothing is heard any more of the first one, which keeps the membership. */
int ct_job_story_teller(const struct ct_job_story *story, bool line_is_lost);

/* "the job hung: ...", "rank 5 failed on gpu-6: process 42 exited with code 3", "node 2 (gpu-6) is
 * lost: ...". Returns ct_buf_status(out). */
int ct_job_story_headline(const struct ct_failure *failure, struct ct_buf *out);

/* The whole story of a job that has failed, in lines for the screen; nothing when it has not.
 * CT_ENOMEM. */
CT_MUST_CHECK int ct_job_story_text(const struct ct_job_story *story, const struct ct_job_end *end,
                                    struct ct_buf *out);

/* The document of --report (man/ctreport.5). CT_ENOMEM. */
CT_MUST_CHECK int ct_job_story_json(const struct ct_job_story *story, const struct ct_job_end *end,
                                    struct ct_buf *out);

#endif
