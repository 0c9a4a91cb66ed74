/* SPDX-License-Identifier: Apache-2.0
 *
 * The command lines for other machines; a real shell takes the quotes off again.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/fault.h"

#include "launcher/fleet/fleet.h"

#include <stdio.h>
#include <string.h>

static struct ct_host list[] = {{"a", 2}, {"2001:db8::1", 0}};
static const struct ct_hosts hosts = {list, 2};
/* As argv and the environment have them. */
#define WORD(text) \
    (char[])       \
    {              \
        text       \
    }
static char *const options[] = {WORD("--hosts"), WORD("a:2,b"), WORD("--rdzv-id=it's"), NULL};
static char *const command[] = {WORD("train"), WORD("--data"), WORD("a b"), WORD("$HOME"), NULL};
static char *const env[] = {WORD("HOME=/root"), WORD("NCCL_DEBUG=INFO"), WORD("CTRUN_TOKEN=secret"),
                            WORD("OMP_NUM_THREADS=3"), NULL};

static const struct ct_fleet_spec spec = {
    .hosts = &hosts,
    .agent = " ssh  -p 22 ",
    .ctrun = "/opt/c t/ctrun",
    .folder = "/tmp/it's here",
    .options = options,
    .num_options = 3,
    .command = command,
    .env = env,
    .address = "10.0.0.1",
    .port = 4711,
    .run_id = "it's",
};

static void test_the_remote_command_is_quoted_for_a_shell(void **state)
{
    (void)state;
    struct ct_buf out = CT_BUF_INIT;
    assert_int_equal(ct_fleet_command(&spec, 0, &out), 0);
    assert_string_equal(
        ct_buf_cstr(&out),
        "cd '/tmp/it'\\''s here' && exec env 'NCCL_DEBUG=INFO' 'OMP_NUM_THREADS=3' "
        "'/opt/c t/ctrun' '--hosts' 'a:2,b' '--rdzv-id=it'\\''s' "
        "--agent-stdin --node-rank=0 --rdzv-backend=c10d --rdzv-conf=is_host=0 "
        "--rdzv-endpoint='10.0.0.1:4711' --nnodes=2 --nproc-per-node=2 --rdzv-id='it'\\''s' -- "
        "'train' '--data' 'a b' '$HOME'");
    ct_buf_reset(&out);
    struct ct_fleet_spec v6 = spec;
    v6.address = "fe80::1";
    assert_int_equal(ct_fleet_command(&v6, 1, &out), 0);
    assert_non_null(
        strstr(ct_buf_cstr(&out), "--rdzv-endpoint='[fe80::1]:4711' --nnodes=2 --rdzv-id="));
    ct_buf_reset(&out);
    v6.nnodes_given = true;
    assert_int_equal(ct_fleet_command(&v6, 1, &out), 0);
    assert_null(strstr(ct_buf_cstr(&out), "--nnodes"));
    ct_buf_fini(&out);
}

static void test_the_first_machine_hosts_a_detached_job(void **state)
{
    (void)state;
    struct ct_buf out = CT_BUF_INIT;
    struct ct_fleet_spec detached = spec;
    detached.job_id = "exp-0ab1ff00";
    assert_int_equal(ct_fleet_command(&detached, 0, &out), 0);
    assert_non_null(
        strstr(ct_buf_cstr(&out),
               "--agent-stdin --node-rank=0 --rdzv-backend=c10d --rdzv-conf=is_host=1 "
               "--rdzv-endpoint='10.0.0.1:4711' --agent-job=exp-0ab1ff00-0 --nnodes=2"));
    ct_buf_reset(&out);
    assert_int_equal(ct_fleet_command(&detached, 1, &out), 0);
    assert_non_null(
        strstr(ct_buf_cstr(&out),
               "--agent-stdin --node-rank=1 --rdzv-backend=c10d --rdzv-conf=is_host=0 "
               "--rdzv-endpoint='10.0.0.1:4711' --agent-job=exp-0ab1ff00-1 --nnodes=2"));
    ct_buf_fini(&out);
}

/* As a word of its own, such an id would be taken for an option there. */
static void test_an_id_may_begin_with_a_dash(void **state)
{
    (void)state;
    struct ct_buf out = CT_BUF_INIT;
    struct ct_fleet_spec dashed = spec;
    dashed.run_id = "-7";
    assert_int_equal(ct_fleet_command(&dashed, 0, &out), 0);
    assert_non_null(strstr(ct_buf_cstr(&out), " --rdzv-id='-7' -- "));
    ct_buf_fini(&out);
}

