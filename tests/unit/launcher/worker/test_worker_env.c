/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that a worker's environment has torchrun's variables and our own, and nothing of a
 * launcher around us.
 */
#include "tests/lib/ct_test.h"

#include "launcher/util/environ.h"
#include "launcher/worker/worker_env.h"

static const struct ct_worker_env job_env = {
    .local_world_size = 4,
    .first_rank = 8,
    .world_size = 16,
    .first_role_rank = 4,
    .role_size = 12,
    .node_rank = 2,
    .node_count = 5,
    .generation = 3,
    .max_restarts = 7,
    .cpus = 10,
    .role = "trainer",
    .run_id = "job 1",
    .signals = "SIGTERM,SIGUSR1",
    .master_addr = "127.0.0.1",
    .master_port = 54321,
    .cookie = "CTRUN_JOB_COOKIE=abc",
    .progress = "/proc/7/fd/9",
    .preempt = "/tmp/run/preempt.json",
    .timer_file = "/tmp/run/timers",
    .snapshot = "CTRUN_SNAPSHOT=/proc/7/fd/8",
};

static const struct ct_gpu_masks no_gpus = {0};

/* The launcher itself may run under a launcher; nothing of that may be left. */
static char *const base[] = {
    (char *)"HOME=/root",
    (char *)"RANK=99",
    (char *)"RANKING=kept",
    (char *)"MASTER_PORT=1",
    (char *)"CTRUN_GENERATION=5",
    (char *)"TORCHELASTIC_RUN_ID=old",
    (char *)"CTRUN_JOB_COOKIE=old",
    (char *)"CTRUN_SNAPSHOT=/proc/1/fd/1",
    (char *)"CTRUN_PROGRESS=/proc/1/fd/2:0",
    (char *)"CTRUN_TOKEN=a secret",
    (char *)"CTRUN_PORT_OLD=1",
    (char *)"CTRUN_PREEMPT_FILE=/old",
    (char *)"CTRUN_DEVICE_INDEX=7",
    (char *)"CTRUN_GPU_SHARE=1/9",
    (char *)"TORCHELASTIC_TIMER_FILE=/old",
    (char *)"NOEQUALS",
    (char *)"EMPTY=",
    NULL,
};

static void environment_is_that_of_torchrun(void **state)
{
    static const struct {
        const char *name, *value;
    } expected[] = {
        {"RANK", "9"},
        {"LOCAL_RANK", "1"},
        {"GROUP_RANK", "2"},
        {"GROUP_WORLD_SIZE", "5"},
        {"ROLE_RANK", "5"},
        {"ROLE_WORLD_SIZE", "12"},
        {"ROLE_NAME", "trainer"},
        {"LOCAL_WORLD_SIZE", "4"},
        {"WORLD_SIZE", "16"},
        {"MASTER_ADDR", "127.0.0.1"},
        {"MASTER_PORT", "54321"},
        {"TORCHELASTIC_RESTART_COUNT", "3"},
        {"TORCHELASTIC_MAX_RESTARTS", "7"},
        {"TORCHELASTIC_RUN_ID", "job 1"},
        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
        {"TORCHELASTIC_ERROR_FILE", "/logs/error.json"},
        {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGUSR1"},
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
        {"OMP_NUM_THREADS", "2"},
        {"CTRUN_GENERATION", "3"},
        {"CTRUN_JOB_COOKIE", "abc"},
        {"CTRUN_SNAPSHOT", "/proc/7/fd/8"},
        {"CTRUN_PREEMPT_FILE", "/tmp/run/preempt.json"},
        {"TORCHELASTIC_TIMER_FILE", "/tmp/run/timers"},
        {"CTRUN_PROGRESS", "/proc/7/fd/9:128"},
        {"HOME", "/root"},
        {"RANKING", "kept"},
        {"EMPTY", ""},
    };
    struct ct_strlist env = {0};
    (void)state;
    assert_int_equal(ct_worker_env_make(&job_env, &no_gpus, 1, "/logs/error.json", base, &env), 0);
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        const char *value = ct_environ_get(env.list, expected[i].name);
        if (value == NULL || strcmp(value, expected[i].value) != 0) {
            fail_msg("%s is '%s'", expected[i].name, value != NULL ? value : "(unset)");
        }
    }
    /* Those, "NOEQUALS", and nothing twice. */
    assert_int_equal(env.count, sizeof(expected) / sizeof(expected[0]) + 1);
    assert_null(env.list[env.count]);
    ct_strlist_fini(&env);
}

static const char *env_of(const struct ct_worker_env *p, char *const *from, const char *name,
                          struct ct_strlist *env)
{
    ct_strlist_fini(env);
    assert_int_equal(ct_worker_env_make(p, &no_gpus, 0, "", from, env), 0);
    return ct_environ_get(env->list, name);
}

