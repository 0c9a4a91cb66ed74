/* SPDX-License-Identifier: Apache-2.0
 *
 * The handler runs in a thread that does nothing else. oneDNN 2's product of matrices for AVX2
 * holds the stack pointer at its own buffer in the heap while it computes, and the kernel would
 * write the frame of a handler over what lies before that buffer.
 */
#include "trainer/run/stop_signals.h"

#include "common/clock.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <unistd.h>

/* Slurm sends a signal to every process of a job step, and ctrun, which gets it too, sends it to
 * its workers again. So a second signal within this time is the same notice. */
#define SAME_NOTICE_NS (5 * CT_NS_PER_S)

static const int signals[] = {SIGTERM, SIGUSR1};
#define SIGNALS (sizeof(signals) / sizeof(signals[0]))

/* All other threads read it. */
static atomic_int asked;

_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "a handler must not wait for a lock");

static void on_signal(int number)
{
    static volatile int64_t first_ns;
    int64_t now_ns = ct_clock_now(NULL);
    if (asked && now_ns - first_ns > SAME_NOTICE_NS) {
        (void)signal(number, SIG_DFL);
        (void)raise(number);
    } else if (!asked) {
        first_ns = now_ns;
        asked = 1;
    }
}

static void mask(int how)
{
    sigset_t set;
    (void)sigemptyset(&set);
    for (size_t i = 0; i < SIGNALS; i++) {
        (void)sigaddset(&set, signals[i]);
    }
    (void)pthread_sigmask(how, &set, NULL);
}

static void *hear(void *unused)
{
    (void)unused;
    mask(SIG_UNBLOCK);    /* whoever has started this process may have held them off */
    while (pause() < 0) { /* a handler has run */
    }
    return NULL;
}

int ct_stop_signals_apart(struct ct_err *err)
{
    pthread_t thread;
    int failed = pthread_create(&thread, NULL, hear, NULL);
    if (failed != 0) {
        return ct_err_sys(err, ct_code_from_errno(failed), failed,
                          "cannot start a thread for signals");
    }
    (void)pthread_detach(thread);
    mask(SIG_BLOCK); /* all threads to come inherit this */
    return 0;
}

void ct_stop_signals_catch(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    for (size_t i = 0; i < SIGNALS; i++) {
        (void)sigaction(signals[i], &action, NULL);
    }
}

const atomic_int *ct_stop_signals_asked(void)
{
    return &asked;
}
