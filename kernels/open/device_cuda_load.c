/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads the CUDA plug-in when a CUDA device is asked for. Once loaded it stays: the CUDA runtime
 * has threads and exit handlers that do not survive dlclose().
 */
#include "kernels/device/device_cuda.h"

#include "common/plugin.h"
#include "kernels/cuda/cuda_plugin.h"

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

/* The driver's control node is there whenever a GPU can be used. */
#define DRIVER_NODE "/dev/nvidiactl"

static int load(const struct ct_cuda_plugin **out, struct ct_err *err)
{
    char path[PATH_MAX];
    int rc = ct_plugin_find(CT_CUDA_PLUGIN_FILE, path, err);
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

/* Who names a folder wants that plug-in to be asked. */
bool ct_cuda_possible(void)
{
    return ct_plugin_named_dir() != NULL || access(DRIVER_NODE, F_OK) == 0;
}

int ct_cuda_count(void)
{
    const struct ct_cuda_plugin *plugin;
    int count = 0;
    if (!ct_cuda_possible() || load(&plugin, NULL) != 0 || plugin->count(&count, NULL) != 0) {
        return 0;
    }
    return count;
}
