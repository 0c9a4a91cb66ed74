/* SPDX-License-Identifier: Apache-2.0
 *
 * What ctrun-stat makes of the answers of a store: its status, and where workers stand. A thread is
 * the store; it gives one answer to each connection and keeps what it was asked.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/ctrun-stat/stat_ask.h"
#include "rendezvous/ctrun-stat/stat_stacks.h"
#include "rendezvous/wire/json.h"
#include "rendezvous/wire/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

/* Far beyond what anything here takes. */
#define LONG_S 60
#define ASKED_MAX 4

struct store {
    const char *const *answers; /* "CODE BODY" */
    int count;
    char asked[ASKED_MAX][512];
    struct ct_listeners listeners;
    struct ct_endpoint where;
    pthread_t thread;
};

static void *serve(void *arg)
{
    struct store *s = arg;
    for (int i = 0; i < s->count; i++) {
        int peer = accept(s->listeners.fds[0], NULL, NULL);
        size_t len = 0;
        while (len < sizeof(s->asked[i]) - 1 && strstr(s->asked[i], "\r\n\r\n") == NULL) {
            ssize_t n = recv(peer, s->asked[i] + len, sizeof(s->asked[i]) - 1 - len, 0);
            if (n <= 0) {
                break;
            }
            len += (size_t)n;
        }
        char answer[1024];
        int size =
            snprintf(answer, sizeof(answer), "HTTP/1.1 %.3s X\r\nContent-Length: %zu\r\n\r\n%s",
                     s->answers[i], strlen(s->answers[i] + 4), s->answers[i] + 4);
        (void)send(peer, answer, (size_t)size, MSG_NOSIGNAL);
        (void)close(peer);
    }
    return NULL;
}

