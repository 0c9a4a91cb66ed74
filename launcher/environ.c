/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/environ.h"

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
