/* SPDX-License-Identifier: Apache-2.0
 *
 * The reader of HTTP replies, whole and cut everywhere.
 */
#include "tests/lib/ct_test.h"

#include "common/clock.h"
#include "rendezvous/wire/http_client.h"
#include "rendezvous/wire/listen.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* Far beyond what anything here takes; a hang must fail, a slow machine must not. */
#define LONG_MS 20000
/* For waits that are meant to run out. */
#define SHORT_MS 30

#define B(text) (text), sizeof(text) - 1

static const struct ct_http_request healthz = {.method = "GET", .path = "/healthz"};
static const struct ct_http_request root = {.method = "GET", .path = "/"};

static const struct {
    const char *bytes;
    size_t len;
    bool ended;
    int rc; /* what it comes to */
    int code;
    const char *body;
} cases[] = {
    {B("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"), false, 0, 200, "{}"},
    {B("HTTP/1.0 503 \r\ncontent-length:\t0 \r\nX: y\r\n\r\n"), false, 0, 503, ""},
    {B("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab"), false, 0, 200, "a"},
    {B("HTTP/1.1 200 OK\r\nX-Other-Length: x\r\nContent-Length: 1\r\n\r\nab"), false, 0, 200, "a"},
    {B("HTTP/1.1 404 Not Found\r\n\r\nlast"), true, 0, 404, "last"},
    {B("HTTP/1.1 404 Not Found\r\n\r\nlast"), false, CT_HTTP_E_MORE, 0, NULL},
    {B("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"), false, CT_HTTP_E_MORE, 0, NULL},
    {B("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"), true, CT_ECLOSED, 0, NULL},
    {B(""), false, CT_HTTP_E_MORE, 0, NULL},
    {B(""), true, CT_ECLOSED, 0, NULL},
    {B("HTTP/1.1 200 OK\r\n"), true, CT_ECLOSED, 0, NULL},
    {B("HTTP/2 200 OK\r\n\r\n"), true, CT_EPROTO, 0, NULL},
    {B("HTTP/1.1 20 OK\r\n\r\n"), true, CT_EPROTO, 0, NULL},
    {B("HTTP/1.1 2000\r\n\r\n"), true, 0, 200, ""},
    {B("SSH-2.0-x\r\n\r\n"), false, CT_EPROTO, 0, NULL},
    {B("\r\n\r\n"), false, CT_EPROTO, 0, NULL},
    {B("HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n"), false, CT_EPROTO, 0, NULL},
    {B("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"), false, CT_EPROTO, 0, NULL},
    {B("HTTP/1.1 200 OK\r\nContent-Length: 1x\r\n\r\n"), false, CT_EPROTO, 0, NULL},
    {B("HTTP/1.1 200 OK\r\nContent-Length: 8388609\r\n\r\n"), false, CT_ELIMIT, 0, NULL},
    {B("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n"), false, CT_ELIMIT, 0,
     NULL},
    {B("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), false, CT_EPROTO, 0,
     NULL},
};

static void test_http_replies_are_parsed_or_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ct_http_reply reply = {0};
        struct ct_err err = {0};
        /* A copy without a NUL behind it, so that a sanitizer sees a read too far. */
        char *bytes = malloc(cases[i].len > 0 ? cases[i].len : 1);
        assert_non_null(bytes);
        memcpy(bytes, cases[i].bytes, cases[i].len);
        int rc = ct_http_reply_parse(bytes, cases[i].len, cases[i].ended, &reply, &err);
        if (rc != cases[i].rc) {
            fail_msg("case %zu gives %d (%s)", i, rc, err.text);
        }
        if (rc == 0) {
            assert_int_equal(reply.code, cases[i].code);
            assert_int_equal(reply.len, strlen(cases[i].body));
            assert_memory_equal(bytes + reply.body, cases[i].body, reply.len);
        }
        assert_int_equal(err.text[0] != '\0', rc < 0);
        free(bytes);
    }
}

