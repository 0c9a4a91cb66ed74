/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP on connections that somebody else accepted: libmicrohttpd, without a thread, on the caller's
 * loop. http_fallback.c stands in where the library is missing.
 */
#ifndef CT_RENDEZVOUS_HTTP_HTTP_UV_H
#define CT_RENDEZVOUS_HTTP_HTTP_UV_H

#include "common/err.h"
#include "common/log.h"
#include "rendezvous/http/http_answer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct ct_http;

/* An HTTP request begins with its method in upper case. Requests of the store's protocol begin with
 * a byte of at most 18, control frames with 0x80 or more. So the first byte decides. The HTTP
 * library refuses what begins with a letter but is no HTTP. */
static inline bool ct_http_begins(unsigned char first)
{
    return first >= 'A' && first <= 'Z';
}

/* *out is NULL in a build without HTTP. `source` is copied; `request_ms` is how long a request may
 * take from the end of the last one (or from the hand-over) until its answer is taken. `log`, which
 * may be NULL, is borrowed. */
CT_MUST_CHECK int ct_http_open(uv_loop_t *loop, const struct ct_http_source *source,
                               int64_t request_ms, const struct ct_log *log, struct ct_http **out,
                               struct ct_err *err);

/* Takes the socket, of which nothing has been read yet, and closes it in the end. A peer that is
 * not admitted hears /healthz alone; those that are not `ours`, as other users of this machine are
 * not, get CT_HTTP_UNADMITTED connections together. On failure the socket stays the caller's:
 * CT_EBUSY (all connections are taken), or what keeps HTTP, which the first connection starts, from
 * starting. */
CT_MUST_CHECK int ct_http_add(struct ct_http *http, int fd, bool ours, bool admitted,
                              struct ct_err *err);

struct ct_http_stats {
    size_t connections;
    uint64_t requests; /* answered */
    uint64_t refused;  /* connections beyond the limit */
    uint64_t timeouts; /* connections that took too long */
    uint64_t denied;   /* requests of peers that are not admitted */
};

/* NULL gives zeros. */
void ct_http_stats(const struct ct_http *http, struct ct_http_stats *out);

/* Ends all connections; `cb` hears when the last handle is closed and the memory gone. Not NULL. */
typedef void (*ct_http_close_fn)(void *data);
void ct_http_close(struct ct_http *http, ct_http_close_fn cb, void *data);

#endif
