/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: connect and say who it is, as the header of this file says.
 *
 * Failure modes: a partner that does not come, a stranger that connects (it does not know the
 * secret and is sent away), a network that loses everything. Each ends by the deadline of the pair.
 *
 * A receiver decides when a transfer is over and then resets the connection, so that what a slow
 * link still has in its queues does not disturb what is measured next.
 */
#include "launcher/preflight/preflight_net.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "rendezvous/wire/sock.h"

#include <errno.h>
#include <math.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A transfer ends after either. That of the receiver counts from the first byte. */
#define SEND_MS 150
#define RECEIVE_MS 400
#define BYTES_MAX (INT64_C(256) << 20)
#define CHUNK ((size_t)256 << 10)

/* Small messages that come back, at most, and the time that they may take together. */
#define PINGS 21
#define PINGS_MS 1000
#define PING_LEN 64

/* Connections that have not said yet who they are. */
#define CALLERS_MAX 64
#define BACKLOG 64

enum purpose { TO_ACCEPTOR, TO_CONNECTOR };

#define HELLO_LEN 32
static const char magic[4] = {'c', 't', 'p', 'f'};

static void make_hello(const struct ct_preflight_meeting *meeting, int from, enum purpose purpose,
                       unsigned char out[HELLO_LEN])
{
    memset(out, 0, HELLO_LEN);
    memcpy(out, magic, sizeof(magic));
    memcpy(out + sizeof(magic), meeting->secret, CT_PREFLIGHT_SECRET);
    unsigned char *end = out + sizeof(magic) + CT_PREFLIGHT_SECRET;
    for (int i = 0; i < 4; i++) {
        end[i] = (unsigned char)((unsigned)from >> (8 * i));
        end[4 + i] = (unsigned char)((unsigned)meeting->round >> (8 * i));
    }
    end[8] = (unsigned char)purpose;
}

static int send_all(int fd, const void *bytes, size_t len, int64_t deadline_ns, struct ct_err *err)
{
    struct iovec iov = {(void *)(uintptr_t)bytes, len};
    return ct_sock_send(fd, &iov, 1, deadline_ns, err);
}

/* Drops what is under way. */
static void reset(int fd)
{
    const struct linger now = {1, 0};
    if (fd >= 0) {
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
        (void)close(fd);
    }
}

/* Sets the error of errno, and closes the socket if there is one. */
static int cannot_listen(int fd, struct ct_err *err)
{
    int rc = ct_err_sys(err, CT_EIO, errno, "cannot listen for the other machines");
    if (fd >= 0) {
        (void)close(fd);
    }
    return rc;
}

int ct_preflight_listen(int *listener, uint16_t *port, struct ct_err *err)
{
    struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
    struct sockaddr_in any4 = {.sin_family = AF_INET};
    struct sockaddr_storage bound = {0};
    socklen_t len = sizeof(bound);
    int both = 0, fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &both, sizeof(both)) != 0 ||
        bind(fd, (struct sockaddr *)&any6, sizeof(any6)) != 0) { /* a machine without IPv6 */
        if (fd >= 0) {
            (void)close(fd);
        }
        fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0 || bind(fd, (struct sockaddr *)&any4, sizeof(any4)) != 0) {
            return cannot_listen(fd, err);
        }
    }
    if (listen(fd, BACKLOG) != 0 || getsockname(fd, (struct sockaddr *)&bound, &len) != 0) {
        return cannot_listen(fd, err);
    }
    *listener = fd;
    *port = ct_addr_port((struct sockaddr *)&bound);
    return 0;
}

/* ---- transfers ------------------------------------------------------------------------------ */

/* Sends until it has sent enough, or the receiver has. */
static void send_much(int fd, const char *chunk)
{
    int64_t until_ns = ct_deadline_in(NULL, SEND_MS);
    struct ct_err unused = {0};
    for (int64_t sent = 0; sent < BYTES_MAX && ct_deadline_left_ms(NULL, until_ns) > 0;
         sent += (int64_t)CHUNK) {
        if (send_all(fd, chunk, CHUNK, until_ns, &unused) != 0) {
            break;
        }
    }
    (void)shutdown(fd, SHUT_WR);
}

/* Waits for the receiver, who ends the transfer. */
static void wait_for_end(int fd, int64_t deadline_ns)
{
    struct pollfd end = {.fd = fd, .events = POLLIN};
    (void)poll(&end, 1, ct_deadline_left_ms(NULL, deadline_ns));
}

