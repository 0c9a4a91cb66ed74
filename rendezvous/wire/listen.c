/* SPDX-License-Identifier: Apache-2.0
 *
 * Resolves all addresses, then opens a socket for each of them on one port. With port 0 the kernel
 * chooses the port of the first socket; if that port is taken at another address, all sockets are
 * opened anew.
 *
 * Failure modes: a failure closes all sockets; a port in use is reported with the process that
 * holds it.
 */
#include "rendezvous/wire/listen.h"

#include "common/addr.h"
#include "rendezvous/wire/limits.h"
#include "rendezvous/wire/port_holder.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* How often the kernel may choose a port, which may be taken at another address. */
#define PORT_TRIES 16

struct place {
    struct sockaddr_storage addr;
    socklen_t len;
    bool both; /* IPv6 and IPv4 */
    const char *host;
};

/* Does this machine speak IPv6 at all? A container may not. */
static bool has_ipv6(void)
{
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return false;
    }
    struct sockaddr_in6 any = {.sin6_family = AF_INET6};
    bool ok = bind(fd, (const struct sockaddr *)&any, sizeof(any)) == 0;
    (void)close(fd);
    return ok;
}

static int resolve(const char *host, struct place *out, struct ct_err *err)
{
    *out = (struct place){.host = host};
    if (strcmp(host, "*") == 0) {
        out->both = has_ipv6();
        host = out->both ? "::" : "0.0.0.0";
    }
    return ct_addr_resolve(host, 0, &out->addr, &out->len, err);
}

static void set_port(struct place *place, uint16_t port)
{
    if (place->addr.ss_family == AF_INET6) {
        ((struct sockaddr_in6 *)&place->addr)->sin6_port = htons(port);
    } else {
        ((struct sockaddr_in *)&place->addr)->sin_port = htons(port);
    }
}

/* Returns the socket, or -1 and sets errno. */
static int open_one(const struct place *place)
{
    int family = place->addr.ss_family, on = 1, only = !place->both;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return -1;
    }
    /* A port is free even if its last connections are still ending. */
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
        (family != AF_INET6 ||
         setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only)) == 0) &&
        bind(fd, (const struct sockaddr *)&place->addr, place->len) == 0 &&
        listen(fd, CT_LISTEN_BACKLOG) == 0) {
        return fd;
    }
    int errnum = errno;
    (void)close(fd);
    errno = errnum;
    return -1;
}

static uint16_t port_of(int fd)
{
    struct sockaddr_storage bound = {.ss_family = AF_UNSPEC};
    socklen_t len = sizeof(bound);
    (void)getsockname(fd, (struct sockaddr *)&bound, &len);
    return ct_addr_port((const struct sockaddr *)&bound);
}

/* Returns 0, or a value of errno; then *failed is the address that failed. */
static int open_all(struct place *places, size_t count, uint16_t port, struct ct_listeners *out,
                    const struct place **failed)
{
    *out = (struct ct_listeners){.port = port};
    for (size_t i = 0; i < count; i++) {
        set_port(&places[i], out->port);
        int fd = open_one(&places[i]);
        if (fd < 0) {
            int errnum = errno;
            *failed = &places[i];
            ct_listeners_fini(out);
            return errnum;
        }
        out->fds[out->count++] = fd;
        out->port = port_of(fd);
    }
    return 0;
}

static bool known(const struct place *places, size_t count, const struct place *place)
{
    for (size_t i = 0; i < count; i++) {
        if (places[i].len == place->len && memcmp(&places[i].addr, &place->addr, place->len) == 0) {
            return true;
        }
    }
    return false;
}

static int failed_to_listen(int errnum, struct place at, uint16_t port, struct ct_err *err)
{
    if (errnum != EADDRINUSE) {
        return ct_err_sys(err, ct_code_from_errno(errnum), errnum, "cannot listen on %s port %u",
                          at.host, (unsigned)port);
    }
    char holder[320];
    set_port(&at, port);
    ct_port_holder((const struct sockaddr *)&at.addr, holder, sizeof(holder));
    return ct_err_set(
        err, CT_EBUSY, "port %u on %s is in use by %s; stop it or choose another port",
        (unsigned)port, at.host, holder[0] != '\0' ? holder : "a process that /proc does not show");
}

int ct_listen(const char *const *hosts, size_t count, uint16_t port, struct ct_listeners *out,
              struct ct_err *err)
{
    if (count == 0 || count > CT_MAX_LISTENERS) {
        return ct_err_set(err, CT_ELIMIT, "%zu addresses to listen on; 1 to %d are possible", count,
                          CT_MAX_LISTENERS);
    }
    struct place places[CT_MAX_LISTENERS];
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        int rc = resolve(hosts[i], &places[used], err);
        if (rc != 0) {
            return rc;
        }
        used += !known(places, used, &places[used]);
    }
    const struct place *failed = NULL;
    int errnum = EADDRINUSE;
    for (int i = 0; i < (port == 0 && used > 1 ? PORT_TRIES : 1) && errnum == EADDRINUSE; i++) {
        errnum = open_all(places, used, port, out, &failed);
    }
    return errnum == 0 ? 0 : failed_to_listen(errnum, *failed, port, err);
}

void ct_listeners_fini(struct ct_listeners *listeners)
{
    for (size_t i = 0; i < listeners->count; i++) {
        (void)close(listeners->fds[i]);
    }
    listeners->count = 0;
}
