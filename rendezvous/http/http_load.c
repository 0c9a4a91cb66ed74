/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads libmicrohttpd when HTTP is wanted, so that programs start without it and its libraries.
 */
#include "rendezvous/http/http_load.h"

#include <dlfcn.h>
#include <string.h>

/* All versions of libmicrohttpd from 0.9.50 on have this name, 1.0 too. */
#define LIBRARY "libmicrohttpd.so.12"

/* Copies the bytes, because ISO C has no cast from an object pointer to a function. */
static int find(void *library, const char *name, void *function, struct ct_err *err)
{
    void *found = dlsym(library, name);
    if (found == NULL) {
        return ct_err_set(err, CT_EUNSUPPORTED, "%s has no %s", LIBRARY, name);
    }
    memcpy(function, &found, sizeof(found));
    return 0;
}

int ct_mhd_load(struct ct_mhd *out, struct ct_err *err)
{
    struct ct_mhd mhd;
    /* The library is never closed, because GnuTLS cannot be unloaded. */
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return ct_err_set(err, CT_EUNSUPPORTED, "cannot load %s: %s", LIBRARY, dlerror());
    }
#define FIND(name)                                          \
    if (find(library, "MHD_" #name, &mhd.name, err) != 0) { \
        return CT_EUNSUPPORTED;                             \
    }
    CT_MHD_FUNCTIONS(FIND)
#undef FIND
    *out = mhd;
    return 0;
}
