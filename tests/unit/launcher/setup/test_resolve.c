/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares options, environment and facts of a scheduler with the job that must follow from them:
 * nodes, ranks, workers, and where the store is.
 */
#include "common/exit_code.h"
#include "launcher/setup/machine.h"
#include "launcher/setup/resolve.h"
#include "tests/lib/ct_test.h"
#include "tests/lib/fault.h"

#include <stdio.h>

#define WORDS_MAX 24

static int no_file(void *data, const char *path, size_t max, struct ct_buf *out, struct ct_err *err)
{
    (void)data, (void)max, (void)out;
    return ct_err_set(err, CT_ENOENT, "cannot open '%s'", path);
}

struct row {
    const char *words[8]; /* options */
    const char *env[WORDS_MAX];
    const char *resolved; /* as by write_resolved(), or part of the error */
};

static void write_resolved(const struct ct_options *options, const struct ct_resolved *resolved,
                           char *out, size_t size)
{
    static const char *const modes[] = {"single", "agent", "shim"};
    static const int is_host[] = {
        [CT_HOST_HERE] = 1, [CT_HOST_ELSEWHERE] = 0, [CT_HOST_IF_OURS] = -1};
    int len = snprintf(out, size, "%s nodes=%d:%d<%s node=%d<%s n=%d<%s", modes[resolved->mode],
                       resolved->min_nodes, resolved->max_nodes, resolved->nnodes_from,
                       resolved->node_rank, resolved->node_rank_from, resolved->workers,
                       resolved->workers_from);
    if (resolved->mode != CT_MODE_SINGLE) {
        len += snprintf(out + len, size - (size_t)len, " at=%s<%s port<%s id=%s<%s host=%d",
                        options->has_endpoint ? options->endpoint.host : resolved->master_addr,
                        resolved->master_from, resolved->port_from, resolved->run_id,
                        resolved->run_id_from, is_host[resolved->store_address.duty]);
    }
    if (resolved->mode == CT_MODE_SHIM) {
        len += snprintf(out + len, size - (size_t)len, " local=%d/%d group=%d/%d",
                        resolved->local_rank, resolved->local_size, resolved->group_rank,
                        resolved->group_count);
    }
    (void)snprintf(out + len, size - (size_t)len, "%s", resolved->warning[0] != '\0' ? " !" : "");
}

/* What a row begins with and ends in. */
struct launch {
    struct ct_options options;
    struct ct_scheduler scheduler;
    struct ct_machine machine;
    struct ct_resolved resolved;
};

static int resolve(const struct row *row, struct launch *launch, struct ct_err *err)
{
    char *argv[10] = {(char *)"ctrun"};
    size_t n = 1;
    const struct ct_scheduler_input input = {
        .env = (char *const *)row->env,
        .host = "vm",
        .read = no_file,
    };
    for (; n < 8 && row->words[n - 1] != NULL; n++) {
        argv[n] = (char *)row->words[n - 1];
    }
    argv[n] = (char *)"x";
    int rc = ct_options_parse(argv, (char *const *)row->env, &launch->options, err);
    if (rc != 0) {
        return rc;
    }
    rc = ct_resolve_scheduler(&input, &launch->options, &launch->scheduler, err);
    return rc != 0 ? rc
                   : ct_resolve(&launch->options, &launch->scheduler, &launch->machine,
                                &launch->resolved, err);
}

#define SLURM(node, proc, local, tasks, each)                                                    \
    "SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_STEP_NODELIST=n[1-2]", "SLURM_STEP_NUM_NODES=2", \
        "SLURM_NODEID=" node, "SLURM_PROCID=" proc, "SLURM_LOCALID=" local,                      \
        "SLURM_STEP_NUM_TASKS=" tasks, "SLURM_STEP_TASKS_PER_NODE=" each
#define OMPI(rank, size, local, local_size)                     \
    "OMPI_COMM_WORLD_RANK=" rank, "OMPI_COMM_WORLD_SIZE=" size, \
        "OMPI_COMM_WORLD_LOCAL_RANK=" local, "OMPI_COMM_WORLD_LOCAL_SIZE=" local_size

