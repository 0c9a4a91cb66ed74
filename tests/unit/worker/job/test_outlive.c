/* SPDX-License-Identifier: Apache-2.0
 *
 * What SIGTERM and SIGUSR1 do to a process that wants to outlive a notice of preemption. It is a
 * child for each case.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/signal_child.h"
#include "tests/lib/tmpdir.h"

#include "common/handover.h"
#include "worker/ctworker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* A notice that comes so much later than the signal comes in time. */
#define LATE_MS 50

static char *notice; /* its path, which CTRUN_PREEMPT_FILE has, too */

static int setup(void **state)
{
    *state = ct_tmpdir_new();
    notice = ct_tmpdir_path(*state, "preempt.json");
    assert_int_equal(setenv(CT_PREEMPT_ENV, notice, 1), 0);
    return 0;
}

static void remove_notice(void)
{
    (void)unlink(notice);
}

static int teardown(void **state)
{
    free(notice);
    ct_tmpdir_free(*state);
    return 0;
}

/* ---- in a child ------------------------------------------------------------------------------ */

static void write_notice(void)
{
    CT_EXPECT(close(open(notice, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)) == 0);
}

/* Returns if the process outlives it. */
static void send(int number)
{
    CT_EXPECT(kill(getpid(), number) == 0);
}

static void takes_it_without_asking(int number)
{
    write_notice();
    send(number);
}

static void takes_it_without_a_notice(int number)
{
    CT_EXPECT(ctw_preempt_outlive(NULL) == 0);
    send(number);
}

static void takes_it_without_a_launcher(int number)
{
    CT_EXPECT(unsetenv(CT_PREEMPT_ENV) == 0);
    takes_it_without_a_notice(number);
}

static void takes_all_with_a_notice(int number)
{
    CT_EXPECT(ctw_preempt_outlive(NULL) == 0);
    write_notice();
    errno = EDOM;
    send(number);
    CT_EXPECT(errno == EDOM);
    send(SIGTERM);
    send(SIGUSR1);
    CT_EXPECT(ctw_preempt_outlive(NULL) == 0);
    send(number);
}

static void takes_it_before_the_notice(int number)
{
    CT_EXPECT(ctw_preempt_outlive(NULL) == 0);
    if (fork() == 0) {
        (void)poll(NULL, 0, LATE_MS);
        write_notice();
        _exit(0);
    }
    send(number);
}

static void takes_what_it_ignores(int number)
{
    CT_EXPECT(signal(number, SIG_IGN) != SIG_ERR);
    takes_it_without_a_notice(number);
}

/* A pool of processes ends its children by SIGTERM, and waits for them. */
static void forks_and_signals_the_child(int number)
{
    int status;
    CT_EXPECT(ctw_preempt_outlive(NULL) == 0);
    write_notice();
    pid_t pid = fork();
    if (pid == 0) {
        send(number);
        _exit(0);
    }
    CT_EXPECT(waitpid(pid, &status, 0) == pid);
    CT_EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == number);
}

static void looks_at_its_stack(int number)
{
    stack_t stack;
    struct sigaction action;
    CT_EXPECT(ctw_preempt_outlive(NULL) == 0);
    CT_EXPECT(sigaltstack(NULL, &stack) == 0 && (stack.ss_flags & SS_DISABLE) == 0);
    CT_EXPECT(sigaction(number, NULL, &action) == 0 && (action.sa_flags & SA_ONSTACK) != 0);
}

/* ---- tests ------------------------------------------------------------------------------------
 */

static void without_asking_a_signal_ends_the_process(void **state)
{
    (void)state;
    ct_assert_ended(takes_it_without_asking, remove_notice);
}

static void without_a_notice_a_signal_ends_the_process(void **state)
{
    (void)state;
    ct_assert_ended(takes_it_without_a_notice, remove_notice);
}

static void without_a_launcher_a_signal_ends_the_process(void **state)
{
    (void)state;
    ct_assert_ended(takes_it_without_a_launcher, remove_notice);
}

static void a_notice_is_outlived(void **state)
{
    (void)state;
    ct_assert_outlived(takes_all_with_a_notice, remove_notice);
}

/* Slurm signals ctrun and the workers at once. */
static void a_notice_that_is_late_is_outlived(void **state)
{
    (void)state;
    ct_assert_outlived(takes_it_before_the_notice, remove_notice);
}

static void an_action_of_the_program_stays(void **state)
{
    (void)state;
    ct_assert_outlived(takes_what_it_ignores, remove_notice);
}

static void a_fork_is_ended(void **state)
{
    (void)state;
    ct_assert_outlived(forks_and_signals_the_child, remove_notice);
}

static void the_handler_has_a_stack_of_its_own(void **state)
{
    (void)state;
    ct_assert_outlived(looks_at_its_stack, remove_notice);
}

static void a_path_that_is_too_long_is_refused(void **state)
{
    static char path[CTW_PATH_MAX + 1];
    struct ct_err err = {0};
    (void)state;
    memset(path, 'x', CTW_PATH_MAX);
    assert_int_equal(setenv(CT_PREEMPT_ENV, path, 1), 0);
    assert_int_equal(ctw_preempt_outlive(&err), CT_ELIMIT);
    assert_string_equal(err.text, CT_PREEMPT_ENV " has more than 4095 bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_asking_a_signal_ends_the_process),
        cmocka_unit_test(without_a_notice_a_signal_ends_the_process),
        cmocka_unit_test(without_a_launcher_a_signal_ends_the_process),
        cmocka_unit_test(a_notice_is_outlived),
        cmocka_unit_test(a_notice_that_is_late_is_outlived),
        cmocka_unit_test(an_action_of_the_program_stays),
        cmocka_unit_test(a_fork_is_ended),
        cmocka_unit_test(the_handler_has_a_stack_of_its_own),
        cmocka_unit_test(a_path_that_is_too_long_is_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
