/* SPDX-License-Identifier: Apache-2.0
 *
 * Connections that are handed over for HTTP: who gets what, how many, for how long, without memory.
 */
#include "common/clock.h"
#include "rendezvous/http/status.h"
#include "rendezvous/wire/json.h"
#include "rendezvous/wire/limits.h"
#include "tests/lib/fault.h"
#include "tests/lib/http_fixture.h"
#include "tests/lib/loop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static void test_what_is_taken_for_http(void **state)
{
    (void)state;
    for (int byte = 0; byte < 256; byte++) {
        bool upper = strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZ", byte) != NULL && byte != 0;
        assert_int_equal(ct_http_begins((unsigned char)byte), upper);
    }
}

static void test_peers_that_are_not_admitted_get_healthz_alone(void **state)
{
    struct http_fixture *f = *state;
    hf_open(f, HF_LONG_MS);
    int friend = hf_add(f, true), stranger = hf_add(f, false);
    hf_tell(friend, HF_GET("/status"));
    hf_expect(f, friend, "HTTP/1.1 200");
    hf_tell(stranger, HF_GET("/status"));
    hf_expect(f, stranger, "HTTP/1.1 403");
    hf_tell(stranger, HF_GET("/healthz"));
    hf_expect(f, stranger, "HTTP/1.1 200");
    assert_int_equal(hf_stats(f).denied, 1);
    assert_int_equal(hf_stats(f).requests, 3);
    int crowd[CT_HTTP_UNADMITTED];
    for (int i = 0; i < CT_HTTP_UNADMITTED; i++) {
        crowd[i] = hf_add(f, false);
    }
    hf_expect(f, stranger, ""); /* the oldest made room for the last */
    assert_int_equal(hf_stats(f).refused, 1);
    hf_tell(crowd[CT_HTTP_UNADMITTED - 1], HF_GET("/healthz"));
    hf_expect(f, crowd[CT_HTTP_UNADMITTED - 1], "HTTP/1.1 200");
    hf_tell(friend, HF_GET("/healthz"));
    hf_expect(f, friend, "HTTP/1.1 200");
    (void)close(stranger);
    for (int i = 0; i < CT_HTTP_UNADMITTED; i++) {
        (void)close(crowd[i]);
    }
    (void)close(friend);
    hf_close(f);
}

struct lines {
    int count;
    char first[CT_LOG_LINE_MAX + 1];
};

static void keep_first(void *data, enum ct_log_level level, const char *line)
{
    struct lines *lines = data;
    assert_int_equal(level, CT_LOG_WARNING);
    if (lines->count++ == 0) {
        (void)snprintf(lines->first, sizeof(lines->first), "%s", line);
    }
}

