/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the client: one call is a request built field by field, sent, and its reply received.
 * Building may fail and leaves the connection as it was. Once a byte has gone out, any failure
 * leaves the stream at an unknown place: the connection is then marked dead.
 */
#ifndef CT_RENDEZVOUS_CLIENT_CALL_H
#define CT_RENDEZVOUS_CLIENT_CALL_H

#include "common/buf.h"
#include "common/err.h"
#include "rendezvous/proto.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_client {
    int fd;
    bool dead;
    uint16_t port;
    int64_t timeout_ms;
    struct ct_buf out; /* the request being built */
    char host[];
};

/* ---- building: CT_ECLOSED on a dead connection, CT_ELIMIT, CT_ENOMEM ------------------------ */

CT_MUST_CHECK int ct_call_begin(struct ct_client *c, enum ct_op op, struct ct_err *err);
CT_MUST_CHECK int ct_call_begin_key(struct ct_client *c, enum ct_op op, const char *key,
                                    struct ct_err *err);
CT_MUST_CHECK int ct_call_begin_keys(struct ct_client *c, enum ct_op op, const char *const *keys,
                                     size_t count, struct ct_err *err);
CT_MUST_CHECK int ct_call_put_count(struct ct_client *c, size_t count, struct ct_err *err);
CT_MUST_CHECK int ct_call_put_key(struct ct_client *c, const char *key, struct ct_err *err);
CT_MUST_CHECK int ct_call_put_value(struct ct_client *c, const char *key, const void *value,
                                    size_t len, struct ct_err *err);

/* For a value that is sent from where it lies. */
CT_MUST_CHECK int ct_call_check_value(const char *key, size_t len, struct ct_err *err);

int ct_call_no_memory(struct ct_err *err);

/* ---- talking: any failure kills the connection ---------------------------------------------- */

/* When a call that starts now must be over. */
int64_t ct_call_deadline(const struct ct_client *c);

/* Marks the connection dead, names the store in `err`, returns `rc`. */
int ct_call_give_up(struct ct_client *c, int rc, struct ct_err *err);

/* Sends the request and behind it `value`, in one writev. */
CT_MUST_CHECK int ct_call_send(struct ct_client *c, const void *value, size_t len,
                               int64_t deadline_ns, struct ct_err *err);

CT_MUST_CHECK int ct_call_receive(struct ct_client *c, void *out, size_t len, int64_t deadline_ns,
                                  struct ct_err *err);

/* Sends the request and receives a reply of fixed size. */
CT_MUST_CHECK int ct_call_exchange(struct ct_client *c, void *reply, size_t len,
                                   struct ct_err *err);

/* Receives a value and appends it to `out`, which a failure leaves as it was. */
CT_MUST_CHECK int ct_call_receive_value(struct ct_client *c, struct ct_buf *out,
                                        int64_t deadline_ns, struct ct_err *err);

#endif
