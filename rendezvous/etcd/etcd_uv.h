/* SPDX-License-Identifier: Apache-2.0
 *
 * A client of etcd on an event loop. Requests are done one after the other, in the order of the
 * calls, by a thread of the client.
 *
 * A request that fails may have been carried out all the same, since its answer can be what was
 * lost. One that was sent more than once (`attempts`) may have been carried out twice: the compares
 * of a transaction then fail because of its own first attempt. The caller puts values by which it
 * knows its own, and reads them in the branch `otherwise`.
 */
#ifndef CT_RENDEZVOUS_ETCD_ETCD_UV_H
#define CT_RENDEZVOUS_ETCD_ETCD_UV_H

#include "rendezvous/etcd/etcd_message.h"
#include "rendezvous/etcd/etcd_settings.h"

#include <uv.h>

/* Requests without an answer. The arbiter of a job has two or three; each may be 350 KB long. */
#define CT_ETCD_QUEUE_MAX 16

/* All are in milliseconds and more than 0. */
struct ct_etcd_options {
    const struct ct_etcd_settings *settings; /* copied */
    int64_t connect_ms; /* for a connection with its TLS; as long may a name take before it */
    int64_t attempt_ms; /* for one attempt at one endpoint, with the connection */
    int64_t request_ms; /* for a request in all, from the call on */
};

struct ct_etcd;

/* The reply and all that it points to are borrowed for the call. In it, any function below may be
 * called. rc of the reply:
 *   CT_ETIMEDOUT    the request's time is over
 *   CT_EIO          no endpoint can be reached, or none can answer now (they have no leader), or
 *                   each has another reason
 *   CT_EPROTO       what answers is no etcd
 *   CT_ELIMIT       it sends too much, or a value is longer than CT_ETCD_VALUE_MAX
 *   CT_EPERM        wrong user or password, none although etcd wants one, or one who may not do
 *                   it; or a certificate of etcd that is not accepted
 *   CT_ENOENT       the lease has ended
 *   CT_EINVAL       etcd refuses the request, or a file of TLS cannot be used
 *   CT_ENOMEM */
typedef void (*ct_etcd_done)(void *data, const struct ct_etcd_reply *reply);

/* Loads libcurl, which takes some milliseconds, and starts the thread. Nothing is sent yet.
 * CT_EUNSUPPORTED: this build has no client of etcd, or libcurl is missing, and the text says which
 * package has it. CT_EINVAL, CT_ENOMEM, CT_EIO. */
CT_MUST_CHECK int ct_etcd_open(uv_loop_t *loop, const struct ct_etcd_options *options,
                               struct ct_etcd **out, struct ct_err *err);

/* Each copies what it is given. `done` is called later, once, unless the client is closed before.
 * CT_EBUSY: the queue is full. CT_EINVAL names the wrong part. CT_ENOMEM. */
CT_MUST_CHECK int ct_etcd_txn(struct ct_etcd *etcd, const struct ct_etcd_txn *txn,
                              ct_etcd_done done, void *data, struct ct_err *err);
/* The reply has the lease, and the seconds that etcd gives it, counted from `sent_ns` at the
 * earliest. Some lease may be left over after a failure; it ends by itself. */
CT_MUST_CHECK int ct_etcd_grant(struct ct_etcd *etcd, int64_t ttl_s, ct_etcd_done done, void *data,
                                struct ct_err *err);
CT_MUST_CHECK int ct_etcd_keep_alive(struct ct_etcd *etcd, int64_t lease, ct_etcd_done done,
                                     void *data, struct ct_err *err);

/* Ends a running request at once and forgets those that wait; no `done` is called any more. The
 * loop must go on until the thread has ended and all is freed. NULL is allowed. */
void ct_etcd_close(struct ct_etcd *etcd);

#endif
