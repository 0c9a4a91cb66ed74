/* SPDX-License-Identifier: Apache-2.0
 *
 * An HTTP client for one request within a deadline, and its reader of replies alone. The peer is
 * not trusted, so every length is bounded.
 */
#ifndef CT_RENDEZVOUS_WIRE_HTTP_CLIENT_H
#define CT_RENDEZVOUS_WIRE_HTTP_CLIENT_H

#include "common/addr.h"
#include "common/buf.h"
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a reply. The status of 4096 workers is some 0.6 MB. */
#define CT_HTTP_REPLY_MAX ((size_t)8 << 20)
/* Bytes of its head; ours has some 200. */
#define CT_HTTP_REPLY_HEAD_MAX ((size_t)16384)

struct ct_http_reply {
    int code;
    size_t body; /* where the body begins */
    size_t len;  /* of the body */
    /* Where the value of the first WWW-Authenticate is, and its length; 0 = there is none. */
    size_t challenge, challenge_len;
};

/* Outcome of ct_http_reply_parse(): the reply is not complete yet. */
#define CT_HTTP_E_MORE 1

/* Reads a reply of which `len` bytes have come; `ended` = no more will come. CT_EPROTO: it is not
 * HTTP, or its body comes in chunks; CT_ELIMIT: too long; CT_ECLOSED: it ended in the middle. */
CT_MUST_CHECK int ct_http_reply_parse(const char *bytes, size_t len, bool ended,
                                      struct ct_http_reply *out, struct ct_err *err);

struct ct_http_request {
    const char *method, *path;
    const char *authorization; /* the value of this header; NULL = none */
    /* Makes another value from the challenge of a reply with code 401, with which the request is
     * sent once more, on the same connection. A failure becomes that of ct_http_ask(). NULL = a 401
     * is a reply like any other. */
    int (*on_challenge)(void *data, const char *challenge, size_t len, const char **authorization,
                        struct ct_err *err);
    void *data;
};

/* Sends a request without a body and puts the whole reply into `bytes`, which must be empty. *out
 * says where its body is. Errors also as in rendezvous/wire/sock.h. */
CT_MUST_CHECK int ct_http_ask(const struct ct_endpoint *where,
                              const struct ct_http_request *request, int64_t deadline_ns,
                              struct ct_buf *bytes, struct ct_http_reply *out, struct ct_err *err);

#endif
