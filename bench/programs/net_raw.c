/* SPDX-License-Identifier: Apache-2.0
 *
 * What one TCP connection moves between two hosts, as bench/allreduce_net.py compares with it:
 *
 *     bench-net-raw listen ADDRESS        prints its port, then serves one client
 *     bench-net-raw ADDRESS PORT          prints one line per size: "<bytes> <both> <one>"
 *
 * `both` is the time in microseconds in which that many bytes go each way at once, `one` that in
 * which they go one way and a byte comes back. Medians of BLOCKS blocks of calls.
 */
#include "bench/programs/allreduce.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Per call, as the communicator has them. */
#define PIECE ((size_t)512 * 1024)

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Sends and receives that many bytes, whichever goes. The bytes received stay in one small buffer,
 * those sent come from all over a large one. */
static void move(int fd, const char *from, char *to, size_t out, size_t in)
{
    size_t sent = 0, got = 0;
    while (sent < out || got < in) {
        bool moved = false;
        ssize_t n = sent < out ? send(fd, from + sent, least(out - sent, PIECE),
                                      MSG_DONTWAIT | MSG_NOSIGNAL)
                               : -1;
        if (n > 0) {
            sent += (size_t)n;
            moved = true;
        }
        n = got < in ? recv(fd, to, least(in - got, PIECE / 2), MSG_DONTWAIT) : -1;
        if (n == 0) {
            errno = EPIPE;
            die("the other end has gone");
        }
        if (n > 0) {
            got += (size_t)n;
            moved = true;
        }
        if (!moved) {
            struct pollfd waiting = {
                .fd = fd, .events = (short)((sent < out ? POLLOUT : 0) | (got < in ? POLLIN : 0))};
            if (poll(&waiting, 1, 60 * 1000) != 1) {
                die("poll");
            }
        }
    }
}

static void run(int fd, bool client)
{
    char *from = malloc(COUNT_MAX * sizeof(float)), *to = malloc(PIECE);
    if (from == NULL || to == NULL) {
        die("malloc");
    }
    memset(from, 1, COUNT_MAX * sizeof(float)); /* else all of it is one page of zeros */
    for (size_t p = 0; p < CASES; p++) {
        size_t bytes = cases[p].count * sizeof(float);
        double times[2][BLOCKS];
        for (int way = 0; way < 2; way++) {
            for (int block = -1; block < BLOCKS; block++) { /* the first warms up */
                double begin = now_us();
                for (int call = 0; call < cases[p].calls; call++) {
                    if (way == 0) {
                        move(fd, from, to, bytes, bytes);
                    } else if (client) {
                        move(fd, from, to, bytes, 0);
                        move(fd, from, to, 0, 1);
                    } else {
                        move(fd, from, to, 0, bytes);
                        move(fd, from, to, 1, 0);
                    }
                }
                if (block >= 0) {
                    times[way][block] = (now_us() - begin) / cases[p].calls;
                }
            }
            qsort(times[way], BLOCKS, sizeof(double), compare_double);
        }
        if (client) {
            printf("%zu %.3f %.3f\n", bytes, times[0][BLOCKS / 2], times[1][BLOCKS / 2]);
        }
    }
    free(from);
    free(to);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        (void)fprintf(stderr, "usage: bench-net-raw listen ADDRESS | ADDRESS PORT\n");
        return 2;
    }
    bool client = strcmp(argv[1], "listen") != 0;
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof(at);
    if (inet_pton(AF_INET, argv[client ? 1 : 2], &at.sin_addr) != 1) {
        die("address");
    }
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (client) {
        at.sin_port = htons((uint16_t)strtoul(argv[2], NULL, 10));
        if (connect(fd, (struct sockaddr *)&at, len) != 0) {
            die("connect");
        }
    } else {
        if (bind(fd, (struct sockaddr *)&at, len) != 0 || listen(fd, 1) != 0 ||
            getsockname(fd, (struct sockaddr *)&at, &len) != 0) {
            die("listen");
        }
        printf("port %d\n", ntohs(at.sin_port));
        (void)fflush(stdout);
        fd = accept(fd, NULL, NULL);
    }
    int one = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    run(fd, client);
    return 0;
}
