/* SPDX-License-Identifier: Apache-2.0
 *
 * Which process has a TCP port of this machine, as far as /proc lets us see.
 */
#ifndef CT_RENDEZVOUS_WIRE_PORT_HOLDER_H
#define CT_RENDEZVOUS_WIRE_PORT_HOLDER_H

#include <stddef.h>
#include <sys/socket.h>

/* Writes which process keeps others from listening at `at`, an IPv4 or IPv6 address: one that
 * listens on the same port, at the same address or at all. The text is "pid 123 (python3 -m
 * http.server 29500)", or empty when /proc does not tell (another user's process, another
 * container). It is always terminated, printable, and one line. */
void ct_port_holder(const struct sockaddr *at, char *out, size_t size);

#endif