static const struct row rows[] = {
    {{NULL}, {NULL}, "single nodes=1:1<default node=-1<default n=1<default"},
    {{"-n4"}, {NULL}, "single nodes=1:1<default node=-1<default n=4<--nproc-per-node"},
    {{NULL},
     {"PET_NPROC_PER_NODE=3"},
     "single nodes=1:1<default node=-1<default n=3<PET_NPROC_PER_NODE"},
    /* One task on each node: agents. */
    {{NULL},
     {SLURM("1", "1", "0", "2", "1(x2)"), "SLURM_GPUS_ON_NODE=8"},
     "agent nodes=2:2<SLURM_STEP_NUM_NODES node=1<SLURM_NODEID n=8<SLURM_GPUS_ON_NODE "
     "at=n1<SLURM_STEP_NODELIST port<SLURM_JOB_ID and SLURM_STEP_ID "
     "id=slurm-7.0<SLURM_JOB_ID and SLURM_STEP_ID host=0"},
    {{"-n2", "--rdzv-id=a"},
     {SLURM("0", "0", "0", "2", "1(x2)"), "SLURM_GPUS_ON_NODE=8"},
     "agent nodes=2:2<SLURM_STEP_NUM_NODES node=0<SLURM_NODEID n=2<--nproc-per-node "
     "at=n1<SLURM_STEP_NODELIST port<SLURM_JOB_ID and SLURM_STEP_ID id=a<--rdzv-id host=1"},
    /* A task for each rank: shims; also on a node that has one only. */
    {{NULL},
     {SLURM("1", "3", "1", "4", "2(x2)"), "SLURM_GPUS_ON_NODE=8"},
     "shim nodes=4:4<SLURM_STEP_NUM_TASKS node=3<SLURM_PROCID n=1<SLURM_STEP_NUM_TASKS "
     "at=n1<SLURM_STEP_NODELIST port<SLURM_JOB_ID and SLURM_STEP_ID "
     "id=slurm-7.0<SLURM_JOB_ID and SLURM_STEP_ID host=0 local=1/2 group=1/2"},
    {{NULL},
     {SLURM("1", "2", "0", "3", "2,1")},
     "shim nodes=3:3<SLURM_STEP_NUM_TASKS node=2<SLURM_PROCID n=1<SLURM_STEP_NUM_TASKS "
     "at=n1<SLURM_STEP_NODELIST port<SLURM_JOB_ID and SLURM_STEP_ID "
     "id=slurm-7.0<SLURM_JOB_ID and SLURM_STEP_ID host=0 local=0/1 group=1/2"},
    {{"-n2"},
     {SLURM("1", "3", "1", "4", "2(x2)")},
     "leave it out, and every task becomes one rank"},
    {{"-n2", "--rdzv-id=a", "--rdzv-conf=is_host=0"},
     {SLURM("0", "0", "0", "2", "1(x2)")},
     "agent nodes=2:2<SLURM_STEP_NUM_NODES node=0<SLURM_NODEID n=2<--nproc-per-node "
     "at=n1<SLURM_STEP_NODELIST port<SLURM_JOB_ID and SLURM_STEP_ID id=a<--rdzv-id host=0"},
    {{"--max-restarts=1"},
     {SLURM("0", "0", "0", "2", "1(x2)"), "SLURM_KILL_BAD_EXIT=1"},
     "agent nodes=2:2<SLURM_STEP_NUM_NODES node=0<SLURM_NODEID n=1<default "
     "at=n1<SLURM_STEP_NODELIST port<SLURM_JOB_ID and SLURM_STEP_ID "
     "id=slurm-7.0<SLURM_JOB_ID and SLURM_STEP_ID host=1 !"},
    /* Flags win over everything. */
    {{"--standalone", "-n2"},
     {SLURM("1", "3", "1", "4", "2(x2)")},
     "single nodes=1:1<default node=-1<default n=2<--nproc-per-node"},
    {{"--nnodes=1"},
     {SLURM("1", "3", "1", "4", "2(x2)")},
     "single nodes=1:1<--nnodes node=-1<default n=1<default"},
    {{"--nnodes=1", "-n2"},
     {"SLURM_STEP_NODELIST=n[", "SLURM_STEP_NUM_NODES=2"},
     "single nodes=1:1<--nnodes node=-1<default n=2<--nproc-per-node"},
    {{NULL}, {"SLURM_STEP_NODELIST=n[", "SLURM_STEP_NUM_NODES=2"}, "SLURM_NODEID is not set"},
    /* The batch script is one node, whatever the job has. */
    {{NULL},
     {"SLURM_JOB_ID=7", "SLURM_NODEID=0", "SLURM_JOB_NUM_NODES=4", "SLURM_NNODES=4"},
     "single nodes=1:1<default node=-1<default n=1<default !"},
    /* MPI: ranks, on one host and on several. */
    {{NULL},
     {OMPI("1", "2", "1", "2"), "PMIX_NAMESPACE=5"},
     "shim nodes=2:2<OMPI_COMM_WORLD_SIZE node=1<OMPI_COMM_WORLD_RANK n=1<OMPI_COMM_WORLD_SIZE "
     "at=127.0.0.1<OMPI_COMM_WORLD_LOCAL_SIZE port<PMIX_NAMESPACE id=openmpi-5<PMIX_NAMESPACE "
     "host=0 local=1/2 group=0/1"},
    {{NULL}, {OMPI("1", "2", "0", "1")}, "Open MPI's mpirun does not say on which host rank 0 is"},
    {{"--master-addr=h"},
     {OMPI("0", "2", "0", "1")},
     "shim nodes=2:2<OMPI_COMM_WORLD_SIZE node=0<OMPI_COMM_WORLD_RANK n=1<OMPI_COMM_WORLD_SIZE "
     "at=h<--master-addr port<default id=none<default host=1 local=0/1 group=0/2"},
    {{"--master-addr=h", "-n4"},
     {OMPI("1", "2", "0", "1")},
     "agent nodes=2:2<OMPI_COMM_WORLD_LOCAL_SIZE node=1<OMPI_COMM_WORLD_RANK n=4<--nproc-per-node "
     "at=h<--master-addr port<default id=none<default host=-1"},
    {{NULL}, {OMPI("0", "1", "0", "1")}, "single nodes=1:1<default node=-1<default n=1<default"},
    /* Nodes without a count are a hint that must not be dropped. */
    {{NULL},
     {"KUBERNETES_SERVICE_HOST=h", "JOB_COMPLETION_INDEX=0"},
     "JOB_COMPLETION_INDEX=0 says that this is one of several nodes"},
    {{"--standalone"},
     {"KUBERNETES_SERVICE_HOST=h", "JOB_COMPLETION_INDEX=2"},
     "single nodes=1:1<default node=-1<default n=1<default"},
    {{NULL}, {"MASTER_ADDR=h", "NODE_RANK=1"}, "NODE_RANK=1 says that this is one of several"},
    {{NULL},
     {"MASTER_ADDR=h", "NODE_RANK=1", "NNODES=2", "MASTER_PORT=5"},
     "agent nodes=2:2<NNODES node=1<NODE_RANK n=1<default at=h<MASTER_ADDR port<MASTER_PORT "
     "id=none<default host=0"},
    {{"--nnodes=2"},
     {"KUBERNETES_SERVICE_HOST=h", "JOB_COMPLETION_INDEX=1"},
     "agent nodes=2:2<--nnodes node=1<JOB_COMPLETION_INDEX n=1<default at=<default port<default "
     "id=none<default host=-1 !"},
    /* torchrun's own ways under srun: the node's number is the scheduler's. */
    {{"--nnodes=2", "-n8", "--rdzv-backend=c10d", "--rdzv-endpoint=h:29500", "--rdzv-id=1"},
     {SLURM("1", "1", "0", "2", "1(x2)")},
     "agent nodes=2:2<--nnodes node=1<SLURM_NODEID n=8<--nproc-per-node at=h<--rdzv-endpoint "
     "port<--rdzv-endpoint id=1<--rdzv-id host=-1"},
    {{"--nnodes=4", "--master-addr=h"},
     {SLURM("1", "3", "1", "4", "2(x2)")},
     "agent nodes=4:4<--nnodes node=3<SLURM_PROCID n=1<default at=h<--master-addr "
     "port<SLURM_JOB_ID and SLURM_STEP_ID id=slurm-7.0<SLURM_JOB_ID and SLURM_STEP_ID host=-1"},
    {{"--nnodes=2", "--node-rank=0", "--master-addr=h", "--master-port=9"},
     {SLURM("1", "1", "0", "2", "1(x2)")},
     "agent nodes=2:2<--nnodes node=0<--node-rank n=1<default at=h<--master-addr "
     "port<--master-port id=slurm-7.0<SLURM_JOB_ID and SLURM_STEP_ID host=-1"},
    /* The last rank is named right, also where there are spares (once it was not). */
    {{"--nnodes=2", "--node-rank=2", "--master-addr=h"},
     {NULL},
     "--node-rank 2: the ranks of 2 nodes go from 0 to 1 (see --nnodes)"},
    {{"--nnodes=2", "--spares=1", "--node-rank=3", "--master-addr=h"},
     {NULL},
     "--node-rank 3: the ranks of 3 nodes, spares included, go from 0 to 2 (see --nnodes and --sp"},
    {{"--node-rank=1"}, {NULL}, "--node-rank 1: the ranks of 1 node go from 0 to 0 (see --nnodes)"},
    {{"--nnodes=3", "--node-rank=2", "--master-addr=h", "--master-port=9"},
     {SLURM("1", "1", "0", "2", "1(x2)")},
     "agent nodes=3:3<--nnodes node=2<--node-rank n=1<default at=h<--master-addr "
     "port<--master-port id=slurm-7.0<SLURM_JOB_ID and SLURM_STEP_ID host=-1"},
    {{NULL},
     {"PET_NNODES=2", "PET_NODE_RANK=1", "PET_MASTER_ADDR=h", "PET_MASTER_PORT=9", "RANK=3",
      "WORLD_SIZE=4", "MASTER_ADDR=other", "KUBERNETES_SERVICE_HOST=k", "JOB_COMPLETION_INDEX=1"},
     "agent nodes=2:2<PET_NNODES node=1<PET_NODE_RANK n=1<default at=h<PET_MASTER_ADDR "
     "port<PET_MASTER_PORT id=none<default host=-1"},
};

