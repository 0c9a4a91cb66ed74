/* SPDX-License-Identifier: Apache-2.0
 *
 * The server on real sockets: requests in every shape, waiting, violations, generations.
 */
#include "tests/lib/loop.h"
#include "tests/lib/server_fixture.h"

#include "rendezvous/admission/peer_user.h"
#include "rendezvous/wire/limits.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

/* More than one slice of wakes, fewer than the usual 1024 descriptors hold (two per client). */
#define MANY (CT_WAKE_SLICE + 44)

/* ---- serving -------------------------------------------------------------------------------- */

static void test_requests_in_one_segment_are_answered(void **state)
{
    struct server_fixture *f = *state;
    int fd = ct_sf_client(f);
    ct_sf_tell(fd, SF_B(SF_HELLO SF_PING SF_SET_K_V SF_GET_K));
    ct_sf_expect(f, fd, SF_B(SF_PONG SF_VALUE_V));
    assert_int_equal(ct_sf_stats(f).requests, 4);
    assert_int_equal(ct_sf_stats(f).by_op[CT_OP_SET], 1);
    assert_int_equal(ct_sf_stats(f).by_op[CT_OP_ADD], 0);
    assert_int_equal(ct_sf_stats(f).keys, 1);
    assert_int_equal(ct_sf_stats(f).accepted, 1);
    (void)close(fd);
    ct_sf_until_connections(f, 0);
}

static void test_a_request_may_come_byte_by_byte(void **state)
{
    struct server_fixture *f = *state;
    int fd = ct_sf_client(f);
    static const char bytes[] = SF_HELLO SF_SET_K_V SF_GET_K;
    for (size_t i = 0; i < sizeof(bytes) - 1; i++) {
        ct_sf_tell(fd, bytes + i, 1);
        ct_sf_turn(f);
    }
    ct_sf_expect(f, fd, SF_B(SF_VALUE_V));
    (void)close(fd);
}

static void test_half_closed_client_gets_its_answers(void **state)
{
    struct server_fixture *f = *state;
    int fd = ct_sf_client(f);
    ct_sf_tell(fd, SF_B(SF_HELLO SF_SET_K_V SF_GET_K));
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    ct_sf_expect(f, fd, SF_B(SF_VALUE_V));
    ct_sf_expect_end(f, fd);
}

static void test_violation_ends_one_connection_only(void **state)
{
    struct server_fixture *f = *state;
    int good = ct_sf_client(f), bad = ct_sf_client(f);
    ct_sf_tell(good, SF_B(SF_HELLO SF_SET_K_V SF_PING));
    ct_sf_expect(f, good, SF_B(SF_PONG));
    ct_sf_tell(bad, SF_B(SF_HELLO SF_GET_K "\xff"));
    ct_sf_expect(f, bad, SF_B(SF_VALUE_V));
    ct_sf_expect_end(f, bad);
    ct_sf_tell(good, SF_B(SF_GET_K));
    ct_sf_expect(f, good, SF_B(SF_VALUE_V));
    assert_int_equal(ct_sf_stats(f).protocol_errors, 1);
    assert_non_null(strstr(f->last_warning, "127.0.0.1:"));
    assert_non_null(strstr(f->last_warning, "unknown operation 255"));
    (void)close(good);
}

static void test_a_tls_client_is_told_of_in_the_log(void **state)
{
    struct server_fixture *f = *state;
    int fd = ct_sf_client(f);
    ct_sf_tell(fd, SF_B("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"));
    ct_sf_expect_end(f, fd);
    assert_non_null(strstr(f->last_warning, " ended: it speaks TLS, and this port does not"));
}

static void test_more_waiters_than_one_slice(void **state)
{
    struct server_fixture *f = *state;
    static int fds[MANY];
    for (int i = 0; i < MANY; i++) {
        fds[i] = ct_sf_client(f);
        ct_sf_tell(fds[i], SF_B(SF_HELLO SF_WAIT_K));
        ct_sf_turn(f);
    }
    ct_sf_until_waiters(f, MANY);
    int setter = ct_sf_client(f);
    ct_sf_tell(setter, SF_B(SF_HELLO SF_SET_K_V SF_PING));
    ct_sf_expect(f, setter, SF_B(SF_PONG));
    for (int i = 0; i < MANY; i++) {
        ct_sf_expect(f, fds[i], SF_B("\0"));
    }
    assert_int_equal(ct_sf_stats(f).waiters, 0);
    /* Not before: the end of a connection would push the next slice as well. */
    for (int i = 0; i < MANY; i++) {
        (void)close(fds[i]);
    }
    (void)close(setter);
}

static void test_waiter_that_left_is_forgotten(void **state)
{
    struct server_fixture *f = *state;
    int fd = ct_sf_client(f);
    ct_sf_tell(fd, SF_B(SF_HELLO SF_WAIT_K));
    ct_sf_until_waiters(f, 1);
    (void)close(fd);
    ct_sf_until_waiters(f, 0);
    ct_sf_until_connections(f, 0);
}

