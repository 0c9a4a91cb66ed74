/* SPDX-License-Identifier: Apache-2.0
 *
 * What is to be started. It is decided once, from the options, the scheduler and the machine. A
 * flag wins over a PET_ variable, that over the scheduler, and that over torchrun's default. All
 * later code reads a decided value here and not in the options.
 */
#ifndef CT_LAUNCHER_SETUP_RESOLVE_H
#define CT_LAUNCHER_SETUP_RESOLVE_H

#include "common/err.h"
#include "launcher/cli/options.h"
#include "launcher/scheduler/scheduler.h"
#include "launcher/setup/store_address.h"
#include "launcher/worker/worker_env.h"

#include <stdbool.h>

struct ct_machine;

/* The id of a job of several machines if none is given. It is torchrun's, and the same everywhere,
 * because all machines must agree on it. */
#define CT_RUN_ID_DEFAULT "none"

enum ct_mode {
    CT_MODE_SINGLE, /* this machine alone: ctrun starts all workers */
    CT_MODE_AGENT,  /* one ctrun on each node; each starts its workers */
    CT_MODE_SHIM,   /* the scheduler has started one ctrun for each rank; each starts one worker */
};

/* Borrows strings of the options and the scheduler. Not to be copied: it points into itself. */
struct ct_resolved {
    enum ct_mode mode;
    bool shared;              /* more than one ctrun takes part, or may */
    bool failover;            /* with a token, the job outlives the host of its store */
    int min_nodes, max_nodes; /* 1 <= min <= max; a shim's nodes are the ranks */
    int node_rank;            /* -1 = any */
    int workers;              /* that this ctrun starts */
    const char *run_id;       /* NULL = a random one, for a job that is not shared */
    bool run_id_given;        /* by the user or the scheduler: it is not CT_RUN_ID_DEFAULT */
    const char *etcd; /* where it is, in a job that meets through it; NULL = this one does not */
    struct ct_store_address store_address; /* with etcd: nothing is known of it yet */
    char master_addr[CT_HOST_MAX]; /* from the options or the scheduler; "" = neither has one */
    int master_port; /* from there, too; -1 = neither has one, 0 = the kernel chooses */
    /* What each value comes from: "--nnodes", "PET_NNODES", "SLURM_STEP_NUM_NODES", "default". */
    const char *nnodes_from, *node_rank_from, *workers_from, *master_from, *port_from, *run_id_from;
    /* What happens to the output of this ctrun's workers, by their number on it. */
    struct ct_redirects redirects, tee;
    struct ct_rank_set shown;
    /* In shim mode: place of the only worker. The membership counts each rank as a node, so these
     * come from the scheduler. */
    int local_rank, local_size, group_rank, group_count;
    bool kill_on_exit; /* the scheduler ends all tasks when one fails, so that nothing can be
                          restarted */
    bool one_screen;   /* the output of all nodes comes together on one screen */
    char warning[CT_SCHEDULER_WARNING_MAX + 64]; /* "" = none */
    /* The warning need not be printed at once: if nodes are missing, a later line says the same. */
    bool warning_can_wait;
};

/* Calls ct_scheduler_detect(). Variables that cannot be read are no error if the options decide
 * everything. Errors as there. The caller frees *out with ct_scheduler_fini(), also on failure. */
CT_MUST_CHECK int ct_resolve_scheduler(const struct ct_scheduler_input *input,
                                       const struct ct_options *options, struct ct_scheduler *out,
                                       struct ct_err *err);

/* Decides everything in *out, which means nothing after an error. CT_EINVAL: what was found does
 * not say enough, or contradicts a flag; the text says what to pass. CT_EFORMAT: the scheduler's
 * name of a host is malformed. CT_ENOENT: --nproc-per-node gpu, and there is none. */
CT_MUST_CHECK int ct_resolve(const struct ct_options *options, const struct ct_scheduler *scheduler,
                             const struct ct_machine *machine, struct ct_resolved *out,
                             struct ct_err *err);

/* Calls ct_resolve_scheduler() with what this machine says, and ct_resolve(). Returns 0 or the exit
 * code of ctrun, with the reason in *err. Gives *scheduler. */
CT_MUST_CHECK int ct_resolve_here(const struct ct_options *options,
                                  const struct ct_machine *machine, char *const *env,
                                  struct ct_scheduler *scheduler, struct ct_resolved *out,
                                  struct ct_err *err);

/* To be called once for each generation, when its world is in *env. Sets local rank and node of a
 * shim's worker to the scheduler's, because the membership counts each rank as a node. Its rank
 * stays the one that the membership gave. Changes nothing in the other modes. */
void ct_resolved_worker_env(const struct ct_resolved *resolved, struct ct_worker_env *env);

#endif
