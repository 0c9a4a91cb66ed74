/* SPDX-License-Identifier: Apache-2.0
 *
 * What is to be started: the options, and where they leave something open, what was detected. Flags
 * always win, then PET_ variables, then the scheduler, then torchrun's defaults.
 */
#ifndef CT_LAUNCHER_SETUP_RESOLVE_H
#define CT_LAUNCHER_SETUP_RESOLVE_H

#include "common/err.h"
#include "launcher/cli/options.h"
#include "launcher/scheduler/scheduler.h"
#include "launcher/worker/worker_env.h"

#include <stdbool.h>

enum ct_mode {
    CT_MODE_SINGLE, /* this machine alone: ctrun starts all workers */
    CT_MODE_AGENT,  /* one ctrun on each node; each starts its workers */
    CT_MODE_SHIM,   /* the scheduler has started one ctrun for each rank; each starts one worker */
};

/* Where each value came from: "--nnodes", "PET_NNODES", "SLURM_STEP_NUM_NODES", "default". */
struct ct_resolved {
    enum ct_mode mode;
    const char *nnodes_from, *node_rank_from, *nproc_from, *master_from, *port_from, *run_id_from;
    /* Shim: what this process's one worker is told; to the membership each rank is a node. */
    int local_rank, local_size, group_rank, group_count;
    bool kill_on_exit; /* the scheduler ends all when one ends badly, so nothing can be restarted */
    bool one_screen;   /* what all nodes write comes together on the screen of who started them */
    char warning[CT_SCHEDULER_WARNING_MAX + 64]; /* "" = none */
    /* The line about missing nodes says the same in its time, and only then. */
    bool warning_can_wait;
};

/* Looks around, unless the options say it all. Changes *options so that it holds what was resolved:
 * nodes and node rank, workers, master's address and port, run id, who hosts the store
 * (rdzv_conf.is_host). In shim mode the nodes are the ranks, each with one worker. `where` is
 * filled in by this call and must outlive `options`, which borrows from it; ct_scheduler_fini() it
 * in any case. CT_EINVAL: what was found does not say enough, or contradicts a flag; the text says
 * what to pass. CT_EFORMAT: a scheduler's variable is malformed. CT_ENOMEM. */
CT_MUST_CHECK int ct_resolve(const struct ct_scheduler_input *input, struct ct_options *options,
                             struct ct_scheduler *where, struct ct_resolved *out,
                             struct ct_err *err);

/* What the worker of a shim is told: the ranks stay those of the world that the membership has
 * formed, where each rank is a node; its place on the machine is the scheduler's. Nothing is
 * changed in the other modes. */
void ct_resolved_worker_env(const struct ct_resolved *resolved, struct ct_worker_env *plan);

#endif
