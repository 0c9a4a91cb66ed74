/* SPDX-License-Identifier: Apache-2.0
 *
 * Connections that are handed over for HTTP: who gets what, how many, for how long, without memory.
 */
#include "tests/lib/ct_test.h"

#include "common/clock.h"
#include "rendezvous/http/http_uv.h"
#include "rendezvous/http/page_key.h"
#include "rendezvous/http/status.h"
#include "rendezvous/wire/json.h"
#include "rendezvous/wire/limits.h"
#include "tests/lib/fault.h"
#include "tests/lib/loop.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* Far beyond what anything here takes. */
#define LONG_MS 20000

#define GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\n\r\n"

struct fixture {
    uv_loop_t loop;
    struct ct_http *http;
    bool closed;
};

static int give_status(void *data, struct ct_status_rows *rows, struct cJSON **out)
{
    const struct ct_status_facts facts = {.keys = 1};
    (void)data;
    return ct_status_make(&facts, NULL, NULL, rows, out);
}

static const struct ct_http_source source = {.status = give_status};

/* In a job with a token. */
static void open_with_token(struct fixture *f, struct ct_page_key *key)
{
    struct ct_http_source with_key = source;
    with_key.key = key;
    assert_int_equal(ct_http_open(&f->loop, &with_key, LONG_MS, NULL, &f->http, NULL), 0);
    assert_non_null(f->http);
}

static void open_with_log(struct fixture *f, int64_t request_ms, const struct ct_log *log)
{
    struct ct_err err = {0};
    assert_int_equal(ct_http_open(&f->loop, &source, request_ms, log, &f->http, &err), 0);
    assert_non_null(f->http);
}

static void open_http(struct fixture *f, int64_t request_ms)
{
    open_with_log(f, request_ms, NULL);
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    (void)signal(SIGPIPE, SIG_IGN);
    ct_loop_begin(&f->loop);
    *state = f;
    return 0;
}

static void on_close(void *data)
{
    *(bool *)data = true;
}

static void close_http(struct fixture *f)
{
    ct_http_close(f->http, on_close, &f->closed);
    ct_loop_run_until(&f->loop, &f->closed);
    ct_loop_end(&f->loop);
    free(f);
}

static int add_of(struct fixture *f, bool ours, bool admitted)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    int rc = ct_http_add(f->http, fds[0], ours, admitted, NULL);
    if (rc != 0) {
        assert_int_equal(rc, CT_EBUSY);
        (void)close(fds[0]);
    }
    return fds[1];
}

static int add(struct fixture *f, bool admitted)
{
    return add_of(f, admitted, admitted);
}

/* Turns the loop until `fd` has something: its first bytes as text, "" at the end of the stream. */
static const char *hear(struct fixture *f, int fd, char *text, size_t size)
{
    int64_t deadline = ct_deadline_in(NULL, LONG_MS);
    for (;;) {
        (void)uv_run(&f->loop, UV_RUN_NOWAIT);
        ssize_t n = recv(fd, text, size - 1, MSG_DONTWAIT);
        if (n >= 0 || errno == ECONNRESET) {
            text[n > 0 ? n : 0] = '\0';
            return text;
        }
        assert_true(ct_clock_now(NULL) < deadline);
    }
}

