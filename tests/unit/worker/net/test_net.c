/* SPDX-License-Identifier: Apache-2.0
 *
 * What leaders tell each other on their control connections, which are socket pairs here: for which
 * host one waits, why a communicator has ended, and goodbye.
 */
#include "tests/lib/ct_test.h"

#include "common/alloc.h"
#include "worker/net/net.h"

#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define HOSTS 3

static struct net hosts[HOSTS];

static void connect_hosts(int a, int b)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    const struct {
        int node, peer, fd;
    } ends[2] = {{a, b, fds[0]}, {b, a, fds[1]}};
    for (int e = 0; e < 2; e++) {
        struct net *net = &hosts[ends[e].node];
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)ends[e].peer};
        net->peers[ends[e].peer].fd = ends[e].fd;
        assert_int_equal(epoll_ctl(net->epoll, EPOLL_CTL_ADD, ends[e].fd, &event), 0);
    }
}

static int setup(void **state)
{
    (void)state;
    for (int n = 0; n < HOSTS; n++) {
        hosts[n] = (struct net){.node = n, .nodes = HOSTS, .rank = n};
        hosts[n].peers = ct_calloc(HOSTS, sizeof(*hosts[n].peers));
        hosts[n].epoll = epoll_create1(EPOLL_CLOEXEC);
        assert_true(hosts[n].peers != NULL && hosts[n].epoll >= 0);
        for (int p = 0; p < HOSTS; p++) {
            hosts[n].peers[p].fd = -1;
            hosts[n].peers[p].waits_for = -1;
            (void)snprintf(hosts[n].peers[p].name, NET_NAME_MAX, "host %d", p);
        }
    }
    for (int a = 0; a < HOSTS; a++) {
        for (int b = a + 1; b < HOSTS; b++) {
            connect_hosts(a, b);
        }
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (int n = 0; n < HOSTS; n++) {
        net_close(&hosts[n], true);
    }
    return 0;
}

/* Else a host that hangs later would hide behind the one for which it waited before. */
static void test_a_host_that_moves_on_takes_back_for_whom_it_waited(void **state)
{
    (void)state;
    hosts[0].peers[0].waits_for = 2;
    for (int n = 1; n < HOSTS; n++) {
        hosts[n].peers[0].waits_for = 2;
    }
    net_moved(&hosts[0]);
    for (int n = 1; n < HOSTS; n++) {
        assert_int_equal(net_look(&hosts[n], NULL), 0);
        assert_int_equal(hosts[n].peers[0].waits_for, -1);
    }
    /* It says so once: numbers move all the time. */
    net_moved(&hosts[0]);
    char byte;
    assert_int_equal(recv(hosts[1].peers[0].fd, &byte, 1, MSG_DONTWAIT), -1);
}

static void test_a_failure_is_passed_on_in_the_words_of_who_saw_it_first(void **state)
{
    (void)state;
    struct ct_err err = {0};
    net_tell(&hosts[0], "rank 0 has run out of luck");
    assert_int_equal(net_look(&hosts[1], &err), CT_EPEER);
    assert_string_equal(err.text, "host 0 says: rank 0 has run out of luck");
    /* Host 1 ends because of that, and tells host 2 not its own failure but this one. */
    char own[NET_TEXT_MAX];
    assert_true(recv(hosts[2].peers[0].fd, own, sizeof(own), MSG_DONTWAIT) > 0);
    net_tell(&hosts[1], "rank 1 was told to end");
    assert_int_equal(net_look(&hosts[2], &err), CT_EPEER);
    assert_string_equal(err.text, "host 0 says: rank 0 has run out of luck");
}

static void test_goodbye_is_no_death(void **state)
{
    (void)state;
    struct ct_err err = {0};
    net_close(&hosts[0], false);
    assert_int_equal(net_look(&hosts[1], &err), 0);
    assert_int_equal(net_anyone_left(&hosts[1], &err), CT_EPEER);
    assert_string_equal(err.text, "host 0 closed its communicator");
    net_close(&hosts[1], true);
    assert_int_equal(net_look(&hosts[2], &err), CT_EPEER);
    assert_non_null(strstr(err.text, "host 1 has died"));
}

static void test_what_is_no_control_frame_is_refused(void **state)
{
    (void)state;
    static const struct net_frame wrong[] = {
        {.kind = 99, .len = 0},               /* no such kind */
        {.kind = 3, .len = NET_TEXT_MAX + 1}, /* more than there is memory for */
        {.kind = 1, .len = 3},                /* the number of a host has four bytes */
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct ct_err err = {0};
        hosts[1].peers[0].have = 0;
        assert_int_equal(send(hosts[0].peers[1].fd, &wrong[i], sizeof(wrong[i]), 0),
                         sizeof(wrong[i]));
        assert_int_equal(net_look(&hosts[1], &err), CT_EPROTO);
        assert_string_equal(err.text, "host 0 has sent an invalid message");
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_host_that_moves_on_takes_back_for_whom_it_waited),
        TEST(test_a_failure_is_passed_on_in_the_words_of_who_saw_it_first),
        TEST(test_goodbye_is_no_death),
        TEST(test_what_is_no_control_frame_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
