/* SPDX-License-Identifier: Apache-2.0
 *
 * The server on real sockets. Server and clients share one thread: the loop is turned until the
 * client has what it waits for, so every order of events is the test's choice.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/loop.h"

#include "common/clock.h"
#include "rendezvous/limits.h"
#include "rendezvous/server_uv.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define Z7 "\0\0\0\0\0\0\0"
#define HELLO "\x00\xce\xf7\x85\x3c"
#define PING "\x0d\x01\x02\x03\x04"
#define PONG "\x01\x02\x03\x04"
#define SET_K_V "\x01\x02" Z7 "/k\x01" Z7 "v"
#define GET_K "\x03\x02" Z7 "/k"
#define WAIT_K "\x06\x01" Z7 "\x02" Z7 "/k"
#define VALUE_V "\x01" Z7 "v"
#define B(text) (text), sizeof(text) - 1

/* More than one slice of wakes, fewer than the usual 1024 descriptors hold (two per client). */
#define MANY (CT_WAKE_SLICE + 44)

struct fixture {
    uv_loop_t loop;
    struct ct_server *server;
    struct ct_log log;
    char last_warning[CT_LOG_LINE_MAX];
    bool closed;
};

static void note(void *data, enum ct_log_level level, const char *line)
{
    struct fixture *f = data;
    if (level <= CT_LOG_WARNING) {
        (void)snprintf(f->last_warning, sizeof(f->last_warning), "%s", line);
    }
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    (void)signal(SIGPIPE, SIG_IGN);
    ct_loop_begin(&f->loop);
    f->log = (struct ct_log){note, f, CT_LOG_DEBUG};
    const struct ct_server_options options = {.log = &f->log};
    struct ct_err err = {0};
    assert_int_equal(ct_server_open(&f->loop, &options, &f->server, &err), 0);
    assert_int_not_equal(ct_server_port(f->server), 0);
    *state = f;
    return 0;
}

static void on_server_closed(void *data)
{
    struct fixture *f = data;
    f->closed = true;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    ct_server_close(f->server, on_server_closed, f);
    ct_loop_end(&f->loop);
    assert_true(f->closed);
    free(f);
    return 0;
}

/* ---- clients -------------------------------------------------------------------------------- */

static void turn(struct fixture *f)
{
    (void)uv_run(&f->loop, UV_RUN_NOWAIT);
}

static int64_t soon(void)
{
    return ct_deadline_in(NULL, 20000);
}

