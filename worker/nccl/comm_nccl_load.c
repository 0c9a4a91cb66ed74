/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads the NCCL module when it is first asked for. It is never unloaded, because CUDA cannot be.
 */
#include "worker/comm/comm.h"

#include "common/plugin.h"

#include <dlfcn.h>

int comm_nccl_load(const char *path, const struct comm_nccl_module **out, struct ct_err *err)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        return ct_err_set(err, CT_EUNSUPPORTED, "cannot load the NCCL back end: %s", dlerror());
    }
    const struct comm_nccl_module *module = dlsym(handle, COMM_NCCL_ENTRY);
    if (module == NULL || module->version != COMM_NCCL_VERSION) {
        (void)dlclose(handle);
        return ct_err_set(err, CT_EUNSUPPORTED, "%s is not the NCCL back end of this version",
                          path);
    }
    *out = module;
    return 0;
}

static int find_module(const struct comm_nccl_module **out, struct ct_err *err)
{
    char path[PATH_MAX];
    int rc = ct_plugin_find(COMM_NCCL_MODULE, path, err);
    if (rc != 0) {
        return rc;
    }
    return comm_nccl_load(path, out, err);
}

int comm_nccl_open(const struct comm_setup *setup, struct ctw_comm **out, struct ct_err *err)
{
    const struct comm_nccl_module *module = NULL;
    int rc = find_module(&module, err);
    if (rc != 0) {
        return rc;
    }
    return module->open(setup, out, err);
}
