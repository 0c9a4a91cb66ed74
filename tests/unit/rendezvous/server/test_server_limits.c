/* SPDX-License-Identifier: Apache-2.0
 *
 * The server where something is missing or in the way: the port, readers, descriptors, memory.
 */
#include "tests/lib/loop.h"
#include "tests/lib/server_fixture.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "rendezvous/admission/refusal_log.h"
#include "rendezvous/wire/limits.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- shares --------------------------------------------------------------------------------- */

/* Fifty clients that sent without a pause held up all others for three seconds. */
static void test_who_sends_much_does_not_hold_up_the_others(void **state)
{
    struct server_fixture *f = *state;
    enum { BUSY = 20, SETS = 3000 };
    static const char set[] = SF_SET_K_V;
    size_t len = sizeof(set) - 1;
    char *flood = malloc(SETS * len);
    assert_non_null(flood);
    for (size_t i = 0; i < SETS; i++) {
        memcpy(flood + i * len, set, len);
    }
    int busy[BUSY], other = ct_sf_client(f);
    for (int i = 0; i < BUSY; i++) {
        busy[i] = ct_sf_client(f);
        ct_sf_tell(busy[i], SF_B(SF_HELLO SF_PING));
        ct_sf_expect(f, busy[i], SF_B(SF_PONG));
    }
    for (int i = 0; i < BUSY; i++) {
        ct_sf_tell(busy[i], flood, SETS * len);
    }
    ct_sf_tell(other, SF_B(SF_HELLO SF_PING));
    ct_sf_expect(f, other, SF_B(SF_PONG));
    assert_in_range(ct_sf_stats(f).requests, 2, BUSY * SETS / 2);
    for (int i = 0; i < BUSY; i++) { /* all of it is served, in time */
        ct_sf_tell(busy[i], SF_B(SF_PING));
        ct_sf_expect(f, busy[i], SF_B(SF_PONG));
        (void)close(busy[i]);
    }
    assert_in_range(ct_sf_stats(f).requests, BUSY * SETS, BUSY * (SETS + 3) + 2);
    free(flood);
    (void)close(other);
}

/* Whoever connected faster than the server accepted kept the loop for itself: for 12 s, until the
 * job's agents took each other for lost. */
static void test_a_flood_of_connections_does_not_hold_up_the_others(void **state)
{
    struct server_fixture *f = *state;
    enum { FLOOD = 4 * CT_TURN_ACCEPTS };
    int flood[FLOOD];
    for (int i = 0; i < FLOOD; i++) {
        flood[i] = ct_sf_client(f);
    }
    for (int turn = 1; ct_sf_stats(f).accepted < FLOOD; turn++) {
        uint64_t before = ct_sf_stats(f).accepted;
        ct_sf_turn(f);
        assert_in_range(ct_sf_stats(f).accepted - before, 1, CT_TURN_ACCEPTS);
    }
    for (int i = 0; i < FLOOD; i++) {
        ct_sf_tell(flood[i], SF_B(SF_HELLO SF_PING));
        ct_sf_expect(f, flood[i], SF_B(SF_PONG));
        (void)close(flood[i]);
    }
}

/* They took all connections that a turn accepts, so nobody was accepted at another address. */
static void test_a_flood_at_one_address_leaves_the_others_open(void **state)
{
    struct server_fixture *f = *state;
    enum { FLOOD = 2 * CT_TURN_ACCEPTS };
    static const char *const hosts[] = {"127.0.0.1", "127.0.0.2"};
    const struct ct_server_options options = {.hosts = hosts, .num_hosts = 2};
    int flood[FLOOD];
    ct_server_close(f->server, NULL, NULL);
    assert_int_equal(ct_server_open(&f->loop, &options, &f->server, NULL), 0);
    for (int i = 0; i < FLOOD; i++) {
        flood[i] = ct_sf_client(f);
    }
    const struct sockaddr_in addr = {.sin_family = AF_INET,
                                     .sin_port = htons(ct_server_port(f->server)),
                                     .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1)};
    int other = ct_sf_client_at((const struct sockaddr *)&addr, sizeof(addr));
    assert_true(other >= 0);
    while (ct_sf_stats(f).accepted == 0) {
        ct_sf_turn(f);
    }
    assert_int_equal(ct_sf_stats(f).accepted, CT_TURN_ACCEPTS + 1);
    for (int i = 0; i < FLOOD; i++) {
        (void)close(flood[i]);
    }
    (void)close(other);
}

