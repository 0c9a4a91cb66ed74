/* SPDX-License-Identifier: Apache-2.0
 *
 * Failure modes: a program that is not of ctrun may take a port between the choice and the start of
 * the worker. The worker then cannot listen and says so, and a restart chooses again.
 */
#include "launcher/worker/port_reserve.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Below, services have their fixed ports. */
#define FIRST_PORT 20000
/* From here Kubernetes gives ports to services. */
#define END_PORT 30000
/* A range with fewer ports is not worth it: several jobs may want some. */
#define ENOUGH 1000
/* Another user may have marked all ports, so after so many marks they count no more. */
#define MARKED 64
/* Linux's default. */
#define LOW_DEFAULT 32768
#define HIGH_DEFAULT 60999

void ct_port_reserve_range(int low, int high, int *first, int *last)
{
    int end = low < END_PORT ? low : END_PORT;
    if (end - FIRST_PORT >= ENOUGH) {
        *first = FIRST_PORT;
        *last = end - 1;
    } else if (high >= low && UINT16_MAX - high >= ENOUGH) {
        *first = high + 1;
        *last = UINT16_MAX;
    } else {
        *first = FIRST_PORT;
        *last = UINT16_MAX;
    }
}

/* The ports that the kernel gives to outgoing connections. */
static void read_local_range(int *low, int *high)
{
    FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    *low = LOW_DEFAULT;
    *high = HIGH_DEFAULT;
    if (file == NULL) {
        return;
    }
    int a, b;
    if (fscanf(file, "%d %d", &a, &b) == 2 && a > 0 && b >= a && b <= UINT16_MAX) {
        *low = a;
        *high = b;
    }
    (void)fclose(file);
}

/* Binds a socket to all addresses without SO_REUSEADDR, so that a port counts as taken while the
 * kernel still keeps its old connections: a program need not set that option. */
static bool can_listen(uint16_t port)
{
    const struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    const struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    int off = 0;
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool bound = fd >= 0 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) == 0 &&
                 bind(fd, (const struct sockaddr *)&v6, sizeof(v6)) == 0;
    bool without_v6 = fd < 0 || errno == EADDRNOTAVAIL;
    if (fd >= 0) {
        (void)close(fd);
    }
    if (bound || !without_v6) {
        return bound;
    }
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bound = fd >= 0 && bind(fd, (const struct sockaddr *)&v4, sizeof(v4)) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return bound;
}

/* Gives the socket that marks the port; -1 if there is none. CT_EBUSY: somebody has marked it. */
static int mark(uint16_t port, int *out)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int len =
        snprintf(&name.sun_path[1], sizeof(name.sun_path) - 1, "ctrun-port-%u", (unsigned)port);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    *out = -1;
    if (fd >= 0 && bind(fd, (const struct sockaddr *)&name, size) != 0) {
        int code = errno;
        (void)close(fd);
        return code == EADDRINUSE ? CT_EBUSY : 0;
    }
    *out = fd;
    return 0;
}

static void drop_mark(struct ct_held_port *held)
{
    if (held->mark >= 0) {
        (void)close(held->mark);
    }
}

int ct_port_reserve_one(struct ct_held_port *held, uint16_t port, bool marked)
{
    held->mark = -1;
    if (marked && mark(port, &held->mark) != 0) {
        return CT_EBUSY;
    }
    if (!can_listen(port)) {
        drop_mark(held);
        return CT_EBUSY;
    }
    held->port = port;
    return 0;
}

static int hold_any(struct ct_held_port *held, struct ct_err *err)
{
    int low, high, first, last;
    uint32_t start = 0;
    read_local_range(&low, &high);
    ct_port_reserve_range(low, high, &first, &last);
    if (getrandom(&start, sizeof(start), 0) != (ssize_t)sizeof(start)) {
        start = (uint32_t)getpid(); /* any place to start from will do */
    }
    uint32_t size = (uint32_t)(last - first + 1);
    for (uint32_t i = 0; i < size; i++) {
        uint16_t port = (uint16_t)((uint32_t)first + (start % size + i) % size);
        if (ct_port_reserve_one(held, port, i < MARKED) == 0) {
            return 0;
        }
    }
    return ct_err_set(err, CT_EBUSY, "no port from %d to %d is free on this machine", first, last);
}

int ct_port_reserve_choose(struct ct_port_reserve *holder, struct ct_job_ports *ports,
                           struct ct_err *err)
{
    for (int i = 0; i < ports->count; i++) {
        struct ct_held_port next, *held = &holder->list[i];
        bool known = i < holder->count;
        if (!known || !can_listen(held->port)) {
            int rc = hold_any(&next, err);
            if (rc != 0) {
                return ct_err_wrap(err, "port '%s'", ports->list[i].name);
            }
            if (known) {
                drop_mark(held);
            }
            *held = next;
            holder->count += !known;
        }
        ports->list[i].port = held->port;
    }
    return 0;
}

void ct_port_reserve_fini(struct ct_port_reserve *holder)
{
    for (int i = 0; i < holder->count; i++) {
        drop_mark(&holder->list[i]);
    }
    holder->count = 0;
}