/* Gives bytes per second, from the first byte on. Returns false if nothing came. */
static bool receive_much(int fd, char *chunk, int64_t deadline_ns, double *rate)
{
    int64_t start_ns = ct_clock_now(NULL), first_ns = 0, last_ns = 0, all = 0, counted = 0;
    int64_t until_ns = deadline_ns;
    struct ct_err unused = {0};
    while (all < BYTES_MAX) {
        size_t got = 0;
        if (ct_sock_recv_some(fd, chunk, CHUNK, until_ns, &got, &unused) != 0 || got == 0) {
            break;
        }
        last_ns = ct_clock_now(NULL);
        if (all == 0) {
            int64_t end_ns = ct_deadline_in(NULL, RECEIVE_MS);
            first_ns = last_ns;
            until_ns = end_ns < deadline_ns ? end_ns : deadline_ns;
        }
        counted += all == 0 ? 0 : (int64_t)got;
        all += (int64_t)got;
        if (last_ns >= until_ns) {
            break;
        }
    }
    bool several = counted > 0 && last_ns > first_ns;
    int64_t took_ns = several ? last_ns - first_ns : ct_clock_now(NULL) - start_ns;
    *rate = (double)(several ? counted : all) * (double)CT_NS_PER_S / (double)took_ns;
    return all > 0;
}