/* It has no user any more, so it is not served, but another user's it is not either. */
static void test_a_client_that_left_before_it_was_accepted_is_no_other_user(void **state)
{
    struct server_fixture *f = *state;
    ct_server_close(f->server, NULL, NULL);
    const struct ct_server_options options = {.own_user = true, .log = &f->log};
    struct ct_err err = {0};
    assert_int_equal(ct_server_open(&f->loop, &options, &f->server, &err), 0);
    int users, probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(listen(probe, 1), 0);
    bool knows = ct_peer_user_open(probe, &users) == 0;
    (void)close(probe);
    if (!knows) {
        skip();
    }
    (void)close(users);
    int gone = ct_sf_client(f), here = ct_sf_client(f);
    ct_sf_tell(gone, SF_B(SF_HELLO SF_SET_K_V));
    (void)close(gone);
    ct_sf_tell(here, SF_B(SF_HELLO SF_PING));
    ct_sf_expect(f, here, SF_B(SF_PONG));
    ct_sf_until_connections(f, 1);
    assert_int_equal(ct_sf_stats(f).accepted, 2);
    assert_int_equal(ct_sf_stats(f).keys, 0);
    assert_int_equal(ct_sf_stats(f).denied, 0);
    assert_string_equal(f->last_warning, "");
    (void)close(here);
}

/* ---- generations ---------------------------------------------------------------------------- */

static void test_reset_ends_clients_and_forgets_keys(void **state)
{
    struct server_fixture *f = *state;
    uint16_t port = ct_server_port(f->server);
    int fd = ct_sf_client(f), waiting = ct_sf_client(f);
    ct_sf_tell(fd, SF_B(SF_HELLO SF_SET_K_V SF_PING));
    ct_sf_expect(f, fd, SF_B(SF_PONG));
    ct_sf_tell(waiting, SF_B(SF_HELLO "\x06\x01" SF_Z7 "\x01" SF_Z7 "?"));
    ct_sf_until_waiters(f, 1);
    ct_server_reset(f->server);
    assert_int_equal(ct_sf_stats(f).keys, 0);
    assert_int_equal(ct_sf_stats(f).bytes, 0);
    assert_int_equal(ct_sf_stats(f).waiters, 0);
    ct_sf_expect_end(f, fd);
    ct_sf_expect_end(f, waiting);
    ct_sf_until_connections(f, 0);
    assert_int_equal(ct_server_port(f->server), port);
    fd = ct_sf_client(f);
    ct_sf_tell(fd, SF_B(SF_HELLO SF_GET_K));
    ct_sf_expect(f, fd, SF_B("\0" SF_Z7));
    (void)close(fd);
}

/* The server's end of the connection, which is in this process, too. */
static int far_end(int client)
{
    struct sockaddr_storage ours, peer;
    socklen_t ours_len = sizeof(ours);
    assert_int_equal(getsockname(client, (struct sockaddr *)&ours, &ours_len), 0);
    for (int fd = 0; fd < 1024; fd++) {
        socklen_t len = sizeof(peer);
        if (getpeername(fd, (struct sockaddr *)&peer, &len) == 0 && len == ours_len &&
            memcmp(&peer, &ours, len) == 0) {
            return fd;
        }
    }
    fail_msg("the server did not accept");
    return -1;
}

static int socket_option(int fd, int level, int name)
{
    int value = 0;
    socklen_t len = sizeof(value);
    assert_int_equal(getsockopt(fd, level, name, &value, &len), 0);
    return value;
}

static void test_accepted_sockets_answer_at_once_and_notice_dead_peers(void **state)
{
    struct server_fixture *f = *state;
    int client = ct_sf_client(f);
    ct_sf_tell(client, SF_B(SF_HELLO SF_PING));
    ct_sf_expect(f, client, SF_B(SF_PONG));
    int served = far_end(client);
    assert_int_equal(socket_option(served, IPPROTO_TCP, TCP_NODELAY), 1);
    assert_int_equal(socket_option(served, SOL_SOCKET, SO_KEEPALIVE), 1);
    assert_int_equal(socket_option(served, IPPROTO_TCP, TCP_KEEPIDLE), CT_KEEPALIVE_S);
    (void)close(client);
}

/* The kernel completes a handshake without us. */
static void test_reset_drops_clients_that_were_not_accepted_yet(void **state)
{
    struct server_fixture *f = *state;
    int fds[3];
    for (int i = 0; i < 3; i++) {
        fds[i] = ct_sf_client(f);
        ct_sf_tell(fds[i], SF_B(SF_HELLO SF_SET_K_V));
    }
    ct_server_reset(f->server);
    assert_int_equal(ct_sf_stats(f).refused, 3);
    int fd = ct_sf_client(f);
    ct_sf_tell(fd, SF_B(SF_HELLO SF_GET_K));
    ct_sf_expect(f, fd, SF_B("\0" SF_Z7));
    for (int i = 0; i < 3; i++) {
        ct_sf_expect_end(f, fds[i]);
    }
    (void)close(fd);
}

