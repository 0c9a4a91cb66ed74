/* SPDX-License-Identifier: Apache-2.0
 *
 * libcurl, loaded when a client of etcd is opened. It needs thirty libraries. If it were linked,
 * every ctrun would load them, and few jobs use etcd.
 */
#ifndef CT_RENDEZVOUS_ETCD_ETCD_LOAD_H
#define CT_RENDEZVOUS_ETCD_ETCD_LOAD_H

#include "common/err.h"

#include <curl/curl.h>

#define CT_CURL_FUNCTIONS(X) \
    X(global_init)           \
    X(easy_init)             \
    X(easy_setopt)           \
    X(easy_getinfo)          \
    X(easy_reset)            \
    X(easy_cleanup)          \
    X(easy_strerror)         \
    X(slist_append)          \
    X(slist_free_all)        \
    X(multi_init)            \
    X(multi_add_handle)      \
    X(multi_remove_handle)   \
    X(multi_perform)         \
    X(multi_wait)            \
    X(multi_info_read)       \
    X(multi_cleanup)

/* `easy_init` is curl_easy_init(), and so on. */
struct ct_curl {
#define CT_CURL_MEMBER(name) __typeof__(curl_##name) *name;
    CT_CURL_FUNCTIONS(CT_CURL_MEMBER)
#undef CT_CURL_MEMBER
};

/* May be called again, by one thread at a time; the library stays loaded. CT_EUNSUPPORTED, which
 * says what to install, leaves *out unchanged. */
CT_MUST_CHECK int ct_etcd_load(struct ct_curl *out, struct ct_err *err);

#endif
