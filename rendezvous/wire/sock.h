/* SPDX-License-Identifier: Apache-2.0
 *
 * A TCP client socket. Every call blocks until it is done or its deadline (common/clock.h) has
 * passed. The descriptor itself is non-blocking; poll(2) does the waiting. There is never a
 * SIGPIPE.
 */
#ifndef CT_RENDEZVOUS_WIRE_SOCK_H
#define CT_RENDEZVOUS_WIRE_SOCK_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* Tries each address of `host` once. Gives a connected descriptor (TCP_NODELAY, keep-alive,
 * CLOEXEC) in *out. CT_ENOENT (name not known), CT_ECLOSED (nobody listens there now),
 * CT_ETIMEDOUT: trying again later may help. Resolving a name may take longer than the deadline.
 * The text names the address that was tried last where `host` is a name. */
CT_MUST_CHECK int ct_sock_connect(const char *host, uint16_t port, int64_t deadline_ns, int *out,
                                  struct ct_err *err);

/* Sends all of it; changes `iov`. CT_ECLOSED, CT_ETIMEDOUT, CT_EIO. */
CT_MUST_CHECK int ct_sock_send(int fd, struct iovec *iov, size_t count, int64_t deadline_ns,
                               struct ct_err *err);

/* Receives what is there, at least one byte and at most `len`; *got is 0 at the end of the stream.
 * CT_ECLOSED (reset), CT_ETIMEDOUT, CT_EIO. */
CT_MUST_CHECK int ct_sock_recv_some(int fd, void *out, size_t len, int64_t deadline_ns, size_t *got,
                                    struct ct_err *err);

/* Receives exactly `len` bytes. CT_ECLOSED, CT_ETIMEDOUT, CT_EIO. */
CT_MUST_CHECK int ct_sock_recv(int fd, void *out, size_t len, int64_t deadline_ns,
                               struct ct_err *err);

/* Is this an address of this machine? */
bool ct_sock_is_own_address(const struct sockaddr *addr);

#endif
