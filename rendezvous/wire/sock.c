/* SPDX-License-Identifier: Apache-2.0
 *
 * Each call is a loop of a non-blocking system call and poll(2), until it is done or its deadline
 * has passed.
 */
#include "rendezvous/wire/sock.h"

#include "common/addr.h"
#include "common/clock.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* 0, CT_ETIMEDOUT or CT_EIO. A socket with an error is ready: the next call reports it. */
static int wait_ready(int fd, short events, int64_t deadline_ns, struct ct_err *err)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = events};
        int n = poll(&p, 1, ct_deadline_left_ms(NULL, deadline_ns));
        if (n > 0) {
            return 0;
        }
        if (n == 0) {
            return ct_err_set(err, CT_ETIMEDOUT, "timed out");
        }
        if (errno != EINTR) {
            return ct_err_sys(err, CT_EIO, errno, "poll");
        }
    }
}

static int failed(int errnum, const char *what, struct ct_err *err)
{
    int code = errnum == EPIPE || errnum == ECONNRESET ? CT_ECLOSED : CT_EIO;
    return ct_err_sys(err, code, errnum, "%s", what);
}

/* ---- connecting ----------------------------------------------------------------------------- */

/* Longest time for one address, so that a silent address leaves time for the next one. */
#define ATTEMPT_MS 10000

static int finish_connect(int fd, const struct sockaddr *addr, socklen_t len, int64_t deadline_ns,
                          struct ct_err *err)
{
    int errnum = connect(fd, addr, len) == 0 ? 0 : errno;
    /* EINTR: the connection goes on in the background, as with EINPROGRESS. */
    if (errnum == EINPROGRESS || errnum == EINTR) {
        int rc = wait_ready(fd, POLLOUT, deadline_ns, err);
        if (rc != 0) {
            return rc;
        }
        socklen_t size = sizeof(errnum);
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &errnum, &size) != 0) {
            errnum = errno;
        }
    }
    return errnum == 0 ? 0 : ct_err_sys(err, CT_ECLOSED, errnum, "connect");
}

static int connect_one(const struct addrinfo *ai, int64_t deadline_ns, int *out, struct ct_err *err)
{
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        /* A machine without this family is treated as if nobody listened there. */
        int code = errno == EAFNOSUPPORT ? CT_ECLOSED : ct_code_from_errno(errno);
        return ct_err_sys(err, code, errno, "cannot make a socket");
    }
    int rc = finish_connect(fd, ai->ai_addr, ai->ai_addrlen, deadline_ns, err);
    if (rc != 0) {
        (void)close(fd);
        return rc;
    }
    int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    *out = fd;
    return 0;
}

int ct_sock_connect(const char *host, uint16_t port, int64_t deadline_ns, int *out,
                    struct ct_err *err)
{
    char service[8];
    (void)snprintf(service, sizeof(service), "%u", (unsigned)port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    int gai = getaddrinfo(host, service, &hints, &list);
    if (gai != 0) {
        return ct_err_set(err, gai == EAI_MEMORY ? CT_ENOMEM : CT_ENOENT,
                          "cannot resolve host '%s': %s", host,
                          gai == EAI_SYSTEM ? strerror(errno) : gai_strerror(gai));
    }
    struct sockaddr_storage addr;
    socklen_t len;
    /* If the caller gave an address, the error need not name it. */
    bool named = !ct_addr_literal(host, port, &addr, &len);
    int rc = CT_ENOENT;
    for (const struct addrinfo *ai = list; ai != NULL && rc != 0; ai = ai->ai_next) {
        int64_t attempt_ns = ct_deadline_in(NULL, ATTEMPT_MS);
        rc = connect_one(ai, attempt_ns < deadline_ns ? attempt_ns : deadline_ns, out, err);
        if (rc != 0 && named) {
            char text[CT_ADDR_TEXT_MAX];
            ct_addr_format(ai->ai_addr, text, sizeof(text));
            (void)ct_err_wrap(err, "%s", text);
        }
    }
    freeaddrinfo(list);
    return rc;
}

/* ---- bytes ---------------------------------------------------------------------------------- */

/* Drops the first `len` bytes of the vector. */
static void advance(struct iovec **iov, size_t *count, size_t len)
{
    while (*count > 0 && len >= (*iov)->iov_len) {
        len -= (*iov)->iov_len;
        (*iov)++;
        (*count)--;
    }
    if (*count > 0) {
        (*iov)->iov_base = (char *)(*iov)->iov_base + len;
        (*iov)->iov_len -= len;
    }
}

int ct_sock_send(int fd, struct iovec *iov, size_t count, int64_t deadline_ns, struct ct_err *err)
{
    advance(&iov, &count, 0);
    while (count > 0) {
        struct msghdr msg = {.msg_iov = iov, .msg_iovlen = count};
        ssize_t n = sendmsg(fd, &msg, MSG_NOSIGNAL);
        if (n >= 0) {
            advance(&iov, &count, (size_t)n);
        } else if (errno == EAGAIN) {
            int rc = wait_ready(fd, POLLOUT, deadline_ns, err);
            if (rc != 0) {
                return rc;
            }
        } else if (errno != EINTR) {
            return failed(errno, "send", err);
        }
    }
    return 0;
}

int ct_sock_recv_some(int fd, void *out, size_t len, int64_t deadline_ns, size_t *got,
                      struct ct_err *err)
{
    for (;;) {
        ssize_t n = recv(fd, out, len, 0);
        if (n >= 0) {
            *got = (size_t)n;
            return 0;
        }
        if (errno == EAGAIN) {
            int rc = wait_ready(fd, POLLIN, deadline_ns, err);
            if (rc != 0) {
                return rc;
            }
        } else if (errno != EINTR) {
            return failed(errno, "receive", err);
        }
    }
}

int ct_sock_recv(int fd, void *out, size_t len, int64_t deadline_ns, struct ct_err *err)
{
    unsigned char *p = out;
    while (len > 0) {
        size_t got = 0;
        int rc = ct_sock_recv_some(fd, p, len, deadline_ns, &got, err);
        if (rc != 0) {
            return rc;
        }
        if (got == 0) {
            return ct_err_set(err, CT_ECLOSED, "closed by the store");
        }
        p += got;
        len -= got;
    }
    return 0;
}

bool ct_sock_is_own_address(const struct sockaddr *addr)
{
    struct sockaddr_storage any_port = {0};
    socklen_t len =
        addr->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    memcpy(&any_port, addr, len);
    if (addr->sa_family == AF_INET) {
        ((struct sockaddr_in *)&any_port)->sin_port = 0;
    } else {
        ((struct sockaddr_in6 *)&any_port)->sin6_port = 0;
    }
    int fd = socket(addr->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return true; /* not known; the caller refuses its own addresses, so this is the safe answer
                      */
    }
    /* Only an address that is not here is refused with this error. */
    bool own = bind(fd, (struct sockaddr *)&any_port, len) == 0 || errno != EADDRNOTAVAIL;
    (void)close(fd);
    return own;
}