static int client_at(const struct sockaddr *addr, socklen_t len)
{
    int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (connect(fd, addr, len) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

static int client(struct fixture *f)
{
    struct sockaddr_in addr = {
        .sin_family = AF_INET,
        .sin_port = htons(ct_server_port(f->server)),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    int fd = client_at((const struct sockaddr *)&addr, sizeof(addr));
    assert_true(fd >= 0);
    return fd;
}

static void tell(int fd, const char *bytes, size_t len)
{
    assert_int_equal(send(fd, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
}

/* Receives up to `len` bytes, turning the loop; returns how many came before the end of the
 * stream. */
static size_t hear(struct fixture *f, int fd, char *out, size_t len)
{
    size_t got = 0;
    int64_t deadline = soon();
    while (got < len) {
        turn(f);
        ssize_t n = recv(fd, out + got, len - got, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno == ECONNRESET)) {
            break;
        }
        got += n > 0 ? (size_t)n : 0;
        if (ct_clock_now(NULL) > deadline) {
            fail_msg("got %zu of %zu bytes", got, len);
        }
    }
    return got;
}

static void expect(struct fixture *f, int fd, const char *want, size_t len)
{
    char got[256];
    assert_in_range(len, 1, sizeof(got));
    assert_int_equal(hear(f, fd, got, len), len);
    assert_memory_equal(got, want, len);
}

static void expect_end(struct fixture *f, int fd)
{
    char byte;
    assert_int_equal(hear(f, fd, &byte, 1), 0);
    (void)close(fd);
}

static struct ct_server_stats stats(struct fixture *f)
{
    struct ct_server_stats out;
    ct_server_stats(f->server, &out);
    return out;
}

static void until_connections(struct fixture *f, size_t want)
{
    int64_t deadline = soon();
    while (stats(f).connections != want) {
        turn(f);
        if (ct_clock_now(NULL) > deadline) {
            fail_msg("%zu connections, not %zu", stats(f).connections, want);
        }
    }
}

static void until_waiters(struct fixture *f, size_t want)
{
    int64_t deadline = soon();
    while (stats(f).waiters != want) {
        turn(f);
        if (ct_clock_now(NULL) > deadline) {
            fail_msg("%zu waiters, not %zu", stats(f).waiters, want);
        }
    }
}

/* ---- serving -------------------------------------------------------------------------------- */

static void test_requests_in_one_segment(void **state)
{
    struct fixture *f = *state;
    int fd = client(f);
    tell(fd, B(HELLO PING SET_K_V GET_K));
    expect(f, fd, B(PONG VALUE_V));
    assert_int_equal(stats(f).requests, 4);
    assert_int_equal(stats(f).keys, 1);
    assert_int_equal(stats(f).accepted, 1);
    (void)close(fd);
    until_connections(f, 0);
}

static void test_one_byte_per_segment(void **state)
{
    struct fixture *f = *state;
    int fd = client(f);
    static const char bytes[] = HELLO SET_K_V GET_K;
    for (size_t i = 0; i < sizeof(bytes) - 1; i++) {
        tell(fd, bytes + i, 1);
        turn(f);
    }
    expect(f, fd, B(VALUE_V));
    (void)close(fd);
}

static void test_half_closed_client_gets_its_answers(void **state)
{
    struct fixture *f = *state;
    int fd = client(f);
    tell(fd, B(HELLO SET_K_V GET_K));
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    expect(f, fd, B(VALUE_V));
    expect_end(f, fd);
}

static void test_violation_ends_one_connection_only(void **state)
{
    struct fixture *f = *state;
    int good = client(f), bad = client(f);
    tell(good, B(HELLO SET_K_V PING));
    expect(f, good, B(PONG));
    tell(bad, B(HELLO GET_K "\xff"));
    expect(f, bad, B(VALUE_V));
    expect_end(f, bad);
    tell(good, B(GET_K));
    expect(f, good, B(VALUE_V));
    assert_int_equal(stats(f).protocol_errors, 1);
    assert_non_null(strstr(f->last_warning, "127.0.0.1:"));
    assert_non_null(strstr(f->last_warning, "unknown operation 255"));
    (void)close(good);
}

static void test_more_waiters_than_one_slice(void **state)
{
    struct fixture *f = *state;
    static int fds[MANY];
    for (int i = 0; i < MANY; i++) {
        fds[i] = client(f);
        tell(fds[i], B(HELLO WAIT_K));
        turn(f);
    }
    until_waiters(f, MANY);
    int setter = client(f);
    tell(setter, B(HELLO SET_K_V PING));
    expect(f, setter, B(PONG));
    for (int i = 0; i < MANY; i++) {
        expect(f, fds[i], B("\0"));
        (void)close(fds[i]);
    }
    assert_int_equal(stats(f).waiters, 0);
    (void)close(setter);
}

static void test_waiter_that_left_is_forgotten(void **state)
{
    struct fixture *f = *state;
    int fd = client(f);
    tell(fd, B(HELLO WAIT_K));
    until_waiters(f, 1);
    (void)close(fd);
    until_waiters(f, 0);
    until_connections(f, 0);
}

/* ---- slow readers --------------------------------------------------------------------------- */

/* Stores 8 MiB at /k through the wire. */
static char *store_big(struct fixture *f, int fd)
{
    char *big = malloc(CT_MAX_VALUE_LEN);
    assert_non_null(big);
    for (size_t i = 0; i < CT_MAX_VALUE_LEN; i++) {
        big[i] = (char)(i * 2654435761u >> 11);
    }
    tell(fd, B(HELLO "\x01\x02" Z7 "/k\0\0\x80\0\0\0\0\0"));
    for (size_t sent = 0; sent < CT_MAX_VALUE_LEN;) {
        ssize_t n = send(fd, big + sent, CT_MAX_VALUE_LEN - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        sent += n > 0 ? (size_t)n : 0;
        turn(f);
    }
    tell(fd, B(PING));
    expect(f, fd, B(PONG));
    return big;
}

static void test_slow_reader_stalls_itself_alone(void **state)
{
    struct fixture *f = *state;
    enum { GETS = 6 };
    int fd = client(f), other = client(f);
    char *big = store_big(f, other);
    tell(fd, B(HELLO));
    for (int i = 0; i < GETS; i++) {
        tell(fd, B(GET_K));
    }
    tell(fd, B(PING));
    /* Nobody reads `fd`; the others are served all the same, and not all six were answered. */
    for (int i = 0; i < 50; i++) {
        tell(other, B(PING));
        expect(f, other, B(PONG));
    }
    uint64_t so_far = stats(f).requests;
    assert_true(so_far < 3 + 50 + 1 + GETS);
    char *got = malloc(8 + CT_MAX_VALUE_LEN);
    assert_non_null(got);
    for (int i = 0; i < GETS; i++) {
        assert_int_equal(hear(f, fd, got, 8 + CT_MAX_VALUE_LEN), 8 + CT_MAX_VALUE_LEN);
        assert_int_equal(memcmp(got + 8, big, CT_MAX_VALUE_LEN), 0);
    }
    expect(f, fd, B(PONG));
    free(got);
    free(big);
    (void)close(fd);
    (void)close(other);
}

static void test_close_while_replies_are_unsent(void **state)
{
    struct fixture *f = *state;
    int fd = client(f);
    char *big = store_big(f, fd);
    tell(fd, B(GET_K GET_K GET_K));
    for (int i = 0; i < 10; i++) {
        turn(f);
    }
    ct_server_reset(f->server);
    until_connections(f, 0);
    free(big);
    (void)close(fd);
}

static void test_reader_that_leaves(void **state)
{
    struct fixture *f = *state;
    int fd = client(f);
    char *big = store_big(f, fd);
    tell(fd, B(GET_K GET_K GET_K));
    for (int i = 0; i < 10; i++) {
        turn(f);
    }
    (void)close(fd);
    until_connections(f, 0);
    free(big);
}

/* ---- generations ---------------------------------------------------------------------------- */

static void test_reset_ends_clients_and_forgets_keys(void **state)
{
    struct fixture *f = *state;
    uint16_t port = ct_server_port(f->server);
    int fd = client(f), waiting = client(f);
    tell(fd, B(HELLO SET_K_V PING));
    expect(f, fd, B(PONG));
    tell(waiting, B(HELLO "\x06\x01" Z7 "\x01" Z7 "?"));
    until_waiters(f, 1);
    ct_server_reset(f->server);
    assert_int_equal(stats(f).keys, 0);
    assert_int_equal(stats(f).bytes, 0);
    assert_int_equal(stats(f).waiters, 0);
    expect_end(f, fd);
    expect_end(f, waiting);
    until_connections(f, 0);
    assert_int_equal(ct_server_port(f->server), port);
    fd = client(f);
    tell(fd, B(HELLO GET_K));
    expect(f, fd, B("\0" Z7));
    (void)close(fd);
}

/* ---- binding -------------------------------------------------------------------------------- */

static void test_port_in_use_names_the_holder(void **state)
{
    struct fixture *f = *state;
    const struct ct_server_options options = {.port = ct_server_port(f->server)};
    struct ct_server *second = NULL;
    struct ct_err err = {0};
    assert_int_equal(ct_server_open(&f->loop, &options, &second, &err), CT_EBUSY);
    assert_null(second);
    char pid[32];
    (void)snprintf(pid, sizeof(pid), "pid %d (", (int)getpid());
    assert_non_null(strstr(err.text, pid));
    assert_non_null(strstr(err.text, "test_server"));
}

static void test_bad_hosts(void **state)
{
    struct fixture *f = *state;
    struct ct_server *second = NULL;
    struct ct_err err = {0};
    struct ct_server_options options = {.host = "no-such-host.invalid"};
    assert_int_equal(ct_server_open(&f->loop, &options, &second, &err), CT_ENOENT);
    assert_non_null(strstr(err.text, "no-such-host.invalid"));
    options.host = "203.0.113.1"; /* reserved for documentation: never ours */
    assert_true(ct_server_open(&f->loop, &options, &second, &err) < 0);
    assert_non_null(strstr(err.text, "203.0.113.1"));
    assert_null(second);
}

static void test_all_addresses(void **state)
{
    struct fixture *f = *state;
    ct_server_close(f->server, NULL, NULL);
    const struct ct_server_options options = {.host = "*"};
    struct ct_err err = {0};
    assert_int_equal(ct_server_open(&f->loop, &options, &f->server, &err), 0);
    int fd = client(f);
    tell(fd, B(HELLO PING));
    expect(f, fd, B(PONG));
    (void)close(fd);
    struct sockaddr_in6 addr = {
        .sin6_family = AF_INET6,
        .sin6_port = htons(ct_server_port(f->server)),
        .sin6_addr = IN6ADDR_LOOPBACK_INIT,
    };
    fd = client_at((const struct sockaddr *)&addr, sizeof(addr));
    if (fd >= 0) { /* a machine without IPv6 is served over IPv4 alone */
        tell(fd, B(HELLO PING));
        expect(f, fd, B(PONG));
        (void)close(fd);
    }
}

static void test_close_of_nothing(void **state)
{
    (void)state;
    ct_server_close(NULL, NULL, NULL);
}

/* ---- shortage ------------------------------------------------------------------------------- */

static void test_survives_having_no_descriptors(void **state)
{
    struct fixture *f = *state;
    int old = client(f);
    tell(old, B(HELLO PING));
    expect(f, old, B(PONG));
    struct rlimit limit, tight;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    int last = client(f), beyond = client(f);
    tight = limit;
    tight.rlim_cur = (rlim_t)beyond + 2;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    tell(last, B(HELLO PING));
    expect(f, last, B(PONG));
    assert_non_null(strstr(f->last_warning, "out of descriptors with 2 connections"));
    expect_end(f, beyond);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    tell(old, B(PING));
    expect(f, old, B(PONG));
    int fd = client(f);
    tell(fd, B(HELLO PING));
    expect(f, fd, B(PONG));
    (void)close(fd);
    (void)close(last);
    (void)close(old);
}

static void test_connection_without_memory_waits_for_some(void **state)
{
    struct fixture *f = *state;
    int old = client(f);
    tell(old, B(HELLO PING));
    expect(f, old, B(PONG));
    int fd = client(f);
    tell(fd, B(HELLO PING));
    ct_fault_begin(0);
    for (int i = 0; i < 1000 && !ct_fault_hit(); i++) {
        turn(f);
    }
    (void)ct_fault_end();
    assert_int_equal(stats(f).connections, 1);
    (void)close(old);
    expect(f, fd, B(PONG));
    (void)close(fd);
}

static int open_and_close(void *data)
{
    (void)data;
    uv_loop_t loop;
    ct_loop_begin(&loop);
    const struct ct_server_options options = {0};
    struct ct_server *server = NULL;
    int rc = ct_server_open(&loop, &options, &server, NULL);
    ct_server_close(server, NULL, NULL);
    ct_loop_end(&loop);
    return rc;
}

static void test_allocation_failures(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(open_and_close, NULL, 0) >= 2);
}

#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SERVER(test_requests_in_one_segment),
        WITH_SERVER(test_one_byte_per_segment),
        WITH_SERVER(test_half_closed_client_gets_its_answers),
        WITH_SERVER(test_violation_ends_one_connection_only),
        WITH_SERVER(test_more_waiters_than_one_slice),
        WITH_SERVER(test_waiter_that_left_is_forgotten),
        WITH_SERVER(test_slow_reader_stalls_itself_alone),
        WITH_SERVER(test_close_while_replies_are_unsent),
        WITH_SERVER(test_reader_that_leaves),
        WITH_SERVER(test_reset_ends_clients_and_forgets_keys),
        WITH_SERVER(test_port_in_use_names_the_holder),
        WITH_SERVER(test_bad_hosts),
        WITH_SERVER(test_all_addresses),
        cmocka_unit_test(test_close_of_nothing),
        WITH_SERVER(test_survives_having_no_descriptors),
        WITH_SERVER(test_connection_without_memory_waits_for_some),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