/* All were logged as refused "by address". */
static void test_the_log_says_why_a_request_was_refused(void **state)
{
    static const struct {
        bool admitted;
        const char *headers, *why;
    } cases[] = {
        {false, "Host: x\r\n", "this address is not admitted"},
        {true, "Host: x\r\nOrigin: http://evil.example\r\n",
         "another page has asked, as the Origin header says"},
        {true, "Host: x\r\nSec-Fetch-Site: cross-site\r\n",
         "another page has asked, as the Sec-Fetch-Site header says"},
        {true, "Host: evil.example\r\nAccept-Language: en\r\n",
         "the name in the Host header is not known to be of this machine; ask by its address"},
        {true, "Host: a:b\r\nAccept-Language: en\r\n", "the request has no usable Host header"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct http_fixture *f = i == 0 ? *state : NULL;
        struct lines lines = {0};
        const struct ct_log log = {keep_first, &lines, CT_LOG_WARNING};
        char request[256], want[256];
        if (f == NULL) {
            assert_int_equal(hf_set_up((void **)&f), 0);
        }
        hf_open_with_log(f, HF_LONG_MS, &log);
        int peer = hf_add(f, cases[i].admitted);
        (void)snprintf(request, sizeof(request), "GET /status HTTP/1.1\r\n%s\r\n",
                       cases[i].headers);
        hf_tell(peer, request);
        hf_expect(f, peer, "HTTP/1.1 403");
        (void)snprintf(want, sizeof(want), ": %s", cases[i].why);
        assert_int_equal(lines.count, 1);
        assert_memory_equal(lines.first, "store: refused 1 HTTP request, the last from ", 45);
        assert_string_equal(strrchr(lines.first, ':'), want);
        assert_int_equal(hf_stats(f).denied, 1);
        (void)close(peer);
        hf_close(f);
    }
}

/* The page that cannot have the stream of events asks for this again and again. */
static void test_page_data_tells_how_the_job_has_ended(void **state)
{
    struct http_fixture *f = *state;
    char text[4096];
    hf_open(f, HF_LONG_MS);
    int before = hf_add(f, true), after = hf_add(f, true);
    hf_tell(before, HF_GET("/page/data"));
    const char *answer = hf_hear(f, before, text, sizeof(text));
    assert_memory_equal(answer, "HTTP/1.1 200", 12);
    assert_null(strstr(answer, "\"end\""));
    ct_http_tell_end(f->http, "{\"ended\":true}\n");
    hf_tell(after, HF_GET("/page/data"));
    answer = hf_hear(f, after, text, sizeof(text));
    const char *body = strstr(answer, "\r\n\r\n");
    assert_non_null(body);
    cJSON *json = cJSON_Parse(body + 4);
    assert_non_null(json);
    assert_true(cJSON_IsTrue(
        cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(json, "end"), "ended")));
    cJSON_Delete(json);
    (void)close(before);
    (void)close(after);
    hf_close(f);
}

static void wait_for_connections(struct http_fixture *f, size_t count)
{
    int64_t deadline = ct_deadline_in(NULL, HF_LONG_MS);
    while (hf_stats(f).connections > count) {
        (void)uv_run(&f->loop, UV_RUN_NOWAIT);
        assert_true(ct_clock_now(NULL) < deadline);
    }
}

/* They may read what we may, on as few connections as strangers. Only those that have read nothing
 * make room for others. */
static void test_other_users_leave_room_for_us(void **state)
{
    struct http_fixture *f = *state;
    hf_open(f, HF_LONG_MS);
    int crowd[CT_HTTP_UNADMITTED + 1];
    for (int i = 0; i <= CT_HTTP_UNADMITTED; i++) {
        crowd[i] = hf_add_of(f, false, true);
        if (i < CT_HTTP_UNADMITTED) {
            hf_tell(crowd[i], HF_GET("/status"));
            hf_expect(f, crowd[i], "HTTP/1.1 200");
        }
    }
    hf_expect(f, crowd[CT_HTTP_UNADMITTED], "");
    assert_int_equal(hf_stats(f).refused, 1);
    (void)shutdown(crowd[0], SHUT_RDWR); /* makes room for another */
    wait_for_connections(f, CT_HTTP_UNADMITTED - 1);
    int next = hf_add_of(f, false, true);
    hf_tell(next, HF_GET("/status"));
    hf_expect(f, next, "HTTP/1.1 200");
    (void)close(next);
    int friend = hf_add(f, true);
    hf_tell(friend, HF_GET("/status"));
    hf_expect(f, friend, "HTTP/1.1 200");
    for (int i = 0; i <= CT_HTTP_UNADMITTED; i++) {
        (void)close(crowd[i]);
    }
    (void)close(friend);
    hf_close(f);
}

/* A flood within one turn of the loop, in which no connection can end. */
static void test_those_that_make_room_are_bounded(void **state)
{
    enum { COUNT = 2 * CT_HTTP_UNADMITTED + 1 };
    struct http_fixture *f = *state;
    int crowd[COUNT];
    hf_open(f, HF_LONG_MS);
    for (int i = 0; i < COUNT; i++) {
        crowd[i] = hf_add(f, false);
    }
    assert_int_equal(hf_stats(f).connections, COUNT - 1);
    assert_int_equal(hf_stats(f).refused, CT_HTTP_UNADMITTED + 1);
    wait_for_connections(f, CT_HTTP_UNADMITTED);
    int next = hf_add(f, false);
    hf_tell(next, HF_GET("/healthz"));
    hf_expect(f, next, "HTTP/1.1 200");
    (void)close(next);
    for (int i = 0; i < COUNT; i++) {
        (void)close(crowd[i]);
    }
    hf_close(f);
}

