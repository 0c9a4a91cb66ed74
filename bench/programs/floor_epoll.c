/* SPDX-License-Identifier: Apache-2.0
 *
 * The least that any server can do with epoll: accept, answer PING, remember who sent WAIT, and on
 * a SET send each of them one byte. The floor of connect storms and wake storms.
 *
 *     bench-floor-epoll
 *
 * Prints its port. Ends with its parent, or after ten minutes.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_SECONDS 600
#define EVENTS 1024
#define MAX_WAITERS (1 << 20)

/* Of PyTorch's protocol. */
enum { OP_VALIDATE = 0, OP_SET = 1, OP_WAIT = 6, OP_PING = 13, OP_BARRIER = 18, VALIDATE_LEN = 5 };

struct server {
    int epoll, listener;
    bool is_set; /* since the last client greeted: whoever waits later is answered at once */
    size_t parked;
    int waiters[MAX_WAITERS];
};

static void fail(const char *what)
{
    (void)fprintf(stderr, "bench-floor-epoll: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void watch(struct server *server, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        fail("epoll_ctl");
    }
}

static void accept_all(struct server *server)
{
    int fd;
    while ((fd = accept4(server->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        watch(server, fd);
    }
    if (errno != EAGAIN && errno != ECONNABORTED) {
        fail("accept");
    }
}

static void send_some(int fd, const void *bytes, size_t len)
{
    if (send(fd, bytes, len, MSG_NOSIGNAL) != (ssize_t)len) {
        fail("send");
    }
}

static void wake_all(struct server *server)
{
    for (size_t i = 0; i < server->parked; i++) {
        send_some(server->waiters[i], "", 1);
    }
    server->parked = 0;
}

/* `request` is a BARRIER: opcode, key, number of participants. */
static size_t participants(const char *request)
{
    uint64_t key_len, count;
    memcpy(&key_len, request + 1, sizeof(key_len));
    memcpy(&count, request + 1 + sizeof(key_len) + key_len, sizeof(count));
    return (size_t)count;
}

static void serve(struct server *server, int fd)
{
    char bytes[4096];
    ssize_t n = read(fd, bytes, sizeof(bytes));
    if (n <= 0) {
        (void)close(fd);
        return;
    }
    bool greets = bytes[0] == OP_VALIDATE;
    server->is_set = server->is_set && !greets;
    const char *at = bytes + (greets ? VALIDATE_LEN : 0);
    if (at + 5 <= bytes + n && *at == OP_PING) {
        send_some(fd, at + 1, 4);
    } else if (at < bytes + n && *at == OP_WAIT && server->is_set) {
        send_some(fd, "", 1);
    } else if (at < bytes + n && (*at == OP_WAIT || *at == OP_BARRIER) &&
               server->parked < MAX_WAITERS) {
        server->waiters[server->parked++] = fd;
        if (*at == OP_BARRIER && server->parked >= participants(at)) {
            wake_all(server);
        }
    } else if (at < bytes + n && *at == OP_SET) {
        server->is_set = true;
        wake_all(server);
    }
}

int main(void)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)alarm(MAX_SECONDS);
    struct rlimit files;
    struct server *server = calloc(1, sizeof(*server));
    if (server == NULL || getrlimit(RLIMIT_NOFILE, &files) != 0) {
        fail("start");
    }
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
    const int on = 1;
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    server->epoll = epoll_create1(EPOLL_CLOEXEC);
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    /* Accepted sockets inherit it. */
    if (setsockopt(server->listener, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0 ||
        bind(server->listener, (struct sockaddr *)&addr, sizeof(addr)) != 0 ||
        listen(server->listener, 65535) != 0 ||
        getsockname(server->listener, (struct sockaddr *)&addr, &len) != 0) {
        fail("listen");
    }
    watch(server, server->listener);
    (void)printf("%d\n", ntohs(addr.sin_port));
    (void)fflush(stdout);
    for (;;) {
        struct epoll_event events[EVENTS];
        int n = epoll_wait(server->epoll, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd == server->listener) {
                accept_all(server);
            } else {
                serve(server, events[i].data.fd);
            }
        }
    }
}
