/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is shown what over HTTP in a job with a token: whoever has the token, the read key, a proof,
 * or nothing.
 */
#include "rendezvous/ctrun-stat/stat_ask.h"
#include "rendezvous/ctrun-stat/stat_end_uv.h"
#include "rendezvous/ctrun-stat/stat_stacks.h"
#include "rendezvous/http/page_key.h"
#include "rendezvous/wire/json.h"
#include "rendezvous/wire/limits.h"
#include "rendezvous/wire/listen.h"
#include "tests/lib/http_fixture.h"

#include "common/clock.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

/* The header with the read key of 0123456789abcdef; test_token.c says how it is made. */
#define READ_KEY             \
    "Authorization: Bearer " \
    "fbc6a50b28a06db91b0e7b4fef4db8bd265de561617521ade4e8ebe5c7a2308a\r\n"

/* As Prometheus does from a machine of its own. */
static void test_a_key_admits_who_comes_from_elsewhere(void **state)
{
    struct http_fixture *f = *state;
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
    hf_open_with_token(f, &key);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char request[256];
        int stranger = hf_add(f, false);
        (void)snprintf(request, sizeof(request), "GET /metrics HTTP/1.1\r\nHost: x\r\n%s\r\n",
                       cases[i].header);
        hf_tell(stranger, request);
        hf_expect(f, stranger, cases[i].answer);
        (void)close(stranger);
    }
    hf_close(f);
}

static void crowd_in(struct http_fixture *f, int crowd[CT_HTTP_UNADMITTED])
{
    for (int i = 0; i < CT_HTTP_UNADMITTED; i++) {
        crowd[i] = hf_add(f, false);
        hf_tell(crowd[i], "G");
        (void)uv_run(&f->loop, UV_RUN_NOWAIT); /* who has to make room ends */
    }
}

/* Those who ask for nothing, of the same address here, could hold all connections that those may
 * have who are not admitted. */
static void test_who_has_no_key_locks_out_nobody_who_has_it(void **state)
{
    static const struct ct_token token = {.text = "0123456789abcdef", .len = 16};
    static const char request[] = "GET / HTTP/1.1\r\nHost: x\r\n" READ_KEY "\r\n";
    struct http_fixture *f = *state;
    struct ct_page_key key = {.token = &token};
    int crowd[CT_HTTP_UNADMITTED], more[CT_HTTP_UNADMITTED];
    hf_open_with_token(f, &key);
    crowd_in(f, crowd);
    int reader = hf_add(f, false);
    hf_tell(reader, request);
    hf_expect(f, reader, "HTTP/1.1 200");
    crowd_in(f, more); /* it is the oldest now, but keeps its connection */
    hf_tell(reader, request);
    hf_expect_within(f, reader, "HTTP/1.1 200");
    for (int i = 0; i < CT_HTTP_UNADMITTED; i++) {
        (void)close(crowd[i]);
        (void)close(more[i]);
    }
    (void)close(reader);
    hf_close(f);
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
    struct http_fixture *f = *state;
    static const struct ct_token token = {.text = "0123456789abcdef", .len = 16};
    struct ct_page_key key = {.token = &token};
    static const struct {
        const char *header, *answer;
    } cases[] = {
        {READ_KEY, "HTTP/1.1 403"},
        {"", "HTTP/1.1 403"},
        {"Authorization: Bearer 0123456789abcdef\r\n", "HTTP/1.1 404"},
    };
    struct ct_http_source with_key = hf_source;
    with_key.key = &key;
    with_key.ask = give_answer;
    assert_int_equal(ct_http_open(&f->loop, &with_key, HF_LONG_MS, NULL, &f->http, NULL), 0);
    for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
        char request[256];
        int peer = hf_add(f, i % 2 == 0);
        (void)snprintf(request, sizeof(request),
                       "POST /page/ask/output/0/0 HTTP/1.1\r\nHost: x\r\n%sContent-Length: 0\r\n"
                       "\r\n",
                       cases[i / 2].header);
        hf_tell(peer, request);
        hf_expect(f, peer, cases[i / 2].answer);
        (void)close(peer);
    }
    hf_close(f);
}