static void tell(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

static void expect(struct fixture *f, int fd, const char *begin)
{
    char text[4096];
    assert_memory_equal(hear(f, fd, text, sizeof(text)), begin, strlen(begin) + (*begin == '\0'));
}

static struct ct_http_stats stats(const struct fixture *f)
{
    struct ct_http_stats out;
    ct_http_stats(f->http, &out);
    return out;
}

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
    struct fixture *f = *state;
    open_http(f, LONG_MS);
    int friend = add(f, true), stranger = add(f, false);
    tell(friend, GET("/status"));
    expect(f, friend, "HTTP/1.1 200");
    tell(stranger, GET("/status"));
    expect(f, stranger, "HTTP/1.1 403");
    tell(stranger, GET("/healthz"));
    expect(f, stranger, "HTTP/1.1 200");
    assert_int_equal(stats(f).denied, 1);
    assert_int_equal(stats(f).requests, 3);
    int crowd[CT_HTTP_UNADMITTED];
    for (int i = 0; i < CT_HTTP_UNADMITTED; i++) {
        crowd[i] = add(f, false);
    }
    expect(f, crowd[CT_HTTP_UNADMITTED - 1], "");
    assert_int_equal(stats(f).refused, 1);
    tell(friend, GET("/healthz"));
    expect(f, friend, "HTTP/1.1 200");
    (void)close(stranger); /* makes room for another */
    int64_t deadline = ct_deadline_in(NULL, LONG_MS);
    while (stats(f).connections > CT_HTTP_UNADMITTED) {
        (void)uv_run(&f->loop, UV_RUN_NOWAIT);
        assert_true(ct_clock_now(NULL) < deadline);
    }
    int next = add(f, false);
    tell(next, GET("/healthz"));
    expect(f, next, "HTTP/1.1 200");
    for (int i = 0; i < CT_HTTP_UNADMITTED; i++) {
        (void)close(crowd[i]);
    }
    (void)close(next);
    (void)close(friend);
    close_http(f);
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
        struct fixture *f = i == 0 ? *state : NULL;
        struct lines lines = {0};
        const struct ct_log log = {keep_first, &lines, CT_LOG_WARNING};
        char request[256], want[256];
        if (f == NULL) {
            assert_int_equal(set_up((void **)&f), 0);
        }
        open_with_log(f, LONG_MS, &log);
        int peer = add(f, cases[i].admitted);
        (void)snprintf(request, sizeof(request), "GET /status HTTP/1.1\r\n%s\r\n",
                       cases[i].headers);
        tell(peer, request);
        expect(f, peer, "HTTP/1.1 403");
        (void)snprintf(want, sizeof(want), ": %s", cases[i].why);
        assert_int_equal(lines.count, 1);
        assert_memory_equal(lines.first, "store: refused 1 HTTP request, the last from ", 45);
        assert_string_equal(strrchr(lines.first, ':'), want);
        assert_int_equal(stats(f).denied, 1);
        (void)close(peer);
        close_http(f);
    }
}

/* The page that cannot have the stream of events asks for this again and again. */
static void test_page_data_tells_how_the_job_has_ended(void **state)
{
    struct fixture *f = *state;
    char text[4096];
    open_http(f, LONG_MS);
    int before = add(f, true), after = add(f, true);
    tell(before, GET("/page/data"));
    const char *answer = hear(f, before, text, sizeof(text));
    assert_memory_equal(answer, "HTTP/1.1 200", 12);
    assert_null(strstr(answer, "\"end\""));
    ct_http_tell_end(f->http, "{\"ended\":true}\n");
    tell(after, GET("/page/data"));
    answer = hear(f, after, text, sizeof(text));
    const char *body = strstr(answer, "\r\n\r\n");
    assert_non_null(body);
    cJSON *json = cJSON_Parse(body + 4);
    assert_non_null(json);
    assert_true(cJSON_IsTrue(
        cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(json, "end"), "ended")));
    cJSON_Delete(json);
    (void)close(before);
    (void)close(after);
    close_http(f);
}

/* The header with the read key of 0123456789abcdef; test_token.c says how it is made. */
#define READ_KEY             \
    "Authorization: Bearer " \
    "fbc6a50b28a06db91b0e7b4fef4db8bd265de561617521ade4e8ebe5c7a2308a\r\n"

