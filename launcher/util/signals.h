/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of --signals-to-handle.
 */
#ifndef CT_LAUNCHER_UTIL_SIGNALS_H
#define CT_LAUNCHER_UTIL_SIGNALS_H

#include "common/log.h"

#include <stdbool.h>
#include <stddef.h>

/* torchrun's default. */
#define CT_SIGNALS_DEFAULT "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
/* More than there are signals with a name. */
#define CT_SIGNALS_MAX 32

struct ct_signals {
    int signo[CT_SIGNALS_MAX]; /* each once */
    size_t count;
};

/* The number of a signal with a name such as SIGUSR1; 0 when there is no such signal. */
int ct_signal_number(const char *name);

/* Is this the name of a signal but for its spelling, such as TERM or sigterm? Writes the right one.
 */
#define CT_SIGNAL_NAME_MAX 16
bool ct_signal_is_meant(const char *typed, size_t len, char name[CT_SIGNAL_NAME_MAX]);

/* Reads names such as SIGUSR1 between commas. Blanks around names and empty names are ignored. A
 * name is skipped with a warning if it is no signal, cannot be caught, would end a healthy job
 * (SIGCHLD) or would be raised for ever (SIGSEGV); torchrun skips what it cannot catch, too. `log`
 * is borrowed. */
void ct_signals_parse(const char *text, const struct ct_log *log, struct ct_signals *out);

#endif
