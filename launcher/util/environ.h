/* SPDX-License-Identifier: Apache-2.0
 *
 * Look-ups in an environment block that is handed in, so that pure code needs no getenv(3).
 */
#ifndef CT_LAUNCHER_UTIL_ENVIRON_H
#define CT_LAUNCHER_UTIL_ENVIRON_H

#include "common/log.h"

/* The value of `name` in a NULL-terminated array of "NAME=value", borrowed; NULL when absent. */
const char *ct_environ_get(char *const *env, const char *name);

/* The level that LOGLEVEL names, a variable of torchrun; CT_LOG_WARNING if it names none. */
enum ct_log_level ct_environ_log_level(char *const *env);

#endif