/* As Prometheus does from a machine of its own. */
static void test_a_key_admits_who_comes_from_elsewhere(void **state)
{
    struct fixture *f = *state;
    static const struct ct_token token = {.text = "0123456789abcdef", .len = 16};
    struct ct_page_key key = {.token = &token};
    static const struct {
        const char *header, *answer;
    } cases[] = {
        {"", "HTTP/1.1 403"},
        {READ_KEY, "HTTP/1.1 200"},
        {"Authorization: Bearer 0123456789abcdef\r\n", "HTTP/1.1 200"},
        {"Authorization: Bearer 0123456789abcdeg\r\n", "HTTP/1.1 403"},
        {"Authorization: Bearer \r\n", "HTTP/1.1 403"},
        {"Authorization: Basic 0123456789abcdef\r\n", "HTTP/1.1 403"},
    };
    open_with_token(f, &key);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char request[256];
        int stranger = add(f, false);
        (void)snprintf(request, sizeof(request), "GET /metrics HTTP/1.1\r\nHost: x\r\n%s\r\n",
                       cases[i].header);
        tell(stranger, request);
        expect(f, stranger, cases[i].answer);
        (void)close(stranger);
    }
    close_http(f);
}

static int give_answer(void *data, int job, int rank, const char *kind, ct_query_fn fn,
                       void *fn_data, int *id, struct ct_err *err)
{
    (void)data;
    (void)job;
    (void)rank;
    (void)kind;
    (void)fn;
    (void)fn_data;
    (void)id;
    return ct_err_set(err, CT_ENOENT, "no machine runs this rank");
}

/* What workers have written is for those with the token, from wherever they ask. */
static void test_the_read_key_asks_no_worker(void **state)
{
    struct fixture *f = *state;
    static const struct ct_token token = {.text = "0123456789abcdef", .len = 16};
    struct ct_page_key key = {.token = &token};
    static const struct {
        const char *header, *answer;
    } cases[] = {
        {READ_KEY, "HTTP/1.1 403"},
        {"", "HTTP/1.1 403"},
        {"Authorization: Bearer 0123456789abcdef\r\n", "HTTP/1.1 404"},
    };
    struct ct_http_source with_key = source;
    with_key.key = &key;
    with_key.ask = give_answer;
    assert_int_equal(ct_http_open(&f->loop, &with_key, LONG_MS, NULL, &f->http, NULL), 0);
    for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
        char request[256];
        int peer = add(f, i % 2 == 0);
        (void)snprintf(request, sizeof(request),
                       "POST /page/ask/output/0/0 HTTP/1.1\r\nHost: x\r\n%sContent-Length: 0\r\n"
                       "\r\n",
                       cases[i / 2].header);
        tell(peer, request);
        expect(f, peer, cases[i / 2].answer);
        (void)close(peer);
    }
    close_http(f);
}

/* ---- the proof of the token ----------------------------------------------------------------- */

static const struct ct_token token_of_proofs = {.text = "0123456789abcdef", .len = 16};

static void tell_with(int fd, const struct ct_http_proof_page *page, const char *authorization)
{
    char request[512];
    (void)snprintf(request, sizeof(request),
                   "%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\nContent-Length: 0\r\n\r\n",
                   page->method, page->path, authorization);
    tell(fd, request);
}

/* Asks for a challenge and makes the answer to it. */
static void prove(struct fixture *f, int fd, const struct ct_http_proof_page *page,
                  char answer[CT_HTTP_PROOF_MAX])
{
    char open[CT_HTTP_PROOF_MAX], text[4096];
    struct ct_http_proof proof = {.is_open = false};
    assert_int_equal(ct_http_proof_open(&proof, open), 0);
    tell_with(fd, page, open);
    const char *reply = hear(f, fd, text, sizeof(text));
    assert_memory_equal(reply, "HTTP/1.1 401", 12);
    assert_null(strstr(reply, token_of_proofs.text));
    const char *challenge = strstr(reply, "\r\nWWW-Authenticate: ");
    assert_non_null(challenge);
    challenge += strlen("\r\nWWW-Authenticate: ");
    assert_int_equal(ct_http_proof_answer(&proof, &token_of_proofs, page, challenge,
                                          strcspn(challenge, "\r"), answer, NULL),
                     0);
}

