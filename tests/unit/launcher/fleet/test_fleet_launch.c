/* SPDX-License-Identifier: Apache-2.0
 *
 * What `ctrun --hosts` refuses before it starts anything; real machines are in
 * test_ctrun_hosts.py.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/fault.h"
#include "tests/lib/tmpdir.h"

#include "launcher/fleet/fleet_launch.h"

#include <stdlib.h>
#include <sys/resource.h>

#define WORDS 8

/* Parses a command line and launches it, which must fail. */
static int launch(const char *const *words, char *const *env, struct ct_err *err)
{
    char *argv[WORDS + 2] = {(char *)"ctrun"};
    struct ct_options options;
    const struct ct_machine machine = {.cpus = 1};
    int exit_code = -1;
    for (size_t i = 0; i < WORDS && words[i] != NULL; i++) {
        argv[i + 1] = (char *)words[i];
    }
    *err = (struct ct_err){0};
    if (ct_options_parse(argv, env, &options, err) != 0) {
        fail_msg("%s", err->text);
    }
    assert_true(ct_fleet_wanted(&options));
    ct_fault_begin(-1);
    int rc = ct_fleet_launch(&options, &machine, argv, env, -1, &exit_code, err);
    assert_int_equal(ct_fault_end(), 0);
    assert_int_equal(exit_code, -1);
    return rc;
}

static void test_options_that_it_decides_itself_are_refused(void **state)
{
    static const char *const options[] = {"--standalone",   "--master-addr=h",
                                          "--node-rank=0",  "--rdzv-endpoint=h:1",
                                          "--print-config", "--rdzv-backend=c10d"};
    char *const env[] = {NULL};
    (void)state;
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        const char *const words[WORDS] = {"--hosts", "a", options[i], "train"};
        struct ct_err err;
        assert_int_equal(launch(words, env, &err), CT_EINVAL);
        assert_memory_equal(err.text, options[i], strcspn(options[i], "="));
        assert_non_null(strstr(err.text, " has no meaning with --hosts, because "));
    }
}

static void test_bad_hosts_are_refused_with_their_source(void **state)
{
    char *const env[] = {NULL};
    struct ct_err err;
    (void)state;
    assert_int_equal(launch((const char *const[WORDS]){"--hosts", "a,,b", "train"}, env, &err),
                     CT_EFORMAT);
    assert_memory_equal(err.text, "--hosts: ", 9);
    char *dir = ct_tmpdir_new(), *missing = ct_tmpdir_path(dir, "missing");
    assert_int_equal(launch((const char *const[WORDS]){"--hostfile", missing, "train"}, env, &err),
                     CT_ENOENT);
    assert_non_null(strstr(err.text, missing));
    free(missing);
    ct_tmpdir_free(dir);
}

static void test_more_machines_than_hosts_are_refused(void **state)
{
    char *const env[] = {NULL};
    struct ct_err err;
    (void)state;
    assert_int_equal(
        launch((const char *const[WORDS]){"--hosts", "a,b", "--nnodes", "3:4", "train"}, env, &err),
        CT_EINVAL);
    assert_string_equal(err.text, "--nnodes asks for 3 machines, --hosts names 2");
}

static void test_a_detached_job_has_its_store_on_the_first_machine(void **state)
{
    char *const env[] = {NULL};
    struct ct_err err;
    (void)state;
    assert_int_equal(launch((const char *const[WORDS]){"--hosts", "a", "--detach", "--local-addr",
                                                       "127.0.0.1", "train"},
                            env, &err),
                     CT_EINVAL);
    assert_memory_equal(err.text, "--local-addr has no meaning with --hosts and --detach: ", 55);
    assert_true(launch((const char *const[WORDS]){"--hosts", "127.0.0.2", "--detach",
                                                  "--launch-agent", "/nowhere/ssh", "train"},
                       env, &err) < 0);
    assert_memory_equal(err.text, "the launch agent: ", 18);
}

/* A machine's ctrun gets our options, --hosts among them, and --agent-stdin. */
static void test_a_started_agent_starts_no_others(void **state)
{
    struct ct_options options = {.agent_stdin = true, .hosts = "a"};
    (void)state;
    assert_false(ct_fleet_wanted(&options));
    options.agent_stdin = false;
    assert_true(ct_fleet_wanted(&options));
    options.hosts = NULL;
    assert_false(ct_fleet_wanted(&options));
    options.hostfile = "f";
    assert_true(ct_fleet_wanted(&options));
}

static void test_the_token_is_wiped_even_when_it_fails(void **state)
{
    char token[] = "CTRUN_TOKEN=0123456789abcdef";
    char *const env[] = {token, NULL};
    struct ct_err err;
    (void)state;
    assert_true(
        launch((const char *const[WORDS]){"--hosts", "a", "--standalone", "train"}, env, &err) < 0);
    assert_string_equal(token, "CTRUN_TOKEN=");
    assert_int_equal(token[sizeof(token) - 2], 0);
}

/* The last step before a machine's ctrun would be started fails. */
static int launch_nowhere(void *data)
{
    char *argv[] = {(char *)"ctrun",
                    (char *)"--hosts",
                    (char *)"127.0.0.2",
                    (char *)"--launch-agent",
                    (char *)"/nowhere/ssh",
                    (char *)"train",
                    NULL};
    char *const env[] = {NULL};
    struct ct_options options;
    const struct ct_machine machine = {.cpus = 1};
    struct ct_err err = {0};
    int exit_code = -1;
    (void)data;
    if (ct_options_parse(argv, env, &options, &err) != 0) {
        fail_msg("%s", err.text);
    }
    int rc = ct_fleet_launch(&options, &machine, argv, env, -1, &exit_code, &err);
    assert_int_equal(exit_code, -1);
    return rc == CT_ENOENT ? 0 : rc;
}

static void test_each_failed_allocation_is_told(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(launch_nowhere, NULL, 1) >= 10);
}

/* Two machines are enough for --nnodes=2. The limit stays as low as this for the rest of the
 * program, so this test is the last one. */
static void test_a_limit_of_open_files_is_told_before_anything_starts(void **state)
{
    const struct rlimit few = {.rlim_cur = 50, .rlim_max = 50};
    char *const env[] = {NULL};
    struct ct_err err;
    (void)state;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    assert_int_equal(
        launch((const char *const[WORDS]){"--hosts", "a,b", "--nnodes", "2", "train"}, env, &err),
        CT_ELIMIT);
    assert_string_equal(err.text,
                        "only 50 files may be open at once (ulimit -Hn), and 54 are needed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_that_it_decides_itself_are_refused),
        cmocka_unit_test(test_bad_hosts_are_refused_with_their_source),
        cmocka_unit_test(test_more_machines_than_hosts_are_refused),
        cmocka_unit_test(test_a_detached_job_has_its_store_on_the_first_machine),
        cmocka_unit_test(test_a_started_agent_starts_no_others),
        cmocka_unit_test(test_the_token_is_wiped_even_when_it_fails),
        cmocka_unit_test(test_each_failed_allocation_is_told),
        cmocka_unit_test(test_a_limit_of_open_files_is_told_before_anything_starts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
