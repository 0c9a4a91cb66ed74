/* SPDX-License-Identifier: Apache-2.0
 *
 * What is to be started: the options, and where they leave something open, what was detected. Flags
 * always win, then PET_ variables, then the scheduler, then torchrun's defaults.
 */
#ifndef CT_LAUNCHER_SETUP_SETTLE_H
#define CT_LAUNCHER_SETUP_SETTLE_H

#include "common/err.h"
#include "launcher/cli/options.h"
#include "launcher/scheduler/where.h"
#include "launcher/worker/contract.h"

#include <stdbool.h>

enum ct_mode {
    CT_MODE_SINGLE, /* this machine alone: ctrun starts all workers */
    CT_MODE_AGENT,  /* one ctrun on each node; each starts its workers */
    CT_MODE_SHIM,   /* the scheduler has started one ctrun for each rank; each starts one worker */
};

/* Where each value came from: "--nnodes", "PET_NNODES", "SLURM_STEP_NUM_NODES", "default". */
struct ct_settled {
    enum ct_mode mode;
    const char *nnodes_from, *node_rank_from, *nproc_from, *master_from, *port_from, *run_id_from;
    /* Shim: what this process's one worker is told; to the membership each rank is a node. */
    int local_rank, local_size, group_rank, group_count;
    bool kill_on_exit; /* the scheduler ends all when one ends badly, so nothing can be restarted */
    bool one_screen;   /* what all nodes write comes together on the screen of who started them */
    char warning[CT_WHERE_WARNING_MAX + 64]; /* "" = none */
    /* The line about missing nodes says the same in its time, and only then. */
    bool warning_can_wait;
};

/* Looks around, unless the options say it all. Changes *options so that it holds what was settled:
 * nodes and node rank, workers, master's address and port, run id, who hosts the store
 * (rdzv_conf.is_host). In shim mode the nodes are the ranks, each with one worker. `where` is
 * filled in by this call and must outlive `options`, which borrows from it; ct_where_fini() it in
 * any case. CT_EINVAL: what was found does not say enough, or contradicts a flag; the text says
 * what to pass. CT_EFORMAT: a scheduler's variable is malformed. CT_ENOMEM. */
CT_MUST_CHECK int ct_settle(const struct ct_where_input *input, struct ct_options *options,
                            struct ct_where *where, struct ct_settled *out, struct ct_err *err);

/* What the worker of a shim is told: the ranks stay those of the world that the membership has
 * formed, where each rank is a node; its place on the machine is the scheduler's. Nothing is
 * changed in the other modes. */
void ct_settled_plan(const struct ct_settled *settled, struct ct_plan *plan);

#endif
