/* SPDX-License-Identifier: Apache-2.0
 *
 * Agents that choose a host over real sockets, on one loop: each has a station and an elector. What
 * they decide is the matter of election.c; here the questions must reach their voters, and nobody
 * else may answer for them.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/loop.h"

#include "common/clock.h"
#include "rendezvous/admission/access.h"
#include "rendezvous/admission/refusal_log.h"
#include "rendezvous/client/elector_uv.h"
#include "rendezvous/client/link_uv.h"
#include "rendezvous/server/control_uv.h"
#include "rendezvous/server/server_uv.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define AGENTS 3

#define RUN_WHILE(condition)                 \
    while (condition) {                      \
        (void)uv_run(&f->loop, UV_RUN_ONCE); \
    }

static const struct ct_token good = {.len = 16, .text = "0123456789abcdef"};
static const struct ct_token bad = {.len = 16, .text = "0123456789abcdeX"};
static const struct ct_access nobody;

struct fixture;

struct agent {
    struct fixture *f;
    struct ct_control_station station;
    struct ct_server_agents agents;
    struct ct_server *server;
    struct ct_elector *elector;
    bool server_closed;
    int asked; /* how often */
    bool hosts, lost_is_dead, joins, gave_up;
    struct ct_voter at;
};

struct fixture {
    uv_loop_t loop;
    struct agent agents[AGENTS];
    struct ct_job_record record;
    bool decided; /* somebody hosts, or has given up */
    bool found;   /* somebody has found a host */
    struct ct_log log;
    char warned[CT_LOG_LINE_MAX]; /* the last warning */
    int warnings;
    bool is_warned;
};

static void on_line(void *data, enum ct_log_level level, const char *line)
{
    struct fixture *f = data;
    f->warnings += level == CT_LOG_WARNING;
    f->is_warned = f->warnings > 0;
    (void)snprintf(f->warned, sizeof(f->warned), "%s", line);
}

static bool on_ask(void *data, const struct ct_vote_ask *ask, struct ct_msg *vote)
{
    struct agent *agent = data;
    if (agent->elector == NULL) {
        return false;
    }
    agent->asked++;
    ct_elector_asked(agent->elector, ask, vote);
    return true;
}

static void on_deposed(void *data)
{
    (void)data;
}

static void on_told(void *data, const struct ct_voter *host, uint64_t term, const char *run_id)
{
    struct agent *agent = data;
    if (strcmp(run_id, "job") == 0) {
        ct_elector_told(agent->elector, host, term);
    }
}

static void on_todo(void *data, const struct ct_election_todo *todo)
{
    struct agent *agent = data;
    agent->hosts = agent->hosts || todo->host;
    agent->lost_is_dead = agent->lost_is_dead || todo->lost_is_dead;
    agent->gave_up = agent->gave_up || todo->give_up;
    agent->f->decided = agent->f->decided || todo->host || todo->give_up;
    if (todo->join) {
        agent->joins = agent->f->found = true;
        agent->at = todo->at;
    }
}

static void open_agent(struct fixture *f, int i, const struct ct_token *token)
{
    struct agent *agent = &f->agents[i];
    struct ct_err err = {0};
    agent->f = f;
    agent->station = (struct ct_control_station){.name = "gpu-1",
                                                 .on_ask = on_ask,
                                                 .on_told = on_told,
                                                 .on_deposed = on_deposed,
                                                 .data = agent};
    agent->agents =
        (struct ct_server_agents){.token = token, .run_id = "job", .station = &agent->station};
    const struct ct_server_options options = {.agents = &agent->agents, .access = &nobody};
    assert_int_equal(ct_server_open(&f->loop, &options, &agent->server, &err), 0);
    const struct ct_elector_options elector = {.token = token,
                                               .log = &f->log,
                                               .id = (uint64_t)i + 1,
                                               .lease_ms = 3000,
                                               .give_up_ms = 60000,
                                               .on_todo = on_todo,
                                               .data = agent};
    assert_int_equal(ct_elector_open(&f->loop, &elector, &agent->elector, &err), 0);
    ct_elector_set_self(agent->elector, "127.0.0.1", ct_server_port(agent->server));
    struct ct_voter *voter = &f->record.formed.list[f->record.formed.count++];
    *voter = (struct ct_voter){.id = (uint64_t)i + 1, .port = ct_server_port(agent->server)};
    (void)snprintf(voter->address, sizeof(voter->address), "127.0.0.1");
}

