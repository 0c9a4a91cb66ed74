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
/* The same for any host. */
#define CT_ADDR_JOIN_MAX (CT_HOST_MAX + sizeof("[]:65535"))

struct ct_endpoint {
    char host[CT_HOST_MAX]; /* without brackets; never empty */
    uint16_t port;
    bool has_port; /* the text named one; otherwise `port` is the default */
};

/* host, host:port, [v6], [v6]:port, or a bare v6 literal (which can carry no port). Blanks, control
 * characters and what is not a v6 literal where one must stand are refused. */
CT_MUST_CHECK int ct_endpoint_parse(const char *text, uint16_t default_port,
                                    struct ct_endpoint *out, struct ct_err *err);

/* "127.0.0.1:80", "[::1]:80"; "unknown" for another family. Always terminated. */
void ct_addr_format(const struct sockaddr *addr, char *out, size_t size);

/* The same of a name or literal: "node7:80", "[::1]:80". */
void ct_addr_join(const char *host, uint16_t port, char *out, size_t size);

/* Port in host order, 0 for another family. */
uint16_t ct_addr_port(const struct sockaddr *addr);

/* First address of a name or literal, numeric or through the resolver (which may block).
 * "localhost" is 127.0.0.1 without asking anybody, so that both names mean one listener. */
CT_MUST_CHECK int ct_addr_resolve(const char *host, uint16_t port, struct sockaddr_storage *out,
                                  socklen_t *out_len, struct ct_err *err);

/* Is `host` a literal, or "localhost"? Then it fills in the address, and nobody has to be asked. */
bool ct_addr_literal(const char *host, uint16_t port, struct sockaddr_storage *out,
                     socklen_t *out_len);

/* As ct_addr_format(), without port and brackets; "" for another family. */
void ct_addr_host(const struct sockaddr *addr, char *out, size_t size);

/* The address as IPv6 has it, IPv4 mapped (::ffff:a.b.c.d); false for another family. */
bool ct_addr_as_v6(const struct sockaddr *addr, struct in6_addr *out);

/* Is `host` the literal of no address in particular (0.0.0.0, ::)? One can listen there on all
 * addresses of the machine, but nobody elsewhere can go there. */
bool ct_addr_is_any(const char *host);

/* 127.0.0.0/8, also as IPv6 maps it, and ::1. */
bool ct_addr_is_loopback(const struct sockaddr *addr);

/* False in a network namespace where nobody has switched the loopback on: then nothing reaches
 * 127.0.0.1, and no process any address of its own machine. */
bool ct_addr_loopback_up(void);

/* Our own address on the way to `host`, as text: what that machine would see of us without a
 * translation in between. Sends nothing. CT_ENOENT (no such name), CT_EIO (no way there). */
CT_MUST_CHECK int ct_addr_towards(const char *host, char *out, size_t size, struct ct_err *err);

#endif
