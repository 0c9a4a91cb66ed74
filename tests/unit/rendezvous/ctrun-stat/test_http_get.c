/* SPDX-License-Identifier: Apache-2.0
 *
 * The reader of HTTP replies, whole and cut everywhere.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/ctrun-stat/http_get.h"

#include <stdlib.h>

#define B(text) (text), sizeof(text) - 1

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_http_replies_are_parsed_or_refused),
        cmocka_unit_test(test_every_prefix_wants_more),
        cmocka_unit_test(test_a_reply_without_end_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
