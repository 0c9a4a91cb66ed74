/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks which scheduler has started this process, then chooses how ctrun runs: alone, as one agent
 * of several, or as the wrapper of a rank that the scheduler has started. Then each value that
 * nobody has given is taken from the scheduler. Failure modes: variables of a scheduler that
 * contradict each other, or that leave open what must be known.
 */
#include "launcher/setup/resolve.h"

#include "launcher/cli/option_table.h"
#include "launcher/setup/store_address.h"

#include <stdio.h>
#include <string.h>

#define DEFAULT_FROM "default"

struct scene {
    const struct ct_scheduler *where;
    struct ct_options *options;
    struct ct_resolved *out;
    struct ct_err *err;
};

static bool is_given(const struct ct_options *options, enum ct_option_id id)
{
    return ct_option_given(options, id) != CT_GIVEN_NOT;
}

/* "--nnodes", "PET_NNODES" or "default". */
static const char *from_of(const struct ct_options *options, enum ct_option_id id, const char *flag,
                           const char *env)
{
    switch (ct_option_given(options, id)) {
    case CT_GIVEN_FLAG:
        return flag;
    case CT_GIVEN_ENV:
        return env;
    case CT_GIVEN_NOT:
        break;
    }
    return DEFAULT_FROM;
}

static bool has_master(const struct ct_options *options)
{
    return options->has_endpoint || options->master_addr[0] != '\0';
}

/* ---- mode ------------------------------------------------------------------------------------ */

static bool starts_ranks(const struct ct_scheduler *where)
{
    return where->world_size.from != NULL && where->world_size.value > 1 &&
           (where->nnodes.from == NULL || where->world_size.value > where->nnodes.value);
}

static int refuse_both(const struct scene *scene)
{
    const struct ct_scheduler *where = scene->where;
    return ct_err_set(
        scene->err, CT_EINVAL,
        "%s has started %d tasks (%s), more than one on a node, and %s asks each for "
        "%d workers: leave it out, and every task becomes one rank; or start one task "
        "on each node (srun --ntasks-per-node=1, mpirun --map-by ppr:1:node), and "
        "each starts its workers",
        where->name, where->world_size.value, where->world_size.from, scene->out->nproc_from,
        scene->options->nproc);
}

