/* SPDX-License-Identifier: Apache-2.0
 *
 * Who listens on a TCP port of this machine, as far as /proc lets us see.
 */
#ifndef CT_RENDEZVOUS_WIRE_PORT_HOLDER_H
#define CT_RENDEZVOUS_WIRE_PORT_HOLDER_H

#include <stddef.h>
#include <stdint.h>

/* Writes "pid 123 (python3 -m http.server 29500)", or an empty string when /proc does not tell
 * (another user's process, another container). Always terminated, printable, one line. */
void ct_port_holder(uint16_t port, char *out, size_t size);

#endif