/* ---- the proof of the token ----------------------------------------------------------------- */

static const struct ct_token token_of_proofs = {.text = "0123456789abcdef", .len = 16};

static void tell_with(int fd, const struct ct_http_proof_page *page, const char *authorization)
{
    char request[512];
    (void)snprintf(request, sizeof(request),
                   "%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\nContent-Length: 0\r\n\r\n",
                   page->method, page->path, authorization);
    hf_tell(fd, request);
}

/* Asks for a challenge and makes the answer to it. */
static void prove(struct http_fixture *f, int fd, const struct ct_http_proof_page *page,
                  char answer[CT_HTTP_PROOF_MAX])
{
    char open[CT_HTTP_PROOF_MAX], text[4096];
    struct ct_http_proof proof = {.is_open = false};
    assert_int_equal(ct_http_proof_open(&proof, open), 0);
    tell_with(fd, page, open);
    const char *reply = hf_hear(f, fd, text, sizeof(text));
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
    struct http_fixture *f = *state;
    struct ct_page_key key = {.token = &token_of_proofs};
    char answer[CT_HTTP_PROOF_MAX];
    hf_open_with_token(f, &key);
    int stranger = hf_add(f, false), other = hf_add(f, false);
    prove(f, stranger, &status, answer);
    tell_with(other, &status, answer); /* who has overheard it */
    hf_expect(f, other, "HTTP/1.1 403");
    tell_with(stranger, &status, answer);
    hf_expect(f, stranger, "HTTP/1.1 200");
    tell_with(stranger, &status, answer);
    hf_expect(f, stranger, "HTTP/1.1 403");
    hf_tell(stranger, HF_GET("/status"));
    hf_expect(f, stranger, "HTTP/1.1 403");
    prove(f, stranger, &status, answer); /* on the same connection, once more */
    tell_with(stranger, &metrics, answer);
    hf_expect(f, stranger, "HTTP/1.1 403");
    tell_with(stranger, &status, answer);
    hf_expect(f, stranger, "HTTP/1.1 403");
    assert_int_equal(hf_stats(f).denied, 5);
    (void)close(stranger);
    (void)close(other);
    hf_close(f);
}

