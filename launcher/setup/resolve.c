/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses how ctrun runs: alone, as one agent of several, or as the wrapper of a rank that the
 * scheduler has started. Then takes each value that the options leave open from the scheduler.
 * Failure modes: the scheduler's variables contradict each other, or do not give a value that is
 * needed.
 */
#include "launcher/setup/resolve.h"

#include "common/exit_code.h"
#include "launcher/cli/option_table.h"
#include "launcher/scheduler/pmi.h"
#include "launcher/setup/machine.h"
#include "rendezvous/etcd/etcd_settings.h"

#include <stdio.h>
#include <string.h>

#define DEFAULT_FROM "default"
/* torchrun's default ports of the static back end and of c10d. */
#define PORT_STATIC 29500
#define PORT_C10D 29400

struct resolver {
    const struct ct_options *options;
    const struct ct_scheduler *scheduler;
    struct ct_resolved *out;
    enum ct_rdzv_backend backend;
    int is_host; /* 1 = this ctrun hosts the store, 0 = another one, -1 = whoever can bind it */
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

/* Fills in what the options say, defaults included. */
static void take_options(const struct ct_options *options, struct ct_resolved *out)
{
    *out = (struct ct_resolved){
        .min_nodes = options->min_nodes,
        .max_nodes = options->max_nodes,
        .node_rank = options->node_rank,
        .workers = options->nproc,
        .run_id = options->run_id,
        .master_port = options->master_port,
        .redirects = options->redirects,
        .tee = options->tee,
        .shown = options->shown,
        .nnodes_from = from_of(options, CT_OPT_NNODES, "--nnodes", "PET_NNODES"),
        .node_rank_from = from_of(options, CT_OPT_NODE_RANK, "--node-rank", "PET_NODE_RANK"),
        .workers_from =
            from_of(options, CT_OPT_NPROC_PER_NODE, "--nproc-per-node", "PET_NPROC_PER_NODE"),
        .run_id_from = from_of(options, CT_OPT_RDZV_ID, "--rdzv-id", "PET_RDZV_ID"),
        .master_from = from_of(options, CT_OPT_MASTER_ADDR, "--master-addr", "PET_MASTER_ADDR"),
        .port_from = from_of(options, CT_OPT_MASTER_PORT, "--master-port", "PET_MASTER_PORT"),
    };
    memcpy(out->master_addr, options->master_addr, sizeof(out->master_addr));
    if (options->has_endpoint) {
        out->master_from = out->port_from =
            from_of(options, CT_OPT_RDZV_ENDPOINT, "--rdzv-endpoint", "PET_RDZV_ENDPOINT");
    }
}

/* ---- mode ------------------------------------------------------------------------------------ */

static bool starts_ranks(const struct ct_scheduler *scheduler)
{
    return scheduler->world_size.from != NULL && scheduler->world_size.value > 1 &&
           (scheduler->nnodes.from == NULL ||
            scheduler->world_size.value > scheduler->nnodes.value);
}

static int refuse_both(const struct resolver *r)
{
    const struct ct_scheduler *scheduler = r->scheduler;
    return ct_err_set(
        r->err, CT_EINVAL,
        "%s has started %d tasks (%s), more than one on a node, and %s asks each for "
        "%d workers: leave it out, and every task becomes one rank; or start one task "
        "on each node (srun --ntasks-per-node=1, mpirun --map-by ppr:1:node), and "
        "each starts its workers",
        scheduler->name, scheduler->world_size.value, scheduler->world_size.from,
        r->out->workers_from, r->options->nproc);
}

static int choose_mode(const struct resolver *r)
{
    const struct ct_scheduler *scheduler = r->scheduler;
    const struct ct_options *options = r->options;
    bool nproc_given = is_given(options, CT_OPT_NPROC_PER_NODE);
    if (options->standalone || is_given(options, CT_OPT_NNODES)) {
        r->out->mode =
            options->max_nodes > 1 || options->spares > 0 ? CT_MODE_AGENT : CT_MODE_SINGLE;
        return 0;
    }
    if (starts_ranks(scheduler)) {
        r->out->mode = CT_MODE_SHIM;
        return nproc_given ? refuse_both(r) : 0;
    }
    /* Users ask such launchers for one process for each rank. If that is one process on each node,
     * too, a shim does the same as an agent. */
    if (scheduler->ranks_only && scheduler->world_size.value > 1 && !nproc_given) {
        r->out->mode = CT_MODE_SHIM;
        return 0;
    }
    if (scheduler->nnodes.from != NULL) {
        r->out->mode = scheduler->nnodes.value > 1 ? CT_MODE_AGENT : CT_MODE_SINGLE;
        return 0;
    }
    if (scheduler->node_rank.from != NULL) {
        return ct_err_set(
            r->err, CT_EINVAL,
            "%s=%d says that this is one of several nodes (%s), but not how many there "
            "are: pass --nnodes N, or --standalone if each works alone",
            scheduler->node_rank.from, scheduler->node_rank.value, scheduler->name);
    }
    r->out->mode = CT_MODE_SINGLE;
    return 0;
}

/* ---- nodes and workers ----------------------------------------------------------------------- */

/* The scheduler's number of this node; NULL if the scheduler counts other nodes than the job. */
static const struct ct_scheduler_int *known_node_rank(const struct resolver *r)
{
    const struct ct_scheduler *scheduler = r->scheduler;
    int nodes = r->out->max_nodes;
    bool elastic = r->out->min_nodes < nodes;
    if (scheduler->node_rank.from != NULL &&
        (scheduler->nnodes.from == NULL
             ? scheduler->node_rank.value < nodes
             : scheduler->nnodes.value == nodes && !starts_ranks(scheduler))) {
        return &scheduler->node_rank;
    }
    if (!elastic && scheduler->rank.from != NULL && scheduler->world_size.value == nodes) {
        return &scheduler->rank;
    }
    return NULL;
}

static void resolve_nodes(const struct resolver *r)
{
    const struct ct_scheduler *scheduler = r->scheduler;
    struct ct_resolved *out = r->out;
    const struct ct_scheduler_int *nodes =
        out->mode == CT_MODE_SHIM ? &scheduler->world_size : &scheduler->nnodes;
    if (!is_given(r->options, CT_OPT_NNODES) && out->mode != CT_MODE_SINGLE) {
        out->min_nodes = out->max_nodes = nodes->value;
        out->nnodes_from = nodes->from;
    }
    if (out->mode == CT_MODE_SHIM) {
        out->node_rank = scheduler->rank.value;
        out->node_rank_from = scheduler->rank.from;
        return;
    }
    const struct ct_scheduler_int *rank = known_node_rank(r);
    if (out->node_rank < 0 && out->mode == CT_MODE_AGENT && rank != NULL) {
        out->node_rank = rank->value;
        out->node_rank_from = rank->from;
    }
}

static int check_node_rank(const struct resolver *r)
{
    const struct ct_resolved *out = r->out;
    int spares = r->options->spares, nodes = out->max_nodes + spares;
    if (out->node_rank < nodes) {
        return 0;
    }
    return ct_err_set(r->err, CT_EINVAL,
                      "--node-rank %d: the ranks of %d node%s%s go from 0 to %d (see --nnodes%s)",
                      out->node_rank, nodes, nodes == 1 ? "" : "s",
                      spares > 0 ? ", spares included," : "", nodes - 1,
                      spares > 0 ? " and --spares" : "");
}

/* The scheduler's number of devices counts only if the user gives neither workers nor nodes: with
 * --nnodes alone torchrun starts one worker. A machine with more CPUs or GPUs than CT_WORKERS_MAX
 * is no error, because the user has not asked for that number. */
static int resolve_workers(const struct resolver *r, const struct ct_machine *machine)
{
    const struct ct_scheduler *scheduler = r->scheduler;
    const struct ct_options *options = r->options;
    struct ct_resolved *out = r->out;
    if (out->mode == CT_MODE_SHIM) {
        out->workers = 1;
        out->workers_from = scheduler->world_size.from;
        return 0;
    }
    if (scheduler->nproc.from != NULL && scheduler->nproc.value <= CT_WORKERS_MAX &&
        scheduler->nnodes.from != NULL && !options->standalone &&
        !is_given(options, CT_OPT_NPROC_PER_NODE) && !is_given(options, CT_OPT_NNODES)) {
        out->workers = scheduler->nproc.value;
        out->workers_from = scheduler->nproc.from;
        return 0;
    }
    switch (options->nproc_kind) {
    case CT_NPROC_COUNT:
        break;
    case CT_NPROC_CPU:
        out->workers = machine->cpus;
        break;
    case CT_NPROC_AUTO:
        out->workers = machine->gpus > 0 ? machine->gpus : machine->cpus;
        break;
    case CT_NPROC_GPU:
        if (machine->gpus == 0) {
            return ct_err_set(r->err, CT_ENOENT,
                              "--nproc-per-node gpu: no GPU is visible here (/dev/nvidia*, "
                              "CUDA_VISIBLE_DEVICES); auto falls back to CPUs");
        }
        out->workers = machine->gpus;
        break;
    }
    out->workers = out->workers < CT_WORKERS_MAX ? out->workers : CT_WORKERS_MAX;
    return 0;
}

/* If the scheduler does not say which node this is, equal blocks of ranks are assumed. */
static void resolve_local_rank(const struct resolver *r)
{
    const struct ct_scheduler *scheduler = r->scheduler;
    struct ct_resolved *out = r->out;
    out->local_rank = scheduler->local_rank.from != NULL ? scheduler->local_rank.value : 0;
    out->local_size = scheduler->local_size.from != NULL ? scheduler->local_size.value : 1;
    if (scheduler->nnodes.from != NULL && scheduler->node_rank.from != NULL) {
        out->group_rank = scheduler->node_rank.value;
        out->group_count = scheduler->nnodes.value;
        return;
    }
    out->group_rank = scheduler->rank.value / out->local_size;
    out->group_count = (scheduler->world_size.value + out->local_size - 1) / out->local_size;
}

/* The options name workers by local rank, but a shim's only worker has number 0 in its ctrun. So
 * what they say of its local rank becomes what they say of number 0. */
static void resolve_output(struct ct_resolved *out)
{
    bool shown = ct_rank_set_has(&out->shown, out->local_rank);
    out->redirects =
        (struct ct_redirects){.all = (uint8_t)ct_redirects_of(&out->redirects, out->local_rank)};
    out->tee = (struct ct_redirects){.all = (uint8_t)ct_redirects_of(&out->tee, out->local_rank)};
    out->shown = (struct ct_rank_set){.given = true, .bits = {shown ? 1 : 0}};
}

/* ---- the store ------------------------------------------------------------------------------- */

static bool has_master(const struct resolver *r)
{
    return r->options->has_endpoint || r->out->master_addr[0] != '\0';
}

/* If the scheduler numbers the nodes and names the first one, it is known who hosts the store. If a
 * flag names the address, each ctrun tries to bind it, and the one that can hosts the store. */
static int resolve_master(struct resolver *r)
{
    const struct ct_scheduler *scheduler = r->scheduler;
    struct ct_resolved *out = r->out;
    bool shim = out->mode == CT_MODE_SHIM;
    if (r->backend == CT_RDZV_ETCD) {
        return 0;
    }
    if (has_master(r)) {
        r->is_host = shim ? out->node_rank == 0 : r->is_host;
        return 0;
    }
    bool one_host = shim && scheduler->local_size.from != NULL &&
                    scheduler->local_size.value == scheduler->world_size.value;
    if (!one_host && scheduler->first_host.from == NULL) {
        if (!shim && scheduler->nnodes.from == NULL) {
            return 0; /* only --nnodes is given, so the scheduler is not involved */
        }
        return ct_err_set(r->err, CT_EINVAL,
                          "%s does not say on which host rank 0 is, so the others could not find "
                          "it: pass --master-addr HOST (or --rdzv-endpoint HOST:PORT)",
                          scheduler->name);
    }
    const char *host = one_host ? "127.0.0.1" : scheduler->first_host.value;
    struct ct_endpoint endpoint;
    if (ct_endpoint_parse(host, 0, &endpoint, r->err) != 0) {
        (void)ct_err_wrap(r->err, "%s", scheduler->first_host.from);
        return CT_EFORMAT;
    }
    memcpy(out->master_addr, endpoint.host, sizeof(out->master_addr));
    out->master_from = one_host ? scheduler->local_size.from : scheduler->first_host.from;
    if (out->node_rank >= 0 && r->is_host < 0) {
        r->is_host = out->node_rank == 0;
    }
    r->backend = CT_RDZV_STATIC; /* which has a host and a port, as it is here */
    return 0;
}

static void resolve_port(const struct resolver *r)
{
    const struct ct_scheduler *scheduler = r->scheduler;
    struct ct_resolved *out = r->out;
    if (r->options->has_endpoint || out->master_port > 0) {
        return;
    }
    if (r->backend == CT_RDZV_ETCD && out->master_port == 0) {
        return; /* a free port, whatever the scheduler says: etcd tells the others which */
    }
    if (scheduler->port.from != NULL) {
        out->master_port = scheduler->port.value;
        out->port_from = scheduler->port.from;
        return;
    }
    bool has_id = scheduler->job_id_from != NULL;
    if (out->master_port == 0 && !has_id) {
        return; /* the user asks for a free port: ct_store_address_check() refuses it if shared */
    }
    out->master_port = has_id ? ct_scheduler_port(scheduler->job_id) : PORT_STATIC;
    out->port_from = has_id ? scheduler->job_id_from : DEFAULT_FROM;
}

/* Chooses for one machine. static: the endpoint, otherwise --master-addr and --master-port. c10d:
 * the endpoint; if it has no port, the kernel chooses one, because with torchrun's default, 29400,
 * a second job on this machine could not start. --local-addr replaces the default host and the host
 * of c10d's endpoint. */
static void choose_store_alone(const struct resolver *r, struct ct_store_address *address)
{
    const struct ct_options *options = r->options;
    const struct ct_resolved *out = r->out;
    const char *local = options->local_addr[0] != '\0' ? options->local_addr : NULL;
    if (options->has_endpoint && !options->standalone) {
        address->host = options->endpoint.host;
        address->port = options->endpoint.port;
        address->option = "--rdzv-endpoint";
        if (r->backend == CT_RDZV_C10D && local != NULL) {
            address->also = address->host;
        }
    } else if (r->backend == CT_RDZV_STATIC && !options->standalone) {
        if (out->master_addr[0] != '\0') {
            address->host = out->master_addr;
            address->option = "--master-addr";
        }
        address->port = out->master_port > 0 ? (uint16_t)out->master_port : 0;
    }
    if (local != NULL && (address->option == NULL || address->also != NULL)) {
        address->host = local;
        address->option = "--local-addr";
    }
    address->master = address->host;
}

/* Chooses for several machines. A port that is not given is torchrun's default, and --local-addr
 * does not replace the host: it is what this machine, as node rank 0, tells the others. */
static void choose_store_shared(const struct resolver *r, struct ct_store_address *address)
{
    const struct ct_options *options = r->options;
    const struct ct_resolved *out = r->out;
    bool is_static = r->backend == CT_RDZV_STATIC;
    if (out->etcd != NULL) {
        *address = (struct ct_store_address){
            .duty = CT_HOST_ELSEWHERE, .host = "", .master = "", .option = "--rdzv-endpoint"};
        return;
    }
    address->duty = r->is_host == 1   ? CT_HOST_HERE
                    : r->is_host == 0 ? CT_HOST_ELSEWHERE
                                      : CT_HOST_IF_OURS;
    if (options->has_endpoint) {
        address->host = options->endpoint.host;
        address->port = options->endpoint.has_port ? options->endpoint.port : PORT_C10D;
        address->option = "--rdzv-endpoint";
    } else if (is_static) {
        if (out->master_addr[0] != '\0') {
            address->host = out->master_addr;
        }
        address->port = out->master_port >= 0 ? (uint16_t)out->master_port : PORT_STATIC;
        address->option = "--master-addr";
    }
    bool own = !is_static && ct_options_name_address(options);
    address->master = own ? options->local_addr : address->host;
}

static void resolve_store_address(const struct resolver *r)
{
    r->out->store_address.host = "127.0.0.1";
    if (r->out->shared) {
        choose_store_shared(r, &r->out->store_address);
    } else {
        choose_store_alone(r, &r->out->store_address);
    }
}

static void resolve_run_id(const struct resolver *r)
{
    struct ct_resolved *out = r->out;
    if (out->run_id == NULL && out->mode != CT_MODE_SINGLE && r->scheduler->job_id_from != NULL) {
        out->run_id = r->scheduler->job_id;
        out->run_id_from = r->scheduler->job_id_from;
    }
    out->run_id_given = out->run_id != NULL;
    if (out->run_id == NULL && out->shared) {
        out->run_id = CT_RUN_ID_DEFAULT;
    }
}

/* ---- output ---------------------------------------------------------------------------------- */

/* Does the launcher show the output of all nodes on one screen? Pods and hosts of a cloud have a
 * log each. A user who has set variables by hand has a terminal for each node. */
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
    case CT_SCHEDULER_SGE:
        return true;
    case CT_SCHEDULER_ALONE:
    case CT_SCHEDULER_SLURM_BATCH:
    case CT_SCHEDULER_KUBERNETES:
    case CT_SCHEDULER_TPU:
    case CT_SCHEDULER_DSTACK:
    case CT_SCHEDULER_SKYPILOT:
    case CT_SCHEDULER_TORCHX:
    case CT_SCHEDULER_MASTER:
        break;
    }
    return false;
}