static void test_reset_leaves_those_who_may_ask_for_the_status(void **state)
{
    struct server_fixture *f = *state;
    static const char get[] = "GET /healthz HTTP/1.0\r\n\r\n";
    /* One has been accepted; another is in the kernel with its request, and a third without. */
    int accepted = ct_sf_client(f);
    ct_sf_until_connections(f, 1);
    int asked = ct_sf_client(f), silent = ct_sf_client(f), late = ct_sf_client(f);
    ct_sf_tell(asked, SF_B(get));
    ct_server_reset(f->server);
    ct_sf_tell(accepted, SF_B(get));
    ct_sf_tell(silent, SF_B(get));
    int fds[] = {accepted, asked, silent};
    for (int i = 0; i < 3; i++) {
        char reply[16] = {0};
        size_t n = ct_sf_hear(f, fds[i], reply, 12);
        /* Nothing comes in a build without HTTP. */
        assert_true(n == 0 || strncmp(reply, "HTTP/1.", 7) == 0);
        (void)close(fds[i]);
    }
    /* But no worker of the generation that is over. */
    ct_sf_tell(late, SF_B(SF_HELLO SF_PING));
    ct_sf_expect_end(f, late);
}

/* ---- draining ------------------------------------------------------------------------------- */

static void note(void *data)
{
    *(bool *)data = true;
}

/* Long enough never to be waited for. */
#define LONG_MS 600000

static void test_drain_answers_what_is_on_its_way(void **state)
{
    struct server_fixture *f = *state;
    bool closed = false;
    int idle = ct_sf_client(f), unread = ct_sf_client(f), half = ct_sf_client(f);
    ct_sf_tell(idle, SF_B(SF_HELLO SF_SET_K_V SF_PING));
    ct_sf_expect(f, idle, SF_B(SF_PONG));
    ct_sf_tell(half, SF_B(SF_HELLO SF_PING "\x03\x02"));
    ct_sf_expect(f, half, SF_B(SF_PONG));
    ct_sf_tell(unread, SF_B(SF_HELLO SF_PING));
    ct_sf_expect(f, unread, SF_B(SF_PONG));
    ct_sf_tell(unread, SF_B(SF_GET_K));
    ct_server_drain(f->server, LONG_MS, note, &closed);
    ct_sf_expect_end(f, idle);
    ct_sf_expect(f, unread, SF_B(SF_VALUE_V));
    ct_sf_expect_end(f, unread);
    assert_false(closed);
    ct_sf_tell(half, SF_B(SF_Z7 "/k"));
    ct_sf_expect(f, half, SF_B(SF_VALUE_V));
    ct_sf_expect_end(f, half);
    ct_loop_run_until(&f->loop, &closed);
    f->server = NULL;
    f->closed = true;
}

static void test_drain_is_bounded(void **state)
{
    struct server_fixture *f = *state;
    bool closed = false;
    int half = ct_sf_client(f);
    ct_sf_tell(half, SF_B(SF_HELLO SF_PING "\x03\x02"));
    ct_sf_expect(f, half, SF_B(SF_PONG));
    ct_server_drain(f->server, 1, note, &closed);
    ct_loop_run_until(&f->loop, &closed);
    ct_sf_expect_end(f, half);
    f->server = NULL;
    f->closed = true;
}

static void test_draining_nobody_ends_at_once(void **state)
{
    struct server_fixture *f = *state;
    bool closed = false;
    ct_server_drain(f->server, LONG_MS, note, &closed);
    ct_loop_run_until(&f->loop, &closed);
    ct_server_drain(NULL, LONG_MS, note, &closed);
    f->server = NULL;
    f->closed = true;
}

#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, ct_sf_set_up, ct_sf_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SERVER(test_accepted_sockets_answer_at_once_and_notice_dead_peers),
        WITH_SERVER(test_requests_in_one_segment_are_answered),
        WITH_SERVER(test_a_request_may_come_byte_by_byte),
        WITH_SERVER(test_half_closed_client_gets_its_answers),
        WITH_SERVER(test_violation_ends_one_connection_only),
        WITH_SERVER(test_a_tls_client_is_told_of_in_the_log),
        WITH_SERVER(test_more_waiters_than_one_slice),
        WITH_SERVER(test_waiter_that_left_is_forgotten),
        WITH_SERVER(test_a_client_that_left_before_it_was_accepted_is_no_other_user),
        WITH_SERVER(test_reset_ends_clients_and_forgets_keys),
        WITH_SERVER(test_reset_drops_clients_that_were_not_accepted_yet),
        WITH_SERVER(test_reset_leaves_those_who_may_ask_for_the_status),
        WITH_SERVER(test_drain_answers_what_is_on_its_way),
        WITH_SERVER(test_drain_is_bounded),
        WITH_SERVER(test_draining_nobody_ends_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
