/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that --print-config names each value with its source, tells the exit code, and makes names
 * of hosts harmless for a terminal.
 */
#include "common/exit_code.h"
#include "launcher/setup/config.h"
#include "tests/lib/ct_test.h"
#include "tests/lib/fault.h"

#include <stdio.h>

static char *const command[] = {(char *)"/bin/sh", (char *)"--steps", (char *)"3", NULL};
static char *const env[] = {NULL};

static const char job_from[] = "SLURM_JOB_ID";

/* Node 1 of two under Slurm. */
static int print_node(const struct ct_options *options, const struct ct_gpu_facts *gpus,
                      char *const *environment, const struct ct_interface_facts *facts,
                      int *exit_code, struct ct_buf *out)
{
    char *hosts[] = {(char *)"n1", (char *)"n2", NULL};
    const struct ct_scheduler scheduler = {
        .name = "a Slurm job step",
        .reason = "SLURM_STEP_NODELIST is set",
        .hosts = {.list = hosts, .count = 2},
        .hosts_from = "SLURM_STEP_NODELIST",
        .job_id_from = job_from,
        .end_time = 1764000000,
        .end_time_from = "SLURM_JOB_END_TIME",
    };
    const struct ct_resolved resolved = {
        .mode = CT_MODE_AGENT,
        .shared = true,
        .min_nodes = 2,
        .max_nodes = 2,
        .node_rank = 1,
        .workers = 8,
        .run_id = "slurm-7.0",
        .store_address = {.duty = CT_HOST_ELSEWHERE,
                          .host = "n1",
                          .port = 62000,
                          .option = "SLURM_STEP_NODELIST"},
        .nnodes_from = "SLURM_STEP_NUM_NODES",
        .node_rank_from = "SLURM_NODEID",
        .workers_from = "--nproc-per-node",
        .master_from = "SLURM_STEP_NODELIST",
        .port_from = job_from,
        .run_id_from = job_from,
        .warning = "mind\nthe gap",
    };
    const struct ct_machine machine = {.host = "n2", .gpu_facts = *gpus};
    const struct ct_config config = {options, &scheduler, &resolved, &machine, facts};
    return ct_config_print(&config, environment, exit_code, out);
}

static int print_agent_with(char *const *environment, const struct ct_interface_facts *facts,
                            struct ct_buf *out)
{
    const struct ct_options options = {.command = command,
                                       .nproc = 8,
                                       .gpu_bind = CT_GPU_BIND_MASK,
                                       .rdzv_conf = CT_RDZV_CONF_INIT};
    int exit_code = -1;
    const struct ct_gpu_facts gpus = {.physical = 8, .hami = true};
    int rc = print_node(&options, &gpus, environment, facts, &exit_code, out);
    assert_true(rc != 0 || exit_code == CT_EXIT_OK);
    return rc;
}

static int print_agent(struct ct_buf *out)
{
    static const struct ct_interface_facts none;
    return print_agent_with(env, &none, out);
}

static void everything_has_its_source(void **state)
{
    static const char expected[] =
        "host         n2\n"
        "found        a Slurm job step: SLURM_STEP_NODELIST is set\n"
        "mode         agent: one ctrun on each node, each starts its workers\n"
        "nodes        2                                SLURM_STEP_NUM_NODES\n"
        "node rank    1                                SLURM_NODEID\n"
        "workers here 8                                --nproc-per-node\n"
        "ranks here   8 to 15 of 16, if all nodes start as many\n"
        "store        n1:62000                         SLURM_STEP_NODELIST\n"
        "its port     computed from the job's id       SLURM_JOB_ID\n"
        "hosted by    another machine's ctrun\n"
        "GPUs         8, one for each worker to see    /dev/nvidia*\n"
        "warning      HAMi-core is in this container: behind a mask its memory limits do not hold "
        "for devices other than 0; without --gpu-bind mask all workers see all devices\n"
        "local rank 0  sees GPU 0 only\n"
        "local rank 1  sees GPU 1 only\n"
        "local rank 2  sees GPU 2 only\n"
        "local rank 3  sees GPU 3 only\n"
        "local rank 4  sees GPU 4 only\n"
        "local rank 5  sees GPU 5 only\n"
        "local rank 6  sees GPU 6 only\n"
        "local rank 7  sees GPU 7 only\n"
        "run id       slurm-7.0                        SLURM_JOB_ID\n"
        "expected     n1 n2 (SLURM_STEP_NODELIST)\n"
        "ends         2025-11-24 16:00:00 UTC          SLURM_JOB_END_TIME\n"
        "token        none                             default\n"
        "failover     off                              default\n"
        "command      /bin/sh --steps 3\n"
        "warning      mind?the gap\n";
    struct ct_buf out = CT_BUF_INIT;
    (void)state;
    assert_int_equal(print_agent(&out), 0);
    assert_string_equal(ct_buf_cstr(&out), expected);
    ct_buf_fini(&out);
}

