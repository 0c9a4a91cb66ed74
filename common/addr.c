/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses, formats and resolves addresses. Only ct_addr_resolve() may block, in the resolver of
 * libc.
 */
#include "common/addr.h"

#include "common/num.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static int take_host(const char *text, size_t len, struct ct_endpoint *ep, const char *whole,
                     struct ct_err *err)
{
    if (len == 0) {
        return ct_err_set(err, CT_EFORMAT, "address '%s' has no host", whole);
    }
    if (len >= sizeof(ep->host)) {
        return ct_err_set(err, CT_ELIMIT, "host name is longer than %d characters",
                          CT_HOST_MAX - 1);
    }
    for (size_t i = 0; i < len; i++) {
        if (!isgraph((unsigned char)text[i])) {
            return ct_err_set(err, CT_EFORMAT,
                              "address '%s' has a blank or another character that no address has",
                              whole);
        }
    }
    memcpy(ep->host, text, len);
    ep->host[len] = '\0';
    return 0;
}

/* As take_host(), but only for an IPv6 literal, with or without "%interface". */
static int take_v6(const char *text, size_t len, struct ct_endpoint *ep, const char *whole,
                   struct ct_err *err)
{
    int rc = take_host(text, len, ep, whole, err);
    if (rc != 0) {
        return rc;
    }
    char bare[CT_HOST_MAX];
    size_t bare_len = strcspn(ep->host, "%");
    memcpy(bare, ep->host, bare_len);
    bare[bare_len] = '\0';
    struct in6_addr v6;
    if (inet_pton(AF_INET6, bare, &v6) != 1) {
        return ct_err_set(err, CT_EFORMAT, "address '%s': '%s' is not an IPv6 address", whole,
                          ep->host);
    }
    return 0;
}

static int take_port(const char *text, struct ct_endpoint *ep, const char *whole,
                     struct ct_err *err)
{
    int port;
    if (ct_parse_int(text, 0, 65535, &port) != 0) {
        return ct_err_set(err, CT_EFORMAT,
                          "address '%s': port '%s' is not a number from 0 to 65535", whole, text);
    }
    ep->port = (uint16_t)port;
    ep->has_port = true;
    return 0;
}

int ct_endpoint_parse(const char *text, uint16_t default_port, struct ct_endpoint *out,
                      struct ct_err *err)
{
    struct ct_endpoint ep = {.port = default_port};
    const char *port = NULL;
    int rc;
    /* A URL is what other programs take, and its parts would be called a bad port or a bad IPv6
     * address. */
    const char *scheme_end = strstr(text, "://");
    if (scheme_end != NULL) {
        return ct_err_set(err, CT_EFORMAT, "address '%s' is a URL: leave out '%.*s://'", text,
                          (int)(scheme_end - text), text);
    }
    if (text[0] == '[') {
        const char *close = strchr(text, ']');
        if (close == NULL || (close[1] != '\0' && close[1] != ':')) {
            return ct_err_set(err, CT_EFORMAT, "address '%s' is not of the form [IPV6]:PORT", text);
        }
        rc = take_v6(text + 1, (size_t)(close - text - 1), &ep, text, err);
        port = close[1] == ':' ? close + 2 : NULL;
    } else {
        const char *colon = strchr(text, ':');
        /* Two colons without brackets are a bare IPv6 literal. */
        bool bare_v6 = colon != NULL && strchr(colon + 1, ':') != NULL;
        size_t len = colon != NULL && !bare_v6 ? (size_t)(colon - text) : strlen(text);
        rc = bare_v6 ? take_v6(text, len, &ep, text, err) : take_host(text, len, &ep, text, err);
        port = colon != NULL && !bare_v6 ? colon + 1 : NULL;
    }
    if (rc != 0) {
        return rc;
    }
    if (port != NULL) {
        rc = take_port(port, &ep, text, err);
        if (rc != 0) {
            return rc;
        }
    }
    *out = ep;
    return 0;
}

uint16_t ct_addr_port(const struct sockaddr *addr)
{
    if (addr->sa_family == AF_INET) {
        return ntohs(((const struct sockaddr_in *)addr)->sin_port);
    }
    if (addr->sa_family == AF_INET6) {
        return ntohs(((const struct sockaddr_in6 *)addr)->sin6_port);
    }
    return 0;
}

void ct_addr_host(const struct sockaddr *addr, char *out, size_t size)
{
    const char *text = NULL;
    if (addr->sa_family == AF_INET) {
        text =
            inet_ntop(AF_INET, &((const struct sockaddr_in *)addr)->sin_addr, out, (socklen_t)size);
    } else if (addr->sa_family == AF_INET6) {
        const struct in6_addr *v6 = &((const struct sockaddr_in6 *)addr)->sin6_addr;
        text = IN6_IS_ADDR_V4MAPPED(v6) ? inet_ntop(AF_INET, &v6->s6_addr[12], out, (socklen_t)size)
                                        : inet_ntop(AF_INET6, v6, out, (socklen_t)size);
    }
    if (text == NULL && size > 0) {
        out[0] = '\0';
    }
}

