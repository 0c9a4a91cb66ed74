/* SPDX-License-Identifier: Apache-2.0
 *
 * What SIGTERM and SIGUSR1 do to a process, which is a child for each case: it sends them to
 * itself. Its clock stands until the test moves it.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/signal_child.h"

#include "common/clock.h"
#include "trainer/run/stop_signals.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A signal so much later than the first one is the same notice still. */
#define SAME_NOTICE_NS (5 * CT_NS_PER_S)

static _Atomic int64_t now_ns = CT_NS_PER_S;
static bool has_no_threads;

int __wrap_clock_gettime(clockid_t id, struct timespec *out);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*body)(void *),
                          void *data);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*body)(void *),
                          void *data);

int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
    (void)id;
    *out = (struct timespec){.tv_sec = now_ns / CT_NS_PER_S, .tv_nsec = now_ns % CT_NS_PER_S};
    return 0;
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*body)(void *),
                          void *data)
{
    return has_no_threads ? EAGAIN : __real_pthread_create(thread, attr, body, data);
}

/* ---- in a child ------------------------------------------------------------------------------ */

/* A wait that is over with the child's next look, or with the child. */
static void look_again(void)
{
    (void)poll(NULL, 0, 1);
}

static void send(int number)
{
    CT_EXPECT(kill(getpid(), number) == 0);
}

/* Sends it, and returns when a handler has begun with it. */
static void send_and_await(int number)
{
    sigset_t pending;
    send(number);
    do {
        look_again();
        CT_EXPECT(sigpending(&pending) == 0);
    } while (sigismember(&pending, number) == 1);
}

static void await_flag(void)
{
    while (!*ct_stop_signals_asked()) {
        look_again();
    }
}

static void begin(void)
{
    CT_EXPECT(ct_stop_signals_apart(NULL) == 0);
    ct_stop_signals_catch();
    CT_EXPECT(!*ct_stop_signals_asked());
}

static void is_ended_before_they_are_caught(int number)
{
    CT_EXPECT(ct_stop_signals_apart(NULL) == 0);
    send(number);
    for (;;) {
        look_again();
    }
}

static void hears_it(int number)
{
    begin();
    send(number);
    await_flag();
}

/* A launcher may have started it from a thread that holds signals off. */
static void hears_it_with_the_mask_of_its_parent(int number)
{
    sigset_t all;
    CT_EXPECT(sigfillset(&all) == 0 && sigdelset(&all, SIGALRM) == 0);
    CT_EXPECT(sigprocmask(SIG_SETMASK, &all, NULL) == 0);
    hears_it(number);
}

/* The third one is only heard when the second one has had its effect. */
static void takes_more_for_the_same_notice(int number)
{
    hears_it(number);
    now_ns += SAME_NOTICE_NS;
    send_and_await(SIGTERM);
    send_and_await(SIGTERM);
    send_and_await(SIGUSR1);
    send_and_await(SIGUSR1);
}

static void is_ended_by_a_later_one(int number)
{
    hears_it(number == SIGTERM ? SIGUSR1 : SIGTERM);
    now_ns += SAME_NOTICE_NS + 1;
    send(number);
    for (;;) {
        look_again();
    }
}

static void expect_blocked(void)
{
    sigset_t mask;
    CT_EXPECT(pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0);
    CT_EXPECT(sigismember(&mask, SIGTERM) == 1 && sigismember(&mask, SIGUSR1) == 1);
    CT_EXPECT(sigismember(&mask, SIGINT) == 0 && sigismember(&mask, SIGCHLD) == 0);
}

static void *expect_blocked_there(void *unused)
{
    expect_blocked();
    return unused;
}

static void computes_in_threads_without_handlers(int number)
{
    pthread_t thread;
    (void)number;
    begin();
    expect_blocked();
    CT_EXPECT(pthread_create(&thread, NULL, expect_blocked_there, NULL) == 0);
    CT_EXPECT(pthread_join(thread, NULL) == 0);
}

/* ---- tests ------------------------------------------------------------------------------------
 */

static void a_signal_ends_the_process_before_they_are_caught(void **state)
{
    (void)state;
    ct_assert_ended(is_ended_before_they_are_caught, NULL);
}

static void a_signal_that_is_caught_asks_to_stop(void **state)
{
    (void)state;
    ct_assert_outlived(hears_it, NULL);
}

/* It was never heard, and the training went on until it was killed. */
static void a_signal_that_the_parent_held_off_asks_to_stop(void **state)
{
    (void)state;
    ct_assert_outlived(hears_it_with_the_mask_of_its_parent, NULL);
}

static void more_within_a_few_seconds_are_the_same_notice(void **state)
{
    (void)state;
    ct_assert_outlived(takes_more_for_the_same_notice, NULL);
}

static void a_second_one_later_ends_the_process(void **state)
{
    (void)state;
    ct_assert_ended(is_ended_by_a_later_one, NULL);
}

static void no_handler_runs_where_oneDNN_computes(void **state)
{
    (void)state;
    ct_assert_outlived(computes_in_threads_without_handlers, NULL);
}

static void without_a_thread_nothing_changes(void **state)
{
    struct ct_err err = {0};
    sigset_t mask;
    (void)state;
    has_no_threads = true;
    assert_int_equal(ct_stop_signals_apart(&err), ct_code_from_errno(EAGAIN));
    has_no_threads = false;
    assert_string_equal(err.text, "cannot start a thread for signals: Resource temporarily "
                                  "unavailable");
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);
    assert_int_equal(sigismember(&mask, SIGTERM), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signal_ends_the_process_before_they_are_caught),
        cmocka_unit_test(a_signal_that_is_caught_asks_to_stop),
        cmocka_unit_test(a_signal_that_the_parent_held_off_asks_to_stop),
        cmocka_unit_test(more_within_a_few_seconds_are_the_same_notice),
        cmocka_unit_test(a_second_one_later_ends_the_process),
        cmocka_unit_test(no_handler_runs_where_oneDNN_computes),
        cmocka_unit_test(without_a_thread_nothing_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
