/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks, with real processes, that each end of a child is seen with its status, and that a stop
 * ends the leader, its group and what has left the group, within the time that it has.
 */
#include "launcher/process/proc_uv.h"

#include "tests/lib/ct_test.h"
#include "tests/lib/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define MANY 64

/* While set, another thread is quicker: it has already reaped the next child that is waited for. */
static bool is_reaped_elsewhere;

pid_t __real_waitpid(pid_t pid, int *status, int options);
pid_t __wrap_waitpid(pid_t pid, int *status, int options);
pid_t __wrap_waitpid(pid_t pid, int *status, int options)
{
    if (is_reaped_elsewhere) {
        is_reaped_elsewhere = false;
        assert_int_equal(__real_waitpid(pid, NULL, 0), pid);
    }
    return __real_waitpid(pid, status, options);
}

/* One set, up to MANY shells, and what became of them. */
struct fixture {
    uv_loop_t loop;
    struct ct_procs *procs;
    struct ct_proc *proc[MANY];
    struct ct_exit end[MANY];
    int started, ended;
    bool all_ended, stopped;
    struct ct_procs_stopped result;
    ct_proc_exit_fn on_exit; /* of the next one to start */
    int said[2];             /* what the shells print; a byte means "ready" */
};

static void on_exit_of(void *data, struct ct_proc *proc, const struct ct_exit *end)
{
    struct fixture *f = data;
    for (int i = 0; i < f->started; i++) {
        if (f->proc[i] == proc) {
            f->end[i] = *end;
        }
    }
    assert_false(ct_proc_alive(proc));
    f->all_ended = ++f->ended == f->started;
}

static void setup(struct fixture *f)
{
    *f = (struct fixture){.on_exit = on_exit_of};
    ct_loop_begin(&f->loop);
    assert_int_equal(pipe2(f->said, O_CLOEXEC), 0);
    struct ct_err err;
    assert_int_equal(ct_procs_open(&f->loop, NULL, NULL, &f->procs, &err), 0);
}

static void teardown(struct fixture *f)
{
    for (int i = 0; i < f->started; i++) {
        ct_proc_free(f->proc[i]);
    }
    ct_procs_close(f->procs, NULL, NULL);
    ct_loop_end(&f->loop);
    /* Nothing was left behind: no child, living or dead. */
    assert_true(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
    close(f->said[0]);
    close(f->said[1]);
}

static struct ct_proc *start(struct fixture *f, const char *script)
{
    char *argv[] = {(char *)"sh", (char *)"-c", (char *)script, NULL};
    char *envp[] = {(char *)"PATH=/usr/bin:/bin", NULL};
    struct ct_err err;
    int rc = ct_proc_start(
        f->procs,
        &(struct ct_spawn_options){
            .path = "/bin/sh", .argv = argv, .envp = envp, .stdio = {-1, f->said[1], 2}},
        f->on_exit, f, &f->proc[f->started], &err);
    if (rc != 0) {
        fail_msg("%s", err.text);
    }
    f->all_ended = false;
    return f->proc[f->started++];
}

static void wait_ready(struct fixture *f, int count)
{
    for (int i = 0; i < count; i++) {
        char byte;
        assert_int_equal(read(f->said[0], &byte, 1), 1);
    }
}

static void on_stopped(void *data, const struct ct_procs_stopped *result)
{
    struct fixture *f = data;
    f->result = *result;
    f->stopped = true;
}

static void stop(struct fixture *f, int sig, int64_t grace_ms)
{
    f->stopped = false;
    ct_procs_stop(f->procs, sig, grace_ms, on_stopped, f);
    assert_false(f->stopped);
    ct_loop_run_until(&f->loop, &f->stopped);
}

static void test_exit_codes_and_signals_are_told_apart(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    start(&f, "exit 0");
    start(&f, "exit 42");
    start(&f, "kill -KILL $$");
    start(&f, "kill -SEGV $$");
    ct_loop_run_until(&f.loop, &f.all_ended);
    assert_int_equal(ct_proc_exit_code(&f.end[0]), 0);
    assert_int_equal(ct_proc_exit_code(&f.end[1]), 42);
    assert_int_equal(f.end[1].signal, 0);
    assert_int_equal(f.end[2].signal, SIGKILL);
    assert_int_equal(ct_proc_exit_code(&f.end[2]), 137);
    assert_int_equal(ct_proc_exit_code(&f.end[3]), 139);
    for (int i = 0; i < 4; i++) {
        assert_true(f.end[i].max_rss_kib > 0);
    }
    stop(&f, SIGTERM, 1000);
    assert_int_equal(f.result.strays + f.result.killed + f.result.left, 0);
    teardown(&f);
}

static void test_start_failure_leaves_nothing(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    char *argv[] = {(char *)"x", NULL};
    struct ct_proc *proc = NULL;
    struct ct_err err;
    assert_int_equal(
        ct_proc_start(f.procs,
                      &(struct ct_spawn_options){
                          .path = "/no/such", .argv = argv, .envp = argv, .stdio = {-1, -1, -1}},
                      on_exit_of, &f, &proc, &err),
        CT_ENOENT);
    assert_int_equal(err.sys, ENOENT);
    assert_null(proc);
    stop(&f, SIGTERM, 0);
    teardown(&f);
}

/* Dead orphans stand before and between the workers in the kernel's list of dead children. */
static void test_orphans_are_reaped_and_statuses_kept(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    for (int i = 0; i < MANY; i++) {
        char script[128];
        (void)snprintf(script, sizeof(script), "(sleep 0.0%d &) ; (:&) ; exit %d", i % 5, i);
        start(&f, script);
    }
    ct_loop_run_until(&f.loop, &f.all_ended);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(ct_proc_exit_code(&f.end[i]), i);
    }
    stop(&f, SIGTERM, 5000);
    assert_int_equal(f.result.left, 0);
    teardown(&f);
}

