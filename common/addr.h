/* SPDX-License-Identifier: Apache-2.0
 *
 * Network addresses as people write them.
 */
#ifndef CT_COMMON_ADDR_H
#define CT_COMMON_ADDR_H

#include "common/err.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* Longest DNS name is 253 characters; an IPv6 literal with a scope is shorter. */
#define CT_HOST_MAX 256
/* "[" + the longest IPv6 text (45) + "]:65535" + NUL, rounded up. */
#define CT_ADDR_TEXT_MAX 64
/* The same with a host name. */
#define CT_ADDR_JOIN_MAX (CT_HOST_MAX + sizeof("[]:65535"))

struct ct_endpoint {
    char host[CT_HOST_MAX]; /* without brackets; never empty */
    uint16_t port;
    bool has_port; /* the text named one; otherwise `port` is the default */
};

/* Reads host, host:port, [v6], [v6]:port, or a bare v6 literal, which cannot have a port. Refuses
 * blanks, control characters, and anything but a v6 literal in brackets. */
CT_MUST_CHECK int ct_endpoint_parse(const char *text, uint16_t default_port,
                                    struct ct_endpoint *out, struct ct_err *err);

/* "127.0.0.1:80", "[::1]:80"; "unknown" for another family. Always terminated. */
void ct_addr_format(const struct sockaddr *addr, char *out, size_t size);

/* The same for a name or a literal: "node7:80", "[::1]:80". */
void ct_addr_join(const char *host, uint16_t port, char *out, size_t size);

/* Port in host order, 0 for another family. */
uint16_t ct_addr_port(const struct sockaddr *addr);

/* Gives the first address of a literal or a name. The resolver may block. "localhost" is always
 * 127.0.0.1 and is not looked up, so that it always means the same listener. */
CT_MUST_CHECK int ct_addr_resolve(const char *host, uint16_t port, struct sockaddr_storage *out,
                                  socklen_t *out_len, struct ct_err *err);

/* Gives the address if `host` is a literal or "localhost", which need no resolver. */
bool ct_addr_literal(const char *host, uint16_t port, struct sockaddr_storage *out,
                     socklen_t *out_len);

/* As ct_addr_format(), without port and brackets; "" for another family. */
void ct_addr_host(const struct sockaddr *addr, char *out, size_t size);

/* Gives the IPv6 address, or the mapped form of an IPv4 address (::ffff:a.b.c.d). Else false. */
bool ct_addr_as_v6(const struct sockaddr *addr, struct in6_addr *out);

/* Is `host` the wildcard address (0.0.0.0, ::)? A server can listen there, but a client on another
 * machine cannot connect to it. */
bool ct_addr_is_any(const char *host);

/* True for ::1, for 127.0.0.0/8, and for the IPv6 form of the latter. */
bool ct_addr_is_loopback(const struct sockaddr *addr);

/* False in a network namespace whose loopback interface is down. No process there reaches
 * 127.0.0.1 or any other address of its own machine. */
bool ct_addr_loopback_up(void);

/* Gives, as text, the local address from which a connection to `host` would come. `host` sees the
 * same one unless a NAT lies between. Sends nothing. CT_ENOENT (no such name), CT_EIO (no route).
 */
CT_MUST_CHECK int ct_addr_towards(const char *host, char *out, size_t size, struct ct_err *err);

#endif