/* As ctrun-stat does from a login node. */
static void test_a_proof_of_the_token_admits_for_one_request(void **state)
{
    static const struct ct_http_proof_page status = {"GET", "/status"},
                                           metrics = {"GET", "/metrics"};
    struct fixture *f = *state;
    struct ct_page_key key = {.token = &token_of_proofs};
    char answer[CT_HTTP_PROOF_MAX];
    open_with_token(f, &key);
    int stranger = add(f, false), other = add(f, false);
    prove(f, stranger, &status, answer);
    tell_with(other, &status, answer); /* who has overheard it */
    expect(f, other, "HTTP/1.1 403");
    tell_with(stranger, &status, answer);
    expect(f, stranger, "HTTP/1.1 200");
    tell_with(stranger, &status, answer);
    expect(f, stranger, "HTTP/1.1 403");
    tell(stranger, GET("/status"));
    expect(f, stranger, "HTTP/1.1 403");
    prove(f, stranger, &status, answer); /* on the same connection, once more */
    tell_with(stranger, &metrics, answer);
    expect(f, stranger, "HTTP/1.1 403");
    tell_with(stranger, &status, answer);
    expect(f, stranger, "HTTP/1.1 403");
    assert_int_equal(stats(f).denied, 5);
    (void)close(stranger);
    (void)close(other);
    close_http(f);
}

