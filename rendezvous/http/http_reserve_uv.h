/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP without a library: answers /healthz, and any other page with the reason why it cannot be
 * shown. For connections that libmicrohttpd cannot take, because it is missing or slow clients hold
 * all of its connections. So a probe always learns whether the store serves.
 */
#ifndef CT_RENDEZVOUS_HTTP_HTTP_RESERVE_UV_H
#define CT_RENDEZVOUS_HTTP_HTTP_RESERVE_UV_H

#include "common/err.h"

#include <uv.h>

struct ct_http_reserve;

/* Gives *out. CT_ENOMEM. */
CT_MUST_CHECK int ct_http_reserve_open(uv_loop_t *loop, struct ct_http_reserve **out,
                                       struct ct_err *err);

/* Takes the socket, of which nothing has been read yet. All pages but /healthz are answered with
 * `code` and the words, which are copied. One connection beyond CT_HTTP_RESERVE ends the oldest
 * that has not asked yet. */
void ct_http_reserve_add(struct ct_http_reserve *reserve, int fd, unsigned code, const char *why);

/* Ends all connections. `cb` is called when the last handle is closed and the memory freed. */
void ct_http_reserve_close(struct ct_http_reserve *reserve, void (*cb)(void *data), void *data);

#endif
