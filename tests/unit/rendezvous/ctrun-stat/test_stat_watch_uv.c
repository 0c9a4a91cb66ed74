/* SPDX-License-Identifier: Apache-2.0
 *
 * How a watch begins and ends. The answers of the store are a list, and the pauses between
 * questions take no time.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/ctrun-stat/stat_ask.h"
#include "rendezvous/ctrun-stat/stat_watch_uv.h"
#include "rendezvous/wire/json.h"
#include "rendezvous/wire/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct ct_err failures[4]; /* of the questions, in this order; code 0 = a status comes */
static int asked, paused;
static int silences;
static char said[CT_ERR_TEXT_MAX];

/* A question that fails is under way until the last words are printed. */
static bool until_the_end;
static sem_t in_flight, at_the_end;

int __wrap_ct_stat_ask(const struct ct_endpoint *where, const struct ct_token *token, int timeout_s,
                       struct cJSON **out, struct ct_err *err);
int __wrap_ct_stat_ask(const struct ct_endpoint *where, const struct ct_token *token, int timeout_s,
                       struct cJSON **out, struct ct_err *err)
{
    (void)where;
    (void)token;
    (void)timeout_s;
    assert_in_range(asked, 0, sizeof(failures) / sizeof(failures[0]) - 1);
    const struct ct_err *failure = &failures[asked++];
    if (failure->code == 0) {
        *out = cJSON_Parse("{\"health\":\"healthy\",\"job\":{\"run_id\":\"night\"}}");
        return 0;
    }
    if (until_the_end) {
        (void)sem_post(&in_flight);
        (void)sem_wait(&at_the_end);
    }
    *err = *failure;
    return err->code;
}

int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    (void)fds;
    assert_int_equal(count, 0);
    assert_true(timeout_ms > 0);
    paused++;
    return 0;
}

static int print(void *data, const struct cJSON *status, struct ct_err *err)
{
    (void)data;
    (void)status;
    (void)err;
    fail_msg("there was no answer");
    return 0;
}

static int print_silence(void *data, const struct ct_err *why, struct ct_err *err)
{
    (void)data;
    (void)err;
    silences++;
    (void)snprintf(said, sizeof(said), "%s", why->text);
    return 0;
}

static int watch(struct ct_err *err)
{
    struct ct_stat_watched result = {0};
    const struct ct_stat_watch_options options = {.where = {.host = "192.0.2.1", .port = 29500},
                                                  .timeout_s = 1,
                                                  .out_fd = -1,
                                                  .in_fd = -1,
                                                  .print = print,
                                                  .print_silence = print_silence};
    asked = paused = silences = 0;
    return ct_stat_watch_run(&options, &result, err);
}

/* It ended at once, although one whose machine cannot be reached later is asked again. */
static void test_a_machine_that_is_not_up_yet_is_waited_for(void **state)
{
    struct ct_err err = {0};
    (void)state;
    failures[0] = (struct ct_err){.code = CT_ECLOSED, .sys = EHOSTUNREACH, .text = "no route"};
    failures[1] = failures[0];
    failures[2] = (struct ct_err){.code = CT_ETIMEDOUT, .text = "timed out"};
    failures[3] = (struct ct_err){.code = CT_EPERM, .text = "this machine is not admitted"};
    assert_int_equal(watch(&err), CT_EPERM);
    assert_int_equal(asked, 4);
    assert_int_equal(paused, 3);
    assert_int_equal(silences, 1);
    assert_string_equal(said, "no route");
    assert_string_equal(err.text, "this machine is not admitted");
}

static void test_a_port_at_which_nobody_listens_is_not(void **state)
{
    struct ct_err err = {0};
    (void)state;
    failures[0] = (struct ct_err){.code = CT_ECLOSED, .sys = ECONNREFUSED, .text = "refused"};
    assert_int_equal(watch(&err), CT_ECLOSED);
    assert_int_equal(asked, 1);
    assert_int_equal(silences, 0);
}

/* ---- the end ----------------------------------------------------------------------------------
 */

/* Says how the job has ended, as soon as a question is under way. */
static void *tell_end(void *data)
{
    const struct ct_listeners *listeners = data;
    static const char answer[] = "HTTP/1.1 200 X\r\nContent-Length: 53\r\n\r\n"
                                 "{\"ended\":true,\"run_id\":\"night\",\"outcome\":\"succeeded\"}";
    char request[512];
    int peer = accept(listeners->fds[0], NULL, NULL);
    (void)!recv(peer, request, sizeof(request), 0);
    (void)sem_wait(&in_flight);
    (void)send(peer, answer, strlen(answer), MSG_NOSIGNAL);
    return (void *)(intptr_t)peer;
}

static int print_nothing(void *data, const struct cJSON *status, struct ct_err *err)
{
    (void)data;
    (void)status;
    (void)err;
    return 0;
}

static int cannot_print_end(void *data, const struct cJSON *verdict, struct ct_err *err)
{
    (void)data;
    assert_string_equal(ct_json_text(verdict, "run_id", ""), "night");
    int rc = ct_err_set(err, CT_EIO, "cannot write to standard output");
    (void)sem_post(&at_the_end);
    return rc;
}

/* The failure of a question that was under way was told in its place. */
static void test_it_is_told_why_the_last_words_cannot_be_printed(void **state)
{
    struct ct_listeners listeners;
    struct ct_stat_watched result = {0};
    struct ct_err err = {0};
    pthread_t store;
    void *peer;
    (void)state;
    ct_json_use_our_memory();
    assert_int_equal(ct_listen((const char *const[]){"127.0.0.1"}, 1, 0, &listeners, NULL), 0);
    (void)fcntl(listeners.fds[0], F_SETFL, 0);
    const struct ct_stat_watch_options options = {
        .where = {.host = "127.0.0.1", .port = listeners.port},
        .timeout_s = 1,
        .out_fd = -1,
        .in_fd = -1,
        .print = print_nothing,
        .print_silence = print_silence,
        .print_end = cannot_print_end};
    assert_true(sem_init(&in_flight, 0, 0) == 0 && sem_init(&at_the_end, 0, 0) == 0);
    asked = 0;
    failures[0] = (struct ct_err){.code = 0};
    failures[1] = (struct ct_err){.code = CT_ECLOSED, .sys = ECONNREFUSED, .text = "refused"};
    until_the_end = true;
    assert_int_equal(pthread_create(&store, NULL, tell_end, &listeners), 0);
    int rc = ct_stat_watch_run(&options, &result, &err);
    assert_int_equal(pthread_join(store, &peer), 0);
    until_the_end = false;
    (void)close((int)(intptr_t)peer);
    ct_listeners_fini(&listeners);
    assert_int_equal(asked, 2);
    assert_int_equal(rc, CT_EIO);
    assert_string_equal(err.text, "cannot write to standard output");
    assert_true(result.ended && result.is_known && result.succeeded && result.seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_machine_that_is_not_up_yet_is_waited_for),
        cmocka_unit_test(test_a_port_at_which_nobody_listens_is_not),
        cmocka_unit_test(test_it_is_told_why_the_last_words_cannot_be_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