/* There is room for one warning. The last one that applies is printed. */
static void choose_warning(const struct resolver *r)
{
    const struct ct_options *options = r->options;
    struct ct_resolved *out = r->out;
    const int machines = out->max_nodes + options->spares;
    if (!options->standalone && !is_given(options, CT_OPT_NNODES)) {
        memcpy(out->warning, r->scheduler->warning, sizeof(r->scheduler->warning));
        out->warning_can_wait = out->mode == CT_MODE_AGENT;
    }
    if (out->mode == CT_MODE_AGENT && !has_master(r) && r->backend == CT_RDZV_STATIC &&
        r->is_host != 1 && machines > 1) {
        (void)snprintf(out->warning, sizeof(out->warning),
                       "without --master-addr the %d nodes meet at 127.0.0.1, which other "
                       "machines cannot reach",
                       machines);
        out->warning_can_wait = false;
    }
    if (out->kill_on_exit && options->max_restarts > 0) {
        (void)snprintf(out->warning, sizeof(out->warning),
                       "Slurm ends the whole step when one task fails (SLURM_KILL_BAD_EXIT=1), so "
                       "there may be nothing left to restart: use srun --kill-on-bad-exit=0");
        out->warning_can_wait = false;
    }
}

/* ---- all values ------------------------------------------------------------------------------ */

