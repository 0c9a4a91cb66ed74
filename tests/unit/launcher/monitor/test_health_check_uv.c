/* SPDX-License-Identifier: Apache-2.0
 *
 * The command of --health-check: how it ends, what it wrote, and its deadline.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/fault.h"
#include "tests/lib/loop.h"

#include "launcher/monitor/health_check_uv.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* The process that checks: ctrun. */
struct host {
    uv_loop_t loop;
    struct ct_procs *procs;
    bool stopped;
};

struct heard {
    int times;
    char why[CT_HEALTH_WHY_MAX];
    char tail[CT_HEALTH_TAIL_MAX + 1];
    int not_run;
};

static void on_done(void *data, const struct ct_health_result *result)
{
    struct heard *heard = data;
    heard->times++;
    (void)snprintf(heard->why, sizeof(heard->why), "%s", result->why);
    (void)snprintf(heard->tail, sizeof(heard->tail), "%s", result->tail);
    heard->not_run = result->not_run;
}

static int host_open(struct host *host)
{
    struct ct_err err;
    *host = (struct host){0};
    ct_loop_begin(&host->loop);
    return ct_procs_open(&host->loop, NULL, NULL, &host->procs, &err);
}

static void on_stopped(void *data, const struct ct_procs_stopped *result)
{
    struct host *host = data;
    host->stopped = true;
    assert_int_equal(result->left, 0);
}

/* Ends what a check has left behind, too. */
static void host_close(struct host *host)
{
    if (host->procs != NULL) {
        ct_procs_stop(host->procs, SIGTERM, 0, on_stopped, host);
        ct_loop_run_until(&host->loop, &host->stopped);
    }
    ct_procs_close(host->procs, NULL, NULL);
    ct_loop_end(&host->loop);
}

static int start(struct host *host, const char *command, int64_t timeout_ms, struct heard *heard,
                 struct ct_health_check **out)
{
    struct ct_err err = {0};
    const struct ct_health_options options = {
        .name = "health check",
        .command = command,
        .env = environ,
        .keep = CT_HEALTH_TAIL_MAX,
        .timeout_ms = timeout_ms,
        .timeout_option = "--health-check-timeout",
        .done = on_done,
        .data = heard,
    };
    return ct_health_check_start(&host->loop, host->procs, &options, out, &err);
}

static struct heard run(const char *command, int64_t timeout_ms)
{
    struct heard heard = {0};
    struct ct_health_check *check = NULL;
    struct host host;
    assert_int_equal(host_open(&host), 0);
    assert_int_equal(start(&host, command, timeout_ms, &heard, &check), 0);
    assert_int_equal(heard.times, 0);
    (void)uv_run(&host.loop, UV_RUN_DEFAULT);
    host_close(&host);
    assert_int_equal(heard.times, 1);
    return heard;
}

static void test_a_failed_check_says_how_it_ended(void **state)
{
    (void)state;
    assert_string_equal(run("true", 60000).why, "");
    assert_string_equal(run("exit 3", 60000).why, "its health check exited with code 3");
    assert_string_equal(run("kill -9 $$", 60000).why,
                        "its health check was killed by signal 9 (SIGKILL)");
    assert_string_equal(run("sleep 600", 100).why,
                        "its health check did not end within 0.1 s (--health-check-timeout)");
}

static void wait_for_text(struct ct_health_check *check)
{
    uint64_t until_ns = uv_hrtime() + UINT64_C(60000000000);
    while (ct_health_check_written(check)[0] == '\0' && uv_hrtime() < until_ns) {
        (void)usleep(1000);
    }
}

static int polls_left = -1; /* that can be made; -1 = any number */

int __real_uv_poll_init(uv_loop_t *loop, uv_poll_t *poll, int fd);
int __wrap_uv_poll_init(uv_loop_t *loop, uv_poll_t *poll, int fd);

/* Of the kernel's room for descriptors that are watched. */
int __wrap_uv_poll_init(uv_loop_t *loop, uv_poll_t *poll, int fd)
{
    if (polls_left == 0) {
        return UV_ENOSPC;
    }
    polls_left -= polls_left > 0;
    return __real_uv_poll_init(loop, poll, fd);
}

/* The first one watches the process, the second one its output. */
static void test_a_check_that_cannot_be_watched_is_an_error(void **state)
{
    (void)state;
    for (int polls = 0; polls < 2; polls++) {
        struct heard heard = {0};
        struct ct_health_check *check = NULL;
        struct host host;
        assert_int_equal(host_open(&host), 0);
        polls_left = polls;
        assert_int_equal(start(&host, "exec sleep 600", 600000, &heard, &check), CT_EIO);
        polls_left = -1;
        host_close(&host);
        assert_null(check);
        assert_int_equal(heard.times, 0);
    }
}