/* An address that is admitted sees the status anyhow, but must prove the token to ask a worker. */
static void test_a_challenge_is_sent_only_where_it_is_needed(void **state)
{
    static const struct ct_http_proof_page status = {"GET", "/status"},
                                           ask = {"POST", "/page/ask/output/0/0"};
    struct fixture *f = *state;
    struct ct_page_key key = {.token = &token_of_proofs};
    struct ct_http_source with_key = source;
    struct ct_http_proof proof;
    char text[CT_HTTP_PROOF_MAX];
    with_key.key = &key;
    with_key.ask = give_answer;
    assert_int_equal(ct_http_open(&f->loop, &with_key, LONG_MS, NULL, &f->http, NULL), 0);
    int friend = add(f, true), stranger = add(f, false);
    assert_int_equal(ct_http_proof_open(&proof, text), 0);
    tell_with(friend, &status, text);
    expect(f, friend, "HTTP/1.1 200");
    for (int i = 0; i < 2; i++) {
        int fd = i == 0 ? friend : stranger;
        prove(f, fd, &ask, text);
        tell_with(fd, &ask, text);
        expect(f, fd, "HTTP/1.1 404"); /* that of give_answer() */
    }
    tell(friend, "POST /page/ask/output/0/0 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    expect(f, friend, "HTTP/1.1 403");
    (void)close(friend);
    (void)close(stranger);
    close_http(f);
}

/* There is nothing to prove without one, and no challenge for the page of somebody else. */
static void test_no_challenge_without_a_token_or_for_another_page(void **state)
{
    static const struct ct_http_proof_page status = {"GET", "/status"};
    struct fixture *f = *state;
    struct ct_page_key key = {.token = NULL};
    struct ct_http_proof proof;
    char text[CT_HTTP_PROOF_MAX], request[512];
    open_with_token(f, &key);
    int stranger = add(f, false);
    assert_int_equal(ct_http_proof_open(&proof, text), 0);
    tell_with(stranger, &status, text);
    expect(f, stranger, "HTTP/1.1 403");
    key.token = &token_of_proofs;
    (void)snprintf(request, sizeof(request),
                   "GET /status HTTP/1.1\r\nHost: x\r\nOrigin: http://evil.example\r\n"
                   "Authorization: %s\r\n\r\n",
                   text);
    tell(stranger, request);
    expect(f, stranger, "HTTP/1.1 403");
    (void)close(stranger);
    close_http(f);
}

/* Without a token there is nothing that a stranger could send. */
static void test_no_header_admits_where_there_is_no_token(void **state)
{
    struct fixture *f = *state;
    struct ct_page_key key = {.token = NULL};
    open_with_token(f, &key);
    int stranger = add(f, false);
    tell(stranger, "GET /status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \r\n\r\n");
    expect(f, stranger, "HTTP/1.1 403");
    (void)close(stranger);
    close_http(f);
}

/* They may read what we may, on as few connections as strangers. */
static void test_other_users_leave_room_for_us(void **state)
{
    struct fixture *f = *state;
    open_http(f, LONG_MS);
    int crowd[CT_HTTP_UNADMITTED + 1];
    for (int i = 0; i <= CT_HTTP_UNADMITTED; i++) {
        crowd[i] = add_of(f, false, true);
    }
    assert_int_equal(stats(f).refused, 1);
    tell(crowd[0], GET("/status"));
    expect(f, crowd[0], "HTTP/1.1 200");
    int friend = add(f, true);
    tell(friend, GET("/status"));
    expect(f, friend, "HTTP/1.1 200");
    for (int i = 0; i <= CT_HTTP_UNADMITTED; i++) {
        (void)close(crowd[i]);
    }
    (void)close(friend);
    close_http(f);
}

static void test_late_ones_are_ended(void **state)
{
    struct fixture *f = *state;
    open_http(f, 50);
    int silent = add(f, true), half = add(f, true);
    tell(half, "GET /sta");
    expect(f, silent, "");
    expect(f, half, "");
    assert_int_equal(stats(f).timeouts, 2);
    assert_int_equal(stats(f).requests, 0);
    (void)close(silent);
    (void)close(half);
    close_http(f);
}

/* Reads until `text` has come, in as many pieces as it takes. */
static void expect_within(struct fixture *f, int fd, const char *wanted)
{
    char got[4096] = "", piece[512];
    while (strstr(got, wanted) == NULL) {
        const char *more = hear(f, fd, piece, sizeof(piece));
        size_t len = strlen(got);
        assert_true(*more != '\0' && len + strlen(more) < sizeof(got));
        (void)snprintf(got + len, sizeof(got) - len, "%s", more);
    }
}

static void expect_silence(struct fixture *f, int fd)
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
    struct fixture *f = *state;
    open_http(f, LONG_MS);
    int early = add(f, true), late = add(f, true), stranger = add(f, false);
    tell(stranger, GET("/end"));
    expect(f, stranger, "HTTP/1.1 403");
    assert_false(ct_http_is_telling_end(f->http));
    tell(early, GET("/end"));
    expect_silence(f, early);
    assert_true(ct_http_is_telling_end(f->http));
    ct_http_tell_end(f->http, "{\"ended\":true}");
    expect_within(f, early, "\r\n\r\n{\"ended\":true}\n");
    while (ct_http_is_telling_end(f->http)) {
        (void)uv_run(&f->loop, UV_RUN_NOWAIT);
    }
    tell(late, GET("/end"));
    expect_within(f, late, "\r\n\r\n{\"ended\":true}\n");
    (void)close(early);
    (void)close(late);
    (void)close(stranger);
    close_http(f);
}

static void test_the_end_of_the_job_is_told_to_those_who_watch(void **state)
{
    struct fixture *f = *state;
    open_http(f, LONG_MS);
    int early = add(f, true), late = add(f, true);
    tell(early, GET("/page/events"));
    expect_within(f, early, "data: {\"seq\":1,");
    assert_false(ct_http_is_telling_end(f->http)); /* nothing is to be told yet */
    ct_http_tell_end(f->http, "{\"ended\":true}\n");
    assert_true(ct_http_is_telling_end(f->http));
    ct_http_tell_end(f->http, "{\"ended\":false}"); /* the first word counts */
    expect_within(f, early, "event: end\ndata: {\"ended\":true}\n\n");
    while (ct_http_is_telling_end(f->http)) {
        (void)uv_run(&f->loop, UV_RUN_NOWAIT);
    }
    tell(late, GET("/page/events")); /* the sample comes first */
    expect_within(f, late, "data: {\"seq\":");
    expect_within(f, late, "event: end\ndata: {\"ended\":true}\n\n");
    (void)close(early);
    (void)close(late);
    close_http(f);
}

