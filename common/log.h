/* SPDX-License-Identifier: Apache-2.0
 *
 * An injected logger. Libraries write through it and never to a stream; a NULL logger is silent.
 */
#ifndef CT_COMMON_LOG_H
#define CT_COMMON_LOG_H

#include "common/err.h"

enum ct_log_level {
    CT_LOG_ERROR,
    CT_LOG_WARNING,
    CT_LOG_INFO,
    CT_LOG_DEBUG,
};

struct ct_log {
    /* `line` is one line (control characters became '?'), borrowed for the call. */
    void (*emit)(void *data, enum ct_log_level level, const char *line);
    void *data;
    enum ct_log_level threshold; /* less important lines are not even formatted */
};

/* Longest line; longer ones are cut. */
#define CT_LOG_LINE_MAX 2048

void ct_log(const struct ct_log *log, enum ct_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* "error", "warning", "info", "debug". */
const char *ct_log_level_name(enum ct_log_level level);

/* Reads such a name or Python's (CRITICAL, ERROR, WARN, WARNING, INFO, DEBUG), in any case, as the
 * LOGLEVEL variable of torchrun users holds it. CT_EFORMAT when it is neither. */
CT_MUST_CHECK int ct_log_level_parse(const char *name, enum ct_log_level *out);

#endif