static void note(void *data)
{
    *(bool *)data = true;
}

static void kill_agent(struct fixture *f, int i)
{
    struct agent *agent = &f->agents[i];
    ct_elector_close(agent->elector);
    agent->elector = NULL;
    if (agent->server != NULL) {
        ct_server_close(agent->server, note, &agent->server_closed);
        agent->server = NULL;
        ct_loop_run_until(&f->loop, &agent->server_closed);
    }
}

/* The first agent hosts, and the others follow it and have its record. */
static void begin(struct fixture *f, const struct ct_token *third)
{
    ct_loop_begin(&f->loop);
    ct_job_record_init(&f->record);
    f->record.term = CT_TERM_FIRST;
    f->record.version = 3;
    f->record.formed.generation = 0;
    for (int i = 0; i < AGENTS; i++) {
        open_agent(f, i, i < 2 ? &good : third);
    }
    ct_elector_begin_hosting(f->agents[0].elector);
    for (int i = 1; i < AGENTS; i++) {
        assert_true(
            ct_elector_followed(f->agents[i].elector, &f->record.formed.list[0], CT_TERM_FIRST));
        assert_true(ct_elector_recorded(f->agents[i].elector, &f->record));
    }
}

static void end(struct fixture *f)
{
    for (int i = 0; i < AGENTS; i++) {
        kill_agent(f, i);
    }
    ct_loop_end(&f->loop);
    free(f);
}

static struct fixture *new_fixture(void)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    f->log = (struct ct_log){on_line, f, CT_LOG_WARNING};
    return f;
}

static void test_two_of_three_choose_one(void **state)
{
    struct fixture *f = new_fixture();
    (void)state;
    begin(f, &good);
    kill_agent(f, 0);
    ct_elector_lost(f->agents[1].elector);
    ct_elector_lost(f->agents[2].elector);
    ct_loop_run_until(&f->loop, &f->decided);
    int host = f->agents[1].hosts ? 1 : 2, other = 3 - host;
    assert_true(f->agents[host].hosts && !f->agents[other].hosts);
    ct_loop_run_until(&f->loop, &f->found);
    assert_true(f->agents[other].joins && !f->agents[host].joins);
    assert_int_equal(f->agents[other].at.id, host + 1);
    assert_int_equal(f->agents[other].at.port, ct_server_port(f->agents[host].server));
    end(f);
}

/* An agent that lost its line alone is told who hosts, and gets no vote. */
static void test_who_is_cut_off_alone_is_sent_back(void **state)
{
    struct fixture *f = new_fixture();
    (void)state;
    begin(f, &good);
    ct_elector_lost(f->agents[1].elector);
    ct_loop_run_until(&f->loop, &f->found);
    assert_true(f->agents[1].joins && !f->agents[1].hosts);
    assert_int_equal(f->agents[1].at.id, 1);
    end(f);
}

/* Two nodes: half is enough after a proven death, and the lease still ran. */
static void test_half_is_enough_after_a_death(void **state)
{
    struct fixture *f = new_fixture();
    (void)state;
    begin(f, &good);
    f->record.formed.count = 2;
    f->record.version++;
    assert_true(ct_elector_recorded(f->agents[1].elector, &f->record));
    ct_elector_leased(f->agents[1].elector, (int64_t)uv_hrtime(), 3000);
    kill_agent(f, 0);
    ct_elector_lost(f->agents[1].elector);
    ct_loop_run_until(&f->loop, &f->decided);
    assert_true(f->agents[1].hosts && f->agents[1].lost_is_dead);
    end(f);
}