static void interfaces_have_their_source(void **state)
{
    static char *const given[] = {(char *)"GLOO_SOCKET_IFNAME=eth1", NULL};
    static const struct {
        char *const *env;
        struct ct_interface_facts facts;
        const char *gloo, *nccl;
    } rows[] = {
        {env,
         {true, "n2", "10.0.0.2", "", false, "eth0"},
         "as it finds it                   n2 means 10.0.0.2 here",
         "as it finds it                   n2 means 10.0.0.2 here"},
        {env,
         {false, "n2", "127.0.1.1", "", false, "eth0"},
         "eth0                             the way to the store: n2 means 127.0.1.1 here",
         "=eth0                            the way to the store: n2 means 127.0.1.1 here"},
        {env,
         {false, "n2", "", "ib0", true, "ib0"},
         "ib0                              --local-addr: n2 means nothing here",
         "as it finds it                   its configuration file"},
        {given,
         {false, "n2", "127.0.1.1", "", false, ""},
         "eth1                             GLOO_SOCKET_IFNAME",
         "known with the store             the way to the store: n2 means 127.0.1.1 here"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ct_buf out = CT_BUF_INIT;
        char expected[512];
        (void)snprintf(expected, sizeof(expected), "gloo uses    %s\nNCCL uses    %s\n",
                       rows[i].gloo, rows[i].nccl);
        assert_int_equal(print_agent_with(rows[i].env, &rows[i].facts, &out), 0);
        if (strstr(ct_buf_cstr(&out), expected) == NULL) {
            fail_msg("row %zu: %s", i, ct_buf_cstr(&out));
        }
        ct_buf_fini(&out);
    }
}

static void the_exit_code_is_that_of_the_job(void **state)
{
    static char *const missing[] = {(char *)"/no/such/program", NULL};
    static char *const folder[] = {(char *)"/tmp", NULL};
    static const struct {
        char *const *command;
        const char *visible; /* GPUs, of which each of the eight workers wants one */
        int exit_code;
    } rows[] = {
        {command, NULL, CT_EXIT_OK},
        {missing, NULL, CT_EXIT_NOT_FOUND},
        {folder, NULL, CT_EXIT_NOT_EXECUTABLE},
        {command, "0", CT_EXIT_SETUP},
        {missing, "0", CT_EXIT_NOT_FOUND}, /* the program is looked for first */
    };
    static const struct ct_interface_facts none;
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct ct_options options = {.command = rows[i].command, .nproc_kind = CT_NPROC_GPU};
        const struct ct_gpu_facts gpus = {.physical = 8, .visible = rows[i].visible};
        struct ct_buf out = CT_BUF_INIT;
        int exit_code = -1;
        assert_int_equal(print_node(&options, &gpus, env, &none, &exit_code, &out), 0);
        assert_int_equal(exit_code, rows[i].exit_code);
        bool told = strstr(ct_buf_cstr(&out), "\nproblem  ") != NULL;
        assert_int_equal(told, exit_code != CT_EXIT_OK);
        ct_buf_fini(&out);
    }
}

/* A configuration without GPUs, in which these lines must stand. */
static void expect_lines(const struct ct_resolved *resolved, const struct ct_scheduler *scheduler,
                         enum ct_nproc_kind kind, const char *want)
{
    static const struct ct_interface_facts none;
    const struct ct_options options = {.command = command, .nproc_kind = kind};
    const struct ct_machine machine = {.host = "n2"};
    const struct ct_config config = {&options, scheduler, resolved, &machine, &none};
    struct ct_buf out = CT_BUF_INIT;
    int exit_code = -1;
    assert_int_equal(ct_config_print(&config, env, &exit_code, &out), 0);
    if (strstr(ct_buf_cstr(&out), want) == NULL) {
        fail_msg("%s instead of\n%s", ct_buf_cstr(&out), want);
    }
    ct_buf_fini(&out);
}