int ct_resolve_scheduler(const struct ct_scheduler_input *input, const struct ct_options *options,
                         struct ct_scheduler *out, struct ct_err *err)
{
    bool names_master = options->has_endpoint || options->master_addr[0] != '\0' ||
                        options->backend == CT_RDZV_ETCD;
    bool nothing_open = options->standalone || (is_given(options, CT_OPT_NNODES) &&
                                                (options->max_nodes == 1 || names_master));
    int rc = ct_scheduler_detect(input, out, err);
    if (rc != 0 && rc != CT_ENOMEM && nothing_open) {
        *out = (struct ct_scheduler){.name = "unclear", .reason = "flags decide"};
        return 0;
    }
    return rc;
}

int ct_resolve(const struct ct_options *options, const struct ct_scheduler *scheduler,
               const struct ct_machine *machine, struct ct_resolved *out, struct ct_err *err)
{
    bool etcd = options->backend == CT_RDZV_ETCD;
    struct resolver r = {.options = options,
                         .scheduler = scheduler,
                         .out = out,
                         .backend = options->backend,
                         .is_host = etcd ? -1 : options->rdzv_conf.is_host,
                         .err = err};
    take_options(options, out);
    int rc = choose_mode(&r);
    if (rc != 0) {
        return rc;
    }
    resolve_nodes(&r);
    if (out->mode != CT_MODE_SINGLE) {
        rc = resolve_master(&r);
        if (rc != 0) {
            return rc;
        }
        resolve_port(&r);
        out->kill_on_exit = scheduler->kill_on_exit;
    }
    out->shared =
        !options->standalone && (out->max_nodes > 1 || options->spares > 0 || r.is_host == 0);
    /* The static back end means one fixed host. A shim's nodes are ranks: with one machine many of
     * them would lose their votes. A ctrun that another one has started ends with that one, unless
     * the job was detached. */
    out->etcd = out->shared && r.backend == CT_RDZV_ETCD ? options->endpoint_text : NULL;
    int wanted = options->rdzv_conf.failover;
    bool led = options->agent_stdin && !options->detach; /* by a ctrun that stays */
    out->failover = out->shared && wanted != 0 && out->mode != CT_MODE_SHIM && !led &&
                    (wanted == 1 || options->backend != CT_RDZV_STATIC);
    if (out->etcd != NULL && !out->failover) {
        return ct_err_set(err, CT_EUNSUPPORTED, "--rdzv-backend etcd %s",
                          wanted == 0 ? "and --rdzv-conf failover=0 exclude each other"
                          : led       ? "is not needed with --hosts, which tells all where to meet"
                                      : "works with one ctrun on each machine, not for each rank");
    }
    resolve_store_address(&r);
    resolve_run_id(&r);
    if (out->mode == CT_MODE_SHIM) {
        resolve_local_rank(&r);
        resolve_output(out);
    }
    out->one_screen = led || shares_screen(scheduler->kind);
    choose_warning(&r);
    rc = check_node_rank(&r);
    return rc != 0 ? rc : resolve_workers(&r, machine);
}