/* It is needed when the check must be ended before that. */
static void test_what_was_written_can_be_read_at_once(void **state)
{
    struct heard heard = {0};
    struct ct_health_check *check = NULL;
    struct host host;
    (void)state;
    assert_int_equal(host_open(&host), 0);
    assert_int_equal(start(&host, "echo found; exec sleep 600", 600000, &heard, &check), 0);
    wait_for_text(check);
    assert_string_equal(ct_health_check_written(check), "found\n");
    ct_health_check_cancel(check);
    host_close(&host);
    assert_int_equal(heard.times, 0);
}

static void on_other_exit(void *data, struct ct_proc *proc, const struct ct_exit *end)
{
    const pid_t *check = data;
    siginfo_t info;
    (void)end;
    assert_int_equal(kill(*check, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)*check, &info, WEXITED | WNOWAIT), 0);
    ct_proc_free(proc);
}

/* The check ends while the loop is busy with another child: SIGCHLD, already pending for that one,
 * finds the check before its own event comes. */
static void test_how_it_ends_is_kept_when_sigchld_comes_first(void **state)
{
    char name[] = "true";
    char *argv[] = {name, NULL};
    struct heard heard = {0};
    struct ct_health_check *check = NULL;
    struct ct_proc *other;
    struct host host;
    siginfo_t info;
    (void)state;
    assert_int_equal(host_open(&host), 0);
    assert_int_equal(start(&host, "echo $$; exec sleep 600", 600000, &heard, &check), 0);
    wait_for_text(check);
    pid_t pid = (pid_t)strtol(ct_health_check_written(check), NULL, 10);
    const struct ct_spawn_options spawn = {
        .path = "/bin/true", .argv = argv, .envp = environ, .stdio = {-1, -1, -1}};
    assert_int_equal(ct_proc_start(host.procs, &spawn, on_other_exit, &pid, &other, NULL), 0);
    assert_int_equal(waitid(P_PID, (id_t)ct_proc_pid(other), &info, WEXITED | WNOWAIT), 0);
    (void)uv_run(&host.loop, UV_RUN_DEFAULT);
    assert_int_equal(heard.times, 1);
    assert_string_equal(heard.why, "its health check was killed by signal 9 (SIGKILL)");
    host_close(&host);
}

static void test_a_command_that_cannot_be_run(void **state)
{
    (void)state;
    struct heard heard = run("/no/such/program --fast", 60000);
    assert_string_equal(heard.why, "the command of its health check was not found there (exit "
                                   "code 127 of /bin/sh)");
    assert_int_equal(heard.not_run, 127);
    heard = run("/", 60000);
    assert_string_equal(heard.why, "the command of its health check cannot be executed there (exit "
                                   "code 126 of /bin/sh)");
    assert_int_equal(heard.not_run, 126);
    assert_int_equal(run("exit 3", 60000).not_run, 0);
    heard = run("if true", 60000);
    assert_string_equal(heard.why, "the command of its health check is no command for /bin/sh "
                                   "(syntax error)");
    assert_int_equal(heard.not_run, 126);
    /* The program's own words, and its own code. */
    assert_int_equal(run("echo Syntax error; exit 2", 60000).not_run, 0);
    assert_int_equal(run("echo /bin/sh: 1: Syntax error; exit 3", 60000).not_run, 0);
    assert_int_equal(run("echo /bin/sh: no; echo syntax error; exit 2", 60000).not_run, 0);
    assert_string_equal(run("exit 2", 60000).why, "its health check exited with code 2");
}

/* A program is no command of a shell: its codes are its own. */
static void test_a_program_keeps_its_own_exit_codes(void **state)
{
    char name[] = "another name", flag[] = "-c", script[] = "echo $0; exit 127";
    char *argv[] = {name, flag, script, name, NULL};
    struct heard heard = {0};
    struct ct_health_check *check = NULL;
    const struct ct_health_options options = {
        .name = "preflight",
        .path = "/bin/sh",
        .argv = argv,
        .env = environ,
        .keep = 4,
        .timeout_ms = 60000,
        .done = on_done,
        .data = &heard,
    };
    struct host host;
    (void)state;
    assert_int_equal(host_open(&host), 0);
    assert_int_equal(ct_health_check_start(&host.loop, host.procs, &options, &check, NULL), 0);
    (void)uv_run(&host.loop, UV_RUN_DEFAULT);
    host_close(&host);
    assert_string_equal(heard.why, "its preflight exited with code 127");
    assert_string_equal(heard.tail, "ame\n");
    assert_int_equal(heard.not_run, 0);
}