static void begin(struct store *s, const char *const *answers, int count)
{
    *s = (struct store){.answers = answers, .count = count};
    s->where = (struct ct_endpoint){.host = "127.0.0.1"};
    assert_int_equal(ct_listen((const char *const[]){"127.0.0.1"}, 1, 0, &s->listeners, NULL), 0);
    s->where.port = s->listeners.port;
    (void)fcntl(s->listeners.fds[0], F_SETFL, 0);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void end(struct store *s)
{
    assert_int_equal(pthread_join(s->thread, NULL), 0);
    ct_listeners_fini(&s->listeners);
}

static void test_a_status_is_given_and_anything_else_is_refused(void **state)
{
    static const struct {
        const char *answer;
        int rc;
        const char *why;
    } cases[] = {
        {"200 {\"health\":\"healthy\",\"n\":7}", 0, ""},
        {"200 {\"health\":\"degraded\",\"n\":7}", 0, ""},
        {"200 {\"health\":\"odd\"}", CT_EFORMAT, "answered with something that is no status"},
        {"200 not JSON", CT_EFORMAT, "answered with something that is no status"},
        {"403 {\"health\":\"healthy\"}", CT_EPERM,
         "this machine is not admitted; if the job has a token, name its file with --token-file or "
         "set CTRUN_TOKEN"},
        {"401 {}", CT_EPROTO, "answered with HTTP code 401"},
        {"503 {\"error\":\"out of \\u001b[2Jmemory\"}", CT_EBUSY,
         "answered with HTTP code 503: out of ?[2Jmemory"},
        {"404 ", CT_EPROTO, "answered with HTTP code 404"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct store s;
        struct cJSON *status = NULL;
        struct ct_err err = {0};
        begin(&s, &cases[i].answer, 1);
        assert_int_equal(ct_stat_ask(&s.where, NULL, LONG_S, &status, &err), cases[i].rc);
        end(&s);
        assert_string_equal(err.text, cases[i].why);
        assert_memory_equal(s.asked[0], "GET /status HTTP/1.1\r\n", 22);
        assert_true((status != NULL) == (cases[i].rc == 0));
        assert_true(status == NULL || ct_json_number(status, "n", 0) == 7);
        cJSON_Delete(status);
    }
}

/* ---- several stores ------------------------------------------------------------------------- */

#define STORES 5
#define ABSENT 2 /* this one is not asked */

struct stores {
    struct ct_listeners listeners[STORES];
    pthread_t thread;
};

/* Answers nobody before all have asked. */
static void *serve_all(void *arg)
{
    struct stores *s = arg;
    int peers[STORES];
    for (int i = 0; i < STORES; i++) {
        peers[i] = i != ABSENT ? accept(s->listeners[i].fds[0], NULL, NULL) : -1;
    }
    for (int i = 0; i < STORES; i++) {
        char request[512], answer[128];
        if (peers[i] < 0 || recv(peers[i], request, sizeof(request), 0) <= 0) {
            continue;
        }
        int size = snprintf(answer, sizeof(answer),
                            "HTTP/1.1 200 X\r\nContent-Length: 26\r\n\r\n"
                            "{\"health\":\"healthy\",\"n\":%d}",
                            i);
        (void)send(peers[i], answer, (size_t)size, MSG_NOSIGNAL);
        (void)close(peers[i]);
    }
    return NULL;
}

static void test_several_stores_are_asked_at_once(void **state)
{
    struct stores s;
    struct ct_endpoint where[STORES];
    const struct ct_endpoint *asked[STORES];
    struct cJSON *answers[STORES];
    (void)state;
    for (int i = 0; i < STORES; i++) {
        assert_int_equal(ct_listen((const char *const[]){"127.0.0.1"}, 1, 0, &s.listeners[i], NULL),
                         0);
        (void)fcntl(s.listeners[i].fds[0], F_SETFL, 0);
        where[i] = (struct ct_endpoint){.host = "127.0.0.1", .port = s.listeners[i].port};
        asked[i] = i != ABSENT ? &where[i] : NULL;
    }
    assert_int_equal(pthread_create(&s.thread, NULL, serve_all, &s), 0);
    assert_int_equal(ct_stat_ask_all(asked, STORES, LONG_S, answers), 0);
    assert_int_equal(pthread_join(s.thread, NULL), 0);
    for (int i = 0; i < STORES; i++) {
        assert_true((answers[i] != NULL) == (i != ABSENT));
        assert_true(i == ABSENT || ct_json_number(answers[i], "n", -1) == i);
        cJSON_Delete(answers[i]);
        ct_listeners_fini(&s.listeners[i]);
    }
}

/* A machine that could not be reached for a moment ended a watch. */
static void test_a_store_out_of_reach_has_not_gone(void **state)
{
    static const struct {
        int code, sys;
        bool is_gone, may_answer;
    } cases[] = {
        {CT_ECLOSED, ECONNREFUSED, true, false},
        {CT_EIO, ECONNRESET, true, false},
        {CT_ECLOSED, 0, true, false}, /* it ended in the middle of its answer */
        {CT_ECLOSED, EHOSTUNREACH, false, true},
        {CT_ECLOSED, ENETUNREACH, false, true},
        {CT_ECLOSED, ETIMEDOUT, false, true},
        {CT_ETIMEDOUT, 0, false, true},
        {CT_EBUSY, 0, false, true},
        {CT_ENOENT, 0, false, false}, /* a name that nobody knows */
        {CT_EPERM, 0, false, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct ct_err err = {.code = cases[i].code, .sys = cases[i].sys};
        assert_int_equal(ct_stat_ask_is_gone(&err), cases[i].is_gone);
        assert_int_equal(ct_stat_ask_may_answer(&err), cases[i].may_answer);
    }
}

#define ASKS_FOR_TOKEN                                                                    \
    "give the job's token with --token-file or CTRUN_TOKEN; a job without one tells this" \
    " to its own user only"

#define WORKER(rank, local_rank, host) \
    "{\"rank\":" #rank ",\"local_rank\":" #local_rank ",\"host\":\"" host "\"}"

static int stacks(const char *document, const char *const *answers, int count, struct store *s,
                  struct ct_buf *out, struct ct_err *err)
{
    cJSON *status = cJSON_Parse(document);
    assert_non_null(status);
    begin(s, answers, count);
    const struct ct_stat_options options = {.timeout_s = LONG_S, .where = s->where};
    int rc = ct_stat_stacks(&options, status, out, err);
    end(s);
    cJSON_Delete(status);
    return rc;
}

static void test_each_machine_is_asked_through_its_local_rank_0(void **state)
{
    static const char *const answers[] = {
        "200 {\"text\":\"rank 0 is at a.py:1\\nrank 1 is at a.py:2\\u001b[2J\"}",
        "504 {\"error\":\"the agent did not answer in time\"}",
        "200 {}",
        "403 {\"error\":\"no\"}",
    };
    struct store s;
    struct ct_buf out = CT_BUF_INIT;
    (void)state;
    assert_int_equal(
        stacks(
            "{\"jobs\":[{\"run_id\":\"a\",\"workers\":[" WORKER(0, 0, "gpu-1") "," WORKER(1, 1, "gpu-1") "," WORKER(
                2, 0,
                "gpu-2") "]},{\"number\":7,\"workers\":[" WORKER(-1, 0,
                                                                 "x") "," WORKER(0, 0,
                                                                                 "gpu-3") "," WORKER(1,
                                                                                                     0,
                                                                                                     "gpu\\u001b"
                                                                                                     "4") "]}]}",
            answers, 4, &s, &out, NULL),
        0);
    assert_string_equal(ct_buf_cstr(&out),
                        "gpu-1, job a:\n  rank 0 is at a.py:1\n  rank 1 is at a.py:2?[2J\n"
                        "gpu-2, job a:\n  the agent did not answer in time\n"
                        "gpu-3, job ?:\n  the answer is of an unknown kind\n"
                        "gpu?4, job ?:\n  " ASKS_FOR_TOKEN "\n");
    static const char *const paths[] = {"0/0", "0/2", "7/0", "7/1"};
    for (int i = 0; i < 4; i++) {
        char first[64];
        (void)snprintf(first, sizeof(first), "POST /page/ask/stacks/%s HTTP/1.1\r\n", paths[i]);
        assert_memory_equal(s.asked[i], first, strlen(first));
        assert_null(strstr(s.asked[i], "Authorization"));
    }
    ct_buf_fini(&out);
}

static void test_a_job_without_workers_is_an_error(void **state)
{
    struct store s;
    struct ct_buf out = CT_BUF_INIT;
    struct ct_err err = {0};
    (void)state;
    assert_int_equal(
        stacks("{\"job\":{\"workers\":[" WORKER(1, 1, "gpu-1") "]}}", NULL, 0, &s, &out, &err),
        CT_STAT_STACKS_E_NONE);
    assert_string_equal(err.text, "no workers run there");
    assert_string_equal(ct_buf_cstr(&out), "");
    ct_buf_fini(&out);
}

/* Nobody was told that all had failed, and the exit code was 0. */
static void test_it_is_told_if_no_machine_gives_a_stack(void **state)
{
    static const char document[] =
        "{\"job\":{\"workers\":[" WORKER(0, 0, "gpu-1") "," WORKER(1, 0, "gpu-2") "]}}";
    static const struct {
        const char *const answers[2];
        int rc;
        const char *why, *out;
    } cases[] = {
        {{"403 {}", "504 {\"error\":\"no\"}"},
         CT_STAT_STACKS_E_NONE,
         "no machine gave a stack; gpu-1: " ASKS_FOR_TOKEN,
         "gpu-1:\n  " ASKS_FOR_TOKEN "\ngpu-2:\n  no\n"},
        {{"200 {\"text\":\"no stack of ranks 0, 1\\nto see it: x\\u001b\\n\"}",
          "200 {\"text\":\"\"}"},
         CT_STAT_STACKS_E_NONE,
         "no machine gave a stack; gpu-1: to see it: x?",
         "gpu-1:\n  no stack of ranks 0, 1\n  to see it: x?\ngpu-2:\n  none of its workers runs "
         "now\n"},
        {{"504 {\"error\":\"no\"}",
          "200 {\"text\":\"no names in the stack of rank 1\\nno stack of rank 2\"}"},
         0,
         "",
         "gpu-1:\n  no\ngpu-2:\n  no names in the stack of rank 1\n  no stack of rank 2\n"},
        {{"504 {\"error\":\"no\"}", "200 {\"text\":\"rank 1 is at a.py:1\\nno stack of rank 2\"}"},
         0,
         "",
         "gpu-1:\n  no\ngpu-2:\n  rank 1 is at a.py:1\n  no stack of rank 2\n"},
        {{"504 {\"error\":\"no\"}", "200 {\"text\":\"words of a later version\"}"},
         0,
         "",
         "gpu-1:\n  no\ngpu-2:\n  words of a later version\n"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct store s;
        struct ct_buf out = CT_BUF_INIT;
        struct ct_err err = {0};
        assert_int_equal(stacks(document, cases[i].answers, 2, &s, &out, &err), cases[i].rc);
        assert_string_equal(err.text, cases[i].why);
        assert_string_equal(ct_buf_cstr(&out), cases[i].out);
        ct_buf_fini(&out);
    }
}

static void test_a_machine_that_cannot_be_asked_has_a_line(void **state)
{
    cJSON *status = cJSON_Parse("{\"job\":{\"workers\":[" WORKER(0, 0, "gpu-1") "]}}");
    struct store s;
    struct ct_buf out = CT_BUF_INIT;
    (void)state;
    begin(&s, NULL, 0);
    end(&s); /* nobody listens at its port now */
    const struct ct_stat_options options = {.timeout_s = LONG_S, .where = s.where};
    assert_int_equal(ct_stat_stacks(&options, status, &out, NULL), CT_STAT_STACKS_E_NONE);
    assert_memory_equal(ct_buf_cstr(&out), "gpu-1:\n  ", 9);
    assert_true(ct_buf_cstr(&out)[9] != '\0');
    cJSON_Delete(status);
    ct_buf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_status_is_given_and_anything_else_is_refused),
        cmocka_unit_test(test_several_stores_are_asked_at_once),
        cmocka_unit_test(test_a_store_out_of_reach_has_not_gone),
        cmocka_unit_test(test_each_machine_is_asked_through_its_local_rank_0),
        cmocka_unit_test(test_a_job_without_workers_is_an_error),
        cmocka_unit_test(test_it_is_told_if_no_machine_gives_a_stack),
        cmocka_unit_test(test_a_machine_that_cannot_be_asked_has_a_line),
    };
    ct_json_use_our_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