static void a_single_machine_has_all_ranks(void **state)
{
    static const struct ct_scheduler none = {.name = "no scheduler", .reason = "nothing is set"};
    const struct ct_resolved resolved = {
        .mode = CT_MODE_SINGLE,
        .min_nodes = 1,
        .max_nodes = 1,
        .workers = 4,
        .store_address = {.duty = CT_HOST_IF_OURS, .host = "127.0.0.1"},
        .nnodes_from = "default",
        .workers_from = "default",
        .master_from = "default",
        .port_from = "default",
        .run_id_from = "default",
    };
    (void)state;
    expect_lines(&resolved, &none, CT_NPROC_CPU,
                 "nodes        1                                default\n"
                 "workers here 4 (cpu)                          default\n"
                 "ranks here   0 to 3 of 4\n"
                 "store        127.0.0.1, a free port           default\n"
                 "its port     chosen by the kernel             default\n"
                 "hosted by    this ctrun\n"
                 "run id       a random one                     default\n");
}

static void a_given_node_rank_0_is_told(void **state)
{
    static const struct ct_scheduler none = {.name = "no scheduler", .reason = "nothing is set"};
    const struct ct_resolved resolved = {
        .mode = CT_MODE_AGENT,
        .shared = true,
        .min_nodes = 2,
        .max_nodes = 2,
        .node_rank = 0,
        .workers = 2,
        .run_id = "j",
        .store_address = {.duty = CT_HOST_IF_OURS, .host = "n1", .port = 29500},
        .nnodes_from = "--nnodes",
        .node_rank_from = "--node-rank",
        .workers_from = "--nproc-per-node",
        .master_from = "--rdzv-endpoint",
        .port_from = "--rdzv-endpoint",
        .run_id_from = "--rdzv-id",
    };
    (void)state;
    expect_lines(&resolved, &none, CT_NPROC_COUNT,
                 "\nnode rank    0                                --node-rank\n");
}

static void an_elastic_job_says_how_many_nodes_there_may_be(void **state)
{
    static const struct ct_scheduler none = {.name = "no scheduler", .reason = "nothing is set"};
    const struct ct_resolved resolved = {
        .mode = CT_MODE_AGENT,
        .shared = true,
        .min_nodes = 2,
        .max_nodes = 4,
        .node_rank = -1,
        .workers = 2,
        .run_id = "j",
        .store_address = {.duty = CT_HOST_IF_OURS, .host = "n1", .port = 29500},
        .nnodes_from = "--nnodes",
        .workers_from = "--nproc-per-node",
        .master_from = "--rdzv-endpoint",
        .port_from = "--rdzv-endpoint",
        .run_id_from = "--rdzv-id",
    };
    (void)state;
    expect_lines(&resolved, &none, CT_NPROC_GPU,
                 "nodes        2 to 4                           --nnodes\n"
                 "node rank    by the order of the host names   default\n"
                 "workers here 2 (gpu)                          --nproc-per-node\n"
                 "store        n1:29500                         --rdzv-endpoint\n"
                 "its port     as given                         --rdzv-endpoint\n"
                 "hosted by    the ctrun whose machine has this address, told by binding it\n");
}

static void a_shim_says_which_rank_it_starts(void **state)
{
    static const struct ct_scheduler mpi = {
        .name = "mpirun",
        .reason = "PMI_RANK is set",
        .local_rank.from = "MPI_LOCALRANKID",
        .node_rank.from = "a file",
    };
    const struct ct_resolved resolved = {
        .mode = CT_MODE_SHIM,
        .shared = true,
        .min_nodes = 8,
        .max_nodes = 8,
        .node_rank = 5,
        .workers = 1,
        .local_rank = 1,
        .local_size = 4,
        .group_rank = 1,
        .group_count = 2,
        .run_id = "j",
        .store_address = {.duty = CT_HOST_ELSEWHERE, .host = "n1", .port = 29500},
        .nnodes_from = "PMI_SIZE",
        .node_rank_from = "PMI_RANK",
        .workers_from = "default",
        .master_from = "default",
        .port_from = "default",
        .run_id_from = "default",
    };
    (void)state;
    expect_lines(&resolved, &mpi, CT_NPROC_COUNT,
                 "world size   8                                PMI_SIZE\n"
                 "rank         5                                PMI_RANK\n"
                 "local rank   1 of 4                           MPI_LOCALRANKID\n"
                 "node         1 of 2                           a file\n"
                 "workers here 1                                default\n"
                 "store        n1:29500                         default\n"
                 "its port     as given                         default\n"
                 "hosted by    rank 0's ctrun\n");
}

