/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of --signals-to-handle.
 */
#ifndef CT_LAUNCHER_UTIL_SIGNALS_H
#define CT_LAUNCHER_UTIL_SIGNALS_H

#include "common/log.h"

#include <stddef.h>

/* torchrun's default. */
#define CT_SIGNALS_DEFAULT "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
/* More than there are signals with a name. */
#define CT_SIGNALS_MAX 32

struct ct_signals {
    int signo[CT_SIGNALS_MAX]; /* each once */
    size_t count;
};

/* Of a name such as SIGUSR1; 0 = there is none of this name. */
int ct_signal_number(const char *name);

/* Names such as SIGUSR1 between commas; blanks around them do not count, nor do empty names. What
 * is no signal, cannot be caught, or would end a healthy job (SIGCHLD) or loop (SIGSEGV) gives a
 * warning and is skipped, as torchrun skips what it cannot catch. `log` is borrowed. */
void ct_signals_parse(const char *text, const struct ct_log *log, struct ct_signals *out);

#endif
