/* SPDX-License-Identifier: Apache-2.0
 *
 * Which addresses may use the store. The store's protocol cannot prove an identity, so the address
 * decides. Processes of this machine are always admitted, and so are networks that were named.
 * Pure: addresses in, a decision out.
 *
 * IPv4 addresses are held as IPv6 maps them (::ffff:a.b.c.d), so that a rule for 10.0.0.0/8 holds
 * for a peer of an IPv6 listener as well.
 */
#ifndef CT_RENDEZVOUS_ADMISSION_ACCESS_H
#define CT_RENDEZVOUS_ADMISSION_ACCESS_H

#include "common/err.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* Networks that can be named; a job has a handful. Not tuned. */
#define CT_MAX_ALLOWED 64

struct ct_network {
    struct in6_addr address; /* bits beyond `bits` are zero */
    uint8_t bits;            /* 0 to 128 */
};

/* Zeroed memory admits this machine alone. */
struct ct_access {
    bool open; /* everyone may */
    size_t count;
    struct ct_network allowed[CT_MAX_ALLOWED];
};

/* Adds "10.0.0.0/8", "2001:db8::/32", or an address alone. Bits behind the prefix are ignored.
 * CT_EFORMAT and CT_ELIMIT say what is wrong and add nothing. */
CT_MUST_CHECK int ct_access_allow(struct ct_access *access, const char *text, struct ct_err *err);

/* May `peer` (getpeername) use the store on a connection to `local` (getsockname)? Peers on the
 * loopback, and peers whose address equals the one they connect to, are on this machine: the kernel
 * drops packets from outside with such a source. Families other than IPv4 and IPv6 are not
 * admitted.
 */
bool ct_access_admits(const struct ct_access *access, const struct sockaddr *peer,
                      const struct sockaddr *local);

/* Is `peer` on this machine, as above? */
bool ct_access_is_here(const struct sockaddr *peer, const struct sockaddr *local);

#endif
