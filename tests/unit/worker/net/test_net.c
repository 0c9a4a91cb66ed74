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
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
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

/* A data loader that was forked has copies of the connections. A leader whose peer had said goodbye
 * looked at the same end again and again, for ever. */
static void test_goodbye_is_heard_once_also_if_a_fork_has_the_connection(void **state)
{
    (void)state;
    struct ct_err err = {0};
    int begun[2];
    char byte = 0;
    assert_int_equal(pipe(begun), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (int p = 1; p < HOSTS; p++) {
            (void)close(hosts[0].peers[p].fd); /* host 0 is a process of its own */
        }
        (void)!write(begun[1], "", 1);
        (void)pause();
    }
    assert_int_equal(read(begun[0], &byte, 1), 1);
    net_close(&hosts[0], false);
    (void)alarm(30); /* it would look for ever */
    assert_int_equal(net_look(&hosts[1], &err), 0);
    assert_int_equal(net_anyone_left(&hosts[1], &err), CT_EPEER);
    (void)alarm(0);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    (void)close(begun[0]);
    (void)close(begun[1]);
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

/* What accept4(2) fails with; 0 = it works. */
static int accept_errno;

int __real_accept4(int fd, struct sockaddr *from, socklen_t *len, int flags);
int __wrap_accept4(int fd, struct sockaddr *from, socklen_t *len, int flags);
int __wrap_accept4(int fd, struct sockaddr *from, socklen_t *len, int flags)
{
    if (accept_errno != 0) {
        errno = accept_errno;
        return -1;
    }
    return __real_accept4(fd, from, len, flags);
}

/* The store as host 0 of two sees it. */
struct keys {
    struct ct_buf secret, hosts[2];
    bool few;            /* this process may open one more file */
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

/* With `few`, one more descriptor is free after the last key: for the connection to host 1. */
static int get_key(void *data, const char *key, int64_t timeout_ms, struct ct_buf *out,
                   struct ct_err *err)
{
    struct keys *keys = data;
    struct ct_buf *value = find_key(keys, key);
    (void)timeout_ms, (void)err;
    if (value == &keys->hosts[1] && keys->few) {
        int next = dup(STDIN_FILENO);
        struct rlimit few = {.rlim_cur = (rlim_t)next + 1, .rlim_max = keys->files.rlim_max};
        assert_true(next >= 0);
        assert_int_equal(close(next), 0);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    }
    return ct_buf_append(out, ct_buf_bytes(value), value->len);
}

/* Host 0 opens its connections. Host 1 listens, and does not answer. */
static int open_as_leader(bool few, struct ct_err *err)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    struct keys keys = {.secret = CT_BUF_INIT, .hosts = {CT_BUF_INIT, CT_BUF_INIT}, .few = few};
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
    int rc = net_open(&net, &setup, NULL, err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &keys.files), 0);
    ct_buf_fini(&keys.secret);
    ct_buf_fini(&keys.hosts[0]);
    ct_buf_fini(&keys.hosts[1]);
    (void)close(other);
    return rc;
}

/* It had looked again and again until the deadline, and said that another host has not connected.
 */
static void test_a_leader_without_descriptors_says_so(void **state)
{
    struct ct_err err = {0};
    (void)state;
    assert_int_equal(open_as_leader(true, &err), CT_ELIMIT);
    assert_string_equal(err.text, "cannot accept connections of other hosts (ulimit -n): Too many "
                                  "open files");
}

/* It had used a core until the deadline: poll(2) does not wait while a connection is there. */
static void test_a_leader_on_a_machine_without_descriptors_or_memory_says_so(void **state)
{
    static const struct {
        int errnum;
        const char *text;
    } rows[] = {
        {ENFILE, "cannot accept connections of other hosts: Too many open files in system"},
        {ENOBUFS, "cannot accept connections of other hosts: No buffer space available"},
        {ENOMEM, "cannot accept connections of other hosts: Cannot allocate memory"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ct_err err = {0};
        accept_errno = rows[i].errnum;
        assert_true(open_as_leader(false, &err) < 0);
        assert_non_null(strstr(err.text, rows[i].text));
    }
    accept_errno = 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_host_that_moves_on_takes_back_for_whom_it_waited),
        TEST(test_a_failure_is_passed_on_in_the_words_of_who_saw_it_first),
        TEST(test_goodbye_is_no_death),
        TEST(test_goodbye_is_heard_once_also_if_a_fork_has_the_connection),
        TEST(test_what_is_no_control_frame_is_refused),
        cmocka_unit_test(test_a_leader_without_descriptors_says_so),
        cmocka_unit_test(test_a_leader_on_a_machine_without_descriptors_or_memory_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
