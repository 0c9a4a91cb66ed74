/* SPDX-License-Identifier: Apache-2.0
 *
 * One request to etcd after the other, by libcurl, until each is answered or its time is over. It
 * blocks, so etcd_uv.c has a thread for it. It uses no event loop.
 *
 * No proxy is used, whatever http_proxy says: members of etcd are in the cluster, and a lease must
 * not depend on a proxy. Redirects are not followed, and nothing but HTTP 1.1 is spoken.
 */
#ifndef CT_RENDEZVOUS_ETCD_ETCD_TRANSFER_H
#define CT_RENDEZVOUS_ETCD_ETCD_TRANSFER_H

#include "common/buf.h"
#include "rendezvous/etcd/etcd_message.h"
#include "rendezvous/etcd/etcd_settings.h"

#include <stdatomic.h>

struct ct_etcd_limits {
    int64_t connect_ms; /* for a connection with its TLS; as long may a name take before it */
    int64_t attempt_ms; /* for one attempt at one endpoint, with the connection */
    int64_t request_ms; /* for a request in all, with its time in the queue */
};

struct ct_etcd_request {
    enum ct_etcd_call call;
    struct ct_buf body;
    struct ct_etcd_shape shape; /* of a transaction */
    int64_t deadline_ns;
};

struct ct_etcd_transfer;

/* Copies the settings. Another thread that sets *closing and then makes `wake_fd` readable ends a
 * running request at once, and for ever; both are borrowed. CT_EUNSUPPORTED: libcurl is missing.
 * CT_ENOMEM. */
CT_MUST_CHECK int ct_etcd_transfer_open(const struct ct_etcd_settings *settings,
                                        const struct ct_etcd_limits *limits,
                                        const atomic_bool *closing, int wake_fd,
                                        struct ct_etcd_transfer **out, struct ct_err *err);

/* Tries each endpoint once, beginning with the one that answered last. *reply is written whole; the
 * caller calls ct_etcd_reply_fini(). Its rc is CT_EABORTED if the transfer is being closed. */
void ct_etcd_transfer_run(struct ct_etcd_transfer *transfer, const struct ct_etcd_request *request,
                          struct ct_etcd_reply *reply);

/* NULL is allowed. */
void ct_etcd_transfer_close(struct ct_etcd_transfer *transfer);

#endif