/* The second worker dies while the loop is busy with the first: SIGCHLD, already pending for the
 * first, finds the second before its pidfd is polled. */
static void on_first_exit(void *data, struct ct_proc *proc, const struct ct_exit *end)
{
    struct fixture *f = data;
    siginfo_t info;
    ct_proc_signal_leader(f->proc[1], SIGKILL);
    pid_t second = ct_proc_pid(f->proc[1]);
    assert_int_equal(waitid(P_PID, (id_t)second, &info, WEXITED | WNOWAIT), 0);
    on_exit_of(data, proc, end);
}

static void test_status_is_kept_when_sigchld_comes_first(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    f.on_exit = on_first_exit;
    start(&f, "exit 4");
    f.on_exit = on_exit_of;
    start(&f, "exec sleep 300");
    ct_loop_run_until(&f.loop, &f.all_ended);
    assert_int_equal(ct_proc_exit_code(&f.end[0]), 4);
    assert_int_equal(f.end[1].signal, SIGKILL);
    stop(&f, SIGTERM, 0);
    teardown(&f);
}

/* Two children end, and one SIGCHLD tells of both. The second is reaped although another thread has
 * reaped the first. */
static void test_a_child_reaped_elsewhere_hides_no_other(void **state)
{
    (void)state;
    struct fixture f;
    sigset_t chld;
    siginfo_t info;
    setup(&f);
    start(&f, "exec sleep 300"); /* keeps the loop going */
    (void)sigemptyset(&chld);
    (void)sigaddset(&chld, SIGCHLD);
    assert_int_equal(sigprocmask(SIG_BLOCK, &chld, NULL), 0);
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        if (child == 0) {
            _exit(0);
        }
        assert_true(child > 0);
        assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    }
    is_reaped_elsewhere = true;
    assert_int_equal(sigprocmask(SIG_UNBLOCK, &chld, NULL), 0);
    while (is_reaped_elsewhere) {
        uv_run(&f.loop, UV_RUN_ONCE);
    }
    info.si_pid = 0;
    assert_int_equal(waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT), 0);
    assert_int_equal(info.si_pid, 0);
    stop(&f, SIGTERM, 0);
    teardown(&f);
}

static void test_leader_hears_first(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    /* The child would say 'C' if it heard TERM before its parent let go of it. */
    start(&f, "sh -c 'trap \"echo -n C; exit 0\" TERM; echo -n r; while :; do sleep 0.01; done' &"
              "trap 'echo -n L; sleep 0.1; echo -n l; exit 3' TERM; echo -n r;"
              "while :; do sleep 0.01; done");
    wait_ready(&f, 2);
    stop(&f, SIGTERM, 20000);
    assert_int_equal(ct_proc_exit_code(&f.end[0]), 3);
    char said[8] = {0};
    assert_int_equal(read(f.said[0], said, 7), 3);
    assert_string_equal(said, "LlC");
    assert_int_equal(f.result.killed, 0);
    teardown(&f);
}

