/* SPDX-License-Identifier: Apache-2.0
 *
 * The blocking socket against a peer that is slow, closes, or is not there.
 */
#include "tests/lib/ct_test.h"

#include "common/clock.h"
#include "rendezvous/wire/listen.h"
#include "rendezvous/wire/sock.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Far beyond what anything here takes; a hang must fail, a slow machine must not. */
#define LONG_MS 20000
/* For waits that are meant to run out. */
#define SHORT_MS 30

struct pair {
    int ours, theirs;
};

/* A connected TCP socket of ours, and the other end, which blocks. */
static int set_up(void **state)
{
    static const char *const hosts[] = {"127.0.0.1"};
    struct pair *pair = calloc(1, sizeof(*pair));
    struct ct_listeners listeners;
    struct ct_err err = {0};
    assert_int_equal(ct_listen(hosts, 1, 0, &listeners, &err), 0);
    assert_int_equal(ct_sock_connect("127.0.0.1", listeners.port, ct_deadline_in(NULL, LONG_MS),
                                     &pair->ours, &err),
                     0);
    (void)fcntl(listeners.fds[0], F_SETFL, 0);
    pair->theirs = accept(listeners.fds[0], NULL, NULL);
    assert_true(pair->theirs >= 0);
    ct_listeners_fini(&listeners);
    *state = pair;
    return 0;
}

static int tear_down(void **state)
{
    struct pair *pair = *state;
    (void)close(pair->ours);
    (void)close(pair->theirs);
    free(pair);
    return 0;
}

static void test_pieces_arrive_as_one_stream(void **state)
{
    struct pair *pair = *state;
    struct ct_err err = {0};
    char got[8] = "";
    struct iovec iov[] = {{NULL, 0}, {(char *)"ab", 2}, {NULL, 0}, {(char *)"cde", 3}};
    assert_int_equal(ct_sock_send(pair->ours, iov, 4, ct_deadline_in(NULL, LONG_MS), &err), 0);
    assert_int_equal(recv(pair->theirs, got, 5, MSG_WAITALL), 5);
    assert_string_equal(got, "abcde");
    assert_int_equal(send(pair->theirs, "xyz", 3, 0), 3);
    assert_int_equal(ct_sock_recv(pair->ours, got, 2, ct_deadline_in(NULL, LONG_MS), &err), 0);
    assert_memory_equal(got, "xy", 2);
    size_t some = 0;
    assert_int_equal(
        ct_sock_recv_some(pair->ours, got, 8, ct_deadline_in(NULL, LONG_MS), &some, &err), 0);
    assert_int_equal(some, 1);
    assert_int_equal(got[0], 'z');
}

static void test_what_comes_later_is_put_behind_what_has_come(void **state)
{
    struct pair *pair = *state;
    struct ct_err err = {0};
    char got[8] = "";
    assert_int_equal(send(pair->theirs, "ab", 2, 0), 2);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct timespec moment = {.tv_nsec = 20 * CT_NS_PER_MS};
        (void)nanosleep(&moment, NULL);
        _exit(send(pair->theirs, "cd", 2, 0) != 2);
    }
    assert_int_equal(ct_sock_recv(pair->ours, got + 2, 4, ct_deadline_in(NULL, LONG_MS), &err), 0);
    assert_string_equal(got + 2, "abcd");
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void test_nothing_to_send_is_sent_at_once(void **state)
{
    struct pair *pair = *state;
    struct iovec iov[] = {{NULL, 0}};
    assert_int_equal(ct_sock_send(pair->ours, iov, 1, ct_deadline_in(NULL, 0), NULL), 0);
    assert_int_equal(ct_sock_send(pair->ours, iov, 0, ct_deadline_in(NULL, 0), NULL), 0);
}

static void test_a_silent_peer_times_out(void **state)
{
    struct pair *pair = *state;
    struct ct_err err = {0};
    char byte;
    assert_int_equal(ct_sock_recv(pair->ours, &byte, 1, ct_deadline_in(NULL, SHORT_MS), &err),
                     CT_ETIMEDOUT);
    assert_string_equal(err.text, "timed out");
}

static void test_a_peer_that_does_not_read_times_out(void **state)
{
    struct pair *pair = *state;
    struct ct_err err = {0};
    size_t len = (size_t)64 << 20; /* more than the kernel buffers */
    char *bytes = calloc(1, len);
    struct iovec iov[] = {{bytes, len}};
    assert_int_equal(ct_sock_send(pair->ours, iov, 1, ct_deadline_in(NULL, SHORT_MS), &err),
                     CT_ETIMEDOUT);
    assert_true(iov[0].iov_len < len); /* the beginning is gone */
    free(bytes);
}

