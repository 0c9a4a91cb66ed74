/* SPDX-License-Identifier: Apache-2.0
 *
 * ctrun writes its notice before it signals a worker. A scheduler signals ctrun and its workers at
 * once, so the handler waits a moment for the notice. A signal without a notice means that the job
 * has failed elsewhere, and this process is to end at once: it may be waiting for a rank that has
 * died.
 *
 * The kernel prefers the main thread, which gets a stack of its own for the handler: oneDNN 2 keeps
 * the stack pointer at a buffer in the heap while it computes.
 */
#include "worker/ctworker.h"

#include "common/err.h"
#include "common/handover.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The wait for a notice. On a loaded machine ctrun takes some tens of milliseconds to write it. */
#define LOOKS 30
#define LOOK_MS 10

/* Has room for the registers of every processor. */
#define STACK_BYTES 65536

static const int signals[] = {SIGTERM, SIGUSR1};
static char notice[CTW_PATH_MAX];
static pid_t process; /* that has asked; a fork of it has the handler, too */

static bool comes_with_notice(void)
{
    for (int i = 0; i < LOOKS && getpid() == process; i++) {
        if (access(notice, F_OK) == 0) {
            return true;
        }
        (void)poll(NULL, 0, LOOK_MS);
    }
    return false;
}

static void on_signal(int number)
{
    int before = errno;
    if (!comes_with_notice()) {
        (void)signal(number, SIG_DFL);
        (void)raise(number); /* takes effect when the handler returns */
    }
    errno = before;
}

/* Leaves a stack alone that somebody else has set. */
static void set_stack(void)
{
    static unsigned char stack[STACK_BYTES];
    const stack_t ours = {.ss_sp = stack, .ss_size = sizeof(stack)};
    stack_t old;
    if (syscall(SYS_gettid) == getpid() && sigaltstack(NULL, &old) == 0 &&
        (old.ss_flags & SS_DISABLE) != 0) {
        (void)sigaltstack(&ours, NULL);
    }
}

int ctw_preempt_outlive(struct ct_err *err)
{
    const char *path = getenv(CT_PREEMPT_ENV);
    if (path == NULL || path[0] == '\0') {
        return 0;
    }
    if (strlen(path) >= sizeof(notice)) {
        return ct_err_set(err, CT_ELIMIT, CT_PREEMPT_ENV " has more than %d bytes",
                          CTW_PATH_MAX - 1);
    }
    (void)snprintf(notice, sizeof(notice), "%s", path);
    process = getpid();
    set_stack();
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        const struct sigaction ours = {.sa_handler = on_signal,
                                       .sa_flags = SA_RESTART | SA_ONSTACK};
        struct sigaction old;
        if (sigaction(signals[i], NULL, &old) == 0 && (old.sa_flags & SA_SIGINFO) == 0 &&
            old.sa_handler == SIG_DFL) {
            (void)sigaction(signals[i], &ours, NULL);
        }
    }
    return 0;
}
