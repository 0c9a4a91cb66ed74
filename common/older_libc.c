/* SPDX-License-Identifier: Apache-2.0
 *
 * Wheels are built where the C library is old, so that they run everywhere.
 */
#include "common/older_libc.h"

#include <signal.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Linux's number on all architectures but Alpha; older headers lack it. */
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

static const char *const names[] = {
    [SIGHUP] = "HUP",   [SIGINT] = "INT",   [SIGQUIT] = "QUIT",     [SIGILL] = "ILL",
    [SIGTRAP] = "TRAP", [SIGABRT] = "ABRT", [SIGBUS] = "BUS",       [SIGFPE] = "FPE",
    [SIGKILL] = "KILL", [SIGUSR1] = "USR1", [SIGSEGV] = "SEGV",     [SIGUSR2] = "USR2",
    [SIGPIPE] = "PIPE", [SIGALRM] = "ALRM", [SIGTERM] = "TERM",     [SIGSTKFLT] = "STKFLT",
    [SIGCHLD] = "CHLD", [SIGCONT] = "CONT", [SIGSTOP] = "STOP",     [SIGTSTP] = "TSTP",
    [SIGTTIN] = "TTIN", [SIGTTOU] = "TTOU", [SIGURG] = "URG",       [SIGXCPU] = "XCPU",
    [SIGXFSZ] = "XFSZ", [SIGPROF] = "PROF", [SIGVTALRM] = "VTALRM", [SIGWINCH] = "WINCH",
    [SIGIO] = "POLL",   [SIGPWR] = "PWR",   [SIGSYS] = "SYS",
};

const char *ct_older_libc_sigabbrev(int signo)
{
    return signo >= 0 && (size_t)signo < sizeof(names) / sizeof(names[0]) ? names[signo] : NULL;
}

int ct_older_libc_close_range(unsigned first, unsigned last, int flags)
{
    return (int)syscall(SYS_close_range, first, last, flags);
}
