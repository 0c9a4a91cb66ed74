/* SPDX-License-Identifier: Apache-2.0
 *
 * A blocking client of the store (PyTorch's TCPStore protocol, current dialect), with the
 * operations that workers need. Every call has a deadline.
 *
 * Keys and values are byte strings. This client sends user keys as PyTorch's does, with '/' in
 * front, so a key set here is the key a PyTorch program sees.
 *
 * One connection, one thread at a time. After CT_ECLOSED, CT_EPROTO or CT_EIO the connection is
 * dead: every later call fails with CT_ECLOSED. After CT_ETIMEDOUT of a wait it is still usable,
 * unless the store did not answer the cancellation either. After CT_ETIMEDOUT of any other call it
 * is dead.
 */
#ifndef CT_RENDEZVOUS_CLIENT_CLIENT_H
#define CT_RENDEZVOUS_CLIENT_CLIENT_H

#include "common/buf.h"
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_client;

/* Connects, validates and pings. Until the deadline it tries refused connections again, with
 * growing pauses. `timeout_ms` is also the limit of every later call that has no limit of its own;
 * negative = no limit. */
CT_MUST_CHECK int ct_client_open(const char *host, uint16_t port, int64_t timeout_ms,
                                 struct ct_client **out, struct ct_err *err);

/* NULL is allowed. */
void ct_client_free(struct ct_client *client);

/* For poll(2) and for tests; owned by the client. */
int ct_client_fd(const struct ct_client *client);

/* Keys are NUL-terminated. CT_ELIMIT, before anything is sent: the key or value is too long. */

CT_MUST_CHECK int ct_client_set(struct ct_client *client, const char *key, const void *value,
                                size_t len, struct ct_err *err);

/* Waits for the key and appends its value. CT_ETIMEDOUT names the key; the wait ends. Time in which
 * this process did not run, as when a scheduler has suspended the job, does not count. */
CT_MUST_CHECK int ct_client_get(struct ct_client *client, const char *key, int64_t timeout_ms,
                                struct ct_buf *out, struct ct_err *err);

/* Gives *there: is the key in the store now? */
CT_MUST_CHECK int ct_client_check(struct ct_client *client, const char *key, bool *there,
                                  struct ct_err *err);

CT_MUST_CHECK int ct_client_add(struct ct_client *client, const char *key, int64_t delta,
                                int64_t *out, struct ct_err *err);

/* Gives *there: was the key in the store? It no longer is. */
CT_MUST_CHECK int ct_client_delete(struct ct_client *client, const char *key, bool *there,
                                   struct ct_err *err);

#endif
