/* SPDX-License-Identifier: Apache-2.0
 *
 * Probes of ports on this machine: listeners of the test stand for agents.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/loop.h"

#include "rendezvous/server/death_probe_uv.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct fixture {
    uv_loop_t loop;
    struct ct_probes *probes;
    bool died, closed;
    uint64_t dead; /* who died */
};

/* An agent, and what it has accepted. */
struct agent {
    int fd;
    struct ct_voter voter;
};

static void on_dead(void *data, uint64_t id)
{
    struct fixture *f = data;
    f->died = true;
    f->dead = id;
}

static void on_closed(void *data)
{
    ((struct fixture *)data)->closed = true;
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    ct_loop_begin(&f->loop);
    assert_int_equal(ct_probes_open(&f->loop, on_dead, f, &f->probes), 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    ct_probes_close(f->probes, on_closed, f);
    ct_loop_run_until(&f->loop, &f->closed);
    ct_loop_end(&f->loop);
    free(f);
    return 0;
}

static void listen_as(struct agent *agent, uint64_t id)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    agent->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(agent->fd >= 0);
    assert_int_equal(bind(agent->fd, (struct sockaddr *)&addr, len), 0);
    assert_int_equal(listen(agent->fd, 8), 0);
    assert_int_equal(getsockname(agent->fd, (struct sockaddr *)&addr, &len), 0);
    agent->voter = (struct ct_voter){.id = id, .port = ntohs(addr.sin_port)};
    (void)snprintf(agent->voter.address, sizeof(agent->voter.address), "127.0.0.1");
}

/* Runs until the agent is tried, and the probes know it. Returns false if somebody died before, or
 * if nothing comes. */
static bool is_tried(struct fixture *f, const struct agent *agent)
{
    uint64_t until = uv_hrtime() + UINT64_C(10000000000);
    int fd = -1;
    while (fd < 0 && !f->died && uv_hrtime() < until) {
        (void)uv_run(&f->loop, UV_RUN_NOWAIT);
        fd = accept4(agent->fd, NULL, NULL, SOCK_CLOEXEC);
    }
    if (fd >= 0) {
        (void)uv_run(&f->loop, UV_RUN_NOWAIT);
        (void)close(fd);
    }
    return fd >= 0;
}

/* A host that lost its office, or sent its members on, needs their places for others. */
static void test_those_that_are_forgotten_leave_their_places(void **state)
{
    struct fixture *f = *state;
    struct agent agent;
    listen_as(&agent, 1000);
    for (uint64_t id = 1; id <= CT_VOTERS_BOTH; id++) {
        struct ct_voter other = agent.voter;
        other.id = id;
        ct_probes_joined(f->probes, &other);
        assert_true(is_tried(f, &agent));
        ct_probes_forget(f->probes, id);
    }
    ct_probes_joined(f->probes, &agent.voter);
    assert_true(is_tried(f, &agent));
    (void)close(agent.fd);
    ct_probes_left(f->probes, agent.voter.id);
    ct_loop_run_until(&f->loop, &f->died);
    assert_int_equal(f->dead, agent.voter.id);
}

static void test_an_agent_that_comes_from_elsewhere_is_probed_there(void **state)
{
    struct fixture *f = *state;
    struct agent before, after;
    listen_as(&before, 7);
    listen_as(&after, 7);
    ct_probes_joined(f->probes, &before.voter);
    assert_true(is_tried(f, &before));
    ct_probes_joined(f->probes, &after.voter);
    (void)close(before.fd);
    ct_probes_left(f->probes, 7);
    assert_true(is_tried(f, &after));
    assert_true(is_tried(f, &after));
    (void)close(after.fd);
    ct_loop_run_until(&f->loop, &f->died);
    assert_int_equal(f->dead, 7);
}

/* The agent was reached at one place, and another host has seen it at another one, which refuses.
 */
static void test_an_agent_is_dead_only_where_it_was_reached(void **state)
{
    struct fixture *f = *state;
    struct agent before, after;
    listen_as(&before, 7);
    listen_as(&after, 7);
    (void)close(before.fd);
    ct_probes_joined(f->probes, &before.voter);
    ct_probes_lost(f->probes, &after.voter);
    assert_true(is_tried(f, &after));
    assert_true(is_tried(f, &after));
    assert_int_equal(f->dead, 0);
    (void)close(after.fd);
    ct_loop_run_until(&f->loop, &f->died);
    assert_int_equal(f->dead, 7);
}

/* It kept its place, and the timer ran on for ever. */
static void test_an_agent_without_a_numeric_address_is_forgotten(void **state)
{
    struct fixture *f = *state;
    const struct ct_voter nowhere = {.id = 7, .port = 1, .address = "host.example"};
    uint64_t until = uv_hrtime() + UINT64_C(10000000000);
    ct_probes_lost(f->probes, &nowhere);
    while (uv_loop_alive(&f->loop) && uv_hrtime() < until) {
        (void)uv_run(&f->loop, UV_RUN_ONCE);
    }
    assert_false(uv_loop_alive(&f->loop));
    assert_false(f->died);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define WITH_LOOP(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)
        WITH_LOOP(test_those_that_are_forgotten_leave_their_places),
        WITH_LOOP(test_an_agent_that_comes_from_elsewhere_is_probed_there),
        WITH_LOOP(test_an_agent_is_dead_only_where_it_was_reached),
        WITH_LOOP(test_an_agent_without_a_numeric_address_is_forgotten),
    };
    return cmocka_run_group_tests_name("death_probe_uv", tests, NULL, NULL);
}
