/* SPDX-License-Identifier: Apache-2.0
 *
 * Clients are blocking sockets of the same thread. Where one waits for bytes, the server's loop is
 * turned without blocking until they are there or the deadline has passed.
 */
#include "tests/lib/server_fixture.h"

#include "common/clock.h"
#include "tests/lib/loop.h"

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Far beyond what anything here takes; a hang must fail, a slow machine must not. */
#define LONG_MS 20000

static void note(void *data, enum ct_log_level level, const char *line)
{
    struct server_fixture *f = data;
    if (level <= CT_LOG_WARNING) {
        (void)snprintf(f->last_warning, sizeof(f->last_warning), "%s", line);
        f->warnings++;
    }
}

int ct_sf_set_up(void **state)
{
    struct server_fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    (void)signal(SIGPIPE, SIG_IGN);
    ct_loop_begin(&f->loop);
    f->log = (struct ct_log){note, f, CT_LOG_DEBUG};
    const struct ct_server_options options = {.log = &f->log};
    struct ct_err err = {0};
    assert_int_equal(ct_server_open(&f->loop, &options, &f->server, &err), 0);
    assert_int_not_equal(ct_server_port(f->server), 0);
    *state = f;
    return 0;
}

static void on_server_closed(void *data)
{
    struct server_fixture *f = data;
    f->closed = true;
}

int ct_sf_tear_down(void **state)
{
    struct server_fixture *f = *state;
    ct_server_close(f->server, on_server_closed, f);
    ct_loop_end(&f->loop);
    assert_true(f->closed);
    free(f);
    return 0;
}

/* ---- clients -------------------------------------------------------------------------------- */

void ct_sf_turn(struct server_fixture *f)
{
    (void)uv_run(&f->loop, UV_RUN_NOWAIT);
}

static int64_t soon(void)
{
    return ct_deadline_in(NULL, LONG_MS);
}

int ct_sf_client_at(const struct sockaddr *addr, socklen_t len)
{
    int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (connect(fd, addr, len) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

int ct_sf_client(struct server_fixture *f)
{
    struct sockaddr_in addr = {
        .sin_family = AF_INET,
        .sin_port = htons(ct_server_port(f->server)),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    int fd = ct_sf_client_at((const struct sockaddr *)&addr, sizeof(addr));
    assert_true(fd >= 0);
    return fd;
}

void ct_sf_tell(int fd, const char *bytes, size_t len)
{
    assert_int_equal(send(fd, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
}

/* Receives up to `len` bytes, turning the loop; returns how many came before the end of the
 * stream. */
size_t ct_sf_hear(struct server_fixture *f, int fd, char *out, size_t len)
{
    size_t got = 0;
    int64_t deadline = soon();
    while (got < len) {
        ct_sf_turn(f);
        ssize_t n = recv(fd, out + got, len - got, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno == ECONNRESET)) {
            break;
        }
        got += n > 0 ? (size_t)n : 0;
        if (ct_clock_now(NULL) > deadline) {
            fail_msg("got %zu of %zu bytes", got, len);
        }
    }
    return got;
}

void ct_sf_expect(struct server_fixture *f, int fd, const char *want, size_t len)
{
    char got[256];
    assert_in_range(len, 1, sizeof(got));
    assert_int_equal(ct_sf_hear(f, fd, got, len), len);
    assert_memory_equal(got, want, len);
}

void ct_sf_expect_end(struct server_fixture *f, int fd)
{
    char byte;
    assert_int_equal(ct_sf_hear(f, fd, &byte, 1), 0);
    (void)close(fd);
}

struct ct_server_stats ct_sf_stats(struct server_fixture *f)
{
    struct ct_server_stats out;
    ct_server_stats(f->server, &out);
    return out;
}

void ct_sf_until_connections(struct server_fixture *f, size_t want)
{
    int64_t deadline = soon();
    while (ct_sf_stats(f).connections != want) {
        ct_sf_turn(f);
        if (ct_clock_now(NULL) > deadline) {
            fail_msg("%zu connections, not %zu", ct_sf_stats(f).connections, want);
        }
    }
}

void ct_sf_until_waiters(struct server_fixture *f, size_t want)
{
    int64_t deadline = soon();
    while (ct_sf_stats(f).waiters != want) {
        ct_sf_turn(f);
        if (ct_clock_now(NULL) > deadline) {
            fail_msg("%zu waiters, not %zu", ct_sf_stats(f).waiters, want);
        }
    }
}