static void interfaces_are_told_unless_decided(void **state)
{
    char *const gloo[] = {(char *)"GLOO_SOCKET_IFNAME=", NULL};
    char *const nccl[] = {(char *)"NCCL_SOCKET_IFNAME=^docker", NULL};
    struct ct_strlist env = {0};
    struct ct_worker_env p = job_env;
    (void)state;
    p.interface = "";
    assert_null(env_of(&p, base, "GLOO_SOCKET_IFNAME", &env));
    assert_null(env_of(&p, base, "NCCL_SOCKET_IFNAME", &env));
    p.interface = "eth0";
    assert_string_equal(env_of(&p, base, "GLOO_SOCKET_IFNAME", &env), "eth0");
    /* without it eth01 would do as well */
    assert_string_equal(env_of(&p, base, "NCCL_SOCKET_IFNAME", &env), "=eth0");
    assert_string_equal(env_of(&p, gloo, "GLOO_SOCKET_IFNAME", &env), "");
    assert_string_equal(env_of(&p, gloo, "NCCL_SOCKET_IFNAME", &env), "=eth0");
    assert_string_equal(env_of(&p, nccl, "GLOO_SOCKET_IFNAME", &env), "eth0");
    assert_string_equal(env_of(&p, nccl, "NCCL_SOCKET_IFNAME", &env), "^docker");
    p.nccl_configured = true;
    assert_null(env_of(&p, base, "NCCL_SOCKET_IFNAME", &env));
    ct_strlist_fini(&env);
}

static void variables_of_libraries_are_set_unless_the_user_decided(void **state)
{
    char *const decided[] = {(char *)"OMP_NUM_THREADS=3",
                             (char *)"TORCH_NCCL_ASYNC_ERROR_HANDLING=0",
                             (char *)"PYTHONFAULTHANDLER=", NULL};
    struct ct_strlist env = {0};
    struct ct_worker_env p = job_env;
    (void)state;
    p.cpus = 3;
    assert_string_equal(env_of(&p, base, "OMP_NUM_THREADS", &env), "1");
    p.local_world_size = 1;
    assert_string_equal(env_of(&p, base, "OMP_NUM_THREADS", &env), "3");
    assert_string_equal(env_of(&p, decided, "OMP_NUM_THREADS", &env), "3");
    assert_string_equal(env_of(&p, decided, "TORCH_NCCL_ASYNC_ERROR_HANDLING", &env), "0");
    assert_null(env_of(&p, base, "PYTHONFAULTHANDLER", &env));
    p.dump_stack = true;
    assert_string_equal(env_of(&p, base, "PYTHONFAULTHANDLER", &env), "1");
    assert_string_equal(env_of(&p, decided, "PYTHONFAULTHANDLER", &env), "");
    assert_string_equal(env_of(&p, base, "TORCHELASTIC_ERROR_FILE", &env), "");
    p.timer_file = NULL; /* not ours to serve */
    assert_string_equal(env_of(&p, base, "TORCHELASTIC_TIMER_FILE", &env), "/old");
    ct_strlist_fini(&env);
}

