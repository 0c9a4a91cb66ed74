/* SPDX-License-Identifier: Apache-2.0
 *
 * Listening sockets: exactly the addresses that were asked for, all on one port.
 */
#ifndef CT_RENDEZVOUS_WIRE_LISTEN_H
#define CT_RENDEZVOUS_WIRE_LISTEN_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

/* Addresses of one server. A machine has a handful of interfaces. */
#define CT_MAX_LISTENERS 16

struct ct_listeners {
    int fds[CT_MAX_LISTENERS];
    size_t count;
    uint16_t port;
};

/* A host is a literal, or a name, of which the first address is used. "*" is every address of the
 * machine, IPv6 and IPv4; "::" is every IPv6 address alone. A host that is given twice is bound
 * once. With port 0 the kernel chooses a port that is free on all of them. CT_EBUSY names the
 * process that holds the port where /proc tells (pid and command line). On failure nothing is left
 * open. */
CT_MUST_CHECK int ct_listen(const char *const *hosts, size_t count, uint16_t port,
                            struct ct_listeners *out, struct ct_err *err);

/* Closes the first `count` of `fds`. Repeated calls are allowed. */
void ct_listeners_fini(struct ct_listeners *listeners);

#endif