static void test_a_shell_reads_a_quoted_word_unchanged(void **state)
{
    (void)state;
    static const char word[] = "'a' \"b\" $(c) `d` \\ * \n end";
    struct ct_buf out = CT_BUF_INIT;
    char heard[64] = "";
    assert_int_equal(ct_buf_printf(&out, "printf %%s "), 0);
    ct_fleet_quote(&out, word);
    FILE *shell = popen(ct_buf_cstr(&out), "r"); /* lint-ok: the shell is what quotes are for */
    assert_non_null(shell);
    assert_int_equal(fread(heard, 1, sizeof(heard) - 1, shell), sizeof(word) - 1);
    assert_int_equal(pclose(shell), 0);
    assert_string_equal(heard, word);
    ct_buf_fini(&out);
}

static void test_ssh_or_a_local_shell_runs_the_command(void **state)
{
    (void)state;
    struct ct_strlist argv = {0};
    struct ct_err err = {0};
    assert_int_equal(ct_fleet_argv(&spec, 1, false, "COMMAND", &argv, &err), 0);
    assert_string_equal(argv.list[0], "ssh");
    assert_string_equal(argv.list[1], "-p");
    assert_string_equal(argv.list[2], "22");
    assert_string_equal(argv.list[3], "2001:db8::1");
    assert_string_equal(argv.list[4], "COMMAND");
    assert_null(argv.list[5]);
    ct_strlist_fini(&argv);
    assert_int_equal(ct_fleet_argv(&spec, 0, true, "COMMAND", &argv, &err), 0);
    assert_string_equal(argv.list[0], "/bin/sh");
    assert_string_equal(argv.list[2], "COMMAND");
    assert_null(argv.list[3]);
    ct_strlist_fini(&argv);
    struct ct_fleet_spec blank = spec;
    blank.agent = "  ";
    assert_int_equal(ct_fleet_argv(&blank, 0, false, "COMMAND", &argv, &err), CT_EINVAL);
    ct_strlist_fini(&argv);
}

static void test_settings_go_along_and_secrets_stay(void **state)
{
    (void)state;
    assert_true(ct_fleet_exports("NCCL_SOCKET_IFNAME=eth0"));
    assert_true(ct_fleet_exports("CTRUN_X=1"));
    assert_true(ct_fleet_exports("LOGLEVEL=INFO"));
    assert_false(ct_fleet_exports("LOGLEVELS=INFO"));
    assert_false(ct_fleet_exports("CTRUN_TOKEN=secret"));
    assert_false(ct_fleet_exports("AWS_SECRET_ACCESS_KEY=x"));
    assert_false(ct_fleet_exports("PATH=/bin"));
}

static void test_the_own_name_and_the_loopback_are_here(void **state)
{
    (void)state;
    assert_true(ct_fleet_is_here("localhost", "node7"));
    assert_true(ct_fleet_is_here("node7", "node7"));
    assert_true(ct_fleet_is_here("127.0.0.1", "node7") && ct_fleet_is_here("::1", "node7"));
    assert_false(ct_fleet_is_here("node70", "node7"));
    assert_false(ct_fleet_is_here("10.0.0.1", "node7"));
}

static int make(void *data)
{
    (void)data;
    struct ct_buf out = CT_BUF_INIT;
    struct ct_strlist argv = {0};
    int rc = ct_fleet_command(&spec, 0, &out);
    rc = rc != 0 ? rc : ct_fleet_argv(&spec, 0, false, "COMMAND", &argv, NULL);
    ct_strlist_fini(&argv);
    ct_buf_fini(&out);
    return rc;
}

static void test_each_failed_allocation_is_told(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(make, NULL, 0) >= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_remote_command_is_quoted_for_a_shell),
        cmocka_unit_test(test_the_first_machine_hosts_a_detached_job),
        cmocka_unit_test(test_an_id_may_begin_with_a_dash),
        cmocka_unit_test(test_a_shell_reads_a_quoted_word_unchanged),
        cmocka_unit_test(test_ssh_or_a_local_shell_runs_the_command),
        cmocka_unit_test(test_settings_go_along_and_secrets_stay),
        cmocka_unit_test(test_the_own_name_and_the_loopback_are_here),
        cmocka_unit_test(test_each_failed_allocation_is_told),
    };
    return cmocka_run_group_tests_name("fleet", tests, NULL, NULL);
}