static void test_who_waits_for_the_end_is_told_that_the_job_goes_on(void **state)
{
    struct fixture *f = *state;
    open_http(f, 50);
    int fd = add(f, true);
    for (int i = 0; i < 2; i++) { /* on one connection */
        tell(fd, GET("/end"));
        expect_within(f, fd, "\r\n\r\n{\"ended\":false}\n");
        assert_true(ct_http_is_telling_end(f->http)); /* the next request is expected */
    }
    expect(f, fd, ""); /* none has come in its time */
    int64_t deadline = ct_deadline_in(NULL, LONG_MS);
    while (ct_http_is_telling_end(f->http)) {
        assert_true(ct_clock_now(NULL) < deadline);
    }
    (void)close(fd);
    close_http(f);
}

static void test_those_who_wait_for_the_end_are_limited_and_may_leave(void **state)
{
    struct fixture *f = *state;
    int fds[CT_PAGE_VIEWERS];
    open_http(f, LONG_MS);
    for (size_t i = 0; i < CT_PAGE_VIEWERS; i++) {
        fds[i] = add(f, true);
        tell(fds[i], GET("/end"));
        expect_silence(f, fds[i]);
    }
    int more = add(f, true);
    tell(more, GET("/end"));
    expect(f, more, "HTTP/1.1 503");
    tell(more, GET("/page/events"));
    expect(f, more, "HTTP/1.1 503");
    (void)close(fds[0]); /* nobody notices yet */
    ct_http_tell_end(f->http, "{}");
    while (ct_http_is_telling_end(f->http)) {
        (void)uv_run(&f->loop, UV_RUN_NOWAIT);
    }
    for (size_t i = 1; i < CT_PAGE_VIEWERS; i++) {
        expect(f, fds[i], "HTTP/1.1 200");
        (void)close(fds[i]);
    }
    (void)close(more);
    close_http(f);
}

static void test_who_waits_for_the_end_hears_that_the_store_ends(void **state)
{
    struct fixture *f = *state;
    char text[64];
    open_http(f, LONG_MS);
    int fd = add(f, true);
    tell(fd, GET("/end"));
    expect_silence(f, fd);
    ct_http_close(f->http, on_close, &f->closed);
    ct_loop_run_until(&f->loop, &f->closed);
    assert_true(recv(fd, text, sizeof(text), MSG_DONTWAIT) >= 0); /* 503, or the end alone */
    (void)close(fd);
    ct_loop_end(&f->loop);
    free(f);
}

