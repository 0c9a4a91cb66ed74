/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP without a library: /healthz for everybody, a reason for the rest, and nobody holds it up.
 */
#include "tests/lib/ct_test.h"

#include "common/clock.h"
#include "rendezvous/http/http_reserve_uv.h"
#include "rendezvous/wire/limits.h"
#include "tests/lib/loop.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* Far beyond what anything here takes. */
#define LONG_MS 20000

#define WHY "no library is here"
#define GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\n\r\n"

struct fixture {
    uv_loop_t loop;
    struct ct_http_reserve *reserve;
    bool closed;
};

static void on_close(void *data)
{
    *(bool *)data = true;
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct ct_err err = {0};
    assert_non_null(f);
    (void)signal(SIGPIPE, SIG_IGN);
    ct_loop_begin(&f->loop);
    assert_int_equal(ct_http_reserve_open(&f->loop, &f->reserve, &err), 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    ct_http_reserve_close(f->reserve, on_close, &f->closed);
    ct_loop_run_until(&f->loop, &f->closed);
    ct_loop_end(&f->loop);
    free(f);
    return 0;
}

/* A connection on which `said` has come already. */
static int ask(struct fixture *f, const char *said)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(send(fds[1], said, strlen(said), MSG_NOSIGNAL), (ssize_t)strlen(said));
    ct_http_reserve_add(f->reserve, fds[0], 501, WHY);
    return fds[1];
}

/* All that comes until the end; closes. */
static const char *hear_all(struct fixture *f, int fd, char text[4096])
{
    int64_t deadline = ct_deadline_in(NULL, LONG_MS);
    size_t len = 0;
    for (ssize_t n = -1; n != 0;) {
        (void)uv_run(&f->loop, UV_RUN_NOWAIT);
        n = recv(fd, text + len, 4095 - len, MSG_DONTWAIT);
        len += n > 0 ? (size_t)n : 0;
        assert_true(ct_clock_now(NULL) < deadline);
    }
    text[len] = '\0';
    (void)close(fd);
    return text;
}

static void expect(struct fixture *f, int fd, const char *begin, const char *finish)
{
    char text[4096];
    (void)hear_all(f, fd, text);
    assert_memory_equal(text, begin, strlen(begin));
    assert_true(strlen(text) >= strlen(finish));
    assert_string_equal(text + strlen(text) - strlen(finish), finish);
}

static void test_health_is_told(void **state)
{
    expect(*state, ask(*state, GET("/healthz")), "HTTP/1.1 200 OK\r\n",
           "\r\n\r\n{\"health\":\"serving\"}\n");
    expect(*state, ask(*state, GET("/healthz?x=1")), "HTTP/1.1 200 OK\r\n", "}\n");
    expect(*state, ask(*state, "GET /healthz HTTP/1.0\n\n"), "HTTP/1.1 200 OK\r\n", "}\n");
    expect(*state, ask(*state, "HEAD /healthz HTTP/1.1\r\n\r\n"), "HTTP/1.1 200 OK\r\n",
           "Content-Length: 21\r\n\r\n");
}

static void test_all_else_hears_why_not(void **state)
{
    static const char *const requests[] = {
        GET("/status"), GET("/healthzz"), "POST /healthz HTTP/1.1\r\n\r\nbody", GET("/"),
        "G\r\n\r\n",    "A\n\n",          "GET  /healthz HTTP/1.1\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        expect(*state, ask(*state, requests[i]), "HTTP/1.1 501 Not Implemented\r\n",
               "{\"error\":\"" WHY "\"}\n");
    }
}

static void test_a_head_may_come_in_pieces(void **state)
{
    struct fixture *f = *state;
    static const char request[] = GET("/healthz");
    int fd = ask(f, "G");
    for (size_t i = 1; i < sizeof(request) - 1; i++) {
        (void)uv_run(&f->loop, UV_RUN_NOWAIT);
        assert_int_equal(send(fd, request + i, 1, MSG_NOSIGNAL), 1);
    }
    expect(f, fd, "HTTP/1.1 200 OK\r\n", "}\n");
}

static void test_an_endless_head_is_refused(void **state)
{
    char request[8192];
    memset(request, 'x', sizeof(request));
    memcpy(request, "GET /status HTTP/1.1\r\nX: ", 25);
    request[sizeof(request) - 1] = '\0';
    expect(*state, ask(*state, request), "HTTP/1.1 501 ", "}\n");
}

/* They are ended by those who come, or by the time. */
static void test_slow_ones_hold_nobody_up(void **state)
{
    struct fixture *f = *state;
    int slow[2 * CT_HTTP_RESERVE];
    char text[4096];
    for (size_t i = 0; i < 2 * CT_HTTP_RESERVE; i++) {
        slow[i] = ask(f, "GET /healthz");
    }
    expect(f, ask(f, GET("/healthz")), "HTTP/1.1 200 OK\r\n", "}\n");
    for (size_t i = 0; i < 2 * CT_HTTP_RESERVE; i++) {
        assert_string_equal(hear_all(f, slow[i], text), "");
    }
}

/* Whoever comes later takes no answer from somebody who has not read it yet. */
static void test_who_has_asked_stays(void **state)
{
    struct fixture *f = *state;
    int slow[CT_HTTP_RESERVE];
    char text[4096];
    int asked = ask(f, GET("/healthz"));
    for (size_t i = 0; i < CT_HTTP_RESERVE; i++) {
        slow[i] = ask(f, "G");
    }
    assert_int_equal(send(asked, "more", 4, MSG_NOSIGNAL), 4);
    expect(f, asked, "HTTP/1.1 200 OK\r\n", "}\n");
    for (size_t i = 0; i < CT_HTTP_RESERVE; i++) {
        assert_string_equal(hear_all(f, slow[i], text), "");
    }
}

int main(void)
{
#define ON_A_LOOP(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        ON_A_LOOP(test_health_is_told),
        ON_A_LOOP(test_all_else_hears_why_not),
        ON_A_LOOP(test_a_head_may_come_in_pieces),
        ON_A_LOOP(test_an_endless_head_is_refused),
        ON_A_LOOP(test_slow_ones_hold_nobody_up),
        ON_A_LOOP(test_who_has_asked_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