/* An address that is admitted sees the status anyhow, but must prove the token to ask a worker. */
static void test_a_challenge_is_sent_only_where_it_is_needed(void **state)
{
    static const struct ct_http_proof_page status = {"GET", "/status"},
                                           ask = {"POST", "/page/ask/output/0/0"};
    struct http_fixture *f = *state;
    struct ct_page_key key = {.token = &token_of_proofs};
    struct ct_http_source with_key = hf_source;
    struct ct_http_proof proof;
    char text[CT_HTTP_PROOF_MAX];
    with_key.key = &key;
    with_key.ask = give_answer;
    assert_int_equal(ct_http_open(&f->loop, &with_key, HF_LONG_MS, NULL, &f->http, NULL), 0);
    int friend = hf_add(f, true), stranger = hf_add(f, false);
    assert_int_equal(ct_http_proof_open(&proof, text), 0);
    tell_with(friend, &status, text);
    hf_expect(f, friend, "HTTP/1.1 200");
    for (int i = 0; i < 2; i++) {
        int fd = i == 0 ? friend : stranger;
        prove(f, fd, &ask, text);
        tell_with(fd, &ask, text);
        hf_expect(f, fd, "HTTP/1.1 404"); /* that of give_answer() */
    }
    hf_tell(friend, "POST /page/ask/output/0/0 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    hf_expect(f, friend, "HTTP/1.1 403");
    (void)close(friend);
    (void)close(stranger);
    hf_close(f);
}

/* A connection of ctrun-stat from a machine that is not admitted. */
struct visit {
    struct ct_stat_options options;
    struct cJSON *status;
    struct ct_buf stacks;
    int rc;
    struct ct_err err;
    bool done, has_ended;
    struct ct_stat_end end;
};

static void *visit_status(void *data)
{
    struct visit *v = data;
    v->rc =
        ct_stat_ask(&v->options.where, v->options.token, v->options.timeout_s, &v->status, &v->err);
    __atomic_store_n(&v->done, true, __ATOMIC_RELEASE);
    return NULL;
}

static void *visit_stacks(void *data)
{
    struct visit *v = data;
    cJSON *status =
        cJSON_Parse("{\"job\":{\"workers\":[{\"rank\":0,\"local_rank\":0,\"host\":\"gpu-1\"}]}}");
    v->rc = ct_stat_stacks(&v->options, status, &v->stacks, &v->err);
    cJSON_Delete(status);
    __atomic_store_n(&v->done, true, __ATOMIC_RELEASE);
    return NULL;
}

static void on_end(void *data, const struct cJSON *verdict)
{
    struct visit *v = data;
    v->has_ended = ct_json_number(verdict, "ended", 0) != 0;
    v->done = true;
    ct_stat_end_close(&v->end);
}

/* Hands the next connection to the server as one of a stranger. */
static void take_stranger(struct http_fixture *f, const struct ct_listeners *listeners)
{
    struct pollfd poller = {.fd = listeners->fds[0], .events = POLLIN};
    assert_int_equal(poll(&poller, 1, HF_LONG_MS), 1);
    int fd = accept4(listeners->fds[0], NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ct_http_add(f->http, fd, false, false, NULL), 0);
}

/* Server and client as they are. */
static void visit(struct http_fixture *f, struct visit *v, void *(*what)(void *data))
{
    struct ct_listeners listeners;
    pthread_t thread;
    assert_int_equal(ct_listen((const char *const[]){"127.0.0.1"}, 1, 0, &listeners, NULL), 0);
    v->options.where = (struct ct_endpoint){.host = "127.0.0.1", .port = listeners.port};
    v->options.timeout_s = HF_LONG_MS / 1000;
    if (what == NULL) {
        assert_int_equal(
            ct_stat_end_open(&v->end, &f->loop, &v->options.where, v->options.token, on_end, v), 0);
    } else {
        assert_int_equal(pthread_create(&thread, NULL, what, v), 0);
    }
    take_stranger(f, &listeners);
    int64_t deadline = ct_deadline_in(NULL, HF_LONG_MS);
    while (!__atomic_load_n(&v->done, __ATOMIC_ACQUIRE)) {
        (void)uv_run(&f->loop, UV_RUN_NOWAIT);
        assert_true(ct_clock_now(NULL) < deadline);
    }
    if (what != NULL) {
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    ct_listeners_fini(&listeners);
}

static void test_ctrun_stat_is_shown_all_for_its_proof(void **state)
{
    static const struct ct_token other = {.text = "0123456789abcdeg", .len = 16};
    struct http_fixture *f = *state;
    struct ct_page_key key = {.token = &token_of_proofs};
    struct ct_http_source with_key = hf_source;
    struct visit status = {.options.token = &token_of_proofs}, wrong = {.options.token = &other},
                 none = {.options.token = NULL}, stacks = {.options.token = &token_of_proofs},
                 end = {.options.token = &token_of_proofs};
    with_key.key = &key;
    with_key.ask = give_answer;
    ct_json_use_our_memory();
    assert_int_equal(ct_http_open(&f->loop, &with_key, HF_LONG_MS, NULL, &f->http, NULL), 0);
    visit(f, &status, visit_status);
    assert_int_equal(status.rc, 0);
    assert_non_null(status.status);
    cJSON_Delete(status.status);
    visit(f, &wrong, visit_status);
    assert_int_equal(wrong.rc, CT_EPERM);
    assert_non_null(strstr(wrong.err.text, "the token is not that of the job"));
    visit(f, &none, visit_status);
    assert_int_equal(none.rc, CT_EPERM);
    assert_non_null(strstr(none.err.text, "--token-file"));
    assert_int_equal(hf_stats(f).denied,
                     1); /* the last one alone: who is challenged is not refused */
    visit(f, &stacks, visit_stacks);
    assert_string_equal(ct_buf_cstr(&stacks.stacks), "gpu-1:\n  no machine runs this rank\n");
    ct_buf_fini(&stacks.stacks);
    ct_http_tell_end(f->http, "{\"ended\":true}");
    visit(f, &end, NULL);
    assert_true(end.has_ended);
    key.token = NULL; /* as a store without one, or an older one */
    struct visit old = {.options.token = &token_of_proofs};
    visit(f, &old, visit_status);
    assert_int_equal(old.rc, CT_EPERM);
    assert_non_null(strstr(old.err.text, "the token was not sent"));
    hf_close(f);
}

/* The library bounds the head of a request, and what is in it is read as far as it should go. */
static void test_a_huge_proof_is_refused(void **state)
{
    struct http_fixture *f = *state;
    struct ct_page_key key = {.token = &token_of_proofs};
    static const size_t sizes[] = {200, 4000, 20000};
    static char request[24000];
    hf_open_with_token(f, &key);
    for (size_t i = 0; i < 2 * sizeof(sizes) / sizeof(sizes[0]); i++) {
        int stranger = hf_add(f, false);
        int len = snprintf(request, sizeof(request),
                           "GET /status HTTP/1.1\r\nHost: x\r\nAuthorization: CTRUN-Proof %s",
                           i % 2 == 0 ? "nonce=" : "answer=");
        memset(request + len, 'a', sizes[i / 2]);
        (void)snprintf(request + len + sizes[i / 2], 8, "\r\n\r\n");
        (void)send(stranger, request, strlen(request), MSG_NOSIGNAL);
        char text[4096];
        const char *answer = hf_hear(f, stranger, text, sizeof(text));
        assert_true(*answer == '\0' || strncmp(answer, "HTTP/1.1 4", 10) == 0);
        assert_null(strstr(answer, "WWW-Authenticate"));
        (void)close(stranger);
    }
    hf_close(f);
}

/* There is nothing to prove without one, and no challenge for the page of somebody else. */
static void test_no_challenge_without_a_token_or_for_another_page(void **state)
{
    static const struct ct_http_proof_page status = {"GET", "/status"};
    struct http_fixture *f = *state;
    struct ct_page_key key = {.token = NULL};
    struct ct_http_proof proof;
    char text[CT_HTTP_PROOF_MAX], request[512];
    hf_open_with_token(f, &key);
    int stranger = hf_add(f, false);
    assert_int_equal(ct_http_proof_open(&proof, text), 0);
    tell_with(stranger, &status, text);
    hf_expect(f, stranger, "HTTP/1.1 403");
    key.token = &token_of_proofs;
    (void)snprintf(request, sizeof(request),
                   "GET /status HTTP/1.1\r\nHost: x\r\nOrigin: http://evil.example\r\n"
                   "Authorization: %s\r\n\r\n",
                   text);
    hf_tell(stranger, request);
    hf_expect(f, stranger, "HTTP/1.1 403");
    (void)close(stranger);
    hf_close(f);
}

/* Without a token there is nothing that a stranger could send. */
static void test_no_header_admits_where_there_is_no_token(void **state)
{
    struct http_fixture *f = *state;
    struct ct_page_key key = {.token = NULL};
    hf_open_with_token(f, &key);
    int stranger = hf_add(f, false);
    hf_tell(stranger, "GET /status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \r\n\r\n");
    hf_expect(f, stranger, "HTTP/1.1 403");
    (void)close(stranger);
    hf_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_a_key_admits_who_comes_from_elsewhere, hf_set_up),
        cmocka_unit_test_setup(test_who_has_no_key_locks_out_nobody_who_has_it, hf_set_up),
        cmocka_unit_test_setup(test_the_read_key_asks_no_worker, hf_set_up),
        cmocka_unit_test_setup(test_a_proof_of_the_token_admits_for_one_request, hf_set_up),
        cmocka_unit_test_setup(test_a_challenge_is_sent_only_where_it_is_needed, hf_set_up),
        cmocka_unit_test_setup(test_ctrun_stat_is_shown_all_for_its_proof, hf_set_up),
        cmocka_unit_test_setup(test_a_huge_proof_is_refused, hf_set_up),
        cmocka_unit_test_setup(test_no_challenge_without_a_token_or_for_another_page, hf_set_up),
        cmocka_unit_test_setup(test_no_header_admits_where_there_is_no_token, hf_set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
