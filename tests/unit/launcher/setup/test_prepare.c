/* SPDX-License-Identifier: Apache-2.0
 *
 * What a job needs before it begins: an id, descriptors, its secret and a folder.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"

#include "launcher/setup/prepare.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOKEN "0123456789abcdef"

static void test_a_job_has_the_id_that_was_decided_or_a_random_one(void **state)
{
    struct ct_resolved resolved = {.run_id = "mine"};
    char uuid[CT_UUID_TEXT] = "", again[CT_UUID_TEXT] = "";
    const char *id = NULL;
    (void)state;
    assert_int_equal(ct_prepare_run_id(&resolved, uuid, &id, NULL), 0);
    assert_string_equal(id, "mine");
    assert_string_equal(uuid, "");
    resolved.run_id = NULL;
    assert_int_equal(ct_prepare_run_id(&resolved, uuid, &id, NULL), 0);
    assert_ptr_equal(id, uuid);
    assert_int_equal(strlen(uuid), CT_UUID_TEXT - 1);
    assert_int_equal(ct_prepare_run_id(&resolved, again, &id, NULL), 0);
    assert_string_not_equal(uuid, again);
}

static void test_only_a_known_folder_of_ctrun_is_searched(void **state)
{
    char *const env[] = {(char *)"PATH=/nowhere/at/all", NULL};
    char *const words[] = {(char *)"no-such-program", NULL};
    const struct ct_options options = {.command = words};
    struct ct_command command = {0};
    struct ct_err err = {0};
    int exit_code = -1;
    (void)state;
    assert_int_equal(ct_prepare_command(&options, "", env, &command, &exit_code, &err), CT_ENOENT);
    assert_int_equal(exit_code, 127);
    assert_null(strstr(err.text, "ctrun's own programs"));
    assert_int_equal(ct_prepare_command(&options, "/nowhere", env, &command, &exit_code, &err),
                     CT_ENOENT);
    assert_non_null(strstr(err.text, "ctrun's own programs"));
}

static void test_more_workers_than_descriptors_are_refused(void **state)
{
    struct rlimit before, now, original;
    struct ct_err err = {0};
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(ct_prepare_open_files(1, &original, &err), 0);
    assert_int_equal(original.rlim_cur, before.rlim_cur);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    assert_int_equal(now.rlim_cur, now.rlim_max);
    int workers = (int)(now.rlim_max / 6 + 1 > INT_MAX ? INT_MAX : now.rlim_max / 6 + 1);
    assert_int_equal(ct_prepare_open_files(workers, &original, &err), CT_ELIMIT);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* ---- the secret ------------------------------------------------------------------------------ */

static void test_the_token_of_the_environment_is_wiped_there(void **state)
{
    char first[] = "CTRUN_TOKEN=" TOKEN, other[] = "CTRUN_TOKENS=x", second[] = "CTRUN_TOKEN=y";
    char *const env[] = {first, other, second, NULL};
    const struct ct_options options = {.help = false};
    struct ct_token token = {0};
    struct ct_err err = {0};
    (void)state;
    assert_int_equal(ct_prepare_token(&options, env, &token, &err), 0);
    assert_int_equal(token.len, 16);
    assert_memory_equal(token.text, TOKEN, 16);
    assert_string_equal(first, "CTRUN_TOKEN=");
    assert_int_equal(first[sizeof(first) - 2], 0);
    assert_string_equal(second, "CTRUN_TOKEN=");
    assert_string_equal(other, "CTRUN_TOKENS=x");

    assert_int_equal(ct_prepare_token(&options, env, &token, &err), 0);
    assert_int_equal(token.len, 0); /* none is left */
}

/* Without an id it would become one job with the next one that has none. */
static void test_with_etcd_a_token_and_an_id_are_needed(void **state)
{
    char *const bare[] = {(char *)"CTRUN_TOKEN=", NULL};
    char *const with[] = {(char *)"CTRUN_TOKEN=" TOKEN, NULL};
    const struct ct_resolved named = {.etcd = "h", .run_id = "none", .run_id_given = true};
    const struct ct_resolved unnamed = {.etcd = "h", .run_id = "none"};
    const struct ct_options options[] = {{.token_file = "t"}, {.agent_stdin = true}};
    const struct ct_options none = {.help = false};
    struct ct_err err = {0};
    (void)state;
    assert_int_equal(ct_prepare_etcd_check(&none, &named, with, &err), 0);
    assert_int_equal(ct_prepare_etcd_check(&options[0], &named, bare, &err), 0);
    assert_int_equal(ct_prepare_etcd_check(&options[1], &named, bare, &err), 0);
    assert_int_equal(ct_prepare_etcd_check(&none, &named, bare, &err), CT_EINVAL);
    assert_non_null(strstr(err.text, "needs a token: "));
    assert_int_equal(ct_prepare_etcd_check(&none, &unnamed, with, &err), CT_EINVAL);
    assert_non_null(strstr(err.text, "needs an id: "));
}