/* With etcd there is no address of the store that could be shown or checked. */
static void with_etcd_it_is_told_where_machines_meet(void **state)
{
    static const struct ct_scheduler none = {.name = "no scheduler", .reason = "nothing is set"};
    char *const argv[] = {(char *)"ctrun", (char *)"--rdzv-endpoint=h,g:5",
                          (char *)"--rdzv-backend=etcd", (char *)"/bin/sh", NULL};
    char *const token[] = {(char *)"CTRUN_TOKEN=secret of the test", NULL};
    struct ct_resolved resolved = {
        .mode = CT_MODE_AGENT,
        .shared = true,
        .min_nodes = 2,
        .max_nodes = 2,
        .workers = 1,
        .failover = true,
        .run_id = "run7",
        .run_id_given = true,
        .etcd = "h,g:5",
        .store_address = {.duty = CT_HOST_ELSEWHERE, .host = "", .master = ""},
        .master_port = 29500,
        .port_from = "default"};
    const struct ct_machine machine = {.host = "n2"};
    struct ct_options options;
    const struct ct_config config = {&options, &none, &resolved, &machine, NULL};
    struct ct_buf out = CT_BUF_INIT, bare = CT_BUF_INIT;
    int exit_code = -1;
    (void)state;
    assert_int_equal(ct_options_parse(argv, env, &options, NULL), 0);
    assert_int_equal(ct_config_print(&config, token, &exit_code, &out), 0);
    assert_int_equal(exit_code, CT_EXIT_OK);
    assert_non_null(strstr(ct_buf_cstr(&out),
                           "meets at     etcd at h,g:5                    --rdzv-endpoint\n"
                           "own port     29500, or a free one             default\n"
                           "hosted by    the ctrun that etcd names\n"));
    assert_null(strstr(ct_buf_cstr(&out), "problem"));
    resolved.master_port = 0;
    assert_int_equal(ct_config_print(&config, env, &exit_code, &bare), 0);
    assert_int_equal(exit_code, CT_EXIT_USAGE);
    assert_non_null(strstr(ct_buf_cstr(&bare), "\nown port     a free one "));
    assert_non_null(
        strstr(ct_buf_cstr(&bare), "\nproblem      a job that meets through etcd needs a token: "));
    ct_buf_fini(&out);
    ct_buf_fini(&bare);
}

/* What the options say about failures, in a job of two machines. */
static void expect_failures(char *const *argv, char *const *environment, bool failover,
                            const char *want)
{
    static const struct ct_scheduler none = {.name = "no scheduler", .reason = "nothing is set"};
    static const struct ct_interface_facts no_facts;
    struct ct_resolved resolved = {.mode = CT_MODE_AGENT,
                                   .shared = true,
                                   .min_nodes = 1,
                                   .max_nodes = 2,
                                   .workers = 1,
                                   .failover = failover,
                                   .store_address = {.host = "n1", .port = 1}};
    const struct ct_machine machine = {.host = "n2"};
    struct ct_options options;
    const struct ct_config config = {&options, &none, &resolved, &machine, &no_facts};
    struct ct_buf out = CT_BUF_INIT;
    int exit_code = -1;
    assert_int_equal(ct_options_parse(argv, environment, &options, NULL), 0);
    assert_int_equal(ct_config_print(&config, environment, &exit_code, &out), 0);
    const char *from = strstr(ct_buf_cstr(&out), "\nrun id ");
    assert_non_null(from);
    if (strstr(from, want) == NULL) {
        fail_msg("%s instead of\n%s", from, want);
    }
    assert_null(strstr(ct_buf_cstr(&out), "secret"));
    ct_buf_fini(&out);
}

