/* SPDX-License-Identifier: Apache-2.0
 *
 * Two machines that measure with each other, over the loopback: each is a thread here.
 */
#include "tests/lib/ct_test.h"

#include "launcher/preflight/preflight_net.h"

#include "common/clock.h"
#include "rendezvous/wire/sock.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const unsigned char secret[CT_PREFLIGHT_SECRET] = {1, 2, 3};
static const unsigned char other_secret[CT_PREFLIGHT_SECRET] = {3, 2, 1};

struct machine {
    struct ct_preflight_meeting meeting;
    struct ct_preflight_link link;
    pthread_t thread;
};

static void *measure(void *data)
{
    struct machine *machine = data;
    ct_preflight_measure(&machine->meeting, &machine->link);
    return NULL;
}

/* Makes two machines, 3 and 5; the second one connects. */
static void make(struct machine machines[2])
{
    for (int i = 0; i < 2; i++) {
        machines[i] = (struct machine){.meeting = {
                                           .secret = secret,
                                           .round = 7,
                                           .machine = i == 0 ? 3 : 5,
                                           .partner = i == 0 ? 5 : 3,
                                           .address = "127.0.0.1",
                                       }};
    }
    for (int i = 0; i < 2; i++) { /* each learns the other's port */
        assert_int_equal(
            ct_preflight_listen(&machines[i].meeting.listener, &machines[1 - i].meeting.port, NULL),
            0);
    }
}

static void finish(struct machine machines[2])
{
    (void)close(machines[0].meeting.listener);
    (void)close(machines[1].meeting.listener);
}

static void start(struct machine *machine)
{
    assert_int_equal(pthread_create(&machine->thread, NULL, measure, machine), 0);
}

static void join(struct machine *machine)
{
    assert_int_equal(pthread_join(machine->thread, NULL), 0);
}

static void test_both_learn_their_rate(void **state)
{
    struct machine machines[2];
    (void)state;
    make(machines);
    start(&machines[0]);
    start(&machines[1]);
    join(&machines[0]);
    join(&machines[1]);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(machines[i].link.error, "");
        assert_int_equal(machines[i].link.partner, machines[i].meeting.partner);
        assert_true(machines[i].link.rate > 0);
    }
    assert_true(machines[1].link.latency_s > 0 && machines[1].link.latency_s < 3);
    assert_true(isnan(machines[0].link.latency_s));
    finish(machines);
}

/* More than could be asked one after the other in the time of a pair. */
#define SILENT 40

/* They may be an older round's, or anybody's; most say nothing at all. */
static void test_strangers_are_sent_away(void **state)
{
    struct machine machines[2];
    struct machine stranger;
    int silent[SILENT];
    (void)state;
    make(machines);
    int64_t deadline_ns = ct_deadline_in(NULL, 10000);
    for (int i = 0; i < SILENT; i++) {
        assert_int_equal(
            ct_sock_connect("127.0.0.1", machines[1].meeting.port, deadline_ns, &silent[i], NULL),
            0);
    }
    stranger = machines[1];
    stranger.meeting.secret = other_secret;
    start(&stranger); /* waits in the queue of connections */
    start(&machines[0]);
    join(&stranger);
    assert_string_not_equal(stranger.link.error, "");
    start(&machines[1]);
    join(&machines[1]);
    join(&machines[0]);
    assert_string_equal(machines[0].link.error, "");
    assert_string_equal(machines[1].link.error, "");
    for (int i = 0; i < SILENT; i++) {
        (void)close(silent[i]);
    }
    finish(machines);
}

static void test_a_partner_that_does_not_listen_is_told(void **state)
{
    struct machine machines[2];
    (void)state;
    make(machines);
    (void)close(machines[0].meeting.listener);
    ct_preflight_measure(&machines[1].meeting, &machines[1].link);
    assert_non_null(strstr(machines[1].link.error, "Connection refused"));
    (void)close(machines[1].meeting.listener);
}

static void test_a_partner_that_does_not_come_is_told(void **state)
{
    struct machine machines[2];
    (void)state;
    make(machines);
    ct_preflight_measure(&machines[0].meeting, &machines[0].link);
    assert_string_equal(machines[0].link.error, "it did not connect within 6 s");
    finish(machines);
}

/* Leaves `spare` descriptors. Returns what was allowed before. */
static struct rlimit leave_descriptors(int spare)
{
    struct rlimit before, tight;
    int next = dup(0);
    assert_true(next >= 0);
    (void)close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    tight = before;
    tight.rlim_cur = (rlim_t)(next + spare);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    return before;
}

/* The acceptor neither waits for six seconds nor polls for as long. */
static void test_no_descriptor_is_left(void **state)
{
    struct machine machines[2];
    int silent;
    (void)state;
    make(machines);
    int64_t deadline_ns = ct_deadline_in(NULL, 10000);
    assert_int_equal(
        ct_sock_connect("127.0.0.1", machines[1].meeting.port, deadline_ns, &silent, NULL), 0);
    struct rlimit before = leave_descriptors(0);
    ct_preflight_measure(&machines[0].meeting, &machines[0].link);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_non_null(strstr(machines[0].link.error, "ulimit -n"));
    (void)close(silent);
    finish(machines);
}

/* They would keep the partner out, who has come after them. */
static void test_strangers_make_room_when_descriptors_are_out(void **state)
{
    struct machine machines[2];
    int silent[4];
    (void)state;
    make(machines);
    int64_t deadline_ns = ct_deadline_in(NULL, 10000);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(
            ct_sock_connect("127.0.0.1", machines[1].meeting.port, deadline_ns, &silent[i], NULL),
            0);
    }
    pid_t partner = fork(); /* it has descriptors of its own */
    assert_true(partner >= 0);
    if (partner == 0) {
        ct_preflight_measure(&machines[1].meeting, &machines[1].link);
        _exit(machines[1].link.error[0] == '\0' ? 0 : 1);
    }
    struct rlimit before = leave_descriptors(1);
    ct_preflight_measure(&machines[0].meeting, &machines[0].link);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    int status = -1;
    assert_int_equal(waitpid(partner, &status, 0), partner);
    assert_string_equal(machines[0].link.error, "");
    assert_int_equal(status, 0);
    for (int i = 0; i < 4; i++) {
        (void)close(silent[i]);
    }
    finish(machines);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_learn_their_rate),
        cmocka_unit_test(test_strangers_are_sent_away),
        cmocka_unit_test(test_a_partner_that_does_not_listen_is_told),
        cmocka_unit_test(test_a_partner_that_does_not_come_is_told),
        cmocka_unit_test(test_no_descriptor_is_left),
        cmocka_unit_test(test_strangers_make_room_when_descriptors_are_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
