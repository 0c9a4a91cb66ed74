/* SPDX-License-Identifier: Apache-2.0
 *
 * ctrun-stat with the token of a job, which it proves to a store and shows to nobody. A thread
 * answers at the port: a store of the job, one of an older ctrun, or a stranger who tries to get
 * the token.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/ctrun-stat/stat_ask.h"
#include "rendezvous/ctrun-stat/stat_end_uv.h"
#include "rendezvous/ctrun-stat/stat_proof.h"
#include "rendezvous/ctrun-stat/stat_stacks.h"
#include "rendezvous/wire/json.h"
#include "rendezvous/wire/listen.h"
#include "tests/lib/loop.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* Far beyond what anything here takes. */
#define LONG_S 60
#define ASKED_MAX 4

#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define UNAUTHORIZED(challenge) \
    "HTTP/1.1 401 X\r\nWWW-Authenticate: " challenge "\r\nContent-Length: 2\r\n\r\n{}"
#define FORBIDDEN "HTTP/1.1 403 X\r\nContent-Length: 17\r\n\r\n{\"error\":\"no \x1b.\"}"
#define OK \
    "HTTP/1.1 200 X\r\nContent-Length: 39\r\n\r\n{\"health\":\"healthy\",\"ended\":true,\"n\":7}"

static const struct ct_token good = {.len = 16, .text = "0123456789abcdef"};
static const struct ct_token bad = {.len = 16, .text = "0123456789abcdeX"};

struct store {
    const struct ct_token *token; /* NULL = it says `answer` whatever it is asked */
    const char *answer;           /* the last word after a right proof, or the only one */
    struct ct_http_proof_page page;
    int asked_count;
    bool was_proved;
    char asked[ASKED_MAX][1024];
    struct ct_listeners listeners;
    struct ct_endpoint where;
    pthread_t thread;
};

/* Reads one request. Returns false at the end of the connection. */
static bool hear(struct store *s, int peer)
{
    char *text = s->asked[s->asked_count];
    size_t len = 0;
    assert_in_range(s->asked_count, 0, ASKED_MAX - 1);
    while (strstr(text, "\r\n\r\n") == NULL) {
        ssize_t n = recv(peer, text + len, sizeof(s->asked[0]) - 1 - len, 0);
        if (n <= 0) {
            return false;
        }
        len += (size_t)n;
    }
    s->asked_count++;
    return true;
}

/* The value of Authorization, "" = there is none. */
static void read_authorization(const char *request, char out[CT_HTTP_PROOF_MAX])
{
    static const char name[] = "\r\nAuthorization: ";
    const char *at = strstr(request, name);
    const char *value = at != NULL ? at + sizeof(name) - 1 : "";
    (void)snprintf(out, CT_HTTP_PROOF_MAX, "%.*s", (int)strcspn(value, "\r"), value);
}

/* One connection, as long as the client keeps it. */
static void *serve(void *arg)
{
    struct store *s = arg;
    struct ct_http_proof proof = {.is_open = false};
    int peer = accept(s->listeners.fds[0], NULL, NULL);
    while (hear(s, peer)) {
        char authorization[CT_HTTP_PROOF_MAX], challenge[CT_HTTP_PROOF_MAX], text[512];
        const char *answer = s->answer;
        read_authorization(s->asked[s->asked_count - 1], authorization);
        if (s->token != NULL &&
            ct_http_proof_challenge(&proof, s->token, &s->page, authorization, challenge)) {
            (void)snprintf(text, sizeof(text), UNAUTHORIZED("%s"), challenge);
            answer = text;
        } else if (s->token != NULL) {
            s->was_proved = ct_http_proof_check(&proof, s->token, &s->page, authorization);
        }
        (void)send(peer, answer, strlen(answer), MSG_NOSIGNAL);
    }
    (void)close(peer);
    return NULL;
}

