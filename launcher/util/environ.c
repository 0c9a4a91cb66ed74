/* SPDX-License-Identifier: Apache-2.0
 *
 * The first of several entries with one name counts, as with getenv(3).
 */
#include "launcher/util/environ.h"

#include <stddef.h>
#include <string.h>

const char *ct_environ_get(char *const *env, const char *name)
{
    size_t len = strlen(name);
    for (; *env != NULL; env++) {
        if (strncmp(*env, name, len) == 0 && (*env)[len] == '=') {
            return *env + len + 1;
        }
    }
    return NULL;
}

enum ct_log_level ct_environ_log_level(char *const *env)
{
    const char *name = ct_environ_get(env, "LOGLEVEL");
    enum ct_log_level level = CT_LOG_WARNING;
    if (name != NULL && ct_log_level_parse(name, &level) != 0) {
        return CT_LOG_WARNING;
    }
    return level;
}