static void test_late_ones_are_ended(void **state)
{
    struct http_fixture *f = *state;
    hf_open(f, 50);
    int silent = hf_add(f, true), half = hf_add(f, true);
    hf_tell(half, "GET /sta");
    hf_expect(f, silent, "");
    hf_expect(f, half, "");
    assert_int_equal(hf_stats(f).timeouts, 2);
    assert_int_equal(hf_stats(f).requests, 0);
    (void)close(silent);
    (void)close(half);
    hf_close(f);
}

static void expect_silence(struct http_fixture *f, int fd)
{
    char byte;
    for (int i = 0; i < 100; i++) {
        (void)uv_run(&f->loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
}

static void test_the_end_of_the_job_is_told_to_those_who_wait_for_it(void **state)
{
    struct http_fixture *f = *state;
    hf_open(f, HF_LONG_MS);
    int early = hf_add(f, true), late = hf_add(f, true), stranger = hf_add(f, false);
    hf_tell(stranger, HF_GET("/end"));
    hf_expect(f, stranger, "HTTP/1.1 403");
    assert_false(ct_http_is_telling_end(f->http));
    hf_tell(early, HF_GET("/end"));
    expect_silence(f, early);
    assert_true(ct_http_is_telling_end(f->http));
    ct_http_tell_end(f->http, "{\"ended\":true}");
    hf_expect_within(f, early, "\r\n\r\n{\"ended\":true}\n");
    while (ct_http_is_telling_end(f->http)) {
        (void)uv_run(&f->loop, UV_RUN_NOWAIT);
    }
    hf_tell(late, HF_GET("/end"));
    hf_expect_within(f, late, "\r\n\r\n{\"ended\":true}\n");
    (void)close(early);
    (void)close(late);
    (void)close(stranger);
    hf_close(f);
}

static void test_the_end_of_the_job_is_told_to_those_who_watch(void **state)
{
    struct http_fixture *f = *state;
    hf_open(f, HF_LONG_MS);
    int early = hf_add(f, true), late = hf_add(f, true);
    hf_tell(early, HF_GET("/page/events"));
    hf_expect_within(f, early, "data: {\"seq\":1,");
    assert_false(ct_http_is_telling_end(f->http)); /* nothing is to be told yet */
    ct_http_tell_end(f->http, "{\"ended\":true}\n");
    assert_true(ct_http_is_telling_end(f->http));
    ct_http_tell_end(f->http, "{\"ended\":false}"); /* the first word counts */
    hf_expect_within(f, early, "event: end\ndata: {\"ended\":true}\n\n");
    while (ct_http_is_telling_end(f->http)) {
        (void)uv_run(&f->loop, UV_RUN_NOWAIT);
    }
    hf_tell(late, HF_GET("/page/events")); /* the sample comes first */
    hf_expect_within(f, late, "data: {\"seq\":");
    hf_expect_within(f, late, "event: end\ndata: {\"ended\":true}\n\n");
    (void)close(early);
    (void)close(late);
    hf_close(f);
}

static void test_who_waits_for_the_end_is_told_that_the_job_goes_on(void **state)
{
    struct http_fixture *f = *state;
    hf_open(f, 50);
    int fd = hf_add(f, true);
    for (int i = 0; i < 2; i++) { /* on one connection */
        hf_tell(fd, HF_GET("/end"));
        hf_expect_within(f, fd, "\r\n\r\n{\"ended\":false}\n");
        assert_true(ct_http_is_telling_end(f->http)); /* the next request is expected */
    }
    hf_expect(f, fd, ""); /* none has come in its time */
    int64_t deadline = ct_deadline_in(NULL, HF_LONG_MS);
    while (ct_http_is_telling_end(f->http)) {
        assert_true(ct_clock_now(NULL) < deadline);
    }
    (void)close(fd);
    hf_close(f);
}

static void test_those_who_wait_for_the_end_are_limited_and_may_leave(void **state)
{
    struct http_fixture *f = *state;
    int fds[CT_PAGE_VIEWERS];
    hf_open(f, HF_LONG_MS);
    for (size_t i = 0; i < CT_PAGE_VIEWERS; i++) {
        fds[i] = hf_add(f, true);
        hf_tell(fds[i], HF_GET("/end"));
        expect_silence(f, fds[i]);
    }
    int more = hf_add(f, true);
    hf_tell(more, HF_GET("/end"));
    hf_expect(f, more, "HTTP/1.1 503");
    hf_tell(more, HF_GET("/page/events"));
    hf_expect(f, more, "HTTP/1.1 503");
    (void)close(fds[0]); /* nobody notices yet */
    ct_http_tell_end(f->http, "{}");
    while (ct_http_is_telling_end(f->http)) {
        (void)uv_run(&f->loop, UV_RUN_NOWAIT);
    }
    for (size_t i = 1; i < CT_PAGE_VIEWERS; i++) {
        hf_expect(f, fds[i], "HTTP/1.1 200");
        (void)close(fds[i]);
    }
    (void)close(more);
    hf_close(f);
}

static void test_who_waits_for_the_end_hears_that_the_store_ends(void **state)
{
    struct http_fixture *f = *state;
    char text[64];
    hf_open(f, HF_LONG_MS);
    int fd = hf_add(f, true);
    hf_tell(fd, HF_GET("/end"));
    expect_silence(f, fd);
    ct_http_close(f->http, hf_on_close, &f->closed);
    ct_loop_run_until(&f->loop, &f->closed);
    assert_true(recv(fd, text, sizeof(text), MSG_DONTWAIT) >= 0); /* 503, or the end alone */
    (void)close(fd);
    ct_loop_end(&f->loop);
    free(f);
}

static void test_telling_the_end_survives_lack_of_memory(void **state)
{
    struct http_fixture *f = *state;
    int hit = 1, faults = 0;
    for (int n = 0; hit; n++, faults += hit) {
        char text[4096];
        f->closed = false;
        hf_open(f, HF_LONG_MS);
        int fd = hf_add(f, true);
        hf_tell(fd, HF_GET("/end"));
        ct_fault_begin(n);
        for (int i = 0; i < 100; i++) {
            (void)uv_run(&f->loop, UV_RUN_NOWAIT);
        }
        ct_http_tell_end(f->http, "{\"ended\":true}");
        for (int i = 0; i < 100; i++) {
            (void)uv_run(&f->loop, UV_RUN_NOWAIT);
        }
        hit = ct_fault_hit();
        (void)ct_fault_end();
        ssize_t len = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT);
        text[len > 0 ? len : 0] = '\0';
        assert_true(hit || strstr(text, "{\"ended\":true}\n") != NULL);
        ct_http_close(f->http, hf_on_close, &f->closed);
        ct_loop_run_until(&f->loop, &f->closed);
        (void)close(fd);
    }
    assert_true(faults >= 2);
    ct_loop_end(&f->loop);
    free(f);
}

/* One client that sent requests without waiting for answers held up the whole loop. */
static void test_a_flood_of_requests_leaves_the_loop_to_others(void **state)
{
    enum { COUNT = 1000 };
    struct http_fixture *f = *state;
    hf_open(f, HF_LONG_MS);
    int fd = hf_add(f, true);
    static const char get[] = HF_GET("/healthz");
    size_t len = sizeof(get) - 1;
    char answers[65536];
    assert_true(COUNT * len < sizeof(answers));
    for (size_t i = 0; i < COUNT; i++) {
        memcpy(answers + i * len, get, len);
    }
    assert_int_equal(send(fd, answers, COUNT * len, MSG_NOSIGNAL), (ssize_t)(COUNT * len));
    uint64_t before = 0, most = 0;
    int64_t deadline = ct_deadline_in(NULL, HF_LONG_MS);
    while (hf_stats(f).requests < COUNT) {
        (void)uv_run(&f->loop, UV_RUN_NOWAIT);
        uint64_t now = hf_stats(f).requests;
        most = now - before > most ? now - before : most;
        before = now;
        (void)recv(fd, answers, sizeof(answers), MSG_DONTWAIT);
        assert_true(ct_clock_now(NULL) < deadline);
    }
    assert_in_range(most, 1, COUNT / 20);
    (void)close(fd);
    hf_close(f);
}

static void test_connection_without_memory_is_ended(void **state)
{
    struct http_fixture *f = *state;
    hf_open(f, HF_LONG_MS);
    ct_fault_begin(0);
    int fd = hf_add(f, true);
    assert_true(ct_fault_hit());
    (void)ct_fault_end();
    hf_expect(f, fd, "");
    (void)close(fd);
    hf_close(f);
}

/* The connection lives on after a 500: only this answer found no memory. */
static void test_an_answer_without_memory_is_a_500(void **state)
{
    struct http_fixture *f = *state;
    hf_open(f, HF_LONG_MS);
    int fd = hf_add(f, true);
    hf_tell(fd, HF_GET("/status"));
    ct_fault_begin(0);
    hf_expect(f, fd, "HTTP/1.1 500");
    (void)ct_fault_end();
    hf_tell(fd, HF_GET("/status"));
    hf_expect(f, fd, "HTTP/1.1 200");
    (void)close(fd);
    hf_close(f);
}

static int sweep_open(void *data)
{
    uv_loop_t loop;
    struct ct_http *http = NULL;
    bool closed = false;
    (void)data;
    ct_loop_begin(&loop);
    int rc = ct_http_open(&loop, &hf_source, HF_LONG_MS, NULL, &http, NULL);
    if (rc == 0) {
        ct_http_close(http, hf_on_close, &closed);
        ct_loop_run_until(&loop, &closed);
    }
    ct_loop_end(&loop);
    return rc;
}

static void test_opening_survives_lack_of_memory(void **state)
{
    struct http_fixture *f = *state;
    hf_open(f, HF_LONG_MS);
    hf_close(f);
    assert_true(ct_fault_sweep(sweep_open, NULL, 0) >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_taken_for_http),
        cmocka_unit_test_setup(test_other_users_leave_room_for_us, hf_set_up),
        cmocka_unit_test_setup(test_those_that_make_room_are_bounded, hf_set_up),
        cmocka_unit_test_setup(test_peers_that_are_not_admitted_get_healthz_alone, hf_set_up),
        cmocka_unit_test_setup(test_the_log_says_why_a_request_was_refused, hf_set_up),
        cmocka_unit_test_setup(test_page_data_tells_how_the_job_has_ended, hf_set_up),
        cmocka_unit_test_setup(test_late_ones_are_ended, hf_set_up),
        cmocka_unit_test_setup(test_the_end_of_the_job_is_told_to_those_who_wait_for_it, hf_set_up),
        cmocka_unit_test_setup(test_the_end_of_the_job_is_told_to_those_who_watch, hf_set_up),
        cmocka_unit_test_setup(test_who_waits_for_the_end_is_told_that_the_job_goes_on, hf_set_up),
        cmocka_unit_test_setup(test_those_who_wait_for_the_end_are_limited_and_may_leave,
                               hf_set_up),
        cmocka_unit_test_setup(test_who_waits_for_the_end_hears_that_the_store_ends, hf_set_up),
        cmocka_unit_test_setup(test_telling_the_end_survives_lack_of_memory, hf_set_up),
        cmocka_unit_test_setup(test_a_flood_of_requests_leaves_the_loop_to_others, hf_set_up),
        cmocka_unit_test_setup(test_connection_without_memory_is_ended, hf_set_up),
        cmocka_unit_test_setup(test_an_answer_without_memory_is_a_500, hf_set_up),
        cmocka_unit_test_setup(test_opening_survives_lack_of_memory, hf_set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
