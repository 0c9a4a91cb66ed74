/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads the CUDA plug-in when a CUDA device is asked for. It is looked for in $CTRUN_PLUGIN_DIR
 * when that is set (tests and relocated installations), else beside the running program (the build
 * folder), else in the folder that the build installs it to. Once loaded it stays: the CUDA runtime
 * has threads and exit handlers that do not survive dlclose().
 */
#include "kernels/device_cuda.h"

#include "kernels/cuda/plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The driver's control node is there whenever a GPU can be used. */
#define DRIVER_NODE "/dev/nvidiactl"

/* Writes "dir/ctrun-cuda.so" when that file can be read. */
static bool found_in(const char *dir, char path[PATH_MAX])
{
    int len = snprintf(path, PATH_MAX, "%s/%s", dir, CT_CUDA_PLUGIN_FILE);
    return len > 0 && len < PATH_MAX && access(path, R_OK) == 0;
}

static bool found_beside_program(char path[PATH_MAX])
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
    return found_in(self, path);
}

static int find_plugin(char path[PATH_MAX], struct ct_err *err)
{
    const char *dir = secure_getenv("CTRUN_PLUGIN_DIR");
    if (dir != NULL && dir[0] != '\0') {
        if (found_in(dir, path)) {
            return 0;
        }
        return ct_err_set(err, CT_EUNSUPPORTED, "no %s in CTRUN_PLUGIN_DIR=%s", CT_CUDA_PLUGIN_FILE,
                          dir);
    }
    if (found_beside_program(path) || found_in(CT_PLUGIN_DIR, path)) {
        return 0;
    }
    return ct_err_set(err, CT_EUNSUPPORTED, "no %s beside the program or in %s",
                      CT_CUDA_PLUGIN_FILE, CT_PLUGIN_DIR);
}

static int load(const struct ct_cuda_plugin **out, struct ct_err *err)
{
    char path[PATH_MAX];
    int rc = find_plugin(path, err);
    if (rc != 0) {
        return rc;
    }
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (module == NULL) {
        return ct_err_set(err, CT_EUNSUPPORTED, "cannot load %s: %s", path, dlerror());
    }
    const struct ct_cuda_plugin *plugin = dlsym(module, CT_CUDA_PLUGIN_SYMBOL);
    if (plugin == NULL) {
        return ct_err_set(err, CT_EUNSUPPORTED, "%s is not a plug-in of ctrun", path);
    }
    if (strcmp(plugin->version, CT_VERSION) != 0 ||
        plugin->ops_size != sizeof(struct ct_device_ops)) {
        return ct_err_set(err, CT_EUNSUPPORTED, "%s is of version %s, this program of %s", path,
                          plugin->version, CT_VERSION);
    }
    *out = plugin;
    return 0;
}

int ct_cuda_open(int index, struct ct_device **out, struct ct_err *err)
{
    const struct ct_cuda_plugin *plugin;
    int rc = load(&plugin, err);
    if (rc != 0) {
        (void)ct_err_wrap(err, "cannot open CUDA device %d", index);
        return rc;
    }
    return plugin->open(index, out, err);
}

int ct_cuda_count(void)
{
    const struct ct_cuda_plugin *plugin;
    int count = 0;
    /* Who names a folder wants that plug-in to be asked. */
    bool named = secure_getenv("CTRUN_PLUGIN_DIR") != NULL;
    if ((!named && access(DRIVER_NODE, F_OK) != 0) || load(&plugin, NULL) != 0 ||
        plugin->count(&count, NULL) != 0) {
        return 0;
    }
    return count;
}
