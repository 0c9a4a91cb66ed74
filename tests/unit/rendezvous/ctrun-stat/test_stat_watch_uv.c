/* SPDX-License-Identifier: Apache-2.0
 *
 * How a watch begins. The store is a list of failures, and the pauses between questions take no
 * time.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/ctrun-stat/stat_ask.h"
#include "rendezvous/ctrun-stat/stat_watch_uv.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

static struct ct_err failures[4]; /* of the questions, in this order */
static int asked, paused;
static int silences;
static char said[CT_ERR_TEXT_MAX];

int __wrap_ct_stat_ask(const struct ct_endpoint *where, const struct ct_token *token, int timeout_s,
                       struct cJSON **out, struct ct_err *err);
int __wrap_ct_stat_ask(const struct ct_endpoint *where, const struct ct_token *token, int timeout_s,
                       struct cJSON **out, struct ct_err *err)
{
    (void)where;
    (void)token;
    (void)timeout_s;
    (void)out;
    assert_in_range(asked, 0, sizeof(failures) / sizeof(failures[0]) - 1);
    *err = failures[asked++];
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_machine_that_is_not_up_yet_is_waited_for),
        cmocka_unit_test(test_a_port_at_which_nobody_listens_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