/* A variable of etcdctl that is wrong is told before the job is begun. */
static int check_etcd(const char *endpoints, char *const *env, struct ct_err *err)
{
    struct ct_etcd_settings settings;
    int rc = ct_etcd_settings_read(endpoints, env, &settings, err);
    ct_etcd_settings_fini(&settings);
    return rc;
}

int ct_resolve_here(const struct ct_options *options, const struct ct_machine *machine,
                    char *const *env, struct ct_scheduler *scheduler, struct ct_resolved *out,
                    struct ct_err *err)
{
    const struct ct_scheduler_input input = {
        .env = env, .host = machine->host, .read = ct_scheduler_read_file, .pmi = ct_pmi_ask};
    if (ct_resolve_scheduler(&input, options, scheduler, err) != 0) {
        return CT_EXIT_USAGE;
    }
    int rc = ct_resolve(options, scheduler, machine, out, err);
    if (rc == 0 && out->etcd != NULL) {
        rc = check_etcd(out->etcd, env, err);
    }
    if (rc == 0 && options->detach && out->mode == CT_MODE_SHIM) {
        (void)ct_err_set(
            err, CT_EINVAL,
            "--detach has no meaning here: %s has started one ctrun for each rank, and "
            "ends the job with them",
            scheduler->name);
        return CT_EXIT_USAGE;
    }
    return rc == 0 ? CT_EXIT_OK : rc == CT_ENOENT ? CT_EXIT_SETUP : CT_EXIT_USAGE;
}

void ct_resolved_worker_env(const struct ct_resolved *resolved, struct ct_worker_env *env)
{
    if (resolved->mode != CT_MODE_SHIM) {
        return;
    }
    env->first_local_rank = resolved->local_rank;
    env->local_world_size = resolved->local_size;
    env->node_rank = resolved->group_rank;
    env->node_count = resolved->group_count;
}