static void test_the_end_of_the_stream_is_told(void **state)
{
    struct pair *pair = *state;
    struct ct_err err = {0};
    char two[2];
    size_t got = 7;
    assert_int_equal(send(pair->theirs, "x", 1, 0), 1);
    (void)shutdown(pair->theirs, SHUT_WR);
    assert_int_equal(ct_sock_recv(pair->ours, two, 2, ct_deadline_in(NULL, LONG_MS), &err),
                     CT_ECLOSED);
    assert_string_equal(err.text, "closed by the store");
    assert_int_equal(
        ct_sock_recv_some(pair->ours, two, 2, ct_deadline_in(NULL, LONG_MS), &got, &err), 0);
    assert_int_equal(got, 0);
}

static void test_a_reset_is_told_to_both_directions(void **state)
{
    struct pair *pair = *state;
    struct ct_err err = {0};
    const struct linger now = {.l_onoff = 1};
    char byte = 'x';
    struct iovec iov[] = {{&byte, 1}};
    assert_int_equal(setsockopt(pair->theirs, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
    (void)close(pair->theirs);
    pair->theirs = -1;
    assert_int_equal(ct_sock_recv(pair->ours, &byte, 1, ct_deadline_in(NULL, LONG_MS), &err),
                     CT_ECLOSED);
    assert_int_equal(ct_sock_send(pair->ours, iov, 1, ct_deadline_in(NULL, LONG_MS), &err),
                     CT_ECLOSED);
    assert_non_null(strstr(err.text, "send: "));
}

static void test_what_is_no_socket_is_an_error(void **state)
{
    struct ct_err err = {0};
    char byte = 'x';
    struct iovec iov[] = {{&byte, 1}};
    (void)state;
    assert_int_equal(ct_sock_recv(-1, &byte, 1, ct_deadline_in(NULL, SHORT_MS), &err), CT_EIO);
    assert_int_equal(ct_sock_send(-1, iov, 1, ct_deadline_in(NULL, SHORT_MS), &err), CT_EIO);
}

static uint16_t free_port(void)
{
    static const char *const hosts[] = {"127.0.0.1"};
    struct ct_listeners listeners;
    assert_int_equal(ct_listen(hosts, 1, 0, &listeners, NULL), 0);
    ct_listeners_fini(&listeners);
    return listeners.port;
}

static void test_a_refused_connection_names_what_a_name_means(void **state)
{
    struct ct_err err = {0};
    uint16_t port = free_port();
    int fd = -7;
    (void)state;
    assert_int_equal(ct_sock_connect("127.0.0.1", port, ct_deadline_in(NULL, LONG_MS), &fd, &err),
                     CT_ECLOSED);
    assert_string_equal(err.text, "connect: Connection refused");
    /* Any name but localhost, which stands for one address. */
    assert_int_equal(ct_sock_connect("LocalHost", port, ct_deadline_in(NULL, LONG_MS), &fd, &err),
                     CT_ECLOSED);
    assert_non_null(strstr(err.text, ":"));
    assert_int_equal(fd, -7);
}

static void test_an_unknown_host_is_named(void **state)
{
    struct ct_err err = {0};
    int fd;
    (void)state;
    assert_int_equal(
        ct_sock_connect("no-such-host.invalid", 1, ct_deadline_in(NULL, LONG_MS), &fd, &err),
        CT_ENOENT);
    assert_non_null(strstr(err.text, "cannot resolve host 'no-such-host.invalid': "));
    /* No name server is asked for an interface that does not exist, so the reason is certain. */
    assert_int_equal(ct_sock_connect("fe80::1%absent", 1, ct_deadline_in(NULL, LONG_MS), &fd, &err),
                     CT_ENOENT);
    assert_non_null(strstr(err.text, gai_strerror(EAI_NONAME)));
}

static void test_own_addresses_are_told_from_others(void **state)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(1)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(1)};
    (void)state;
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(ct_sock_is_own_address((const struct sockaddr *)&v4));
    v4.sin_addr.s_addr = htonl(0xc0000201); /* 192.0.2.1, for documentation */
    assert_false(ct_sock_is_own_address((const struct sockaddr *)&v4));
    v6.sin6_addr = (struct in6_addr){.s6_addr = {0x20, 0x01, 0x0d, 0xb8, [15] = 1}};
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) { /* without IPv6 nothing is known */
        assert_false(ct_sock_is_own_address((const struct sockaddr *)&v6));
        (void)close(fd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pieces_arrive_as_one_stream, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_comes_later_is_put_behind_what_has_come, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_nothing_to_send_is_sent_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_silent_peer_times_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_peer_that_does_not_read_times_out, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_the_end_of_the_stream_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_reset_is_told_to_both_directions, set_up, tear_down),
        cmocka_unit_test(test_what_is_no_socket_is_an_error),
        cmocka_unit_test(test_a_refused_connection_names_what_a_name_means),
        cmocka_unit_test(test_an_unknown_host_is_named),
        cmocka_unit_test(test_own_addresses_are_told_from_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