static void begin(struct store *s, const struct ct_token *token, const char *answer,
                  const char *method, const char *path)
{
    *s = (struct store){.token = token, .answer = answer, .page = {method, path}};
    s->where = (struct ct_endpoint){.host = "127.0.0.1"};
    assert_int_equal(ct_listen((const char *const[]){"127.0.0.1"}, 1, 0, &s->listeners, NULL), 0);
    s->where.port = s->listeners.port;
    (void)fcntl(s->listeners.fds[0], F_SETFL, 0);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

/* Whoever it was has not got the token. */
static void end(struct store *s)
{
    assert_int_equal(pthread_join(s->thread, NULL), 0);
    ct_listeners_fini(&s->listeners);
    for (int i = 0; i < s->asked_count; i++) {
        assert_null(strstr(s->asked[i], good.text));
        assert_null(strstr(s->asked[i], "Bearer"));
    }
}

static void test_the_status_is_asked_for_with_a_proof(void **state)
{
    struct store s;
    struct cJSON *status = NULL;
    (void)state;
    begin(&s, &good, OK, "GET", "/status");
    assert_int_equal(ct_stat_ask(&s.where, &good, LONG_S, &status, NULL), 0);
    end(&s);
    assert_true(s.was_proved);
    assert_int_equal(s.asked_count, 2);
    assert_null(strstr(s.asked[0], "Connection: close"));
    assert_non_null(strstr(s.asked[1], "Connection: close"));
    assert_true(ct_json_number(status, "n", 0) == 7);
    cJSON_Delete(status);
}

static void test_a_store_that_admits_this_machine_asks_for_no_proof(void **state)
{
    struct store s;
    struct cJSON *status = NULL;
    (void)state;
    begin(&s, NULL, OK, "GET", "/status");
    assert_int_equal(ct_stat_ask(&s.where, &bad, LONG_S, &status, NULL), 0);
    end(&s);
    assert_int_equal(s.asked_count, 1);
    cJSON_Delete(status);
}

#define NOT_WANTED                                                                                \
    "this machine is not admitted, and the store does not ask for a proof of the token: the job " \
    "has none, or its ctrun is older; the token was not sent"
#define ANOTHER_WAY \
    "what answers there asks for the token in another way than a store of ctrun; it was not sent"

static void test_nobody_gets_the_token(void **state)
{
    char huge[12000] = "HTTP/1.1 401 X\r\nWWW-Authenticate: CTRUN-Proof nonce=";
    static const struct {
        const struct ct_token *token;
        const char *answer;
        int rc, asked;
        const char *why;
    } cases[] = {
        {NULL, FORBIDDEN, CT_EPERM, 1, NOT_WANTED}, /* an older store */
        {NULL, UNAUTHORIZED("Basic realm=\"ctrun\""), CT_EPROTO, 1, ANOTHER_WAY},
        {NULL, UNAUTHORIZED("Bearer"), CT_EPROTO, 1, ANOTHER_WAY},
        {NULL, "HTTP/1.1 401 X\r\nContent-Length: 0\r\n\r\n", CT_EPROTO, 1, ANOTHER_WAY},
        {NULL, UNAUTHORIZED("CTRUN-Proof nonce=" HEX64 ", answer=" HEX64), CT_EPERM, 1,
         "the token is not that of the job, or no store of ctrun answers there"},
        {&bad, OK, CT_EPERM, 1,
         "the token is not that of the job, or no store of ctrun answers there"},
        {NULL, NULL, CT_EPROTO, 1, ANOTHER_WAY}, /* `huge` */
        {&good, FORBIDDEN, CT_EPERM, 2, "answered with HTTP code 403: no ?."},
        {&good, UNAUTHORIZED("CTRUN-Proof nonce=" HEX64 ", answer=" HEX64), CT_EPROTO, 2,
         "answered with HTTP code 401"}, /* it wants more and more */
    };
    (void)state;
    size_t len = strlen(huge);
    memset(huge + len, 'a', sizeof(huge) - len);
    (void)snprintf(huge + sizeof(huge) - 32, 32, "\r\nContent-Length: 0\r\n\r\n");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct store s;
        struct cJSON *status = NULL;
        struct ct_err err = {0};
        begin(&s, cases[i].token, cases[i].answer != NULL ? cases[i].answer : huge, "GET",
              "/status");
        int rc = ct_stat_ask(&s.where, &good, LONG_S, &status, &err);
        end(&s);
        if (rc != cases[i].rc || s.asked_count != cases[i].asked ||
            strcmp(err.text, cases[i].why) != 0) {
            fail_msg("case %zu: %d after %d requests (%s)", i, rc, s.asked_count, err.text);
        }
        assert_null(status);
    }
}