static void test_a_bad_token_is_wiped_too_and_not_shown(void **state)
{
    char bad[] = "CTRUN_TOKEN=short";
    char *const env[] = {bad, NULL};
    const struct ct_options options = {.help = false};
    struct ct_token token = {0};
    struct ct_err err = {0};
    (void)state;
    assert_int_equal(ct_prepare_token(&options, env, &token, &err), CT_EFORMAT);
    assert_null(strstr(err.text, "short"));
    assert_string_equal(bad, "CTRUN_TOKEN=");
}

/* Puts a pipe with these bytes, or what `fd` is, in the place of standard input. */
static int read_from(int fd, struct ct_token *out, struct ct_err *err)
{
    char *const env[] = {NULL};
    const struct ct_options options = {.agent_stdin = true};
    int before = dup(STDIN_FILENO);
    assert_int_equal(dup2(fd, STDIN_FILENO), STDIN_FILENO);
    int rc = ct_prepare_token(&options, env, out, err);
    char rest[8] = "";
    ssize_t n = read(STDIN_FILENO, rest, sizeof(rest) - 1);
    assert_string_equal(n > 0 ? rest : "", rc == 0 ? "rest" : "");
    (void)dup2(before, STDIN_FILENO);
    (void)close(before);
    return rc;
}

static int read_line(const char *text, struct ct_token *out, struct ct_err *err)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], text, strlen(text)), strlen(text));
    (void)close(fds[1]);
    *err = (struct ct_err){0};
    int rc = read_from(fds[0], out, err);
    (void)close(fds[0]);
    return rc;
}

static void test_an_agent_reads_one_line_of_standard_input(void **state)
{
    struct ct_token token = {0};
    struct ct_err err;
    (void)state;
    assert_int_equal(read_line(TOKEN "\nrest", &token, &err), 0);
    assert_int_equal(token.len, 16);
    assert_int_equal(read_line("short\n", &token, &err), CT_EFORMAT);
    assert_non_null(strstr(err.text, "--agent-stdin"));
    assert_int_equal(read_line("", &token, &err), CT_EFORMAT);
    char *longest = malloc(CT_TOKEN_MAX + 2);
    memset(longest, 'x', CT_TOKEN_MAX + 1);
    longest[CT_TOKEN_MAX + 1] = '\0';
    assert_int_equal(read_line(longest, &token, &err), CT_EFORMAT);
    free(longest);
}

static void test_a_terminal_for_the_token_is_refused(void **state)
{
    struct ct_token token = {0};
    struct ct_err err = {0};
    (void)state;
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) {
        skip();
    }
    int fd = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    assert_true(fd >= 0);
    assert_int_equal(read_from(fd, &token, &err), CT_EINVAL);
    assert_non_null(strstr(err.text, "leave out ssh's -t"));
    (void)close(fd);
    (void)close(master);
}

/* ---- the folder ------------------------------------------------------------------------------ */

static void test_logs_that_nobody_asked_for_go_to_a_passing_folder(void **state)
{
    char *dir = ct_tmpdir_new(), *var = NULL;
    const struct ct_options options = {.help = false};
    const struct ct_resolved resolved = {.run_id = "job"};
    struct ct_logdir logs = {0};
    struct ct_err err = {0};
    (void)state;
    assert_true(asprintf(&var, "TMPDIR=%s", dir) > 0);
    char *const env[] = {var, NULL};
    assert_false(ct_prepare_wants_logs(&resolved));
    assert_int_equal(ct_prepare_logdir(&options, &resolved, env, "job", &logs, &err), 0);
    assert_true(logs.temporary);
    assert_memory_equal(logs.base, dir, strlen(dir));
    ct_logdir_fini(&logs, false);

    /* A TMPDIR that is not there is passed over. */
    char *const nowhere[] = {(char *)"TMPDIR=/nowhere/at/all", NULL};
    assert_int_equal(ct_prepare_logdir(&options, &resolved, nowhere, "job", &logs, &err), 0);
    assert_null(strstr(logs.base, "nowhere"));
    ct_logdir_fini(&logs, false);
    free(var);
    ct_tmpdir_free(dir);
}

