/* SPDX-License-Identifier: Apache-2.0
 *
 * Who listens on a TCP port of this machine, as far as /proc lets us see.
 */
#ifndef CT_RENDEZVOUS_WIRE_PORT_HOLDER_H
#define CT_RENDEZVOUS_WIRE_PORT_HOLDER_H

#include <stddef.h>
#include <sys/socket.h>

/* Writes who listens on the port of `at`, an IPv4 or IPv6 address, so that nobody else can listen
 * at `at`: "pid 123 (python3 -m http.server 29500)", or an empty string when /proc does not tell
 * (another user's process, another container). Always terminated, printable, one line. */
void ct_port_holder(const struct sockaddr *at, char *out, size_t size);

#endif