static void what_follows_a_failure_has_its_source(void **state)
{
    char *const few[] = {(char *)"ctrun", (char *)"/bin/sh", NULL};
    char *const many[] = {(char *)"ctrun",
                          (char *)"--max-restarts=3",
                          (char *)"--ban-after=2",
                          (char *)"--no-restart-on=3,64-66,SIGSEGV",
                          (char *)"--warm=2",
                          (char *)"--token-file=/t",
                          (char *)"--health-check",
                          (char *)"nvidia-smi",
                          (char *)"--rdzv-conf",
                          (char *)"failover=1",
                          (char *)"--max-no-progress=5",
                          (char *)"/bin/sh",
                          NULL};
    char *const budget[] = {(char *)"ctrun", (char *)"--restart-budget=10/24h", (char *)"--warm",
                            (char *)"/bin/sh", NULL};
    char *const variables[] = {(char *)"PET_MAX_RESTARTS=1",
                               (char *)"CTRUN_TOKEN=secret of the test", NULL};
    (void)state;
    expect_failures(few, env, true,
                    "token        none                             default\n"
                    "failover     off, because there is no token   default\n"
                    "command");
    expect_failures(few, variables, true,
                    "restarts     at most 1                        PET_MAX_RESTARTS\n"
                    "token        given                            CTRUN_TOKEN\n"
                    "failover     on                               default\n"
                    "command");
    expect_failures(many, variables, false,
                    "restarts     at most 3                        --max-restarts\n"
                    "no progress  ends the job after 5 in a row    --max-no-progress\n"
                    "no restart   after exit code 3,64-66,139      --no-restart-on\n"
                    "left out     a machine after 2 failures       --ban-after\n"
                    "health check nvidia-smi                       --health-check\n"
                    "warm         2 interpreters                   --warm\n"
                    "token        /t                               --token-file\n"
                    "failover     off                              --rdzv-conf\n"
                    "command");
    expect_failures(budget, env, false,
                    "restarts     at most 10/24h                   --restart-budget\n"
                    "warm         one for each worker              --warm\n");
}

static void many_hosts_are_counted_and_made_harmless(void **state)
{
    char *hosts[40];
    for (int i = 0; i < 40; i++) {
        hosts[i] = (char *)"a\x1b";
    }
    const struct ct_scheduler slurm = {
        .name = "Slurm",
        .reason = "x",
        .hosts = {.list = hosts, .count = 40},
        .hosts_from = "SLURM_STEP_NODELIST",
    };
    const struct ct_resolved resolved = {
        .mode = CT_MODE_SINGLE,
        .min_nodes = 1,
        .max_nodes = 1,
        .workers = 1,
        .store_address = {.duty = CT_HOST_HERE, .host = "n1", .port = 1},
    };
    (void)state;
    expect_lines(&resolved, &slurm, CT_NPROC_AUTO, "expected     a? a? ");
    expect_lines(&resolved, &slurm, CT_NPROC_AUTO, " more (SLURM_STEP_NODELIST)\n");
    expect_lines(&resolved, &slurm, CT_NPROC_AUTO, "\nworkers here 1 (auto)");
}

static int print_once(void *data)
{
    struct ct_buf out = CT_BUF_INIT;
    (void)data;
    int rc = print_agent(&out);
    ct_buf_fini(&out);
    return rc;
}

static void memory_may_run_out(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(print_once, NULL, 0) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_has_its_source),
        cmocka_unit_test(interfaces_have_their_source),
        cmocka_unit_test(the_exit_code_is_that_of_the_job),
        cmocka_unit_test(a_single_machine_has_all_ranks),
        cmocka_unit_test(a_given_node_rank_0_is_told),
        cmocka_unit_test(an_elastic_job_says_how_many_nodes_there_may_be),
        cmocka_unit_test(a_shim_says_which_rank_it_starts),
        cmocka_unit_test(what_follows_a_failure_has_its_source),
        cmocka_unit_test(many_hosts_are_counted_and_made_harmless),
        cmocka_unit_test(memory_may_run_out),
        cmocka_unit_test(with_etcd_it_is_told_where_machines_meet),
    };
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
