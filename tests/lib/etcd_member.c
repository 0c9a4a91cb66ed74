/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers one connection after the other, and closes each after its reply.
 */
#include "tests/lib/etcd_member.h"

#include "tests/lib/ct_test.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int etcd_member_bind(uint16_t *port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
    *port = ntohs(addr.sin_port);
    return fd;
}

/* Reads head and body. False when the client has hung up. */
static bool read_request(int fd, char *out, size_t size)
{
    size_t have = 0;
    for (;;) {
        ssize_t got = recv(fd, out + have, size - 1 - have, 0);
        if (got <= 0) {
            return false;
        }
        have += (size_t)got;
        out[have] = '\0';
        const char *length = strstr(out, "Content-Length: ");
        const char *body = strstr(out, "\r\n\r\n");
        if (length != NULL && body != NULL &&
            strlen(body + 4) >= strtoul(length + strlen("Content-Length: "), NULL, 10)) {
            return true;
        }
    }
}

static bool send_text(int fd, const char *text)
{
    return send(fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text);
}

static void answer(struct etcd_member *m, int fd, const struct etcd_step *step)
{
    char text[4096];
    if (step->manner == ETCD_LONG_LINE) {
        (void)snprintf(text, sizeof(text), "HTTP/1.1 200 X\r\nX: %.2000d", 0);
        (void)send_text(fd, text);
        while (send_text(fd, text + 20)) {
        }
        return;
    }
    (void)snprintf(text, sizeof(text),
                   "HTTP/1.1 %d X\r\nLocation: http://127.0.0.1:%d/\r\nConnection: close\r\n"
                   "Content-Length: %zu\r\n\r\n%s",
                   step->status, m->port,
                   step->manner == ETCD_ENDLESS ? (size_t)1 << 30 : strlen(step->body), step->body);
    if (step->manner != ETCD_SILENT) {
        (void)send_text(fd, text);
    }
    while (step->manner == ETCD_ENDLESS && send_text(fd, text)) {
    }
    while (step->manner == ETCD_SILENT && recv(fd, text, sizeof(text), 0) > 0) {
    }
    if (step->manner != ETCD_ANSWER) {
        m->hung_up = true;
    }
}

static void *play(void *data)
{
    struct etcd_member *m = data;
    for (;;) {
        int fd = accept4(m->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) {
            return NULL;
        }
        int i = m->num_requests < ETCD_MEMBER_REQUESTS_MAX ? m->num_requests
                                                           : ETCD_MEMBER_REQUESTS_MAX - 1;
        if (read_request(fd, m->requests[i], sizeof(m->requests[i]))) {
            m->num_requests++;
            answer(m, fd, &m->steps[i < m->num_steps ? i : m->num_steps - 1]);
        }
        (void)close(fd);
    }
}

void etcd_member_start(struct etcd_member *m, const struct etcd_step *steps, int num)
{
    memset(m, 0, sizeof(*m));
    memcpy(m->steps, steps, (size_t)num * sizeof(*steps));
    m->num_steps = num;
    m->fd = etcd_member_bind(&m->port);
    assert_int_equal(listen(m->fd, 8), 0);
    assert_int_equal(pthread_create(&m->thread, NULL, play, m), 0);
}

void etcd_member_stop(struct etcd_member *m)
{
    (void)shutdown(m->fd, SHUT_RDWR);
    assert_int_equal(pthread_join(m->thread, NULL), 0);
    (void)close(m->fd);
}