static void test_the_last_lines_of_a_check_are_kept(void **state)
{
    (void)state;
    assert_string_equal(run("echo one; echo two >&2; exit 1", 60000).tail, "one\ntwo\n");
    assert_string_equal(run("printf 'a\\000b'; exit 1", 60000).tail, "a?b");
    const struct heard much = run("seq 1 100000", 60000);
    assert_string_equal(much.tail, "99991\n99992\n99993\n99994\n99995\n99996\n99997\n99998\n"
                                   "99999\n100000\n");
    /* Lines too long for that: the whole ones among the last bytes. */
    assert_string_equal(
        run("yes | head -c 4000 | tr -d '\\n'; echo; yes | head -c 1500 | tr -d '\\n'; "
            "echo; echo end; exit 1",
            60000)
                .tail +
            750,
        "\nend\n");
    assert_int_equal(strlen(run("head -c 5000 /dev/zero | tr '\\0' x; exit 1", 60000).tail),
                     CT_HEALTH_TAIL_MAX);
}

/* Waits for the end of a process that is a child of this one, unless it has been reaped. */
static bool has_ended(pid_t pid)
{
    uint64_t until_ns = uv_hrtime() + UINT64_C(60000000000);
    siginfo_t info = {0};
    while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0) {
        if (uv_hrtime() >= until_ns) {
            return false;
        }
        (void)usleep(1000);
    }
    return true;
}

/* What it leaves behind neither delays the result nor lives on. */
static void test_leftovers_do_not_count(void **state)
{
    struct heard heard = {0};
    struct ct_health_check *check = NULL;
    struct host host;
    (void)state;
    assert_string_equal(run("sleep 600 & exit 0", 60000).why, "");
    assert_int_equal(host_open(&host), 0);
    assert_int_equal(start(&host, "sleep 600 & echo $!", 60000, &heard, &check), 0);
    (void)uv_run(&host.loop, UV_RUN_DEFAULT);
    assert_string_equal(heard.why, "");
    pid_t left = (pid_t)strtol(heard.tail, NULL, 10);
    assert_true(left > 0 && has_ended(left));
    host_close(&host);
}

static void test_a_cancelled_check_ends_and_says_nothing(void **state)
{
    struct heard heard = {0};
    struct ct_health_check *check = NULL;
    struct host host;
    (void)state;
    assert_int_equal(host_open(&host), 0);
    assert_int_equal(start(&host, "echo $$; exec sleep 600", 600000, &heard, &check), 0);
    wait_for_text(check);
    pid_t pid = (pid_t)strtol(ct_health_check_written(check), NULL, 10);
    ct_health_check_cancel(check);
    ct_health_check_cancel(NULL);
    (void)uv_run(&host.loop, UV_RUN_DEFAULT);
    assert_true(pid > 0 && has_ended(pid));
    host_close(&host);
    assert_int_equal(heard.times, 0);
}

static int body(void *data)
{
    struct heard heard = {0};
    struct ct_health_check *check = NULL;
    struct host host;
    (void)data;
    int rc = host_open(&host);
    rc = rc == 0 ? start(&host, "true", 60000, &heard, &check) : rc;
    (void)uv_run(&host.loop, UV_RUN_DEFAULT);
    host_close(&host);
    assert_int_equal(heard.times, rc == 0);
    return rc;
}

static void test_a_check_survives_lack_of_memory(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(body, NULL, 1) > 0); /* the words of the result may be missing */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_failed_check_says_how_it_ended),
        cmocka_unit_test(test_a_check_that_cannot_be_watched_is_an_error),
        cmocka_unit_test(test_what_was_written_can_be_read_at_once),
        cmocka_unit_test(test_how_it_ends_is_kept_when_sigchld_comes_first),
        cmocka_unit_test(test_a_command_that_cannot_be_run),
        cmocka_unit_test(test_a_program_keeps_its_own_exit_codes),
        cmocka_unit_test(test_the_last_lines_of_a_check_are_kept),
        cmocka_unit_test(test_leftovers_do_not_count),
        cmocka_unit_test(test_a_cancelled_check_ends_and_says_nothing),
        cmocka_unit_test(test_a_check_survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
