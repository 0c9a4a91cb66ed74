/* SPDX-License-Identifier: Apache-2.0
 *
 * A daemon that is told that another host has a job for which an agent waits with it.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/loop.h"

#include "rendezvous/admission/access.h"
#include "rendezvous/client/link_uv.h"
#include "rendezvous/ctrdzvd/daemon_station.h"
#include "rendezvous/server/server_uv.h"

#include <stdio.h>
#include <stdlib.h>

static const struct ct_token token = {.len = 16, .text = "0123456789abcdef"};
static const struct ct_access nobody;

struct peer {
    struct ct_link *link;
    struct ct_msg *msg; /* what it says when it is up */
    bool lost;
    struct ct_voter sent_to; /* the host that it was sent on to; id 0 = none */
};

struct fixture {
    uv_loop_t loop;
    struct ct_log log;
    char warned[CT_LOG_LINE_MAX];
    int warnings;
    struct ct_daemon_station station;
    struct ct_server *server;
    struct peer waits; /* an agent without a world */
};

static void on_line(void *data, enum ct_log_level level, const char *line)
{
    struct fixture *f = data;
    f->warnings += level == CT_LOG_WARNING;
    (void)snprintf(f->warned, sizeof(f->warned), "%s", line);
}

static void note(void *data)
{
    *(bool *)data = true;
}

static void on_up(void *data, const char *address)
{
    struct peer *peer = data;
    (void)address;
    ct_link_send(peer->link, peer->msg);
}

static void on_message(void *data, struct ct_msg *msg)
{
    struct peer *peer = data;
    if (msg->type == CT_MSG_VOTE) {
        peer->sent_to = msg->host;
    }
}

static void on_lost(void *data, const struct ct_err *why)
{
    (void)why;
    ((struct peer *)data)->lost = true;
}

static struct ct_msg *open_peer(struct fixture *f, struct peer *peer)
{
    struct ct_err err = {0};
    const struct ct_link_options options = {.host = "127.0.0.1",
                                            .port = ct_server_port(f->server),
                                            .token = &token,
                                            .connect_ms = 10000,
                                            .once = true,
                                            .on_up = on_up,
                                            .on_message = on_message,
                                            .on_lost = on_lost,
                                            .data = peer};
    peer->msg = calloc(1, sizeof(*peer->msg));
    assert_non_null(peer->msg);
    assert_int_equal(ct_link_open(&f->loop, &options, &peer->link, &err), 0);
    return peer->msg;
}

static void close_peer(struct fixture *f, struct peer *peer)
{
    bool closed = false;
    ct_link_close(peer->link, 0, note, &closed);
    ct_loop_run_until(&f->loop, &closed);
    free(peer->msg);
}

static struct fixture *begin(void)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct ct_err err = {0};
    assert_non_null(f);
    ct_loop_begin(&f->loop);
    f->log = (struct ct_log){on_line, f, CT_LOG_WARNING};
    ct_daemon_station_init(&f->station, &f->log);
    const struct ct_server_agents agents = {.token = &token, .station = &f->station.station};
    const struct ct_server_options options = {.agents = &agents, .access = &nobody, .log = &f->log};
    assert_int_equal(ct_server_open(&f->loop, &options, &f->server, &err), 0);
    assert_int_equal(ct_daemon_station_host(&f->station, f->server, &err), 0);
    struct ct_msg *msg = open_peer(f, &f->waits);
    msg->type = CT_MSG_JOIN;
    msg->join = (struct ct_msg_join){.run_id = "job",
                                     .host = "gpu-2",
                                     .node_rank = -1,
                                     .workers = 1,
                                     .min_nodes = 2,
                                     .max_nodes = 2,
                                     .join_ms = 60000,
                                     .heartbeat_ms = 60000,
                                     .voter = {.id = 2, .port = 7}};
    while (!ct_server_has_agents(f->server)) {
        assert_false(f->waits.lost);
        (void)uv_run(&f->loop, UV_RUN_ONCE);
    }
    return f;
}

static void end(struct fixture *f)
{
    bool closed = false;
    close_peer(f, &f->waits);
    ct_server_close(f->server, note, &closed);
    ct_loop_run_until(&f->loop, &closed);
    ct_loop_end(&f->loop);
    free(f);
}

/* Somebody with the token says that it hosts this job in a term of this number. */
static void tell(struct fixture *f, const char *run_id, uint64_t number)
{
    struct peer tells = {.lost = false};
    struct ct_msg *msg = open_peer(f, &tells);
    msg->type = CT_MSG_ASK;
    msg->ask.id = 9;
    msg->host.port = 4711;
    msg->term = number << 32 | 9;
    (void)snprintf(msg->join.run_id, sizeof(msg->join.run_id), "%s", run_id);
    ct_loop_run_until(&f->loop, &tells.lost);
    close_peer(f, &tells);
}

static void test_who_waits_is_sent_to_a_host_of_a_later_term(void **state)
{
    struct fixture *f = begin();
    (void)state;
    tell(f, "another", CT_TERM_REACH);
    tell(f, "job", CT_TERM_REACH);
    ct_loop_run_until(&f->loop, &f->waits.lost);
    assert_int_equal(f->waits.sent_to.id, 9);
    assert_int_equal(f->waits.sent_to.port, 4711);
    assert_string_equal(f->waits.sent_to.address, "127.0.0.1");
    assert_int_equal(f->warnings, 0);
    end(f);
}

/* The second one is refused, too, but has no line of its own so soon. */
static void test_a_term_that_nobody_has_reached_is_refused(void **state)
{
    struct fixture *f = begin();
    (void)state;
    tell(f, "job", CT_TERM_REACH + 1);
    tell(f, "job", CT_TERM_NUMBER_MAX);
    assert_false(f->waits.lost);
    assert_true(ct_server_has_agents(f->server));
    assert_int_equal(f->warnings, 1);
    assert_string_equal(f->warned,
                        "127.0.0.1:4711 says that it hosts job 'job', in a term that no election "
                        "can have reached; agents that wait here for this job are not sent there");
    tell(f, "job", 1); /* the agent waits on, and goes when that is true */
    ct_loop_run_until(&f->loop, &f->waits.lost);
    assert_int_equal(f->waits.sent_to.id, 9);
    end(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_waits_is_sent_to_a_host_of_a_later_term),
        cmocka_unit_test(test_a_term_that_nobody_has_reached_is_refused),
    };
    return cmocka_run_group_tests_name("daemon_station", tests, NULL, NULL);
}
