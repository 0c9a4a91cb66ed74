/* SPDX-License-Identifier: Apache-2.0
 *
 * What SIGTERM and SIGUSR1 do to a process that wants to outlive a notice of preemption. It is a
 * child for each case, and sends them to itself.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"

#include "common/handover.h"
#include "worker/ctworker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* SIGALRM ends a child that waits in vain. */
#define DEADLINE_S 20

/* A notice that comes so much later than the signal comes in time. */
#define LATE_MS 50

static const int signals[] = {SIGTERM, SIGUSR1};
#define SIGNALS (sizeof(signals) / sizeof(signals[0]))

static char *notice; /* its path, which CTRUN_PREEMPT_FILE has, too */

static int setup(void **state)
{
    *state = ct_tmpdir_new();
    notice = ct_tmpdir_path(*state, "preempt.json");
    assert_int_equal(setenv(CT_PREEMPT_ENV, notice, 1), 0);
    return 0;
}

static int teardown(void **state)
{
    free(notice);
    ct_tmpdir_free(*state);
    return 0;
}

/* ---- in a child, which ends with the number of the line at which it was not as expected -------
 */

#define EXPECT(cond)         \
    do {                     \
        if (!(cond)) {       \
            _exit(__LINE__); \
        }                    \
    } while (0)

static void write_notice(void)
{
    EXPECT(close(open(notice, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)) == 0);
}

/* Returns if the process outlives it. */
static void send(int number)
{
    EXPECT(kill(getpid(), number) == 0);
}

static void takes_it_without_asking(int number)
{
    write_notice();
    send(number);
}

static void takes_it_without_a_notice(int number)
{
    EXPECT(ctw_preempt_outlive(NULL) == 0);
    send(number);
}

static void takes_it_without_a_launcher(int number)
{
    EXPECT(unsetenv(CT_PREEMPT_ENV) == 0);
    takes_it_without_a_notice(number);
}

static void takes_all_with_a_notice(int number)
{
    EXPECT(ctw_preempt_outlive(NULL) == 0);
    write_notice();
    errno = EDOM;
    send(number);
    EXPECT(errno == EDOM);
    send(SIGTERM);
    send(SIGUSR1);
    EXPECT(ctw_preempt_outlive(NULL) == 0);
    send(number);
}

static void takes_it_before_the_notice(int number)
{
    EXPECT(ctw_preempt_outlive(NULL) == 0);
    if (fork() == 0) {
        (void)poll(NULL, 0, LATE_MS);
        write_notice();
        _exit(0);
    }
    send(number);
}

static void takes_what_it_ignores(int number)
{
    EXPECT(signal(number, SIG_IGN) != SIG_ERR);
    takes_it_without_a_notice(number);
}

/* A pool of processes ends its children by SIGTERM, and waits for them. */
static void forks_and_signals_the_child(int number)
{
    int status;
    EXPECT(ctw_preempt_outlive(NULL) == 0);
    write_notice();
    pid_t pid = fork();
    if (pid == 0) {
        send(number);
        _exit(0);
    }
    EXPECT(waitpid(pid, &status, 0) == pid);
    EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == number);
}

static void looks_at_its_stack(int number)
{
    stack_t stack;
    struct sigaction action;
    EXPECT(ctw_preempt_outlive(NULL) == 0);
    EXPECT(sigaltstack(NULL, &stack) == 0 && (stack.ss_flags & SS_DISABLE) == 0);
    EXPECT(sigaction(number, NULL, &action) == 0 && (action.sa_flags & SA_ONSTACK) != 0);
}

/* ---- tests ------------------------------------------------------------------------------------
 */

static int status_of(void (*body)(int number), int number)
{
    int status = -1;
    (void)unlink(notice);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)alarm(DEADLINE_S);
        body(number);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void assert_outlived(void (*body)(int number))
{
    for (size_t i = 0; i < SIGNALS; i++) {
        int status = status_of(body, signals[i]);
        if (status != 0) {
            fail_msg("signal %d: exit code %d (a line), killed by %d", signals[i],
                     WEXITSTATUS(status), WTERMSIG(status));
        }
    }
}

static void assert_ended(void (*body)(int number))
{
    for (size_t i = 0; i < SIGNALS; i++) {
        int status = status_of(body, signals[i]);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), signals[i]);
    }
}

static void without_asking_a_signal_ends_the_process(void **state)
{
    (void)state;
    assert_ended(takes_it_without_asking);
}

static void without_a_notice_a_signal_ends_the_process(void **state)
{
    (void)state;
    assert_ended(takes_it_without_a_notice);
}

static void without_a_launcher_a_signal_ends_the_process(void **state)
{
    (void)state;
    assert_ended(takes_it_without_a_launcher);
}

static void a_notice_is_outlived(void **state)
{
    (void)state;
    assert_outlived(takes_all_with_a_notice);
}

/* Slurm signals ctrun and the workers at once. */
static void a_notice_that_is_late_is_outlived(void **state)
{
    (void)state;
    assert_outlived(takes_it_before_the_notice);
}

static void an_action_of_the_program_stays(void **state)
{
    (void)state;
    assert_outlived(takes_what_it_ignores);
}

static void a_fork_is_ended(void **state)
{
    (void)state;
    assert_outlived(forks_and_signals_the_child);
}

static void the_handler_has_a_stack_of_its_own(void **state)
{
    (void)state;
    assert_outlived(looks_at_its_stack);
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
