/* SPDX-License-Identifier: Apache-2.0
 *
 * Formats a line into a buffer of fixed size, cleans it for a terminal, and passes it on.
 */
#include "common/log.h"

#include "common/text.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <strings.h>

void ct_log(const struct ct_log *log, enum ct_log_level level, const char *fmt, ...)
{
    if (log == NULL || level > log->threshold) {
        return;
    }
    char line[CT_LOG_LINE_MAX];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    ct_text_clean(line);
    log->emit(log->data, level, line);
}

const char *ct_log_level_name(enum ct_log_level level)
{
    switch (level) {
    case CT_LOG_ERROR:
        return "error";
    case CT_LOG_WARNING:
        return "warning";
    case CT_LOG_INFO:
        return "info";
    case CT_LOG_DEBUG:
        return "debug";
    }
    return "unknown";
}

int ct_log_level_parse(const char *name, enum ct_log_level *out)
{
    static const struct {
        const char *name;
        enum ct_log_level level;
    } names[] = {
        {"critical", CT_LOG_ERROR},  {"error", CT_LOG_ERROR}, {"warn", CT_LOG_WARNING},
        {"warning", CT_LOG_WARNING}, {"info", CT_LOG_INFO},   {"debug", CT_LOG_DEBUG},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcasecmp(name, names[i].name) == 0) {
            *out = names[i].level;
            return 0;
        }
    }
    return CT_EFORMAT;
}
