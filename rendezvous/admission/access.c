/* SPDX-License-Identifier: Apache-2.0
 *
 * A list of networks, and the comparison of a peer with them. All addresses are compared as IPv6.
 */
#include "rendezvous/admission/access.h"

#include "common/addr.h"
#include "common/num.h"

#include <arpa/inet.h>
#include <string.h>

/* Bits of the prefix that maps IPv4 into IPv6 (RFC 4291, 2.5.5.2). */
#define MAPPED_BITS 96

static void keep_bits(struct in6_addr *addr, unsigned bits)
{
    for (unsigned i = 0; i < sizeof(addr->s6_addr); i++) {
        unsigned left = bits > 8 * i ? bits - 8 * i : 0;
        if (left < 8) {
            addr->s6_addr[i] &= (uint8_t)(0xff00u >> left);
        }
    }
}

static bool same(const struct in6_addr *a, const struct in6_addr *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

static bool contains(const struct ct_network *network, struct in6_addr addr)
{
    keep_bits(&addr, network->bits);
    return same(&addr, &network->address);
}

/* Returns how many bits the address has, 32 or 128, or 0 if the text is not an address. */
static int read_address(const char *text, size_t len, struct in6_addr *out)
{
    char literal[INET6_ADDRSTRLEN];
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    if (len >= sizeof(literal)) {
        return 0;
    }
    memcpy(literal, text, len);
    literal[len] = '\0';
    if (inet_pton(AF_INET, literal, &v4.sin_addr) == 1) {
        (void)ct_addr_as_v6((const struct sockaddr *)&v4, out);
        return 32;
    }
    return inet_pton(AF_INET6, literal, out) == 1 ? 128 : 0;
}

int ct_access_allow(struct ct_access *access, const char *text, struct ct_err *err)
{
    struct ct_network network = {0};
    size_t len = strcspn(text, "/");
    int max = read_address(text, len, &network.address);
    if (max == 0) {
        return ct_err_set(err, CT_EFORMAT,
                          "'%s' is not a network such as 10.0.0.0/8 or 2001:db8::/32", text);
    }
    int bits = max;
    if (text[len] == '/' && ct_parse_int(text + len + 1, 0, max, &bits) != 0) {
        return ct_err_set(err, CT_EFORMAT, "'%s': the prefix must be a number from 0 to %d", text,
                          max);
    }
    if (access->count == CT_MAX_ALLOWED) {
        return ct_err_set(err, CT_ELIMIT, "more than %d networks", CT_MAX_ALLOWED);
    }
    network.bits = (uint8_t)(max == 32 ? MAPPED_BITS + bits : bits);
    keep_bits(&network.address, network.bits);
    access->allowed[access->count++] = network;
    return 0;
}

bool ct_access_is_here(const struct sockaddr *peer, const struct sockaddr *local)
{
    struct in6_addr addr, own;
    if (!ct_addr_as_v6(peer, &addr)) {
        return false;
    }
    /* 127.0.0.0/8 in its mapped form. */
    const struct ct_network loopback = {
        .address = {.s6_addr = {[10] = 0xff, [11] = 0xff, [12] = 127}},
        .bits = MAPPED_BITS + 8,
    };
    return contains(&loopback, addr) || same(&addr, &in6addr_loopback) ||
           (ct_addr_as_v6(local, &own) && same(&addr, &own));
}

bool ct_access_admits(const struct ct_access *access, const struct sockaddr *peer,
                      const struct sockaddr *local)
{
    struct in6_addr addr;
    if (access->open || ct_access_is_here(peer, local)) {
        return true;
    }
    if (!ct_addr_as_v6(peer, &addr)) {
        return false;
    }
    for (size_t i = 0; i < access->count; i++) {
        if (contains(&access->allowed[i], addr)) {
            return true;
        }
    }
    return false;
}