static void test_logs_that_are_wanted_need_the_folder_for_them(void **state)
{
    char *const nowhere[] = {(char *)"TMPDIR=/proc/nowhere", NULL};
    char *dir = ct_tmpdir_new(), *wanted = ct_tmpdir_path(dir, "logs");
    struct ct_options options = {.log_dir = wanted};
    struct ct_resolved resolved = {.run_id = "job"};
    struct ct_logdir logs = {0};
    struct ct_err err = {0};
    (void)state;
    assert_int_equal(ct_prepare_logdir(&options, &resolved, nowhere, "job", &logs, &err), 0);
    assert_false(logs.temporary);
    assert_string_equal(logs.base, wanted);
    ct_logdir_fini(&logs, false);

    options.log_dir = NULL;
    assert_int_equal(ct_redirects_parse("3", &resolved.redirects, &err), 0);
    assert_true(ct_prepare_wants_logs(&resolved));
    assert_true(ct_prepare_logdir(&options, &resolved, nowhere, "job", &logs, &err) < 0);
    assert_non_null(strstr(err.text, "; set TMPDIR or --log-dir to a folder for temporary files"));
    free(wanted);
    ct_tmpdir_free(dir);
}

static void test_a_report_that_cannot_be_written_is_told_before_the_job(void **state)
{
    char *const env[] = {NULL};
    const struct ct_options options = {.report = "/nowhere/at/all/report.json"};
    const struct ct_resolved resolved = {.run_id = "job"};
    struct ct_logdir logs = {0};
    struct ct_err err = {0};
    (void)state;
    assert_true(ct_prepare_logdir(&options, &resolved, env, "job", &logs, &err) < 0);
    assert_memory_equal(err.text, "--report: ", 10);
    assert_null(logs.base);
}

/* "--report train.py config.yaml" took the program for the option's file, and replaced it. */
static void test_a_report_never_replaces_what_is_no_report(void **state)
{
    static const struct {
        const char *bytes;
        bool kept;
    } cases[] = {{"print(1)\n", true},
                 {"#!/bin/sh\n", true},
                 {"\n{}", true},
                 {"", false},
                 {"{\"first_failure\":null}\n", false},
                 {"[\n", false}};
    char *dir = ct_tmpdir_new();
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *path = ct_tmpdir_write(dir, "file", cases[i].bytes, strlen(cases[i].bytes));
        const struct ct_options both[] = {{.report = path}, {.trace = path}};
        for (size_t k = 0; k < 2; k++) {
            struct ct_err err = {0};
            assert_int_equal(ct_prepare_outputs(&both[k], &err), cases[i].kept ? CT_EINVAL : 0);
            assert_true(!cases[i].kept || strstr(err.text, path) != NULL);
        }
        free(path);
    }
    const struct ct_options others[] = {
        {.report = NULL}, {.report = dir}, {.report = "/dev/stdout"}};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_int_equal(ct_prepare_outputs(&others[i], NULL), 0);
    }
    ct_tmpdir_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_report_never_replaces_what_is_no_report),
        cmocka_unit_test(test_a_job_has_the_id_that_was_decided_or_a_random_one),
        cmocka_unit_test(test_only_a_known_folder_of_ctrun_is_searched),
        cmocka_unit_test(test_more_workers_than_descriptors_are_refused),
        cmocka_unit_test(test_the_token_of_the_environment_is_wiped_there),
        cmocka_unit_test(test_a_bad_token_is_wiped_too_and_not_shown),
        cmocka_unit_test(test_with_etcd_a_token_and_an_id_are_needed),
        cmocka_unit_test(test_an_agent_reads_one_line_of_standard_input),
        cmocka_unit_test(test_a_terminal_for_the_token_is_refused),
        cmocka_unit_test(test_logs_that_nobody_asked_for_go_to_a_passing_folder),
        cmocka_unit_test(test_logs_that_are_wanted_need_the_folder_for_them),
        cmocka_unit_test(test_a_report_that_cannot_be_written_is_told_before_the_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