void ct_addr_format(const struct sockaddr *addr, char *out, size_t size)
{
    char host[INET6_ADDRSTRLEN];
    ct_addr_host(addr, host, sizeof(host));
    if (host[0] == '\0') {
        (void)snprintf(out, size, "unknown");
    } else {
        ct_addr_join(host, ct_addr_port(addr), out, size);
    }
}

void ct_addr_join(const char *host, uint16_t port, char *out, size_t size)
{
    bool v6 = strchr(host, ':') != NULL;
    (void)snprintf(out, size, "%s%s%s:%u", v6 ? "[" : "", host, v6 ? "]" : "", (unsigned)port);
}

bool ct_addr_as_v6(const struct sockaddr *addr, struct in6_addr *out)
{
    if (addr->sa_family == AF_INET) {
        *out = (struct in6_addr){.s6_addr = {[10] = 0xff, [11] = 0xff}};
        memcpy(&out->s6_addr[12], &((const struct sockaddr_in *)addr)->sin_addr,
               sizeof(struct in_addr));
        return true;
    }
    if (addr->sa_family == AF_INET6) {
        *out = ((const struct sockaddr_in6 *)addr)->sin6_addr;
        return true;
    }
    return false;
}

/* "localhost" always means the loopback (RFC 6761), even if neither /etc/hosts nor DNS knows it. */
static const char *literal_of(const char *host)
{
    return strcmp(host, "localhost") == 0 ? "127.0.0.1" : host;
}

bool ct_addr_literal(const char *host, uint16_t port, struct sockaddr_storage *out,
                     socklen_t *out_len)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    if (inet_pton(AF_INET, literal_of(host), &v4.sin_addr) == 1) {
        memcpy(out, &v4, sizeof(v4));
        *out_len = sizeof(v4);
        return true;
    }
    if (inet_pton(AF_INET6, host, &v6.sin6_addr) == 1) {
        memcpy(out, &v6, sizeof(v6));
        *out_len = sizeof(v6);
        return true;
    }
    return false;
}

bool ct_addr_is_any(const char *host)
{
    struct sockaddr_storage addr;
    socklen_t len;
    struct in6_addr v6;
    return ct_addr_literal(host, 0, &addr, &len) &&
           ct_addr_as_v6((const struct sockaddr *)&addr, &v6) &&
           (IN6_IS_ADDR_UNSPECIFIED(&v6) ||
            (IN6_IS_ADDR_V4MAPPED(&v6) &&
             memcmp(&v6.s6_addr[12], &(struct in_addr){INADDR_ANY}, sizeof(struct in_addr)) == 0));
}

bool ct_addr_is_loopback(const struct sockaddr *addr)
{
    struct in6_addr v6;
    return ct_addr_as_v6(addr, &v6) &&
           (IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127));
}

int ct_addr_resolve(const char *host, uint16_t port, struct sockaddr_storage *out,
                    socklen_t *out_len, struct ct_err *err)
{
    char service[8];
    (void)snprintf(service, sizeof(service), "%u", (unsigned)port);
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_flags = AI_NUMERICSERV,
    };
    struct addrinfo *list = NULL;
    int rc = getaddrinfo(literal_of(host), service, &hints, &list);
    if (rc != 0) {
        return ct_err_set(err, rc == EAI_MEMORY ? CT_ENOMEM : CT_ENOENT,
                          "cannot resolve host '%s': %s", host,
                          rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
    }
    memcpy(out, list->ai_addr, list->ai_addrlen);
    *out_len = list->ai_addrlen;
    freeaddrinfo(list);
    return 0;
}

int ct_addr_towards(const char *host, char *out, size_t size, struct ct_err *err)
{
    struct sockaddr_storage addr, own = {0};
    socklen_t len, own_len = sizeof(own);
    int rc = ct_addr_resolve(host, 9, &addr, &len, err); /* any port but 0 */
    if (rc != 0) {
        return rc;
    }
    /* Connecting a datagram socket only chooses a route. Nothing is sent. */
    int fd = socket(addr.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&addr, len) != 0 ||
        getsockname(fd, (struct sockaddr *)&own, &own_len) != 0) {
        rc = ct_err_sys(err, CT_EIO, errno, "there is no way to host %s", host);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    if (rc == 0) {
        ct_addr_host((const struct sockaddr *)&own, out, size);
    }
    return rc;
}

bool ct_addr_loopback_up(void)
{
    struct ifreq lo = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool told = fd >= 0 && ioctl(fd, SIOCGIFFLAGS, &lo) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return !told || (lo.ifr_flags & IFF_UP) != 0;
}