static void test_the_end_without_memory(void **state)
{
    struct fixture *f = *state;
    int hit = 1, faults = 0;
    for (int n = 0; hit; n++, faults += hit) {
        char text[4096];
        f->closed = false;
        open_http(f, LONG_MS);
        int fd = add(f, true);
        tell(fd, GET("/end"));
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
        ct_http_close(f->http, on_close, &f->closed);
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
    struct fixture *f = *state;
    open_http(f, LONG_MS);
    int fd = add(f, true);
    static const char get[] = GET("/healthz");
    size_t len = sizeof(get) - 1;
    char answers[65536];
    assert_true(COUNT * len < sizeof(answers));
    for (size_t i = 0; i < COUNT; i++) {
        memcpy(answers + i * len, get, len);
    }
    assert_int_equal(send(fd, answers, COUNT * len, MSG_NOSIGNAL), (ssize_t)(COUNT * len));
    uint64_t before = 0, most = 0;
    int64_t deadline = ct_deadline_in(NULL, LONG_MS);
    while (stats(f).requests < COUNT) {
        (void)uv_run(&f->loop, UV_RUN_NOWAIT);
        uint64_t now = stats(f).requests;
        most = now - before > most ? now - before : most;
        before = now;
        (void)recv(fd, answers, sizeof(answers), MSG_DONTWAIT);
        assert_true(ct_clock_now(NULL) < deadline);
    }
    assert_in_range(most, 1, COUNT / 20);
    (void)close(fd);
    close_http(f);
}

static void test_connection_without_memory_is_ended(void **state)
{
    struct fixture *f = *state;
    open_http(f, LONG_MS);
    ct_fault_begin(0);
    int fd = add(f, true);
    assert_true(ct_fault_hit());
    (void)ct_fault_end();
    expect(f, fd, "");
    (void)close(fd);
    close_http(f);
}

/* The connection lives on after a 500: only this answer found no memory. */
static void test_answer_without_memory(void **state)
{
    struct fixture *f = *state;
    open_http(f, LONG_MS);
    int fd = add(f, true);
    tell(fd, GET("/status"));
    ct_fault_begin(0);
    expect(f, fd, "HTTP/1.1 500");
    (void)ct_fault_end();
    tell(fd, GET("/status"));
    expect(f, fd, "HTTP/1.1 200");
    (void)close(fd);
    close_http(f);
}

static int sweep_open(void *data)
{
    uv_loop_t loop;
    struct ct_http *http = NULL;
    bool closed = false;
    (void)data;
    ct_loop_begin(&loop);
    int rc = ct_http_open(&loop, &source, LONG_MS, NULL, &http, NULL);
    if (rc == 0) {
        ct_http_close(http, on_close, &closed);
        ct_loop_run_until(&loop, &closed);
    }
    ct_loop_end(&loop);
    return rc;
}

static void test_no_memory_to_open(void **state)
{
    struct fixture *f = *state;
    open_http(f, LONG_MS);
    close_http(f);
    assert_true(ct_fault_sweep(sweep_open, NULL, 0) >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_taken_for_http),
        cmocka_unit_test_setup(test_a_key_admits_who_comes_from_elsewhere, set_up),
        cmocka_unit_test_setup(test_the_read_key_asks_no_worker, set_up),
        cmocka_unit_test_setup(test_a_proof_of_the_token_admits_for_one_request, set_up),
        cmocka_unit_test_setup(test_a_challenge_is_sent_only_where_it_is_needed, set_up),
        cmocka_unit_test_setup(test_no_challenge_without_a_token_or_for_another_page, set_up),
        cmocka_unit_test_setup(test_no_header_admits_where_there_is_no_token, set_up),
        cmocka_unit_test_setup(test_other_users_leave_room_for_us, set_up),
        cmocka_unit_test_setup(test_peers_that_are_not_admitted_get_healthz_alone, set_up),
        cmocka_unit_test_setup(test_the_log_says_why_a_request_was_refused, set_up),
        cmocka_unit_test_setup(test_page_data_tells_how_the_job_has_ended, set_up),
        cmocka_unit_test_setup(test_late_ones_are_ended, set_up),
        cmocka_unit_test_setup(test_the_end_of_the_job_is_told_to_those_who_wait_for_it, set_up),
        cmocka_unit_test_setup(test_the_end_of_the_job_is_told_to_those_who_watch, set_up),
        cmocka_unit_test_setup(test_who_waits_for_the_end_is_told_that_the_job_goes_on, set_up),
        cmocka_unit_test_setup(test_those_who_wait_for_the_end_are_limited_and_may_leave, set_up),
        cmocka_unit_test_setup(test_who_waits_for_the_end_hears_that_the_store_ends, set_up),
        cmocka_unit_test_setup(test_the_end_without_memory, set_up),
        cmocka_unit_test_setup(test_a_flood_of_requests_leaves_the_loop_to_others, set_up),
        cmocka_unit_test_setup(test_connection_without_memory_is_ended, set_up),
        cmocka_unit_test_setup(test_answer_without_memory, set_up),
        cmocka_unit_test_setup(test_no_memory_to_open, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