static int compare(const void *a, const void *b)
{
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

/* The first message pays for what the kernels learn of each other, and does not count. */
static int ping(int fd, int64_t deadline_ns, double *latency_s, struct ct_err *err)
{
    double times[PINGS];
    char message[PING_LEN] = {0};
    int64_t until_ns = ct_deadline_in(NULL, PINGS_MS);
    int count = 0;
    for (bool last = false; !last;) {
        last = count + 1 == PINGS || ct_deadline_left_ms(NULL, until_ns) == 0;
        message[0] = last ? 0 : 1;
        int64_t sent_ns = ct_clock_now(NULL);
        int rc = send_all(fd, message, sizeof(message), deadline_ns, err);
        if (rc != 0) {
            return rc;
        }
        rc = ct_sock_recv(fd, message, sizeof(message), deadline_ns, err);
        if (rc != 0) {
            return rc;
        }
        times[count++] = (double)(ct_clock_now(NULL) - sent_ns) / 2 / (double)CT_NS_PER_S;
    }
    int from = count > 1 ? 1 : 0;
    qsort(times + from, (size_t)(count - from), sizeof(times[0]), compare);
    *latency_s = times[from + (count - from) / 2];
    return 0;
}

static int echo(int fd, int64_t deadline_ns, struct ct_err *err)
{
    char message[PING_LEN];
    do {
        int rc = ct_sock_recv(fd, message, sizeof(message), deadline_ns, err);
        if (rc != 0) {
            return rc;
        }
        rc = send_all(fd, message, sizeof(message), deadline_ns, err);
        if (rc != 0) {
            return rc;
        }
    } while (message[0] != 0);
    return 0;
}

/* ---- connections ---------------------------------------------------------------------------- */

static int call(const struct ct_preflight_meeting *meeting, enum purpose purpose,
                int64_t deadline_ns, int *out, struct ct_err *err)
{
    unsigned char hello[HELLO_LEN];
    int fd = -1;
    int rc = ct_sock_connect(meeting->address, meeting->port, deadline_ns, &fd, err);
    if (rc != 0) {
        return rc;
    }
    make_hello(meeting, meeting->machine, purpose, hello);
    rc = send_all(fd, hello, sizeof(hello), deadline_ns, err);
    if (rc != 0) {
        reset(fd);
        return rc;
    }
    *out = fd;
    return 0;
}

/* What came first on a connection is what the partner says, in one small piece as it was sent. */
static bool says(int fd, const unsigned char expected[HELLO_LEN])
{
    unsigned char hello[HELLO_LEN];
    return recv(fd, hello, sizeof(hello), MSG_DONTWAIT) == (ssize_t)sizeof(hello) &&
           memcmp(hello, expected, sizeof(hello)) == 0;
}

/* Looks at those that have said something, and sends strangers away. Returns the partner, or -1. */
static int find_partner(struct pollfd *callers, int *count, const unsigned char *expected)
{
    for (int i = *count - 1; i >= 0; i--) {
        int fd = callers[i].fd;
        if (callers[i].revents == 0) {
            continue;
        }
        callers[i] = callers[--*count];
        if (says(fd, expected)) {
            return fd;
        }
        reset(fd);
    }
    return -1;
}

static void send_first_away(struct pollfd *callers, int *count)
{
    reset(callers[0].fd);
    callers[0] = callers[--*count];
}

/* Without a descriptor the listener would stay readable, so those that wait make room. */
static int add_caller(int listener, struct pollfd *callers, int *count, struct ct_err *err)
{
    int on = 1;
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
        if (*count == 0) {
            return ct_err_sys(err, CT_EIO, errno,
                              "cannot take its connection; raise the limit of open files "
                              "(ulimit -n)");
        }
        send_first_away(callers, count);
        return 0; /* it still waits to be taken */
    }
    if (fd < 0) {
        return 0; /* it has gone again */
    }
    if (*count == CALLERS_MAX) {
        send_first_away(callers, count);
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    callers[(*count)++] = (struct pollfd){.fd = fd, .events = POLLIN};
    return 0;
}

/* Takes the partner's connection. Those that say nothing wait beside it, so they hold up nobody. */
static int take(const struct ct_preflight_meeting *meeting, enum purpose purpose,
                int64_t deadline_ns, int *out, struct ct_err *err)
{
    unsigned char expected[HELLO_LEN];
    struct pollfd fds[1 + CALLERS_MAX] = {{.fd = meeting->listener, .events = POLLIN}};
    struct pollfd *callers = fds + 1;
    int count = 0, left = 1, rc = 0;
    make_hello(meeting, meeting->partner, purpose, expected);
    *out = -1;
    while (*out < 0 && left > 0 && rc == 0) {
        left = ct_deadline_left_ms(NULL, deadline_ns);
        if (left > 0 && poll(fds, 1 + (nfds_t)count, left) > 0) {
            *out = find_partner(callers, &count, expected);
            if (fds[0].revents != 0) {
                rc = add_caller(meeting->listener, callers, &count, err);
            }
        }
    }
    while (count > 0) {
        reset(callers[--count].fd);
    }
    if (*out >= 0) {
        return 0;
    }
    if (rc != 0) {
        return rc;
    }
    return ct_err_set(err, CT_ETIMEDOUT, "it did not connect within %g s",
                      CT_PREFLIGHT_PAIR_MS / 1000.0);
}

static int open_way(const struct ct_preflight_meeting *meeting, enum purpose purpose,
                    int64_t deadline_ns, int *out, struct ct_err *err)
{
    return meeting->machine > meeting->partner ? call(meeting, purpose, deadline_ns, out, err)
                                               : take(meeting, purpose, deadline_ns, out, err);
}

/* One of the two transfers, and the pings before the first. */
static int transfer(const struct ct_preflight_meeting *meeting, enum purpose purpose,
                    int64_t deadline_ns, char *chunk, struct ct_preflight_link *link,
                    struct ct_err *err)
{
    bool connects = meeting->machine > meeting->partner;
    bool sends = connects == (purpose == TO_ACCEPTOR);
    int fd = -1;
    int rc = open_way(meeting, purpose, deadline_ns, &fd, err);
    if (rc != 0) {
        return rc;
    }
    if (purpose == TO_ACCEPTOR) {
        rc = connects ? ping(fd, deadline_ns, &link->latency_s, err) : echo(fd, deadline_ns, err);
        if (rc != 0) {
            goto out;
        }
    }
    if (sends) {
        send_much(fd, chunk);
        wait_for_end(fd, deadline_ns);
    } else if (!receive_much(fd, chunk, deadline_ns, &link->rate)) {
        rc = ct_err_set(err, CT_ETIMEDOUT, "it sent nothing");
    }
out:
    reset(fd);
    return rc;
}

static int transfer_both_ways(const struct ct_preflight_meeting *meeting,
                              struct ct_preflight_link *link, struct ct_err *err)
{
    int64_t deadline_ns = ct_deadline_in(NULL, CT_PREFLIGHT_PAIR_MS);
    char *chunk = ct_calloc(1, CHUNK);
    if (chunk == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    int rc = transfer(meeting, TO_ACCEPTOR, deadline_ns, chunk, link, err);
    if (rc == 0) {
        rc = transfer(meeting, TO_CONNECTOR, deadline_ns, chunk, link, err);
    }
    ct_free(chunk);
    return rc;
}

void ct_preflight_measure(const struct ct_preflight_meeting *meeting,
                          struct ct_preflight_link *link)
{
    struct ct_err err = {0};
    *link = (struct ct_preflight_link){.partner = meeting->partner, .rate = NAN, .latency_s = NAN};
    if (transfer_both_ways(meeting, link, &err) != 0) {
        (void)snprintf(link->error, sizeof(link->error), "%.*s", CT_PREFLIGHT_TEXT_MAX - 1,
                       err.text);
    }
}
