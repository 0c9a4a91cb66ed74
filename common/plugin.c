/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks into the folders that the header names, in that order. It loads nothing.
 */
#include "common/plugin.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Writes "dir/file" when that can be read. */
static bool found_in(const char *dir, const char *file, char path[PATH_MAX])
{
    int len = snprintf(path, PATH_MAX, "%s/%s", dir, file);
    return len > 0 && len < PATH_MAX && access(path, R_OK) == 0;
}

static bool found_beside_program(const char *file, char path[PATH_MAX])
{
    char self[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (len <= 0) {
        return false;
    }
    self[len] = '\0';
    char *slash = strrchr(self, '/');
    if (slash == NULL) {
        return false;
    }
    *slash = '\0';
    return found_in(self, file, path);
}

const char *ct_plugin_named_dir(void)
{
    const char *dir = secure_getenv("CTRUN_PLUGIN_DIR");
    return dir != NULL && dir[0] != '\0' ? dir : NULL;
}

int ct_plugin_find(const char *file, char path[PATH_MAX], struct ct_err *err)
{
    const char *dir = ct_plugin_named_dir();
    if (dir != NULL ? found_in(dir, file, path)
                    : found_beside_program(file, path) || found_in(CT_PLUGIN_DIR, file, path)) {
        return 0;
    }
    return ct_err_set(err, CT_EUNSUPPORTED, "no %s %s%s", file,
                      dir != NULL ? "in CTRUN_PLUGIN_DIR=" : "beside the program or in ",
                      dir != NULL ? dir : CT_PLUGIN_DIR);
}
