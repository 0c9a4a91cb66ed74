/* SPDX-License-Identifier: Apache-2.0
 *
 * libmicrohttpd, loaded when the first HTTP connection comes. It needs GnuTLS, and ten libraries in
 * all. If they were linked, ctrun would take twice as long to start, and most jobs never get an
 * HTTP request.
 */
#ifndef CT_RENDEZVOUS_HTTP_HTTP_LOAD_H
#define CT_RENDEZVOUS_HTTP_HTTP_LOAD_H

#include "common/err.h"

#include <microhttpd.h>

#define CT_MHD_FUNCTIONS(X)                               \
    X(add_connection)                                     \
    X(add_response_header)                                \
    X(create_response_from_buffer_with_free_callback_cls) \
    X(create_response_from_callback)                      \
    X(destroy_response)                                   \
    X(get_connection_info)                                \
    X(get_connection_values)                              \
    X(get_daemon_info)                                    \
    X(get_timeout)                                        \
    X(lookup_connection_value)                            \
    X(queue_response)                                     \
    X(resume_connection)                                  \
    X(run)                                                \
    X(start_daemon)                                       \
    X(stop_daemon)                                        \
    X(suspend_connection)

/* `run` is MHD_run(), and so on. */
struct ct_mhd {
#define CT_MHD_MEMBER(name) __typeof__(MHD_##name) *name;
    CT_MHD_FUNCTIONS(CT_MHD_MEMBER)
#undef CT_MHD_MEMBER
};

/* May be called again; the library stays loaded. CT_EUNSUPPORTED leaves *out unchanged. */
CT_MUST_CHECK int ct_mhd_load(struct ct_mhd *out, struct ct_err *err);

#endif
