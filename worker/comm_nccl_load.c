/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads the NCCL back end when it is asked for: beside the running program (a build folder), else
 * from the plug-in folder. It is never unloaded: CUDA does not survive that.
 */
#include "worker/comm.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

/* "<folder of the running program>/ctworker-nccl.so"; false when it does not fit. */
static bool beside_program(char *out, size_t cap)
{
    ssize_t len = readlink("/proc/self/exe", out, cap - 1);
    if (len <= 0) {
        return false;
    }
    out[len] = '\0';
    char *slash = strrchr(out, '/');
    if (slash == NULL || (size_t)(slash + 1 - out) + sizeof(COMM_NCCL_MODULE) > cap) {
        return false;
    }
    memcpy(slash + 1, COMM_NCCL_MODULE, sizeof(COMM_NCCL_MODULE));
    return true;
}

int comm_nccl_open(const struct comm_setup *setup, struct ctw_comm **out, struct ct_err *err)
{
    char beside[CTW_PATH_MAX];
    const char *path = CT_PLUGIN_DIR "/" COMM_NCCL_MODULE;
    if (beside_program(beside, sizeof(beside)) && access(beside, R_OK) == 0) {
        path = beside;
    }
    const struct comm_nccl_module *module = NULL;
    int rc = comm_nccl_load(path, &module, err);
    return rc != 0 ? rc : module->open(setup, out, err);
}