static void test_stacks_are_asked_for_with_a_proof(void **state)
{
    static const struct {
        const struct ct_token *token;
        const char *answer, *out;
    } cases[] = {
        {&good, "HTTP/1.1 200 X\r\nContent-Length: 27\r\n\r\n{\"text\":\"rank 0 is at a:1\"}",
         "gpu-1:\n  rank 0 is at a:1\n"},
        {NULL, FORBIDDEN,
         "gpu-1:\n  the store does not ask for a proof of the token: the job has none, or its "
         "ctrun is older; the token was not sent\n"},
        {&bad, OK,
         "gpu-1:\n  the token is not that of the job, or no store of ctrun answers there\n"},
        {&good, FORBIDDEN, "gpu-1:\n  no ?.\n"},
    };
    cJSON *status =
        cJSON_Parse("{\"job\":{\"workers\":[{\"rank\":0,\"local_rank\":0,\"host\":\"gpu-1\"}]}}");
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct store s;
        struct ct_buf out = CT_BUF_INIT;
        begin(&s, cases[i].token, cases[i].answer, "POST", "/page/ask/stacks/0/0");
        const struct ct_stat_options options = {
            .timeout_s = LONG_S, .where = s.where, .token = &good};
        assert_int_equal(ct_stat_stacks(&options, status, &out, NULL),
                         i == 0 ? 0 : CT_STAT_STACKS_E_NONE);
        end(&s);
        assert_string_equal(ct_buf_cstr(&out), cases[i].out);
        ct_buf_fini(&out);
    }
    cJSON_Delete(status);
}

/* ---- the end of the job --------------------------------------------------------------------- */

struct heard {
    struct ct_stat_end end;
    bool done, has_ended;
};

static void on_end(void *data, const struct cJSON *verdict)
{
    struct heard *heard = data;
    heard->has_ended = ct_json_number(verdict, "ended", 0) != 0;
    heard->done = true;
    ct_stat_end_close(&heard->end);
}

static void test_the_end_is_asked_for_with_a_proof(void **state)
{
    static const struct {
        const struct ct_token *stores, *ours;
        int asked;
    } cases[] = {{&good, &good, 2}, {&bad, &good, 1}, {NULL, NULL, 1}, {NULL, &good, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct store s;
        uv_loop_t loop;
        struct heard heard = {.done = false};
        begin(&s, cases[i].stores, OK, "GET", "/end");
        ct_loop_begin(&loop);
        assert_int_equal(
            ct_stat_end_open(&heard.end, &loop, &s.where, cases[i].ours, on_end, &heard), 0);
        ct_loop_run_until(&loop, &heard.done);
        ct_loop_end(&loop);
        end(&s);
        assert_int_equal(heard.has_ended, cases[i].stores != &bad);
        assert_int_equal(s.asked_count, cases[i].asked);
        assert_int_equal(s.was_proved, cases[i].stores == &good);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_status_is_asked_for_with_a_proof),
        cmocka_unit_test(test_a_store_that_admits_this_machine_asks_for_no_proof),
        cmocka_unit_test(test_nobody_gets_the_token),
        cmocka_unit_test(test_stacks_are_asked_for_with_a_proof),
        cmocka_unit_test(test_the_end_is_asked_for_with_a_proof),
    };
    ct_json_use_our_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
