/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the cases of tests about signals in children, each of which ends with its test.
 */
#include "tests/lib/signal_child.h"

#include "tests/lib/ct_test.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

/* SIGALRM ends a child that waits in vain. */
#define DEADLINE_S 20

static const int signals[] = {SIGTERM, SIGUSR1};
#define SIGNALS (sizeof(signals) / sizeof(signals[0]))

static int status_of(ct_signal_case *body, void (*before)(void), int number)
{
    int status = -1;
    if (before != NULL) {
        before();
    }
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

void ct_assert_outlived(ct_signal_case *body, void (*before)(void))
{
    for (size_t i = 0; i < SIGNALS; i++) {
        int status = status_of(body, before, signals[i]);
        if (status != 0) {
            fail_msg("signal %d: exit code %d (a line), killed by %d", signals[i],
                     WEXITSTATUS(status), WTERMSIG(status));
        }
    }
}

void ct_assert_ended(ct_signal_case *body, void (*before)(void))
{
    for (size_t i = 0; i < SIGNALS; i++) {
        int status = status_of(body, before, signals[i]);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), signals[i]);
    }
}