static void flags_then_environment_then_scheduler(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct launch launch = {0};
        struct ct_err err = {0};
        char text[1024] = "";
        int rc = resolve(&rows[i], &launch, &err);
        if (rc == 0) {
            write_resolved(&launch.options, &launch.resolved, text, sizeof(text));
        }
        if (rc == 0 ? strcmp(text, rows[i].resolved) != 0
                    : strstr(err.text, rows[i].resolved) == NULL) {
            fail_msg("row %zu:\n  resolved  %s%s\n  expected %s", i, text, err.text,
                     rows[i].resolved);
        }
        ct_scheduler_fini(&launch.scheduler);
    }
}

static void the_strongest_option_names_the_store(void **state)
{
    static const struct {
        const char *words[8];
        const char *host;
        int port;
        const char *option, *also; /* "" = none */
        enum ct_host_duty duty;
        const char *master; /* NULL = as host */
    } cases[] = {
        {{NULL}, "127.0.0.1", 0, "", ""},
        {{"--master-addr=h", "--master-port=5"}, "h", 5, "--master-addr", ""},
        {{"--rdzv-endpoint=e:7", "--master-addr=h"}, "e", 7, "--rdzv-endpoint", ""},
        {{"--rdzv-endpoint=e:7", "--local-addr=l"}, "e", 7, "--rdzv-endpoint", ""},
        {{"--rdzv-backend=c10d", "--rdzv-endpoint=e"}, "e", 0, "--rdzv-endpoint", ""},
        {{"--rdzv-backend=c10d", "--rdzv-endpoint=e:7", "--local-addr=l"},
         "l",
         7,
         "--local-addr",
         "e"},
        {{"--rdzv-backend=c10d", "--master-addr=h", "--master-port=5"}, "127.0.0.1", 0, "", ""},
        {{"--local-addr=l", "--master-port=5"}, "l", 5, "--local-addr", ""},
        {{"--local-addr=l", "--master-addr=h"}, "h", 0, "--master-addr", ""},
        /* several machines */
        {{"--nnodes=2"}, "127.0.0.1", 29500, "--master-addr", "", CT_HOST_IF_OURS},
        {{"--nnodes=2", "--master-addr=h", "--master-port=5", "--local-addr=l"},
         "h",
         5,
         "--master-addr",
         "",
         CT_HOST_IF_OURS},
        {{"--nnodes=2", "--master-port=0"}, "127.0.0.1", 0, "--master-addr", "", CT_HOST_IF_OURS},
        {{"--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=e", "--local-addr=l"},
         "e",
         29400,
         "--rdzv-endpoint",
         "",
         CT_HOST_IF_OURS,
         "l"},
        {{"--spares=1", "--rdzv-endpoint=e:7", "--rdzv-conf=is_host=1"},
         "e",
         7,
         "--rdzv-endpoint",
         "",
         CT_HOST_HERE},
        {{"--rdzv-endpoint=e:7", "--rdzv-conf=is_host=0"},
         "e",
         7,
         "--rdzv-endpoint",
         "",
         CT_HOST_ELSEWHERE},
        {{"--standalone", "--rdzv-endpoint=e:7", "--master-port=5"}, "127.0.0.1", 0, "", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct row row = {{NULL}, {NULL}, NULL};
        struct launch launch = {0};
        memcpy(row.words, cases[i].words, sizeof(row.words));
        assert_int_equal(resolve(&row, &launch, NULL), 0);
        const struct ct_store_address *address = &launch.resolved.store_address;
        assert_string_equal(address->host, cases[i].host);
        assert_int_equal(address->port, cases[i].port);
        assert_string_equal(address->option != NULL ? address->option : "", cases[i].option);
        assert_string_equal(address->also != NULL ? address->also : "", cases[i].also);
        assert_int_equal(address->duty, cases[i].duty);
        assert_string_equal(address->master,
                            cases[i].master != NULL ? cases[i].master : cases[i].host);
        ct_scheduler_fini(&launch.scheduler);
    }
}

static void workers_follow_the_machine(void **state)
{
    static const struct {
        const char *words[2];
        int cpus, gpus, workers;
    } cases[] = {
        {{"-n5"}, 2, 1, 5},
        {{"-ncpu"}, 2, 8, 2},
        {{"-ngpu"}, 2, 8, 8},
        {{"-nauto"}, 2, 8, 8},
        {{"-nauto"}, 2, 0, 2},
        {{"-ngpu"}, 2, 0, CT_ENOENT},
        {{"-ncpu"}, CT_WORKERS_MAX + 1, 0, CT_WORKERS_MAX},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct row row = {{cases[i].words[0]}, {NULL}, NULL};
        struct launch launch = {.machine = {.cpus = cases[i].cpus, .gpus = cases[i].gpus}};
        struct ct_err err = {0};
        int rc = resolve(&row, &launch, &err);
        assert_int_equal(rc != 0 ? rc : launch.resolved.workers, cases[i].workers);
        assert_int_equal(rc != 0, err.text[0] != '\0');
        ct_scheduler_fini(&launch.scheduler);
    }
}

static void shims_keep_the_schedulers_ranks(void **state)
{
    static const struct row shim = {
        {"--local-ranks-filter=1", "-t0:1,1:3", "-r2"}, {SLURM("1", "3", "1", "4", "2(x2)")}, ""};
    struct launch launch = {0};
    struct ct_worker_env worker_env = {
        .local_world_size = 1, .first_rank = 3, .node_rank = 3, .node_count = 4};
    const struct ct_worker_env before = worker_env;
    (void)state;
    assert_int_equal(resolve(&shim, &launch, NULL), 0);
    /* To this ctrun the worker is number 0; what is told to local rank 1 is told to it. */
    assert_true(ct_rank_set_has(&launch.resolved.shown, 0));
    assert_int_equal(ct_redirects_of(&launch.resolved.tee, 0), CT_STREAMS_BOTH);
    assert_int_equal(ct_redirects_of(&launch.resolved.redirects, 0), CT_STREAMS_STDERR);

    ct_resolved_worker_env(&(const struct ct_resolved){.mode = CT_MODE_AGENT}, &worker_env);
    assert_memory_equal(&worker_env, &before, sizeof(worker_env));
    ct_resolved_worker_env(&launch.resolved, &worker_env);
    assert_int_equal(worker_env.first_local_rank, 1);
    assert_int_equal(worker_env.local_world_size, 2);
    assert_int_equal(worker_env.node_rank, 1);
    assert_int_equal(worker_env.node_count, 2);
    assert_int_equal(worker_env.first_rank, 3);
    ct_scheduler_fini(&launch.scheduler);
}

/* The static back end has one fixed host, unless the user says otherwise. */
static void the_host_may_be_lost_with_c10d(void **state)
{
    static const struct {
        struct row row;
        bool failover;
    } cases[] = {
        {{{"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=h"}, {NULL}, ""}, true},
        {{{"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=h", "--rdzv-conf=failover=0"},
          {NULL},
          ""},
         false},
        {{{"--nnodes=1", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1"}, {NULL}, ""}, false},
        {{{"--nnodes=2", "--master-addr=h"}, {NULL}, ""}, false},
        {{{"--nnodes=2", "--master-addr=h", "--rdzv-conf=failover=1"}, {NULL}, ""}, true},
        {{{"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=h", "--agent-stdin"}, {NULL}, ""},
         false},
        {{{"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=h", "--agent-stdin", "--detach"},
          {NULL},
          ""},
         true},
        {{{"--rdzv-conf=failover=1"}, {SLURM("0", "0", "0", "4", "2(x2)"), NULL}, ""}, false},
        /* Whoever names the first host, the user or the scheduler, it may be lost. */
        {{{"--rdzv-backend=c10d"}, {SLURM("0", "0", "0", "2", "1(x2)"), NULL}, ""}, true},
        {{{NULL}, {SLURM("0", "0", "0", "2", "1(x2)"), NULL}, ""}, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct launch launch = {.machine = {.host = "vm", .cpus = 8}};
        struct ct_err err = {0};
        if (resolve(&cases[i].row, &launch, &err) != 0) {
            fail_msg("case %zu: %s", i, err.text);
        }
        if (launch.resolved.failover != cases[i].failover) {
            fail_msg("case %zu: failover is %d", i, launch.resolved.failover);
        }
        ct_scheduler_fini(&launch.scheduler);
    }
}

/* With etcd no address of the store is known, and none is looked for in the scheduler. */
static void with_etcd_no_address_is_known(void **state)
{
#define ETCD "--rdzv-backend=etcd", "--rdzv-endpoint=h,g:5"
    static const struct row meets[] = {
        {{"--nnodes=2", ETCD}, {NULL}, ""},
        {{"--nnodes=1:2", ETCD, "--master-addr=m", "--rdzv-conf=is_host=1"}, {NULL}, ""},
        {{"--spares=1", ETCD}, {NULL}, ""},
        {{ETCD}, {SLURM("0", "0", "0", "2", "1(x2)"), NULL}, ""},
        /* Variables that contradict each other do not matter if flags say everything. */
        {{"--nnodes=2", ETCD}, {"SLURM_STEP_NODELIST=n[1-", "SLURM_PROCID=x", NULL}, ""},
    };
    static const struct row alone[] = {
        {{"--nnodes=1", ETCD}, {NULL}, ""},
        {{"--nnodes=1", ETCD, "--rdzv-conf=is_host=0"}, {NULL}, ""},
        {{"--standalone", ETCD}, {NULL}, ""},
    };
    static const struct row refused[] = {
        {{"--nnodes=2", ETCD, "--rdzv-conf=failover=0"}, {NULL}, "failover=0 exclude each other"},
        {{"--nnodes=2", ETCD, "--agent-stdin"}, {NULL}, "is not needed with --hosts"},
        {{ETCD}, {SLURM("0", "0", "0", "4", "2(x2)"), NULL}, "one ctrun on each machine"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(meets) / sizeof(meets[0]); i++) {
        struct launch launch = {0};
        assert_int_equal(resolve(&meets[i], &launch, NULL), 0);
        assert_string_equal(launch.resolved.etcd, "h,g:5");
        assert_true(launch.resolved.failover);
        assert_string_equal(launch.resolved.store_address.host, "");
        assert_string_equal(launch.resolved.warning, "");
        ct_scheduler_fini(&launch.scheduler);
    }
    for (size_t i = 0; i < sizeof(alone) / sizeof(alone[0]); i++) {
        struct launch launch = {0};
        assert_int_equal(resolve(&alone[i], &launch, NULL), 0);
        assert_null(launch.resolved.etcd);
        assert_false(launch.resolved.shared);
        assert_string_equal(launch.resolved.store_address.host, "127.0.0.1");
        assert_int_equal(launch.resolved.store_address.port, 0);
        ct_scheduler_fini(&launch.scheduler);
    }
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        struct launch launch = {0};
        struct ct_err err = {0};
        assert_int_not_equal(resolve(&refused[i], &launch, &err), 0);
        assert_non_null(strstr(err.text, refused[i].resolved));
        ct_scheduler_fini(&launch.scheduler);
    }
}

/* Each machine tells the others at which port it listens, so 0 is a free one under a scheduler,
 * too.
 */
static void with_etcd_each_machine_has_a_port_of_its_own(void **state)
{
    static const struct {
        struct row row;
        int port; /* -1 = the one that follows from the scheduler's job */
    } cases[] = {
        {{{"--nnodes=2", ETCD}, {NULL}, ""}, 29500},
        {{{"--nnodes=2", ETCD, "--master-port=5"}, {NULL}, ""}, 5},
        {{{"--nnodes=2", ETCD, "--master-port=0"}, {NULL}, ""}, 0},
        {{{ETCD}, {SLURM("0", "0", "0", "2", "1(x2)"), NULL}, ""}, -1},
        {{{ETCD, "--master-port=0"}, {SLURM("0", "0", "0", "2", "1(x2)"), NULL}, ""}, 0},
        {{{ETCD}, {SLURM("0", "0", "0", "2", "1(x2)"), "PET_MASTER_PORT=0", NULL}, ""}, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct launch launch = {0};
        assert_int_equal(resolve(&cases[i].row, &launch, NULL), 0);
        int port = cases[i].port >= 0 ? cases[i].port : ct_scheduler_port(launch.scheduler.job_id);
        assert_int_equal(launch.resolved.master_port, port);
        ct_scheduler_fini(&launch.scheduler);
    }
}
#undef ETCD

/* etcdctl's variables are read with the options, before the job is begun. */
static void a_wrong_variable_of_etcd_is_a_usage_error(void **state)
{
    char *const argv[] = {(char *)"ctrun",
                          (char *)"--nnodes=2",
                          (char *)"--rdzv-backend=etcd",
                          (char *)"--rdzv-endpoint=h",
                          (char *)"true",
                          NULL};
    char *const good[] = {(char *)"ETCDCTL_USER=joe:sesame", NULL};
    char *const bad[] = {(char *)"ETCDCTL_CERT=/c", NULL};
    const struct ct_machine machine = {.host = "vm", .cpus = 8};
    struct ct_options options;
    struct ct_scheduler scheduler;
    struct ct_resolved resolved;
    struct ct_err err = {0};
    (void)state;
    assert_int_equal(ct_options_parse(argv, good, &options, &err), 0);
    assert_int_equal(ct_resolve_here(&options, &machine, good, &scheduler, &resolved, &err), 0);
    ct_scheduler_fini(&scheduler);
    assert_int_equal(ct_resolve_here(&options, &machine, bad, &scheduler, &resolved, &err),
                     CT_EXIT_USAGE);
    assert_non_null(strstr(err.text, "ETCDCTL_KEY is not set"));
    ct_scheduler_fini(&scheduler);
}

static int resolve_once(void *data)
{
    struct launch launch = {0};
    int rc = resolve(data, &launch, NULL);
    ct_scheduler_fini(&launch.scheduler);
    return rc;
}

static void memory_may_run_out(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(resolve_once, (void *)&rows[3], 0) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flags_then_environment_then_scheduler),
        cmocka_unit_test(the_strongest_option_names_the_store),
        cmocka_unit_test(workers_follow_the_machine),
        cmocka_unit_test(shims_keep_the_schedulers_ranks),
        cmocka_unit_test(the_host_may_be_lost_with_c10d),
        cmocka_unit_test(with_etcd_no_address_is_known),
        cmocka_unit_test(with_etcd_each_machine_has_a_port_of_its_own),
        cmocka_unit_test(a_wrong_variable_of_etcd_is_a_usage_error),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests_name("resolve", tests, NULL, NULL);
}
