/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports the state of this process to a service manager, by the protocol of sd_notify(3).
 */
#ifndef CT_RENDEZVOUS_WIRE_NOTIFY_H
#define CT_RENDEZVOUS_WIRE_NOTIFY_H

#include "common/err.h"

/* Sends `state`, such as "READY=1", to the datagram socket `path`: $NOTIFY_SOCKET, where a leading
 * '@' stands for an abstract address. If `path` is NULL or empty there is no service manager, and
 * the call succeeds. */
CT_MUST_CHECK int ct_notify(const char *path, const char *state, struct ct_err *err);

#endif
