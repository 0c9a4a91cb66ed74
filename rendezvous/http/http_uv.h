/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP on connections that the caller has accepted: libmicrohttpd, without a thread, on the
 * caller's loop. http_fallback.c replaces it in a build without the library.
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
 * a byte of at most 18, control frames with 0x80 or more. So the first byte decides. The library
 * refuses what begins with an upper-case letter but is no HTTP. */
static inline bool ct_http_begins(unsigned char first)
{
    return first >= 'A' && first <= 'Z';
}

/* *out is NULL in a build without HTTP. `source` is copied. `request_ms` is the time from the end
 * of the last request, or from ct_http_add(), until the peer has read the answer. `log`, which may
 * be NULL, is borrowed. */
CT_MUST_CHECK int ct_http_open(uv_loop_t *loop, const struct ct_http_source *source,
                               int64_t request_ms, const struct ct_log *log, struct ct_http **out,
                               struct ct_err *err);

/* Takes the socket, of which nothing has been read yet, and closes it in the end. A peer that is
 * not admitted gets only /healthz, unless it sends a key of source.key. Peers that are not
 * `ours`, such as other users of this machine, get CT_HTTP_UNADMITTED connections together; one
 * more ends one that has asked for nothing that needs a right (http_unadmitted.h). On failure the
 * socket stays the caller's: CT_EBUSY (all connections are taken), or a code that says why HTTP,
 * which the first connection starts, could not be started. */
CT_MUST_CHECK int ct_http_add(struct ct_http *http, int fd, bool ours, bool admitted,
                              struct ct_err *err);

/* Takes a sample for the live page before its time. NULL is allowed. */
void ct_http_sample(struct ct_http *http);

/* Tells those who ask for /end how the job has ended: a JSON object. NULL is allowed. */
void ct_http_tell_end(struct ct_http *http, const char *json);

/* Is the answer to such a request still to be sent? NULL is allowed. */
bool ct_http_is_telling_end(const struct ct_http *http);

struct ct_http_stats {
    size_t connections;
    uint64_t requests; /* answered */
    uint64_t refused;  /* connections beyond a limit, or ended to make room for another one */
    uint64_t timeouts; /* connections that took too long */
    uint64_t denied;   /* requests of peers that are not admitted, or of other pages */
};

/* NULL gives zeros. */
void ct_http_stats(const struct ct_http *http, struct ct_http_stats *out);

/* Ends all connections of `http`, not NULL. Calls `cb` when handles and memory are gone. */
typedef void (*ct_http_close_fn)(void *data);
void ct_http_close(struct ct_http *http, ct_http_close_fn cb, void *data);

#endif