static int choose_mode(const struct scene *scene)
{
    const struct ct_scheduler *where = scene->where;
    const struct ct_options *options = scene->options;
    bool nproc_given = is_given(options, CT_OPT_NPROC_PER_NODE);
    if (options->standalone || is_given(options, CT_OPT_NNODES)) {
        scene->out->mode =
            options->max_nodes > 1 || options->spares > 0 ? CT_MODE_AGENT : CT_MODE_SINGLE;
        return 0;
    }
    if (starts_ranks(where)) {
        scene->out->mode = CT_MODE_SHIM;
        return nproc_given ? refuse_both(scene) : 0;
    }
    /* One process for each rank is what such launchers are asked for; on one process a node it
     * makes no difference to be one of them. */
    if (where->ranks_only && where->world_size.value > 1 && !nproc_given) {
        scene->out->mode = CT_MODE_SHIM;
        return 0;
    }
    if (where->nnodes.from != NULL) {
        scene->out->mode = where->nnodes.value > 1 ? CT_MODE_AGENT : CT_MODE_SINGLE;
        return 0;
    }
    if (where->node_rank.from != NULL) {
        return ct_err_set(scene->err, CT_EINVAL,
                          "%s=%d says that this is one of several nodes (%s), but nothing says of "
                          "how many: pass --nnodes N, or --standalone if each works alone",
                          where->node_rank.from, where->node_rank.value, where->name);
    }
    scene->out->mode = CT_MODE_SINGLE;
    return 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* A scheduler's number of this node counts if it counts the same nodes. */
static const struct ct_scheduler_int *known_node_rank(const struct scene *scene)
{
    const struct ct_scheduler *where = scene->where;
    int nodes = scene->options->max_nodes;
    bool elastic = scene->options->min_nodes < nodes;
    if (where->node_rank.from != NULL &&
        (where->nnodes.from == NULL ? where->node_rank.value < nodes
                                    : where->nnodes.value == nodes && !starts_ranks(where))) {
        return &where->node_rank;
    }
    if (!elastic && where->rank.from != NULL && where->world_size.value == nodes) {
        return &where->rank;
    }
    return NULL;
}

static void settle_nodes(const struct scene *scene)
{
    const struct ct_scheduler *where = scene->where;
    struct ct_options *options = scene->options;
    const struct ct_scheduler_int *nodes =
        scene->out->mode == CT_MODE_SHIM ? &where->world_size : &where->nnodes;
    if (!is_given(options, CT_OPT_NNODES) && scene->out->mode != CT_MODE_SINGLE) {
        options->min_nodes = options->max_nodes = nodes->value;
        scene->out->nnodes_from = nodes->from;
    }
    if (scene->out->mode == CT_MODE_SHIM) {
        options->node_rank = where->rank.value;
        scene->out->node_rank_from = where->rank.from;
        return;
    }
    const struct ct_scheduler_int *rank = known_node_rank(scene);
    if (options->node_rank < 0 && scene->out->mode == CT_MODE_AGENT && rank != NULL) {
        options->node_rank = rank->value;
        scene->out->node_rank_from = rank->from;
    }
}

/* Devices that the scheduler has given to this node: only to users who left everything to it, since
 * torchrun's default beside --nnodes is one worker. */
static void settle_workers(const struct scene *scene)
{
    const struct ct_scheduler *where = scene->where;
    struct ct_options *options = scene->options;
    if (scene->out->mode == CT_MODE_SHIM) {
        options->nproc_kind = CT_NPROC_COUNT;
        options->nproc = 1;
        scene->out->nproc_from = where->world_size.from;
        return;
    }
    if (where->nproc.from != NULL && where->nproc.value <= CT_WORKERS_MAX &&
        where->nnodes.from != NULL && !options->standalone &&
        !is_given(options, CT_OPT_NPROC_PER_NODE) && !is_given(options, CT_OPT_NNODES)) {
        options->nproc_kind = CT_NPROC_COUNT;
        options->nproc = where->nproc.value;
        scene->out->nproc_from = where->nproc.from;
    }
}

static int no_master(const struct scene *scene)
{
    return ct_err_set(scene->err, CT_EINVAL,
                      "%s does not say on which host rank 0 is, so the others could not find it: "
                      "pass --master-addr HOST (or --rdzv-endpoint HOST:PORT)",
                      scene->where->name);
}

/* Who serves is known where the scheduler numbers the nodes and names the first; where a flag names
 * the address, trying to bind it tells. */
static int settle_master(const struct scene *scene)
{
    const struct ct_scheduler *where = scene->where;
    struct ct_options *options = scene->options;
    bool one_host = scene->out->mode == CT_MODE_SHIM && where->local_size.from != NULL &&
                    where->local_size.value == where->world_size.value;
    if (has_master(options)) {
        if (scene->out->mode == CT_MODE_SHIM) {
            options->rdzv_conf.is_host = options->node_rank == 0;
        }
        return 0;
    }
    const char *host = one_host                         ? "127.0.0.1"
                       : where->first_host.from != NULL ? where->first_host.value
                                                        : NULL;
    if (host == NULL) {
        /* With --nnodes and nothing else the options' own rules decide. */
        return scene->out->mode == CT_MODE_SHIM || where->nnodes.from != NULL ? no_master(scene)
                                                                              : 0;
    }
    struct ct_endpoint endpoint;
    if (ct_endpoint_parse(host, 0, &endpoint, scene->err) != 0) {
        (void)ct_err_wrap(scene->err, "%s", where->first_host.from);
        return CT_EFORMAT;
    }
    memcpy(options->master_addr, endpoint.host, sizeof(options->master_addr));
    scene->out->master_from = one_host ? where->local_size.from : where->first_host.from;
    if (options->node_rank >= 0 && options->rdzv_conf.is_host < 0) {
        options->rdzv_conf.is_host = options->node_rank == 0;
    }
    options->backend = CT_RDZV_STATIC; /* a host and a port is what is known */
    return 0;
}

static void settle_port(const struct scene *scene)
{
    const struct ct_scheduler *where = scene->where;
    struct ct_options *options = scene->options;
    if (options->has_endpoint || options->master_port > 0) {
        return;
    }
    if (where->port.from != NULL) {
        options->master_port = where->port.value;
        scene->out->port_from = where->port.from;
        return;
    }
    options->master_port =
        where->job_id_from != NULL ? ct_scheduler_port(where->job_id) : CT_PORT_STATIC;
    scene->out->port_from = where->job_id_from != NULL ? where->job_id_from : DEFAULT_FROM;
}

static void settle_run_id(const struct scene *scene)
{
    if (scene->options->run_id == NULL && scene->where->job_id_from != NULL) {
        scene->options->run_id = scene->where->job_id;
        scene->out->run_id_from = scene->where->job_id_from;
    }
}

/* What a launcher leaves open is taken from the ranks: in blocks, on equal nodes. */
static void settle_local(const struct scene *scene)
{
    const struct ct_scheduler *where = scene->where;
    struct ct_resolved *out = scene->out;
    out->local_rank = where->local_rank.from != NULL ? where->local_rank.value : 0;
    out->local_size = where->local_size.from != NULL ? where->local_size.value : 1;
    if (where->nnodes.from != NULL && where->node_rank.from != NULL) {
        out->group_rank = where->node_rank.value;
        out->group_count = where->nnodes.value;
        return;
    }
    out->group_rank = where->rank.value / out->local_size;
    out->group_count = (where->world_size.value + out->local_size - 1) / out->local_size;
}

/* A shim's only worker is the first of its ctrun: what was said of its local rank is said of that
 * one. */
static void settle_output(const struct scene *scene)
{
    struct ct_options *options = scene->options;
    int local_rank = scene->out->local_rank;
    bool shown = ct_rank_set_has(&options->shown, local_rank);
    options->redirects =
        (struct ct_redirects){.all = (uint8_t)ct_redirects_of(&options->redirects, local_rank)};
    options->tee =
        (struct ct_redirects){.all = (uint8_t)ct_redirects_of(&options->tee, local_rank)};
    options->shown = (struct ct_rank_set){.given = true, .bits = {shown ? 1 : 0}};
}

static void name_sources(const struct ct_options *options, struct ct_resolved *out)
{
    out->nnodes_from = from_of(options, CT_OPT_NNODES, "--nnodes", "PET_NNODES");
    out->node_rank_from = from_of(options, CT_OPT_NODE_RANK, "--node-rank", "PET_NODE_RANK");
    out->nproc_from =
        from_of(options, CT_OPT_NPROC_PER_NODE, "--nproc-per-node", "PET_NPROC_PER_NODE");
    out->run_id_from = from_of(options, CT_OPT_RDZV_ID, "--rdzv-id", "PET_RDZV_ID");
    out->master_from =
        options->has_endpoint
            ? from_of(options, CT_OPT_RDZV_ENDPOINT, "--rdzv-endpoint", "PET_RDZV_ENDPOINT")
            : from_of(options, CT_OPT_MASTER_ADDR, "--master-addr", "PET_MASTER_ADDR");
    out->port_from = options->has_endpoint
                         ? out->master_from
                         : from_of(options, CT_OPT_MASTER_PORT, "--master-port", "PET_MASTER_PORT");
}

/* ---- all ------------------------------------------------------------------------------------- */

static bool says_it_all(const struct ct_options *options)
{
    return options->standalone ||
           (is_given(options, CT_OPT_NNODES) && (options->max_nodes == 1 || has_master(options)));
}

/* Does the launcher bring the output of all nodes together? Pods and hosts of a cloud have logs of
 * their own, and who has set variables by hand has several terminals. */
static bool shares_screen(enum ct_scheduler_kind kind)
{
    switch (kind) {
    case CT_SCHEDULER_OPEN_MPI:
    case CT_SCHEDULER_PMIX:
    case CT_SCHEDULER_MPICH:
    case CT_SCHEDULER_MVAPICH:
    case CT_SCHEDULER_FLUX:
    case CT_SCHEDULER_PALS:
    case CT_SCHEDULER_SLURM:
    case CT_SCHEDULER_PMI:
    case CT_SCHEDULER_HOROVOD:
    case CT_SCHEDULER_DEEPSPEED:
    case CT_SCHEDULER_PBS:
    case CT_SCHEDULER_LSF:
        return true;
    case CT_SCHEDULER_ALONE:
    case CT_SCHEDULER_SLURM_BATCH:
    case CT_SCHEDULER_KUBERNETES:
    case CT_SCHEDULER_TPU:
    case CT_SCHEDULER_TORCHX:
    case CT_SCHEDULER_MASTER:
        break;
    }
    return false;
}

int ct_resolve(const struct ct_scheduler_input *input, struct ct_options *options,
               struct ct_scheduler *where, struct ct_resolved *out, struct ct_err *err)
{
    struct ct_resolved resolved = {.mode = CT_MODE_SINGLE};
    const struct scene scene = {where, options, &resolved, err};
    name_sources(options, &resolved);
    int rc = ct_scheduler_detect(input, where, err);
    if (rc != 0 && rc != CT_ENOMEM && says_it_all(options)) {
        /* Flags win: what could not be read is not needed. */
        *where = (struct ct_scheduler){.name = "unclear", .reason = "flags decide"};
        rc = 0;
    }
    if (rc != 0) {
        return rc;
    }
    rc = choose_mode(&scene);
    if (rc != 0) {
        return rc;
    }
    settle_nodes(&scene);
    settle_workers(&scene);
    resolved.one_screen = options->agent_stdin || shares_screen(where->kind);
    if (resolved.mode != CT_MODE_SINGLE) {
        rc = settle_master(&scene);
        if (rc != 0) {
            return rc;
        }
        settle_port(&scene);
        settle_run_id(&scene);
        resolved.kill_on_exit = where->kill_on_exit;
    }
    if (resolved.mode == CT_MODE_SHIM) {
        settle_local(&scene);
        settle_output(&scene);
    }
    if (!options->standalone && !is_given(options, CT_OPT_NNODES)) {
        memcpy(resolved.warning, where->warning, sizeof(where->warning));
        resolved.warning_can_wait = resolved.mode == CT_MODE_AGENT;
    }
    if (resolved.mode == CT_MODE_AGENT && !has_master(options) &&
        options->backend == CT_RDZV_STATIC && options->rdzv_conf.is_host != 1) {
        (void)snprintf(resolved.warning, sizeof(resolved.warning),
                       "without --master-addr the %d nodes meet at 127.0.0.1, which other "
                       "machines cannot reach",
                       options->min_nodes);
        resolved.warning_can_wait = false;
    }
    if (resolved.kill_on_exit && options->max_restarts > 0) {
        (void)snprintf(resolved.warning, sizeof(resolved.warning),
                       "Slurm ends the whole step when one task fails (SLURM_KILL_BAD_EXIT=1), so "
                       "there may be nothing left to restart: use srun --kill-on-bad-exit=0");
        resolved.warning_can_wait = false;
    }
    if (options->node_rank >= options->max_nodes + options->spares) {
        return ct_err_set(err, CT_EINVAL,
                          "--node-rank %d: ranks of %d node%s go from 0 to %d (see --nnodes)",
                          options->node_rank, options->max_nodes,
                          options->max_nodes == 1 ? "" : "s", options->max_nodes - 1);
    }
    *out = resolved;
    return 0;
}

void ct_resolved_worker_env(const struct ct_resolved *resolved, struct ct_worker_env *plan)
{
    if (resolved->mode != CT_MODE_SHIM) {
        return;
    }
    plan->first_local_rank = resolved->local_rank;
    plan->local_world_size = resolved->local_size;
    plan->node_rank = resolved->group_rank;
    plan->node_count = resolved->group_count;
}