/* ---- binding -------------------------------------------------------------------------------- */

static void test_port_in_use_names_the_holder(void **state)
{
    struct server_fixture *f = *state;
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

static void test_an_address_of_another_machine_is_named(void **state)
{
    struct server_fixture *f = *state;
    struct ct_server *second = NULL;
    struct ct_err err = {0};
    const char *host = "no-such-host.invalid";
    const struct ct_server_options options = {.hosts = &host, .num_hosts = 1};
    assert_int_equal(ct_server_open(&f->loop, &options, &second, &err), CT_ENOENT);
    assert_non_null(strstr(err.text, "no-such-host.invalid"));
    host = "203.0.113.1"; /* reserved for documentation: never ours */
    assert_true(ct_server_open(&f->loop, &options, &second, &err) < 0);
    assert_non_null(strstr(err.text, "203.0.113.1"));
    assert_null(second);
}

static void test_a_star_listens_on_all_addresses(void **state)
{
    struct server_fixture *f = *state;
    ct_server_close(f->server, NULL, NULL);
    const char *host = "*";
    const struct ct_server_options options = {.hosts = &host, .num_hosts = 1};
    struct ct_err err = {0};
    assert_int_equal(ct_server_open(&f->loop, &options, &f->server, &err), 0);
    int fd = ct_sf_client(f);
    ct_sf_tell(fd, SF_B(SF_HELLO SF_PING));
    ct_sf_expect(f, fd, SF_B(SF_PONG));
    (void)close(fd);
    struct sockaddr_in6 addr = {
        .sin6_family = AF_INET6,
        .sin6_port = htons(ct_server_port(f->server)),
        .sin6_addr = IN6ADDR_LOOPBACK_INIT,
    };
    fd = ct_sf_client_at((const struct sockaddr *)&addr, sizeof(addr));
    if (fd >= 0) { /* a machine without IPv6 is served over IPv4 alone */
        ct_sf_tell(fd, SF_B(SF_HELLO SF_PING));
        ct_sf_expect(f, fd, SF_B(SF_PONG));
        (void)close(fd);
    }
}

static void test_two_addresses_on_one_port(void **state)
{
    struct server_fixture *f = *state;
    ct_server_close(f->server, NULL, NULL);
    static const char *const hosts[] = {"127.0.0.1", "127.0.0.2", "localhost"};
    const struct ct_server_options options = {.hosts = hosts, .num_hosts = 3};
    struct ct_err err = {0};
    assert_int_equal(ct_server_open(&f->loop, &options, &f->server, &err), 0);
    struct sockaddr_in addr = {
        .sin_family = AF_INET,
        .sin_port = htons(ct_server_port(f->server)),
    };
    for (uint32_t host = INADDR_LOOPBACK; host < INADDR_LOOPBACK + 3; host++) {
        addr.sin_addr.s_addr = htonl(host);
        int fd = ct_sf_client_at((const struct sockaddr *)&addr, sizeof(addr));
        assert_int_equal(fd >= 0, host < INADDR_LOOPBACK + 2);
        if (fd >= 0) {
            ct_sf_tell(fd, SF_B(SF_HELLO SF_PING));
            ct_sf_expect(f, fd, SF_B(SF_PONG));
            (void)close(fd);
        }
    }
}

static void test_connections_beyond_the_limit_are_refused(void **state)
{
    struct server_fixture *f = *state;
    ct_server_close(f->server, NULL, NULL);
    const struct ct_server_options options = {.max_connections = 2, .log = &f->log};
    struct ct_err err = {0};
    assert_int_equal(ct_server_open(&f->loop, &options, &f->server, &err), 0);
    int one = ct_sf_client(f), two = ct_sf_client(f), three = ct_sf_client(f);
    ct_sf_expect_end(f, three);
    assert_int_equal(ct_sf_stats(f).refused, 1);
    assert_non_null(strstr(f->last_warning, "refused 1 connection beyond --max-connections"));
    (void)close(one);
    ct_sf_until_connections(f, 1);
    one = ct_sf_client(f);
    ct_sf_tell(one, SF_B(SF_HELLO SF_PING));
    ct_sf_expect(f, one, SF_B(SF_PONG));
    (void)close(one);
    (void)close(two);
}

static void test_a_client_beyond_the_memory_cap_is_ended(void **state)
{
    struct server_fixture *f = *state;
    ct_server_close(f->server, NULL, NULL);
    const struct ct_server_options options = {.max_memory = 512, .log = &f->log};
    struct ct_err err = {0};
    assert_int_equal(ct_server_open(&f->loop, &options, &f->server, &err), 0);
    int good = ct_sf_client(f), bad = ct_sf_client(f);
    ct_sf_tell(good, SF_B(SF_HELLO SF_SET_K_V SF_GET_K));
    ct_sf_expect(f, good, SF_B(SF_VALUE_V));
    assert_in_range(ct_sf_stats(f).memory, 1, 512);
    ct_sf_tell(bad, SF_B(SF_HELLO "\x0b\x04" SF_Z7 "\1" SF_Z7 "a\0" SF_Z7 "\1" SF_Z7 "b\0" SF_Z7
                                  "\1" SF_Z7 "c\0" SF_Z7 "\1" SF_Z7 "d\0" SF_Z7));
    ct_sf_expect_end(f, bad);
    assert_int_equal(ct_sf_stats(f).over_memory, 1);
    assert_int_equal(ct_sf_stats(f).protocol_errors, 0);
    assert_int_equal(ct_sf_stats(f).keys, 1);
    assert_non_null(strstr(f->last_warning, "--max-memory"));
    ct_sf_tell(good, SF_B(SF_GET_K));
    ct_sf_expect(f, good, SF_B(SF_VALUE_V));
    (void)close(good);
}

static void test_closing_nothing_is_allowed(void **state)
{
    (void)state;
    ct_server_close(NULL, NULL, NULL);
}

/* ---- slow readers --------------------------------------------------------------------------- */

/* Stores 8 MiB at /k through the wire. */
static char *store_big(struct server_fixture *f, int fd)
{
    char *big = malloc(CT_MAX_VALUE_LEN);
    assert_non_null(big);
    for (size_t i = 0; i < CT_MAX_VALUE_LEN; i++) {
        big[i] = (char)(i * 2654435761u >> 11);
    }
    ct_sf_tell(fd, SF_B(SF_HELLO "\x01\x02" SF_Z7 "/k\0\0\x80\0\0\0\0\0"));
    for (size_t sent = 0; sent < CT_MAX_VALUE_LEN;) {
        ssize_t n = send(fd, big + sent, CT_MAX_VALUE_LEN - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        sent += n > 0 ? (size_t)n : 0;
        ct_sf_turn(f);
    }
    ct_sf_tell(fd, SF_B(SF_PING));
    ct_sf_expect(f, fd, SF_B(SF_PONG));
    return big;
}

static void test_slow_reader_stalls_itself_alone(void **state)
{
    struct server_fixture *f = *state;
    enum { GETS = 6 };
    int fd = ct_sf_client(f), other = ct_sf_client(f);
    char *big = store_big(f, other);
    ct_sf_tell(fd, SF_B(SF_HELLO));
    for (int i = 0; i < GETS; i++) {
        ct_sf_tell(fd, SF_B(SF_GET_K));
    }
    ct_sf_tell(fd, SF_B(SF_PING));
    /* Nobody reads `fd`; the others are served all the same, and not all six were answered. */
    for (int i = 0; i < 50; i++) {
        ct_sf_tell(other, SF_B(SF_PING));
        ct_sf_expect(f, other, SF_B(SF_PONG));
    }
    uint64_t so_far = ct_sf_stats(f).requests;
    assert_true(so_far < 3 + 50 + 1 + GETS);
    char *got = malloc(8 + CT_MAX_VALUE_LEN);
    assert_non_null(got);
    for (int i = 0; i < GETS; i++) {
        assert_int_equal(ct_sf_hear(f, fd, got, 8 + CT_MAX_VALUE_LEN), 8 + CT_MAX_VALUE_LEN);
        assert_int_equal(memcmp(got + 8, big, CT_MAX_VALUE_LEN), 0);
    }
    ct_sf_expect(f, fd, SF_B(SF_PONG));
    free(got);
    free(big);
    (void)close(fd);
    (void)close(other);
}

/* One change of a key may end thousands of watchers. */
static void test_those_who_read_no_notices_are_told_of_once_a_second(void **state)
{
    struct server_fixture *f = *state;
    enum { WATCHERS = 2 };
    int watchers[WATCHERS], writer = ct_sf_client(f);
    for (int i = 0; i < WATCHERS; i++) {
        watchers[i] = ct_sf_client(f);
        ct_sf_tell(watchers[i], SF_B("\x07\x02" SF_Z7 "/k")); /* WATCH_KEY of PyTorch 1.13 */
        ct_sf_expect(f, watchers[i], SF_B("\x03"));
    }
    free(store_big(f, writer));
    for (int i = 0; i < 8; i++) { /* the kernel may take the first notices */
        ct_sf_tell(writer, SF_B(SF_SET_K_V SF_PING));
        ct_sf_expect(f, writer, SF_B(SF_PONG));
    }
    assert_int_equal(ct_sf_stats(f).protocol_errors, WATCHERS);
    assert_int_equal(f->warnings, 1);
    assert_non_null(strstr(f->last_warning, "it does not read the notices"));
    for (int i = 0; i < WATCHERS; i++) {
        (void)close(watchers[i]);
    }
    (void)close(writer);
}

static void test_close_while_replies_are_unsent(void **state)
{
    struct server_fixture *f = *state;
    int fd = ct_sf_client(f);
    char *big = store_big(f, fd);
    ct_sf_tell(fd, SF_B(SF_GET_K SF_GET_K SF_GET_K));
    for (int i = 0; i < 10; i++) {
        ct_sf_turn(f);
    }
    ct_server_reset(f->server);
    ct_sf_until_connections(f, 0);
    free(big);
    (void)close(fd);
}

static void test_a_reader_that_leaves_is_forgotten(void **state)
{
    struct server_fixture *f = *state;
    int fd = ct_sf_client(f);
    char *big = store_big(f, fd);
    ct_sf_tell(fd, SF_B(SF_GET_K SF_GET_K SF_GET_K));
    for (int i = 0; i < 10; i++) {
        ct_sf_turn(f);
    }
    (void)close(fd);
    ct_sf_until_connections(f, 0);
    free(big);
}

/* ---- shortage ------------------------------------------------------------------------------- */

static void test_survives_having_no_descriptors(void **state)
{
    struct server_fixture *f = *state;
    int old = ct_sf_client(f);
    ct_sf_tell(old, SF_B(SF_HELLO SF_PING));
    ct_sf_expect(f, old, SF_B(SF_PONG));
    struct rlimit limit, tight;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    int last = ct_sf_client(f), beyond = ct_sf_client(f);
    tight = limit;
    tight.rlim_cur = (rlim_t)beyond + 2;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    ct_sf_tell(last, SF_B(SF_HELLO SF_PING));
    ct_sf_expect(f, last, SF_B(SF_PONG));
    assert_non_null(strstr(f->last_warning, "out of descriptors with 2 connections"));
    ct_sf_expect_end(f, beyond);
    /* When it looked for another one and none came, it went on polling. */
    uint64_t refused = ct_sf_stats(f).refused;
    int again = ct_sf_client(f);
    ct_sf_turn(f);
    assert_int_equal(ct_sf_stats(f).refused, refused + 1);
    ct_sf_expect_end(f, again);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ct_sf_tell(old, SF_B(SF_PING));
    ct_sf_expect(f, old, SF_B(SF_PONG));
    int fd = ct_sf_client(f);
    ct_sf_tell(fd, SF_B(SF_HELLO SF_PING));
    ct_sf_expect(f, fd, SF_B(SF_PONG));
    (void)close(fd);
    (void)close(last);
    (void)close(old);
}

/* Then connections cannot even be refused. The server tried again and again in one call: it took
 * all of a processor, wrote as many lines as it could, and served nobody any more. */
static void test_waits_when_not_even_the_spare_descriptor_helps(void **state)
{
    struct server_fixture *f = *state;
    struct rlimit limit, none; /* `none`: no number is free below it */
    int old = ct_sf_client(f);
    ct_sf_tell(old, SF_B(SF_HELLO SF_PING));
    ct_sf_expect(f, old, SF_B(SF_PONG));
    int fd = ct_sf_client(f);
    ct_sf_tell(fd, SF_B(SF_HELLO SF_PING));
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    int before = f->warnings;
    int64_t begun_ns = ct_clock_now(NULL);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    while (f->warnings == before) {
        ct_sf_turn(f);
    }
    ct_sf_tell(old, SF_B(SF_PING));
    ct_sf_expect(f, old, SF_B(SF_PONG));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    int64_t lasted_ms = (ct_clock_now(NULL) - begun_ns) / CT_NS_PER_MS;
    assert_in_range(f->warnings - before, 1, 1 + lasted_ms / CT_REFUSAL_QUIET_MS);
    assert_non_null(strstr(f->last_warning, "cannot accept connections now: Too many open files"));
    ct_sf_expect(f, fd, SF_B(SF_PONG));
    /* The server has a spare descriptor again, so it can refuse. */
    int beyond = ct_sf_client(f);
    none.rlim_cur = (rlim_t)beyond + 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    ct_sf_expect_end(f, beyond);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    (void)close(fd);
    (void)close(old);
}

/* Such a connection is handed over as a duplicate, for which there is no room. It wrote a line
 * each: 59,317 in four seconds. */
static void test_no_descriptor_to_hand_over_is_told_once_a_second(void **state)
{
    struct server_fixture *f = *state;
    enum { COUNT = 40 };
    static const char get[] = "GET /healthz HTTP/1.0\r\n\r\n";
    int clients[COUNT];
    struct rlimit limit, tight;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int i = 0; i < COUNT; i++) {
        clients[i] = ct_sf_client(f);
    }
    ct_sf_until_connections(f, COUNT);
    /* All below are in use, and what the server closes is above. */
    tight = limit;
    tight.rlim_cur = (rlim_t)clients[0];
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    int before = f->warnings;
    int64_t begun_ns = ct_clock_now(NULL);
    for (int i = 0; i < COUNT; i++) {
        ct_sf_tell(clients[i], SF_B(get));
        ct_sf_expect_end(f, clients[i]);
    }
    int64_t lasted_ms = (ct_clock_now(NULL) - begun_ns) / CT_NS_PER_MS;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_non_null(strstr(f->last_warning, "no descriptor is left to hand it over"));
    assert_in_range(f->warnings - before, 1, 1 + lasted_ms / CT_REFUSAL_QUIET_MS);
}

static void test_connection_without_memory_waits_for_some(void **state)
{
    struct server_fixture *f = *state;
    int old = ct_sf_client(f);
    ct_sf_tell(old, SF_B(SF_HELLO SF_PING));
    ct_sf_expect(f, old, SF_B(SF_PONG));
    int fd = ct_sf_client(f);
    ct_sf_tell(fd, SF_B(SF_HELLO SF_PING));
    ct_fault_begin(0);
    for (int i = 0; i < 1000 && !ct_fault_hit(); i++) {
        ct_sf_turn(f);
    }
    assert_true(ct_fault_hit());
    (void)ct_fault_end();
    ct_sf_expect(f, fd, SF_B(SF_PONG));
    (void)close(old);
    (void)close(fd);
}

static int refusals; /* of memory */

static void *no_memory(size_t size, void *data)
{
    (void)size, (void)data;
    refusals++;
    return NULL;
}

static void *no_more_memory(void *ptr, size_t size, void *data)
{
    (void)ptr;
    return no_memory(size, data);
}

static void give_back(void *ptr, void *data)
{
    (void)data;
    free(ptr);
}

/* Gives a client that waits for memory beyond the turn in which it came. */
static int held_client(struct server_fixture *f)
{
    const struct ct_allocator empty = {no_memory, no_more_memory, give_back, NULL};
    int fd = ct_sf_client(f);
    refusals = 0;
    ct_alloc_install(&empty);
    for (int i = 0; i < 1000 && refusals < 2; i++) { /* when it comes, and at the end of the turn */
        ct_sf_turn(f);
    }
    ct_alloc_install(NULL);
    assert_true(refusals >= 2);
    return fd;
}

static void test_held_connection_is_not_of_the_new_generation(void **state)
{
    struct server_fixture *f = *state;
    int old = ct_sf_client(f);
    ct_sf_tell(old, SF_B(SF_HELLO SF_PING));
    ct_sf_expect(f, old, SF_B(SF_PONG));
    int held = held_client(f);
    ct_sf_tell(held, SF_B(SF_HELLO SF_SET_K_V));
    ct_server_reset(f->server);
    ct_sf_expect_end(f, old);
    ct_sf_expect_end(f, held);
    int fd = ct_sf_client(f);
    ct_sf_tell(fd, SF_B(SF_HELLO SF_GET_K));
    ct_sf_expect(f, fd, SF_B("\0" SF_Z7));
    (void)close(fd);
}

static void note(void *data)
{
    *(bool *)data = true;
}

static void test_held_connection_ends_with_the_server(void **state)
{
    struct server_fixture *f = *state;
    bool closed = false;
    int held = held_client(f);
    ct_server_close(f->server, note, &closed);
    ct_loop_run_until(&f->loop, &closed);
    ct_sf_expect_end(f, held);
    f->server = NULL;
    f->closed = true;
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

static void test_opening_survives_lack_of_memory(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(open_and_close, NULL, 0) >= 2);
}

#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, ct_sf_set_up, ct_sf_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SERVER(test_who_sends_much_does_not_hold_up_the_others),
        WITH_SERVER(test_a_flood_of_connections_does_not_hold_up_the_others),
        WITH_SERVER(test_slow_reader_stalls_itself_alone),
        WITH_SERVER(test_those_who_read_no_notices_are_told_of_once_a_second),
        WITH_SERVER(test_close_while_replies_are_unsent),
        WITH_SERVER(test_a_reader_that_leaves_is_forgotten),
        WITH_SERVER(test_a_flood_at_one_address_leaves_the_others_open),
        WITH_SERVER(test_port_in_use_names_the_holder),
        WITH_SERVER(test_an_address_of_another_machine_is_named),
        WITH_SERVER(test_a_star_listens_on_all_addresses),
        WITH_SERVER(test_two_addresses_on_one_port),
        WITH_SERVER(test_connections_beyond_the_limit_are_refused),
        WITH_SERVER(test_a_client_beyond_the_memory_cap_is_ended),
        cmocka_unit_test(test_closing_nothing_is_allowed),
        WITH_SERVER(test_survives_having_no_descriptors),
        WITH_SERVER(test_waits_when_not_even_the_spare_descriptor_helps),
        WITH_SERVER(test_no_descriptor_to_hand_over_is_told_once_a_second),
        WITH_SERVER(test_connection_without_memory_waits_for_some),
        WITH_SERVER(test_held_connection_is_not_of_the_new_generation),
        WITH_SERVER(test_held_connection_ends_with_the_server),
        cmocka_unit_test(test_opening_survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