static void test_stubborn_group_is_killed(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    start(&f, "trap '' TERM; echo -n r; while :; do sleep 1; done");
    start(&f, "sh -c 'trap \"\" TERM; echo -n r; while :; do sleep 1; done' & echo -n r; wait");
    wait_ready(&f, 3);
    stop(&f, SIGTERM, 200);
    assert_int_equal(f.end[0].signal, SIGKILL);
    assert_int_equal(f.end[1].signal, SIGTERM);
    assert_true(f.result.killed >= 2);
    assert_int_equal(f.result.left, 0);
    teardown(&f);
}

static void test_stopped_process_wakes_to_end(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    start(&f, "trap 'exit 9' TERM; echo -n r; kill -STOP $$; sleep 300");
    wait_ready(&f, 1);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)ct_proc_pid(f.proc[0]), &info, WSTOPPED | WNOWAIT), 0);
    stop(&f, SIGTERM, 20000);
    assert_int_equal(ct_proc_exit_code(&f.end[0]), 9);
    teardown(&f);
}

/* What a worker leaves in its own group counts as much as what has left it. */
static void test_the_rest_of_a_group_is_counted(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    start(&f, "sleep 300 & exit 5");
    ct_loop_run_until(&f.loop, &f.all_ended);
    stop(&f, SIGTERM, 20000);
    assert_int_equal(f.result.strays, 1);
    assert_int_equal(f.result.killed + f.result.left, 0);
    teardown(&f);
}

static void test_strays_are_found_and_ended(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    start(&f, "setsid sh -c 'trap \"\" TERM; echo -n r; while :; do sleep 1; done' &"
              "setsid sh -c 'echo -n r; exec sleep 300' & sleep 300 & exit 5");
    wait_ready(&f, 2);
    ct_loop_run_until(&f.loop, &f.all_ended);
    stop(&f, SIGTERM, 300);
    assert_int_equal(ct_proc_exit_code(&f.end[0]), 5);
    assert_true(f.result.strays >= 3);
    assert_true(f.result.killed >= 1);
    assert_int_equal(f.result.left, 0);
    teardown(&f);
}

static void test_second_stop_hastens(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    start(&f, "trap '' TERM; echo -n r; while :; do sleep 1; done");
    wait_ready(&f, 1);
    ct_procs_stop(f.procs, SIGTERM, 3600 * 1000, on_stopped, &f);
    uv_run(&f.loop, UV_RUN_NOWAIT);
    stop(&f, SIGTERM, 0);
    assert_int_equal(f.end[0].signal, SIGKILL);
    teardown(&f);
}

static void test_signals_reach_leader_and_group(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    start(&f, "trap 'echo -n 1' USR1; sh -c 'trap \"echo -n 2\" USR1; echo -n r;"
              "while :; do sleep 0.01; done' & echo -n r; while :; do sleep 0.01; done");
    wait_ready(&f, 2);
    char byte;
    ct_proc_signal_leader(f.proc[0], SIGUSR1);
    assert_int_equal(read(f.said[0], &byte, 1), 1);
    assert_int_equal(byte, '1');
    ct_proc_signal_group(f.proc[0], SIGUSR1);
    char both[2];
    assert_int_equal(read(f.said[0], &both[0], 1), 1);
    assert_int_equal(read(f.said[0], &both[1], 1), 1);
    assert_int_equal(both[0] + both[1], '1' + '2');
    stop(&f, SIGKILL, 0);
    teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exit_codes_and_signals_are_told_apart),
        cmocka_unit_test(test_start_failure_leaves_nothing),
        cmocka_unit_test(test_orphans_are_reaped_and_statuses_kept),
        cmocka_unit_test(test_status_is_kept_when_sigchld_comes_first),
        cmocka_unit_test(test_a_child_reaped_elsewhere_hides_no_other),
        cmocka_unit_test(test_leader_hears_first),
        cmocka_unit_test(test_stubborn_group_is_killed),
        cmocka_unit_test(test_stopped_process_wakes_to_end),
        cmocka_unit_test(test_the_rest_of_a_group_is_counted),
        cmocka_unit_test(test_strays_are_found_and_ended),
        cmocka_unit_test(test_second_stop_hastens),
        cmocka_unit_test(test_signals_reach_leader_and_group),
    };
    return cmocka_run_group_tests_name("proc_uv", tests, NULL, NULL);
}