static void workers_are_told_their_device(void **state)
{
    static const struct {
        struct ct_gpu_masks gpus;
        const char *base;
        const char *visible, *index, *share, *order, *nccl;
    } rows[] = {
        {{0}, "CUDA_VISIBLE_DEVICES=4,5", "4,5", NULL, NULL, NULL, NULL},
        {{.devices = 2, .ranks_here = 2}, "CUDA_VISIBLE_DEVICES=4,5", "4,5", "1", NULL, NULL, NULL},
        {{.devices = 2, .ranks_here = 2, .masked = true, .list = " GPU-aa , MIG-bb/1/2 "},
         "CUDA_VISIBLE_DEVICES= GPU-aa , MIG-bb/1/2 ",
         "MIG-bb/1/2",
         "0",
         NULL,
         NULL,
         NULL},
        {{.devices = 2, .ranks_here = 2, .masked = true}, NULL, "1", "0", NULL, "PCI_BUS_ID", NULL},
        {{.devices = 2, .ranks_here = 2, .masked = true},
         "CUDA_DEVICE_ORDER=FASTEST_FIRST",
         "1",
         "0",
         NULL,
         "FASTEST_FIRST",
         NULL},
        {{.devices = 1, .ranks_here = 2, .shared = true}, NULL, NULL, "0", "1/2", NULL, "1"},
        {{.devices = 1, .ranks_here = 2, .shared = true},
         "NCCL_MULTI_RANK_GPU_ENABLE=0",
         NULL,
         "0",
         "1/2",
         NULL,
         "0"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *const from[] = {(char *)"CTRUN_DEVICE_INDEX=7", (char *)rows[i].base, NULL};
        const struct {
            const char *name, *value;
        } expected[] = {
            {"CUDA_VISIBLE_DEVICES", rows[i].visible},    {"CTRUN_DEVICE_INDEX", rows[i].index},
            {"CTRUN_GPU_SHARE", rows[i].share},           {"CUDA_DEVICE_ORDER", rows[i].order},
            {"NCCL_MULTI_RANK_GPU_ENABLE", rows[i].nccl}, {"JAX_LOCAL_DEVICE_IDS", rows[i].index},
        };
        struct ct_strlist env = {0};
        assert_int_equal(ct_worker_env_make(&job_env, &rows[i].gpus, 1, "", from, &env), 0);
        for (size_t k = 0; k < sizeof(expected) / sizeof(expected[0]); k++) {
            const char *value = ct_environ_get(env.list, expected[k].name);
            if (expected[k].value == NULL
                    ? value != NULL
                    : value == NULL || strcmp(value, expected[k].value) != 0) {
                fail_msg("row %zu: %s=%s", i, expected[k].name, value != NULL ? value : "(unset)");
            }
        }
        ct_strlist_fini(&env);
    }
}

static void jax_takes_the_device_of_each_of_several_workers(void **state)
{
    static const struct {
        int local_world_size;
        const char *base, *ids;
    } rows[] = {
        {2, "RANKING=kept", "1"},
        {1, "RANKING=kept", NULL}, /* one process for a machine may use all its GPUs */
        {2, "JAX_LOCAL_DEVICE_IDS=2,3", "2,3"},
        {1, "JAX_LOCAL_DEVICE_IDS=2,3", "2,3"},
    };
    const struct ct_gpu_masks gpus = {.devices = 8, .ranks_here = 2};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *const from[] = {(char *)rows[i].base, NULL};
        struct ct_worker_env p = job_env;
        struct ct_strlist env = {0};
        p.local_world_size = rows[i].local_world_size;
        assert_int_equal(ct_worker_env_make(&p, &gpus, 1, "", from, &env), 0);
        const char *ids = ct_environ_get(env.list, "JAX_LOCAL_DEVICE_IDS");
        if (rows[i].ids == NULL ? ids != NULL : ids == NULL || strcmp(ids, rows[i].ids) != 0) {
            fail_msg("row %zu: %s", i, ids != NULL ? ids : "(unset)");
        }
        ct_strlist_fini(&env);
    }
}

/* Several launchers on one machine: each counts its own workers from 0. */
static void local_ranks_go_on_where_another_launcher_ends(void **state)
{
    struct ct_worker_env p = job_env;
    struct ct_strlist env = {0};
    (void)state;
    p.first_local_rank = 3;
    assert_string_equal(env_of(&p, base, "LOCAL_RANK", &env), "3");
    assert_string_equal(env_of(&p, base, "RANK", &env), "8");
    assert_string_equal(env_of(&p, base, "LOCAL_WORLD_SIZE", &env), "4");
    p.virtual_local_rank = true;
    assert_string_equal(env_of(&p, base, "LOCAL_RANK", &env), "0");
    ct_strlist_fini(&env);
}

static void ports_have_variables(void **state)
{
    const struct ct_job_ports ports = {3, {{"jax_x2", 20001}, {"B", 65535}, {"unknown", 0}}};
    struct ct_worker_env p = job_env;
    struct ct_strlist env = {0};
    (void)state;
    assert_null(env_of(&p, base, "CTRUN_PORT_OLD", &env)); /* of a launcher above */
    p.ports = &ports;
    assert_string_equal(env_of(&p, base, "CTRUN_PORT_JAX_X2", &env), "20001");
    assert_string_equal(env_of(&p, base, "CTRUN_PORT_B", &env), "65535");
    assert_null(env_of(&p, base, "CTRUN_PORT_UNKNOWN", &env));
    ct_strlist_fini(&env);
}

static int sweep_body(void *data)
{
    struct ct_strlist env = {0};
    int rc = ct_worker_env_make(&job_env, &no_gpus, 0, "/e", base, &env);
    (void)data;
    ct_strlist_fini(&env);
    return rc;
}

static void survives_lack_of_memory(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(sweep_body, NULL, 0) >= 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(environment_is_that_of_torchrun),
        cmocka_unit_test(interfaces_are_told_unless_decided),
        cmocka_unit_test(variables_of_libraries_are_set_unless_the_user_decided),
        cmocka_unit_test(workers_are_told_their_device),
        cmocka_unit_test(jax_takes_the_device_of_each_of_several_workers),
        cmocka_unit_test(local_ranks_go_on_where_another_launcher_ends),
        cmocka_unit_test(ports_have_variables),
        cmocka_unit_test(survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