/* By a question that comes late, a host of an earlier term hears of the later one. */
static void test_a_new_host_lets_its_questions_arrive(void **state)
{
    struct fixture *f = new_fixture();
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    char text[4096];
    (void)state;
    begin(f, &good);
    int slow = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(bind(slow, (struct sockaddr *)&at, len) == 0 && listen(slow, 8) == 0 &&
                getsockname(slow, (struct sockaddr *)&at, &len) == 0);
    f->record.formed.list[0].id = 9;
    f->record.formed.list[0].port = ntohs(at.sin_port);
    for (int i = 1; i < AGENTS; i++) {
        assert_true(ct_elector_recorded(f->agents[i].elector, &f->record));
        ct_elector_lost(f->agents[i].elector);
    }
    ct_loop_run_until(&f->loop, &f->decided);
    int i = f->agents[1].hosts ? 1 : 2, fd, open = 0;
    const struct ct_election *election = ct_elector_state(f->agents[i].elector);
    assert_true(ct_elector_followed(f->agents[i].elector, &election->self, election->host_term));
    kill_agent(f, 3 - i);
    while ((fd = accept4(slow, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        open += recv(fd, text, sizeof(text), 0) > 0 && recv(fd, text, sizeof(text), 0) < 0;
        (void)close(fd);
    }
    assert_int_equal(open, 1);
    (void)close(slow);
    end(f);
}

/* The record names the host as another machine reaches it. Where that leads from here, somebody may
 * refuse connections who is not the host. */
static void test_a_refusal_where_the_host_was_not_met_proves_nothing(void **state)
{
    struct fixture *f = new_fixture();
    (void)state;
    begin(f, &good);
    uint16_t closed = ct_server_port(f->agents[2].server);
    kill_agent(f, 2);
    f->record.formed.count = 2;
    f->record.formed.list[0].port = closed;
    f->record.version++;
    assert_true(ct_elector_recorded(f->agents[1].elector, &f->record));
    ct_elector_leased(f->agents[1].elector, (int64_t)uv_hrtime(), 3000);
    ct_elector_lost(f->agents[1].elector);
    RUN_WHILE(!f->decided && !f->found);
    assert_true(f->agents[1].joins && !f->agents[1].hosts);
    assert_int_equal(f->agents[1].at.id, 1);
    assert_int_equal(f->agents[1].at.port, ct_server_port(f->agents[0].server));
    end(f);
}

/* Whoever has answered when the world began: a firewall has let that connection pass. */
static void test_a_refusal_of_a_voter_proves_its_death_if_it_was_reached(void **state)
{
    (void)state;
    for (int met = 0; met < 2; met++) {
        struct fixture *f = new_fixture();
        struct ct_voter reached[CT_VOTERS_BOTH];
        begin(f, &good);
        struct ct_elector *elector = f->agents[1].elector;
        const struct ct_election *e = ct_elector_state(elector);
        RUN_WHILE(met && ct_elector_reached(elector, reached) < 2);
        kill_agent(f, 2); /* else before it could answer */
        kill_agent(f, 0);
        ct_elector_lost(elector);
        uint64_t until = uv_hrtime() + UINT64_C(300000000);
        RUN_WHILE(e->died_ns == INT64_MIN ||
                  (met ? !ct_election_is_dead(e, 3) : uv_hrtime() < until));
        assert_true(ct_election_is_dead(e, 1) && ct_election_is_dead(e, 3) == met);
        assert_true(!f->decided && ct_elector_reached(elector, reached) == 0);
        end(f);
    }
}

/* A later host knows another address of the same agent. */
static void test_a_voter_is_asked_where_the_newest_record_says(void **state)
{
    struct fixture *f = new_fixture();
    struct ct_voter *third = &f->record.formed.list[2];
    (void)state;
    begin(f, &good);
    struct ct_elector *elector = f->agents[1].elector;
    const struct ct_voter next = {.id = 9, .address = "127.0.0.1", .port = third->port};
    kill_agent(f, 0);
    third->port = f->record.formed.list[0].port; /* nobody listens there any more */
    f->record.version++;
    assert_true(ct_elector_recorded(elector, &f->record));
    ct_elector_lost(elector);
    RUN_WHILE(ct_elector_state(elector)->died_ns == INT64_MIN);
    assert_int_equal(f->agents[2].asked, 0);

    f->record.term = UINT64_C(5) << 32 | 9;
    third->port = next.port;
    assert_true(ct_elector_followed(elector, &next, f->record.term));
    assert_true(ct_elector_recorded(elector, &f->record));
    ct_elector_lost(elector);
    uint64_t until = uv_hrtime() + UINT64_C(10000000000);
    RUN_WHILE(f->agents[2].asked == 0 && uv_hrtime() < until);
    assert_true(f->agents[2].asked > 0);
    end(f);
}

/* A new host reaches an agent at another address than the former one did. */
static void test_a_voter_with_two_addresses_on_record_can_be_found_dead(void **state)
{
    struct fixture *f = new_fixture();
    struct ct_voter reached[CT_VOTERS_BOTH];
    (void)state;
    begin(f, &good);
    struct ct_elector *elector = f->agents[1].elector;
    const struct ct_election *e = ct_elector_state(elector);
    f->record.planned = f->record.formed;
    f->record.planned.generation = 1;
    (void)snprintf(f->record.formed.list[2].address, sizeof(f->record.formed.list[2].address),
                   "127.0.0.2");
    f->record.version++;
    assert_true(ct_elector_recorded(elector, &f->record));
    kill_agent(f, 0);
    ct_elector_lost(elector);
    RUN_WHILE(ct_elector_reached(elector, reached) == 0);
    assert_int_equal(reached[0].id, 3);
    kill_agent(f, 2);
    uint64_t until = uv_hrtime() + UINT64_C(10000000000);
    RUN_WHILE(!ct_election_is_dead(e, 3) && uv_hrtime() < until);
    assert_true(ct_election_is_dead(e, 3));
    end(f);
}

/* One with another token has no vote: neither candidate nor voter. */
static void test_another_token_gets_no_vote(void **state)
{
    struct fixture *f = new_fixture();
    (void)state;
    begin(f, &bad);
    kill_agent(f, 0);
    ct_elector_lost(f->agents[1].elector);
    ct_elector_lost(f->agents[2].elector);
    uint64_t until = uv_hrtime() + 500000000;
    RUN_WHILE(uv_hrtime() < until);
    assert_false(f->decided || f->found);
    assert_true(ct_elector_state(f->agents[1].elector)->state == CT_ELECTION_LOOKING);
    end(f);
}

/* ---- the station ---------------------------------------------------------------------------- */

struct visitor {
    struct ct_link *link;
    struct ct_msg *msg; /* what it says when it is up */
    bool up, told, lost;
    bool waits; /* it says nothing when it is up */
    enum ct_msg_type heard;
    struct ct_voter host; /* that was named in it */
};

static void on_up(void *data, const char *address)
{
    struct visitor *visitor = data;
    (void)address;
    visitor->up = true;
    if (!visitor->waits) {
        ct_link_send(visitor->link, visitor->msg);
    }
}

static void on_message(void *data, struct ct_msg *msg)
{
    struct visitor *visitor = data;
    visitor->told = true;
    visitor->heard = msg->type;
    visitor->host = msg->host;
}

static void on_lost(void *data, const struct ct_err *why)
{
    struct visitor *visitor = data;
    (void)why;
    visitor->lost = true;
}

static void visit(struct fixture *f, struct visitor *visitor, int i, enum ct_msg_type type)
{
    struct ct_err err = {0};
    visitor->msg = calloc(1, sizeof(*visitor->msg));
    assert_non_null(visitor->msg);
    visitor->msg->type = type;
    visitor->msg->ask = (struct ct_vote_ask){.id = 9, .term = 0};
    visitor->msg->join = (struct ct_msg_join){.run_id = "job",
                                              .host = "gpu-2",
                                              .node_rank = -1,
                                              .workers = 1,
                                              .min_nodes = 2,
                                              .max_nodes = 2,
                                              .join_ms = 60000,
                                              .heartbeat_ms = 3000,
                                              .voter = {.id = 2, .port = 7}};
    const struct ct_link_options options = {.host = "127.0.0.1",
                                            .port = ct_server_port(f->agents[i].server),
                                            .token = &good,
                                            .connect_ms = 10000,
                                            .once = true,
                                            .on_up = on_up,
                                            .on_message = on_message,
                                            .on_lost = on_lost,
                                            .data = visitor};
    assert_int_equal(ct_link_open(&f->loop, &options, &visitor->link, &err), 0);
}

static void leave(struct fixture *f, struct visitor *visitor)
{
    bool closed = false;
    ct_link_close(visitor->link, 0, note, &closed);
    ct_loop_run_until(&f->loop, &closed);
    free(visitor->msg);
}

static void test_a_station_answers_one_question_and_sends_members_on(void **state)
{
    struct fixture *f = new_fixture();
    struct visitor asks = {.told = false}, joins = {.told = false};
    (void)state;
    begin(f, &good);
    visit(f, &asks, 1, CT_MSG_ASK);
    ct_loop_run_until(&f->loop, &asks.lost);
    assert_true(asks.told && asks.heard == CT_MSG_VOTE);
    visit(f, &joins, 1, CT_MSG_JOIN);
    ct_loop_run_until(&f->loop, &joins.lost);
    assert_true(joins.up && joins.told && joins.heard == CT_MSG_VOTE);
    assert_int_equal(joins.host.id, 1); /* whom it follows */
    assert_int_equal(ct_link_host(joins.link)->voter.id, 0);
    leave(f, &asks);
    leave(f, &joins);
    end(f);
}

/* It asks twice, and the warning comes once. */
static void test_a_term_that_nobody_has_reached_is_warned_of(void **state)
{
    struct fixture *f = new_fixture();
    (void)state;
    begin(f, &good);
    ct_elector_lost(f->agents[1].elector);
    for (int i = 0; i < 2; i++) {
        struct visitor asks = {.told = false};
        visit(f, &asks, 1, CT_MSG_ASK);
        asks.msg->ask = (struct ct_vote_ask){.id = 3, .term = CT_TERM_MAX, .record_term = 1};
        ct_loop_run_until(&f->loop, &asks.lost);
        assert_true(asks.told && asks.heard == CT_MSG_VOTE);
        leave(f, &asks);
    }
    assert_int_equal(f->warnings, 1);
    assert_non_null(strstr(f->warned, "127.0.0.1 names a term that no election can have reached"));
    /* It may have stood itself meanwhile. */
    assert_true(ct_term_number(ct_elector_state(f->agents[1].elector)->seen) < CT_TERM_REACH);
    end(f);
}

static void test_a_station_hosts_and_stops_hosting(void **state)
{
    struct fixture *f = new_fixture();
    struct visitor joins = {.told = false};
    struct ct_server *server;
    (void)state;
    begin(f, &good);
    server = f->agents[1].server;
    const struct ct_members_failover hosting = {.self = {.id = 2}, .term = UINT64_C(5) << 32 | 2};
    ct_server_host(server, &hosting);
    visit(f, &joins, 1, CT_MSG_JOIN);
    ct_loop_run_until(&f->loop, &joins.up);
    assert_int_equal(ct_link_host(joins.link)->voter.id, 2);
    assert_true(ct_link_host(joins.link)->term == hosting.term);
    assert_string_equal(ct_link_host(joins.link)->name, "gpu-1");
    RUN_WHILE(!ct_server_has_agents(server));
    assert_false(joins.lost);
    const struct ct_voter next = {.id = 3, .address = "10.0.0.3", .port = 7};
    ct_server_unhost(server, &next);
    ct_loop_run_until(&f->loop, &joins.lost);
    assert_true(joins.told && joins.heard == CT_MSG_VOTE && joins.host.id == 3);
    assert_string_equal(joins.host.address, "10.0.0.3");
    assert_false(ct_server_has_agents(server));
    leave(f, &joins);
    end(f);
}

/* Nobody has joined yet, since workers take their time to stop. */
static void test_a_death_that_is_proved_before_the_first_member_comes_counts(void **state)
{
    struct fixture *f = new_fixture();
    struct visitor joins = {.told = false};
    (void)state;
    begin(f, &good);
    struct ct_server *server = f->agents[1].server;
    const struct ct_members_failover hosting = {.self = f->record.formed.list[1],
                                                .term = UINT64_C(5) << 32 | 2,
                                                .record = &f->record,
                                                .reached = &f->record.formed.list[2],
                                                .num_reached = 1};
    kill_agent(f, 2);
    ct_server_host(server, &hosting);
    (void)uv_run(&f->loop, UV_RUN_NOWAIT); /* it is refused */
    visit(f, &joins, 1, CT_MSG_JOIN);
    RUN_WHILE(!ct_server_stands_no_more(server, 3));
    leave(f, &joins);
    end(f);
}

/* Its workers took long to stop. Meanwhile the host lost its office and won another one. */
static void test_who_was_told_of_an_earlier_term_does_not_join(void **state)
{
    struct fixture *f = new_fixture();
    struct visitor joins = {.waits = true};
    struct ct_members_failover hosting = {.self = {.id = 2}, .term = UINT64_C(5) << 32 | 2};
    (void)state;
    begin(f, &good);
    struct ct_server *server = f->agents[1].server;
    ct_server_host(server, &hosting);
    visit(f, &joins, 1, CT_MSG_JOIN);
    ct_loop_run_until(&f->loop, &joins.up);
    ct_server_unhost(server, NULL);
    hosting.term += UINT64_C(1) << 32;
    ct_server_host(server, &hosting);
    ct_link_send(joins.link, joins.msg);
    ct_loop_run_until(&f->loop, &joins.told);
    assert_int_equal(joins.heard, CT_MSG_VOTE);
    ct_loop_run_until(&f->loop, &joins.lost);
    assert_false(ct_server_has_agents(server));
    leave(f, &joins);
    end(f);
}

/* ---- another host of the same job ----------------------------------------------------------- */

/* The agent `id` tells the first host that it hosts the job. */
static void tell_first(struct fixture *f, uint64_t id, uint16_t port, uint64_t term)
{
    struct visitor tells = {.told = false};
    visit(f, &tells, 0, CT_MSG_ASK);
    tells.msg->ask.id = id;
    tells.msg->host.port = port;
    tells.msg->term = term;
    ct_loop_run_until(&f->loop, &tells.lost);
    leave(f, &tells);
}

static void run_until_warned(struct fixture *f, int warnings)
{
    while (f->warnings < warnings) {
        assert_false(f->found);
        (void)uv_run(&f->loop, UV_RUN_ONCE);
    }
}

/* It has no other job to go to, and members may be waiting with it. */
static void test_a_host_goes_on_while_it_does_not_reach_the_other_one(void **state)
{
    struct fixture *f = new_fixture();
    const struct ct_election *first;
    const uint64_t term = UINT64_C(5) << 32 | 2;
    (void)state;
    begin(f, &good);
    first = ct_elector_state(f->agents[0].elector);
    uint16_t dead = ct_server_port(f->agents[2].server);
    kill_agent(f, 2);
    tell_first(f, 3, dead, term);
    run_until_warned(f, 1);
    assert_non_null(strstr(f->warned, "says that it hosts this job, but nobody listens there"));
    (void)usleep((CT_REFUSAL_QUIET_MS + 100) * 1000); /* until another warning may come */
    tell_first(f, 2, ct_server_port(f->agents[1].server), term);
    run_until_warned(f, 2);
    assert_non_null(strstr(f->warned, "says that it hosts this job, but it does not;"));
    assert_true(first->state == CT_ELECTION_HOSTING);

    const struct ct_members_failover hosting = {.self = {.id = 2}, .term = term};
    ct_server_host(f->agents[1].server, &hosting);
    tell_first(f, 2, ct_server_port(f->agents[1].server), term);
    ct_loop_run_until(&f->loop, &f->found);
    assert_true(f->agents[0].joins && first->state == CT_ELECTION_LOOKING);
    assert_int_equal(f->agents[0].at.id, 2);
    assert_int_equal(f->agents[0].at.port, ct_server_port(f->agents[1].server));
    assert_int_equal(f->warnings, 2);
    end(f);
}

/* It hosts in that term indeed, but nobody can have elected it. */
static void test_a_host_of_a_term_out_of_reach_is_not_joined(void **state)
{
    struct fixture *f = new_fixture();
    const struct ct_members_failover hosting = {.self = {.id = 9}, .term = CT_TERM_MAX};
    (void)state;
    begin(f, &good);
    ct_server_host(f->agents[1].server, &hosting);
    tell_first(f, 9, ct_server_port(f->agents[1].server), hosting.term);
    run_until_warned(f, 1);
    assert_non_null(
        strstr(f->warned, "belongs to no world names a term that no election can have"));
    assert_true(ct_elector_state(f->agents[0].elector)->state == CT_ELECTION_HOSTING);
    assert_false(f->agents[0].joins);
    end(f);
}

/* Each of them had a line, as long as whoever told it named another id. */
static void test_hosts_that_are_not_reached_fill_no_log(void **state)
{
    struct fixture *f = new_fixture();
    const uint64_t term = UINT64_C(5) << 32 | 2;
    (void)state;
    begin(f, &good);
    uint16_t dead = ct_server_port(f->agents[2].server);
    kill_agent(f, 2);
    int64_t began_ns = ct_clock_now(NULL);
    for (uint64_t id = 10; id < 30; id++) {
        tell_first(f, id, dead, term);
        (void)uv_run(&f->loop, UV_RUN_NOWAIT);
    }
    run_until_warned(f, 1);
    assert_true(f->warnings <= 1 + (ct_clock_now(NULL) - began_ns) / CT_NS_PER_S);
    end(f);
}

/* Nor is it open for ever: who tells may be closed meanwhile. */
static void test_an_elector_that_reaches_for_a_host_can_be_closed(void **state)
{
    struct fixture *f = new_fixture();
    (void)state;
    begin(f, &good);
    const struct ct_voter host = {
        .id = 2, .address = "127.0.0.1", .port = ct_server_port(f->agents[1].server)};
    ct_elector_told(f->agents[0].elector, &host, UINT64_C(5) << 32 | 2);
    end(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_of_three_choose_one),
        cmocka_unit_test(test_who_is_cut_off_alone_is_sent_back),
        cmocka_unit_test(test_half_is_enough_after_a_death),
        cmocka_unit_test(test_a_refusal_where_the_host_was_not_met_proves_nothing),
        cmocka_unit_test(test_a_new_host_lets_its_questions_arrive),
        cmocka_unit_test(test_a_refusal_of_a_voter_proves_its_death_if_it_was_reached),
        cmocka_unit_test(test_a_death_that_is_proved_before_the_first_member_comes_counts),
        cmocka_unit_test(test_a_voter_is_asked_where_the_newest_record_says),
        cmocka_unit_test(test_a_voter_with_two_addresses_on_record_can_be_found_dead),
        cmocka_unit_test(test_another_token_gets_no_vote),
        cmocka_unit_test(test_a_station_answers_one_question_and_sends_members_on),
        cmocka_unit_test(test_a_term_that_nobody_has_reached_is_warned_of),
        cmocka_unit_test(test_a_station_hosts_and_stops_hosting),
        cmocka_unit_test(test_who_was_told_of_an_earlier_term_does_not_join),
        cmocka_unit_test(test_a_host_goes_on_while_it_does_not_reach_the_other_one),
        cmocka_unit_test(test_a_host_of_a_term_out_of_reach_is_not_joined),
        cmocka_unit_test(test_hosts_that_are_not_reached_fill_no_log),
        cmocka_unit_test(test_an_elector_that_reaches_for_a_host_can_be_closed),
    };
    return cmocka_run_group_tests_name("elector_uv", tests, NULL, NULL);
}
