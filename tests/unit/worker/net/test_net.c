/* SPDX-License-Identifier: Apache-2.0
 *
 * What leaders tell each other on their control connections, which are socket pairs here: for which
 * host one waits, why a communicator has ended, and goodbye. And a leader that may open no more
 * files while others connect to it.
 */
#include "tests/lib/ct_test.h"

#include "common/alloc.h"
#include "worker/net/net.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

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

/* ---- opening -------------------------------------------------------------------------------- */

/* The store as host 0 of two sees it. */
struct keys {
    struct ct_buf secret, hosts[2];
    struct rlimit files; /* as it was */
};

static struct ct_buf *find_key(struct keys *keys, const char *key)
{
    return strcmp(key, "net/secret") == 0 ? &keys->secret : &keys->hosts[strcmp(key, "net/1") == 0];
}

static int set_key(void *data, const char *key, const void *value, size_t len, struct ct_err *err)
{
    (void)err;
    return ct_buf_append(find_key(data, key), value, len);
}

/* After the last key, one more descriptor is free: for the connection to host 1. */
static int get_key(void *data, const char *key, int64_t timeout_ms, struct ct_buf *out,
                   struct ct_err *err)
{
    struct keys *keys = data;
    struct ct_buf *value = find_key(keys, key);
    (void)timeout_ms, (void)err;
    if (value == &keys->hosts[1]) {
        int next = dup(STDIN_FILENO);
        struct rlimit few = {.rlim_cur = (rlim_t)next + 1, .rlim_max = keys->files.rlim_max};
        assert_true(next >= 0);
        assert_int_equal(close(next), 0);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    }
    return ct_buf_append(out, ct_buf_bytes(value), value->len);
}

/* It had looked again and again until the deadline, and said that another host has not connected.
 */
static void test_a_leader_without_descriptors_says_so(void **state)
{
    (void)state;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    struct keys keys = {.secret = CT_BUF_INIT, .hosts = {CT_BUF_INIT, CT_BUF_INIT}};
    struct ct_err err = {0};
    struct net net;
    int other = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(other, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(other, 8), 0);
    assert_int_equal(getsockname(other, (struct sockaddr *)&at, &len), 0);
    ct_buf_addf(&keys.hosts[1], "127.0.0.1:%d 1 1 0", ntohs(at.sin_port));
    const struct comm_setup setup = {.size = 2,
                                     .local_size = 1,
                                     .nodes = 2,
                                     .store_fd = other, /* its address is this machine's */
                                     .timeout_ms = 30000,
                                     .set = set_key,
                                     .get = get_key,
                                     .data = &keys};
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &keys.files), 0);
    int rc = net_open(&net, &setup, NULL, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &keys.files), 0);
    assert_string_equal(err.text, "cannot accept connections of other hosts (ulimit -n): Too many "
                                  "open files");
    assert_int_equal(rc, CT_ELIMIT);
    ct_buf_fini(&keys.secret);
    ct_buf_fini(&keys.hosts[0]);
    ct_buf_fini(&keys.hosts[1]);
    (void)close(other);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_host_that_moves_on_takes_back_for_whom_it_waited),
        TEST(test_a_failure_is_passed_on_in_the_words_of_who_saw_it_first),
        TEST(test_goodbye_is_no_death),
        TEST(test_what_is_no_control_frame_is_refused),
        cmocka_unit_test(test_a_leader_without_descriptors_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
