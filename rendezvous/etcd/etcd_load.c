/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads libcurl, of whichever TLS library this machine has it.
 */
#include "rendezvous/etcd/etcd_load.h"

#include <dlfcn.h>
#include <string.h>

/* Copies the bytes, because ISO C has no cast from an object pointer to a function. */
static int find_function(void *library, const char *name, void *function, struct ct_err *err)
{
    void *found = dlsym(library, name);
    if (found == NULL) {
        return ct_err_set(err, CT_EUNSUPPORTED, "libcurl has no %s; it is too old for etcd", name);
    }
    memcpy(function, &found, sizeof(found));
    return 0;
}

/* The library is never closed, because OpenSSL and GnuTLS cannot be unloaded. */
static void *open_library(void)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl-nss.so.4"};
    void *library = NULL;
    for (size_t i = 0; library == NULL && i < sizeof(names) / sizeof(names[0]); i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

int ct_etcd_load(struct ct_curl *out, struct ct_err *err)
{
    struct ct_curl curl;
    void *library = open_library();
    if (library == NULL) {
        return ct_err_set(
            err, CT_EUNSUPPORTED,
            "etcd needs libcurl.so.4, which is not here: install the package libcurl4 "
            "(Debian, Ubuntu) or libcurl (Fedora, Red Hat)");
    }
#define FIND(name)                                                     \
    if (find_function(library, "curl_" #name, &curl.name, err) != 0) { \
        return CT_EUNSUPPORTED;                                        \
    }
    CT_CURL_FUNCTIONS(FIND)
#undef FIND
    if (curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        return ct_err_set(err, CT_EUNSUPPORTED, "etcd: libcurl cannot be started");
    }
    *out = curl;
    return 0;
}
