/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads the NCCL back end when it is asked for: from $CTRUN_PLUGIN_DIR if it is there, from beside
 * the running program (a build folder), else from the plug-in folder. It is never unloaded: CUDA
 * does not survive that.
 */
#include "worker/comm.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
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

/* "DIR/ctworker-nccl.so"; false when it is not there or does not fit. */
static bool found_in(const char *dir, char *out, size_t cap)
{
    int len = snprintf(out, cap, "%s/%s", dir, COMM_NCCL_MODULE);
    return len > 0 && (size_t)len < cap && access(out, R_OK) == 0;
}

static bool beside_program(char *out, size_t cap)
{
    char self[CTW_PATH_MAX];
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
    return found_in(self, out, cap);
}

static int find_module(const struct comm_nccl_module **out, struct ct_err *err)
{
    char found[CTW_PATH_MAX];
    const char *path = CT_PLUGIN_DIR "/" COMM_NCCL_MODULE;
    const char *dir = secure_getenv("CTRUN_PLUGIN_DIR");
    if ((dir != NULL && dir[0] != '\0' && found_in(dir, found, sizeof(found))) ||
        beside_program(found, sizeof(found))) {
        path = found;
    }
    return comm_nccl_load(path, out, err);
}

int comm_nccl_open(const struct comm_setup *setup, struct ctw_comm **out, struct ct_err *err)
{
    const struct comm_nccl_module *module = NULL;
    int rc = find_module(&module, err);
    return rc != 0 ? rc : module->open(setup, out, err);
}

int comm_nccl_connect(int n, const int *devices, void **handles, struct ct_err *err)
{
    const struct comm_nccl_module *module = NULL;
    int rc = find_module(&module, err);
    return rc != 0 ? rc : module->connect(n, devices, handles, err);
}
