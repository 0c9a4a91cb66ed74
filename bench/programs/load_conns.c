/* SPDX-License-Identifier: Apache-2.0
 *
 * The load generator's sockets: opens many without overflowing the server's backlog, sends, and
 * compares what comes back. Anything unexpected ends the program with a message.
 */
#include "bench/programs/load.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* Older headers lack it; the number is the kernel's. */
#ifndef IP_BIND_ADDRESS_NO_PORT
#define IP_BIND_ADDRESS_NO_PORT 24
#endif

/* Every so many connections one greets at once, and at most this many greetings are unanswered: the
 * server is then at most 1,024 behind, a quarter of the usual backlog limit. */
#define PACE 256
#define AHEAD 4

/* A server that says nothing for so long has failed. */
#define PATIENCE_MS 30000

void load_send(int fd, const void *bytes, size_t len)
{
    ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);
    if (n != (ssize_t)len) {
        load_fail("cannot send: %s", n < 0 ? strerror(errno) : "socket is full");
    }
}

void load_receive(int fd, void *out, size_t len)
{
    for (size_t have = 0; have < len;) {
        ssize_t n = recv(fd, (char *)out + have, len - have, MSG_DONTWAIT);
        struct pollfd readable = {.fd = fd, .events = POLLIN};
        if (n > 0) {
            have += (size_t)n;
        } else if (n == 0) {
            load_fail("the server closed a connection");
        } else if (errno != EAGAIN && errno != EINTR) {
            load_fail("cannot receive: %s", strerror(errno));
        } else if (poll(&readable, 1, PATIENCE_MS) == 0) {
            load_fail("no answer for %d s", PATIENCE_MS / 1000);
        }
    }
}

void load_expect(int fd, const struct ct_buf *reply)
{
    unsigned char got[256];
    if (reply->len > sizeof(got)) {
        load_fail("a reply of %zu bytes is too long to check", reply->len);
    }
    load_receive(fd, got, reply->len);
    if (memcmp(got, ct_buf_bytes(reply), reply->len) != 0) {
        load_fail("the server answered something else");
    }
}

/* `index` chooses the source address: 127.0.0.1, 127.0.0.2 ... The first comes first as it has a
 * name: PyTorch's daemon asks for the name of each peer, and stands still until it has an answer.
 */
static int connect_from(size_t index, uint16_t port)
{
    const int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        load_fail("socket: %s", strerror(errno));
    }
    /* The port is then chosen by connect(), among those free towards this server. */
    (void)setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    struct sockaddr_in from = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK + (uint32_t)(index / LOAD_PER_ADDRESS)),
    };
    struct sockaddr_in to = {
        .sin_family = AF_INET,
        .sin_port = htons(port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    if (bind(fd, (const struct sockaddr *)&from, sizeof(from)) != 0 ||
        connect(fd, (const struct sockaddr *)&to, sizeof(to)) != 0) {
        load_fail("cannot connect to port %u: %s", (unsigned)port, strerror(errno));
    }
    return fd;
}

static bool greets_early(size_t index, size_t count)
{
    return index % PACE == PACE - 1 || index == count - 1;
}

double load_conns_open(struct load_conns *conns, const struct load_options *options)
{
    struct load_exchange hello;
    load_exchange_greeting(options, &hello);
    conns->list = calloc(options->connections, sizeof(*conns->list));
    conns->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (conns->list == NULL || conns->epoll < 0) {
        load_fail("cannot make %zu connections", options->connections);
    }
    conns->count = options->connections;
    double begin = load_now();
    for (size_t i = 0; i < conns->count; i++) {
        int fd = connect_from(i, options->port);
        conns->list[i].fd = fd;
        if (greets_early(i, conns->count)) {
            load_send(fd, ct_buf_bytes(&hello.request), hello.request.len);
            if (i % PACE == PACE - 1 && i >= AHEAD * PACE) {
                load_expect(conns->list[i - AHEAD * PACE].fd, &hello.reply);
            }
        }
    }
    size_t paced = conns->count / PACE;
    for (size_t i = paced > AHEAD ? paced - AHEAD : 0; i < paced; i++) {
        load_expect(conns->list[i * PACE + PACE - 1].fd, &hello.reply);
    }
    if (conns->count % PACE != 0) {
        load_expect(conns->list[conns->count - 1].fd, &hello.reply);
    }
    double seconds = load_now() - begin;
    load_exchange_fini(&hello);
    for (size_t i = 0; i < conns->count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = i};
        if (epoll_ctl(conns->epoll, EPOLL_CTL_ADD, conns->list[i].fd, &event) != 0) {
            load_fail("epoll_ctl: %s", strerror(errno));
        }
    }
    return seconds;
}

void load_conns_greet(struct load_conns *conns, const struct load_options *options)
{
    struct load_exchange hello;
    load_exchange_greeting(options, &hello);
    for (size_t i = 0; i < conns->count; i++) {
        if (!greets_early(i, conns->count)) {
            load_send(conns->list[i].fd, ct_buf_bytes(&hello.request), hello.request.len);
        }
    }
    for (size_t i = 0; i < conns->count; i++) {
        if (!greets_early(i, conns->count)) {
            load_expect(conns->list[i].fd, &hello.reply);
        }
    }
    load_exchange_fini(&hello);
}

int load_connect_one(const struct load_options *options)
{
    struct load_exchange hello;
    load_exchange_greeting(options, &hello);
    int fd = connect_from(0, options->port);
    load_send(fd, ct_buf_bytes(&hello.request), hello.request.len);
    load_expect(fd, &hello.reply);
    load_exchange_fini(&hello);
    return fd;
}

void load_conns_close(struct load_conns *conns, const struct load_options *options)
{
    /* Reset instead of an orderly end: no port is left in TIME_WAIT for the next run. */
    const struct linger reset = {.l_onoff = 1};
    for (size_t i = 0; i < conns->count; i++) {
        (void)setsockopt(conns->list[i].fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        (void)close(conns->list[i].fd);
    }
    (void)close(conns->epoll);
    free(conns->list);
    (void)close(load_connect_one(options));
}
