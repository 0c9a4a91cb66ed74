/* SPDX-License-Identifier: Apache-2.0
 *
 * Which user holds the other end of a TCP connection within this machine. The kernel answers that
 * through its socket diagnostics (sock_diag(7)). It needs no privilege and takes a microsecond.
 */
#ifndef CT_RENDEZVOUS_ADMISSION_PEER_USER_H
#define CT_RENDEZVOUS_ADMISSION_PEER_USER_H

#include "common/err.h"

#include <sys/socket.h>
#include <sys/types.h>

/* Gives *out, a descriptor for ct_peer_user_find(). `listener` is a listening TCP socket of this
 * process, about which the kernel is asked as a trial. CT_EIO: this kernel does not answer. */
CT_MUST_CHECK int ct_peer_user_open(int listener, int *out);

/* The user of the socket that is bound to `peer` and connected to `local`. CT_ENOENT: no process
 * holds it any more. CT_EIO: the kernel does not say. */
CT_MUST_CHECK int ct_peer_user_find(int fd, const struct sockaddr *peer,
                                    const struct sockaddr *local, uid_t *out);

#endif
