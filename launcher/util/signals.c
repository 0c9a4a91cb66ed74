/* SPDX-License-Identifier: Apache-2.0
 *
 * A name that is unknown or cannot be handled is passed over with a warning, as torchrun does.
 */
#include "launcher/util/signals.h"

#include <ctype.h>
#include <signal.h>
#include <string.h>
#include <strings.h>

/* Signals above this are real-time ones, which have no names. */
#define NAMED_MAX 31
/* Returns 0 when no signal has this name. */
static int number_of(const char *name, size_t len)
{
    if (len <= 3 || memcmp(name, "SIG", 3) != 0) {
        return 0;
    }
    for (int signo = 1; signo <= NAMED_MAX; signo++) {
        const char *abbrev = sigabbrev_np(signo);
        if (abbrev != NULL && strlen(abbrev) == len - 3 && memcmp(abbrev, name + 3, len - 3) == 0) {
            return signo;
        }
    }
    return 0;
}

int ct_signal_number(const char *name)
{
    return number_of(name, strlen(name));
}

bool ct_signal_is_meant(const char *typed, size_t len, char name[CT_SIGNAL_NAME_MAX])
{
    size_t skip = len >= 3 && strncasecmp(typed, "SIG", 3) == 0 ? 3 : 0;
    if (len - skip > CT_SIGNAL_NAME_MAX - sizeof("SIG")) {
        return false;
    }
    memcpy(name, "SIG", 3);
    for (size_t i = skip; i < len; i++) {
        name[3 + i - skip] = (char)toupper((unsigned char)typed[i]);
    }
    name[3 + len - skip] = '\0';
    return ct_signal_number(name) > 0;
}

/* A handler for a signal that a fault of the process raises, such as SIGSEGV, would run for ever:
 * the fault occurs again when it returns. ctrun ignores SIGPIPE, because write(2) reports EPIPE. */
static bool is_usable(int signo)
{
    static const int unusable[] = {0,       SIGKILL, SIGSTOP, SIGCHLD, SIGPIPE,
                                   SIGSEGV, SIGBUS,  SIGFPE,  SIGILL,  SIGTRAP};
    for (size_t i = 0; i < sizeof(unusable) / sizeof(unusable[0]); i++) {
        if (signo == unusable[i]) {
            return false;
        }
    }
    return true;
}

static bool has(const struct ct_signals *signals, int signo)
{
    for (size_t i = 0; i < signals->count; i++) {
        if (signals->signo[i] == signo) {
            return true;
        }
    }
    return false;
}

static void take(const char *name, size_t len, const struct ct_log *log, struct ct_signals *out)
{
    char meant[CT_SIGNAL_NAME_MAX];
    int signo = number_of(name, len),
        shown = len < CT_SIGNAL_NAME_MAX ? (int)len : CT_SIGNAL_NAME_MAX;
    if (signo == 0 && ct_signal_is_meant(name, len, meant)) {
        ct_log(log, CT_LOG_WARNING,
               "--signals-to-handle: %.*s is no signal and is skipped; did you mean %s?", shown,
               name, meant);
    } else if (!is_usable(signo)) {
        ct_log(log, CT_LOG_WARNING, "--signals-to-handle: %.*s %s; it is skipped", shown, name,
               signo == 0 ? "is no signal" : "cannot be handled");
    } else if (!has(out, signo)) {
        out->signo[out->count++] = signo; /* NAMED_MAX different ones fit */
    }
}

void ct_signals_parse(const char *text, const struct ct_log *log, struct ct_signals *out)
{
    *out = (struct ct_signals){0};
    for (const char *p = text;;) {
        size_t len = strcspn(p, ",");
        size_t skip = strspn(p, " \t");
        skip = skip < len ? skip : len;
        size_t end = len;
        while (end > skip && (p[end - 1] == ' ' || p[end - 1] == '\t')) {
            end--;
        }
        if (end > skip) {
            take(p + skip, end - skip, log, out);
        }
        if (p[len] == '\0') {
            return;
        }
        p += len + 1;
    }
}