static void test_the_first_challenge_is_found(void **state)
{
    static const struct {
        const char *head, *challenge;
    } heads[] = {
        {"HTTP/1.1 401 X\r\nContent-Length: 0\r\n\r\n", ""},
        {"HTTP/1.1 401 X\r\nContent-Length: 0\r\nWWW-Authenticate:\r\n\r\n", ""},
        {"HTTP/1.1 401 X\r\nwww-authenticate: \tBasic x \r\nContent-Length: 0\r\n\r\n", "Basic x"},
        {"HTTP/1.1 401 X\r\nWWW-Authenticate: a\r\nWWW-Authenticate: b\r\nContent-Length: "
         "0\r\n\r\n",
         "a"},
        {"HTTP/1.1 401 X\r\nContent-Length: 0\r\nX: WWW-Authenticate: a\r\n\r\n", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        struct ct_http_reply reply = {0};
        size_t len = strlen(heads[i].head);
        assert_int_equal(ct_http_reply_parse(heads[i].head, len, false, &reply, NULL), 0);
        assert_int_equal(reply.challenge_len, strlen(heads[i].challenge));
        assert_memory_equal(heads[i].head + reply.challenge, heads[i].challenge,
                            reply.challenge_len);
    }
}

static void test_every_prefix_wants_more(void **state)
{
    (void)state;
    for (size_t len = 0; len < cases[0].len; len++) {
        struct ct_http_reply reply;
        assert_int_equal(ct_http_reply_parse(cases[0].bytes, len, false, &reply, NULL),
                         CT_HTTP_E_MORE);
        assert_int_equal(ct_http_reply_parse(cases[0].bytes, len, true, &reply, NULL), CT_ECLOSED);
    }
}

static void test_a_reply_without_end_is_refused(void **state)
{
    (void)state;
    static const char head[] = "HTTP/1.1 200 OK\r\n\r\n";
    size_t len = CT_HTTP_REPLY_MAX + sizeof(head);
    char *bytes = malloc(len);
    struct ct_http_reply reply;
    assert_non_null(bytes);
    memset(bytes, 'x', len);
    assert_int_equal(ct_http_reply_parse(bytes, CT_HTTP_REPLY_HEAD_MAX - 1, false, &reply, NULL),
                     CT_HTTP_E_MORE);
    assert_int_equal(ct_http_reply_parse(bytes, CT_HTTP_REPLY_HEAD_MAX, false, &reply, NULL),
                     CT_ELIMIT);
    memcpy(bytes, head, sizeof(head) - 1);
    assert_int_equal(ct_http_reply_parse(bytes, len, false, &reply, NULL), CT_ELIMIT);
    free(bytes);
}

/* ---- over a socket --------------------------------------------------------------------------- */

/* What a server says when it has heard the request. */
struct server {
    int fd;
    char heard[256];
    const char *answer;
    bool stays; /* open until the client has gone */
};

static void *serve(void *arg)
{
    struct server *s = arg;
    int peer = accept(s->fd, NULL, NULL);
    size_t len = 0;
    while (len < sizeof(s->heard) - 1 && strstr(s->heard, "\r\n\r\n") == NULL) {
        ssize_t n = recv(peer, s->heard + len, sizeof(s->heard) - 1 - len, 0);
        if (n <= 0) {
            break;
        }
        len += (size_t)n;
    }
    (void)send(peer, s->answer, strlen(s->answer), MSG_NOSIGNAL);
    char byte;
    while (s->stays && recv(peer, &byte, 1, 0) > 0) {
    }
    (void)close(peer);
    return NULL;
}

static int get(struct server *s, struct ct_buf *bytes, struct ct_http_reply *reply,
               int64_t timeout_ms, struct ct_err *err)
{
    struct ct_endpoint where = {.host = "127.0.0.1"};
    struct ct_listeners listeners;
    pthread_t thread;
    assert_int_equal(ct_listen((const char *const[]){"127.0.0.1"}, 1, 0, &listeners, err), 0);
    s->fd = listeners.fds[0];
    where.port = listeners.port;
    (void)fcntl(s->fd, F_SETFL, 0);
    assert_int_equal(pthread_create(&thread, NULL, serve, s), 0);
    int rc = ct_http_ask(&where, &healthz, ct_deadline_in(NULL, timeout_ms), bytes, reply, err);
    assert_int_equal(pthread_join(thread, NULL), 0);
    ct_listeners_fini(&listeners);
    return rc;
}

static void test_a_page_is_asked_for_and_found_in_the_bytes(void **state)
{
    struct server s = {.answer = "HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\nno", .stays = true};
    struct ct_buf bytes = CT_BUF_INIT;
    struct ct_http_reply reply = {0};
    struct ct_err err = {0};
    (void)state;
    assert_int_equal(get(&s, &bytes, &reply, LONG_MS, &err), 0);
    assert_int_equal(reply.code, 503);
    assert_int_equal(reply.len, 2);
    assert_memory_equal(ct_buf_bytes(&bytes) + reply.body, "no", 2);
    assert_memory_equal(s.heard, "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:", 39);
    assert_non_null(strstr(s.heard, "\r\nConnection: close\r\n\r\n"));
    ct_buf_fini(&bytes);
}

static void test_an_answer_that_is_cut_off_is_told(void **state)
{
    static const char *const answers[] = {"", "HTTP/1.1 200 OK\r\n",
                                          "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nno"};
    (void)state;
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        struct server s = {.answer = answers[i]};
        struct ct_buf bytes = CT_BUF_INIT;
        struct ct_http_reply reply = {.code = -7};
        assert_int_equal(get(&s, &bytes, &reply, LONG_MS, NULL), CT_ECLOSED);
        assert_int_equal(reply.code, -7);
        ct_buf_fini(&bytes);
    }
}

static void test_a_server_that_stays_silent_times_out(void **state)
{
    struct server s = {.answer = "", .stays = true};
    struct ct_buf bytes = CT_BUF_INIT;
    struct ct_http_reply reply;
    (void)state;
    assert_int_equal(get(&s, &bytes, &reply, SHORT_MS, NULL), CT_ETIMEDOUT);
    ct_buf_fini(&bytes);
}

static void test_nobody_who_listens_is_told(void **state)
{
    struct ct_endpoint where = {.host = "127.0.0.1"};
    struct ct_listeners listeners;
    struct ct_buf bytes = CT_BUF_INIT;
    struct ct_http_reply reply;
    (void)state;
    assert_int_equal(ct_listen((const char *const[]){"127.0.0.1"}, 1, 0, &listeners, NULL), 0);
    where.port = listeners.port;
    ct_listeners_fini(&listeners);
    assert_int_equal(
        ct_http_ask(&where, &root, ct_deadline_in(NULL, LONG_MS), &bytes, &reply, NULL),
        CT_ECLOSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_http_replies_are_parsed_or_refused),
        cmocka_unit_test(test_the_first_challenge_is_found),
        cmocka_unit_test(test_every_prefix_wants_more),
        cmocka_unit_test(test_a_reply_without_end_is_refused),
        cmocka_unit_test(test_a_page_is_asked_for_and_found_in_the_bytes),
        cmocka_unit_test(test_an_answer_that_is_cut_off_is_told),
        cmocka_unit_test(test_a_server_that_stays_silent_times_out),
        cmocka_unit_test(test_nobody_who_listens_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
