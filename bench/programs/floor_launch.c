/* SPDX-License-Identifier: Apache-2.0
 *
 * The least that a launcher can do: listen, spawn, wait until all have connected and sent their
 * greeting, wake each of them with one byte, reap them. No pipes, no limits, no guard, no report.
 *
 *     bench-floor-launch N PROGRAM
 *
 * PROGRAM is bench-floor-client, or any program: then all of them end without having connected.
 */
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_WORKERS 4096
#define EVENTS 64

extern char **environ;

struct floor {
    int epoll, listener, signals;
    int workers, alive, failed, here;
    int peers[MAX_WORKERS];
};

static _Noreturn void fail(const char *what)
{
    (void)fprintf(stderr, "bench-floor-launch: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void watch(struct floor *floor, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(floor->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        fail("epoll_ctl");
    }
}

static void open_all(struct floor *floor)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    char port[8], world[8];
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &child, NULL);
    floor->signals = signalfd(-1, &child, SFD_NONBLOCK | SFD_CLOEXEC);
    floor->epoll = epoll_create1(EPOLL_CLOEXEC);
    floor->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (bind(floor->listener, (struct sockaddr *)&addr, len) != 0 ||
        listen(floor->listener, 65535) != 0 ||
        getsockname(floor->listener, (struct sockaddr *)&addr, &len) != 0) {
        fail("listen");
    }
    watch(floor, floor->listener);
    watch(floor, floor->signals);
    (void)snprintf(port, sizeof(port), "%u", ntohs(addr.sin_port));
    (void)snprintf(world, sizeof(world), "%d", floor->workers);
    (void)setenv("MASTER_ADDR", "127.0.0.1", 1);
    (void)setenv("MASTER_PORT", port, 1);
    (void)setenv("WORLD_SIZE", world, 1);
}

static void spawn_all(struct floor *floor, char **argv)
{
    sigset_t none;
    posix_spawnattr_t attr;
    sigemptyset(&none);
    (void)posix_spawnattr_init(&attr);
    (void)posix_spawnattr_setsigmask(&attr, &none);
    (void)posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
    while (floor->alive < floor->workers) {
        pid_t pid;
        errno = posix_spawn(&pid, argv[0], NULL, &attr, argv, environ);
        if (errno != 0) {
            fail(argv[0]);
        }
        floor->alive++;
    }
}

static void accept_all(struct floor *floor)
{
    int fd;
    while ((fd = accept4(floor->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        watch(floor, fd);
    }
}

static void greet(struct floor *floor, int fd)
{
    char bytes[256];
    if (read(fd, bytes, sizeof(bytes)) <= 0 || floor->here == floor->workers) {
        (void)close(fd);
        return;
    }
    floor->peers[floor->here++] = fd;
    for (int i = 0; floor->here == floor->workers && i < floor->here; i++) {
        (void)send(floor->peers[i], "", 1, MSG_NOSIGNAL);
    }
}

static void reap_all(struct floor *floor)
{
    char records[EVENTS * sizeof(struct signalfd_siginfo)];
    int status;
    ssize_t taken = read(floor->signals, records, sizeof(records));
    (void)taken; /* waitpid() knows what has ended */
    while (floor->alive > 0 && waitpid(-1, &status, WNOHANG) > 0) {
        floor->alive--;
        floor->failed += status != 0;
    }
}

int main(int argc, char **argv)
{
    static struct floor floor;
    if (argc < 3 || (floor.workers = (int)strtol(argv[1], NULL, 10)) < 1 ||
        floor.workers > MAX_WORKERS) {
        (void)fputs("usage: bench-floor-launch N PROGRAM\n", stderr);
        return 2;
    }
    open_all(&floor);
    spawn_all(&floor, argv + 2);
    while (floor.alive > 0) {
        struct epoll_event events[EVENTS];
        int n = epoll_wait(floor.epoll, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == floor.listener) {
                accept_all(&floor);
            } else if (fd == floor.signals) {
                reap_all(&floor);
            } else {
                greet(&floor, fd);
            }
        }
    }
    return floor.failed != 0;
}
