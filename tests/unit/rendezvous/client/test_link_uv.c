/* SPDX-License-Identifier: Apache-2.0
 *
 * Agents' links to a server, both ends on one loop: what each end does when all is well, when the
 * other is somebody else, and when it falls silent.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/loop.h"

#include "rendezvous/admission/access.h"
#include "rendezvous/client/link_uv.h"
#include "rendezvous/server/server_uv.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const struct ct_token good = {.len = 16, .text = "0123456789abcdef"};
static const struct ct_token bad = {.len = 16, .text = "0123456789abcdeX"};
static const struct ct_access nobody;

struct fixture {
    uv_loop_t loop;
    struct ct_server *server;
    bool server_closed;
};

/* One agent and what it has heard. */
struct agent {
    struct ct_link *link;
    struct ct_msg_join join;
    bool up, lost, closed, over, world, quiet;
    struct ct_err err;
    char refusal[CT_FAILURE_WHAT_MAX];
    char address[CT_HOST_MAX];
    struct ct_msg_world place;
    int exit_code;
    int beats;
    bool leased;
    int64_t lease_ms;
    struct fixture *fixture; /* for host_at_the_second_time() */
    int refusals;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    ct_loop_begin(&f->loop);
    *state = f;
    return 0;
}

static void note(void *data)
{
    *(bool *)data = true;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    if (f->server != NULL) {
        ct_server_close(f->server, note, &f->server_closed);
        ct_loop_run_until(&f->loop, &f->server_closed);
    }
    ct_loop_end(&f->loop);
    free(f);
    return 0;
}

static void open_server(struct fixture *f, const struct ct_token *token, uint16_t port)
{
    static struct ct_server_agents agents;
    struct ct_err err = {0};
    agents = (struct ct_server_agents){.token = token, .run_id = "job"};
    const struct ct_server_options options = {
        .port = port, .agents = &agents, .access = token != NULL ? &nobody : NULL};
    assert_int_equal(ct_server_open(&f->loop, &options, &f->server, &err), 0);
}

/* ---- the agent's side ----------------------------------------------------------------------- */

static void on_up(void *data, const char *address)
{
    struct agent *agent = data;
    agent->up = true;
    (void)snprintf(agent->address, sizeof(agent->address), "%s", address);
    struct ct_msg *msg = calloc(1, sizeof(*msg));
    assert_non_null(msg);
    msg->type = CT_MSG_JOIN;
    msg->join = agent->join;
    if (!agent->quiet) {
        ct_link_send(agent->link, msg);
    }
    free(msg);
}

static void on_message(void *data, struct ct_msg *msg)
{
    struct agent *agent = data;
    if (msg->type == CT_MSG_WORLD) {
        agent->place = msg->world;
        agent->world = true;
        if (msg->world.serve) {
            *msg = (struct ct_msg){.type = CT_MSG_SERVING, .generation = msg->generation};
            msg->port = 4711;
            (void)snprintf(msg->text, sizeof(msg->text), "10.0.0.1");
            ct_link_send(agent->link, msg);
        }
    } else if (msg->type == CT_MSG_OVER || msg->type == CT_MSG_REFUSED) {
        agent->over = true;
        agent->exit_code = msg->exit_code;
        (void)snprintf(agent->refusal, sizeof(agent->refusal), "%s", msg->text);
    }
}

static void on_lost(void *data, const struct ct_err *err)
{
    struct agent *agent = data;
    agent->lost = true;
    agent->err = *err;
}

static void start(struct fixture *f, struct agent *agent, const char *name, int nodes,
                  const struct ct_link_options *more)
{
    struct ct_link_options options = *more;
    struct ct_err err = {0};
    options.on_up = on_up;
    options.on_message = on_message;
    options.on_lost = on_lost;
    options.data = agent;
    options.connect_ms = options.connect_ms != 0 ? options.connect_ms : 10000;
    agent->join = (struct ct_msg_join){
        .node_rank = -1,
        .workers = 2,
        .pid = 1,
        .min_nodes = nodes,
        .max_nodes = nodes,
        .settle_ms = 100,
        .join_ms = 10000,
        .heartbeat_ms = 3000,
    };
    (void)snprintf(agent->join.run_id, sizeof(agent->join.run_id), "job");
    (void)snprintf(agent->join.host, sizeof(agent->join.host), "%s", name);
    (void)snprintf(agent->join.role, sizeof(agent->join.role), "default");
    assert_int_equal(ct_link_open(&f->loop, &options, &agent->link, &err), 0);
    assert_false(agent->up); /* never from inside the call */
}

static void end(struct fixture *f, struct agent *agent)
{
    ct_link_close(agent->link, 0, note, &agent->closed);
    ct_loop_run_until(&f->loop, &agent->closed);
}

/* ---- all is well ---------------------------------------------------------------------------- */

static void test_local_and_remote_form_a_world(void **state)
{
    struct fixture *f = *state;
    struct agent host = {0}, guest = {0};
    open_server(f, NULL, 0);
    start(f, &host, "a", 2, &(struct ct_link_options){.local = f->server});
    ct_loop_run_until(&f->loop, &host.up);
    start(f, &guest, "b", 2,
          &(struct ct_link_options){.host = "127.0.0.1", .port = ct_server_port(f->server)});
    ct_loop_run_until(&f->loop, &guest.world);
    assert_string_equal(host.address, "");
    assert_string_equal(guest.address, "127.0.0.1");
    assert_string_equal(ct_link_local_address(guest.link), "127.0.0.1");
    assert_int_equal(guest.place.node_rank, 1);
    assert_int_equal(guest.place.first_rank, 2);
    assert_int_equal(guest.place.world_size, 4);
    assert_string_equal(guest.place.master_addr, "10.0.0.1");
    assert_int_equal(guest.place.master_port, 4711);
    end(f, &guest);
    end(f, &host);
}

static void test_only_an_agent_with_the_token_joins(void **state)
{
    struct fixture *f = *state;
    struct agent friendly = {0}, stranger = {0}, empty = {0};
    open_server(f, &good, 0);
    uint16_t port = ct_server_port(f->server);
    start(f, &friendly, "a", 1,
          &(struct ct_link_options){.host = "127.0.0.1", .port = port, .token = &good});
    ct_loop_run_until(&f->loop, &friendly.world);
    start(f, &stranger, "b", 1,
          &(struct ct_link_options){.host = "127.0.0.1", .port = port, .token = &bad});
    ct_loop_run_until(&f->loop, &stranger.lost);
    /* The server proves itself first, and to this agent it cannot. */
    assert_int_equal(stranger.err.code, CT_EPERM);
    assert_non_null(strstr(stranger.err.text, "does not have this job's token"));
    start(f, &empty, "c", 1, &(struct ct_link_options){.host = "127.0.0.1", .port = port});
    ct_loop_run_until(&f->loop, &empty.lost);
    assert_int_equal(empty.err.code, CT_EPERM);
    assert_non_null(strstr(empty.err.text, "--token-file"));
    end(f, &empty);
    end(f, &stranger);
    end(f, &friendly);
}

static void test_server_without_the_token_is_refused(void **state)
{
    struct fixture *f = *state;
    struct agent agent = {0};
    open_server(f, NULL, 0);
    start(f, &agent, "a", 1,
          &(struct ct_link_options){
              .host = "127.0.0.1", .port = ct_server_port(f->server), .token = &good});
    ct_loop_run_until(&f->loop, &agent.lost);
    assert_int_equal(agent.err.code, CT_EPERM);
    end(f, &agent);
}

static void test_reset_keeps_agents(void **state)
{
    struct fixture *f = *state;
    struct agent host = {0}, guest = {0};
    open_server(f, NULL, 0);
    start(f, &host, "a", 2, &(struct ct_link_options){.local = f->server});
    ct_loop_run_until(&f->loop, &host.up);
    ct_server_reset(f->server);
    start(f, &guest, "b", 2,
          &(struct ct_link_options){.host = "127.0.0.1", .port = ct_server_port(f->server)});
    ct_server_reset(f->server);
    ct_loop_run_until(&f->loop, &guest.up);
    ct_server_reset(f->server);
    ct_loop_run_until(&f->loop, &guest.world);
    assert_false(guest.lost);
    end(f, &guest);
    end(f, &host);
}

static void test_another_jobs_agent_is_refused(void **state)
{
    struct fixture *f = *state;
    struct agent agent = {.quiet = true};
    open_server(f, NULL, 0);
    start(f, &agent, "a", 1,
          &(struct ct_link_options){.host = "localhost", .port = ct_server_port(f->server)});
    ct_loop_run_until(&f->loop, &agent.up);
    struct ct_msg *msg = calloc(1, sizeof(*msg));
    assert_non_null(msg);
    msg->type = CT_MSG_JOIN;
    msg->join = agent.join;
    (void)snprintf(msg->join.run_id, sizeof(msg->join.run_id), "other");
    ct_link_send(agent.link, msg);
    free(msg);
    ct_loop_run_until(&f->loop, &agent.over);
    assert_int_equal(agent.exit_code, 2);
    assert_non_null(strstr(agent.refusal, "belongs to job 'job', not to 'other'"));
    end(f, &agent);
}

static void ask_to_be_a_guest(struct fixture *f, struct agent *agent, const struct ct_token *token)
{
    agent->quiet = true;
    start(f, agent, "b", 1,
          &(struct ct_link_options){
              .host = "127.0.0.1", .port = ct_server_port(f->server), .token = token});
    ct_loop_run_until(&f->loop, &agent->up);
    struct ct_msg *msg = calloc(1, sizeof(*msg));
    assert_non_null(msg);
    msg->type = CT_MSG_GUEST;
    ct_link_send(agent->link, msg);
    free(msg);
}

/* Whoever joins after the guest is served after it, on the same loop. */
static void test_a_guest_with_the_token_stays(void **state)
{
    struct fixture *f = *state;
    struct agent guest = {0}, later = {0};
    open_server(f, &good, 0);
    ask_to_be_a_guest(f, &guest, &good);
    start(f, &later, "a", 1,
          &(struct ct_link_options){
              .host = "127.0.0.1", .port = ct_server_port(f->server), .token = &good});
    ct_loop_run_until(&f->loop, &later.world);
    assert_false(guest.over || guest.lost);
    end(f, &later);
    assert_true(ct_server_has_agents(f->server));
    end(f, &guest);
}

/* Such connections had neither a limit nor a deadline. */
static void test_a_store_without_a_token_takes_no_guests(void **state)
{
    struct fixture *f = *state;
    struct agent guest = {0};
    open_server(f, NULL, 0);
    ask_to_be_a_guest(f, &guest, NULL);
    ct_loop_run_until(&f->loop, &guest.lost);
    assert_true(guest.over);
    assert_string_equal(guest.refusal,
                        "this store serves workers without a token, so it takes no guests");
    assert_false(ct_server_has_agents(f->server));
    end(f, &guest);
}

/* ---- the other end is not there, or somebody else ------------------------------------------- */

/* A listening socket of which nobody accepts. */
/* Whoever connects there is refused, as long as nobody listens on the socket. */
static int bind_somewhere(uint16_t *port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
    *port = ntohs(addr.sin_port);
    return fd;
}

static int listen_somewhere(uint16_t *port)
{
    int fd = bind_somewhere(port);
    assert_int_equal(listen(fd, 8), 0);
    return fd;
}

/* Turns the loop until a connection is there. */
static int accept_one(struct fixture *f, int listening)
{
    for (int i = 0; i < 1000; i++) {
        int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0) {
            return fd;
        }
        (void)uv_run(&f->loop, UV_RUN_NOWAIT);
        (void)usleep(1000);
    }
    fail_msg("nobody has connected");
    return -1;
}

static void test_a_server_that_starts_late_is_found(void **state)
{
    struct fixture *f = *state;
    struct agent agent = {0};
    uint16_t port;
    int fd = listen_somewhere(&port);
    (void)close(fd);
    start(f, &agent, "a", 1, &(struct ct_link_options){.host = "127.0.0.1", .port = port});
    for (int i = 0; i < 10; i++) {
        (void)uv_run(&f->loop, UV_RUN_ONCE); /* some tries fail */
    }
    assert_false(agent.lost);
    open_server(f, NULL, port);
    ct_loop_run_until(&f->loop, &agent.world);
    end(f, &agent);
}

static struct ct_server *host_at_the_second_time(void *data)
{
    struct agent *agent = data;
    agent->refusals++;
    if (agent->refusals == 2) {
        open_server(agent->fixture, NULL, 0);
    }
    return agent->fixture->server;
}

static void test_an_agent_hosts_the_store_when_nobody_else_does(void **state)
{
    struct fixture *f = *state;
    struct agent agent = {.fixture = f};
    uint16_t port;
    int fd = bind_somewhere(&port);
    start(f, &agent, "a", 1,
          &(struct ct_link_options){
              .host = "127.0.0.1", .port = port, .on_refused = host_at_the_second_time});
    ct_loop_run_until(&f->loop, &agent.world);
    (void)close(fd);
    assert_int_equal(agent.refusals, 2);
    assert_string_equal(agent.address, "");
    end(f, &agent);
}

static void test_a_store_that_does_not_listen_is_named(void **state)
{
    struct fixture *f = *state;
    struct agent agent = {0};
    uint16_t port;
    int fd = bind_somewhere(&port); /* kept, so that no other test gets this port */
    start(f, &agent, "a", 1,
          &(struct ct_link_options){.host = "127.0.0.1", .port = port, .connect_ms = 500});
    ct_loop_run_until(&f->loop, &agent.lost);
    (void)close(fd);
    assert_non_null(strstr(agent.err.text, "cannot reach the job's store at 127.0.0.1:"));
    assert_non_null(strstr(agent.err.text, "refused"));
    assert_int_equal(agent.err.code, CT_ETIMEDOUT);
    end(f, &agent);
}

static void test_another_service_is_no_store(void **state)
{
    struct fixture *f = *state;
    struct agent agent = {0};
    uint16_t port;
    int fd = listen_somewhere(&port);
    start(f, &agent, "a", 1, &(struct ct_link_options){.host = "127.0.0.1", .port = port});
    int peer = accept_one(f, fd);
    assert_int_equal(write(peer, "SSH-2.0-x\r\n", 11), 11);
    ct_loop_run_until(&f->loop, &agent.lost);
    assert_int_equal(agent.err.code, CT_EPROTO);
    assert_non_null(strstr(agent.err.text, "is no store of ctrun"));
    (void)close(peer);
    (void)close(fd);
    end(f, &agent);
}

static void test_a_link_may_close_while_it_connects(void **state)
{
    struct fixture *f = *state;
    struct agent agent = {0}, named = {0};
    uint16_t port;
    int fd = listen_somewhere(&port);
    start(f, &agent, "a", 1, &(struct ct_link_options){.host = "127.0.0.1", .port = port});
    (void)uv_run(&f->loop, UV_RUN_NOWAIT);
    end(f, &agent);
    start(f, &named, "b", 1, &(struct ct_link_options){.host = "no-such.invalid", .port = port});
    (void)uv_run(&f->loop, UV_RUN_NOWAIT);
    end(f, &named);
    assert_false(agent.lost || named.lost);
    (void)close(fd);
}

/* ---- silence -------------------------------------------------------------------------------- */

static void tell(int fd, struct ct_msg *msg)
{
    struct ct_buf frame = CT_BUF_INIT;
    assert_int_equal(ct_msg_encode(msg, &frame), 0);
    assert_int_equal(write(fd, ct_buf_bytes(&frame), frame.len), (ssize_t)frame.len);
    ct_buf_fini(&frame);
}

/* It answers OPEN with ACCEPTED, so that no CHALLENGE shows that it has no token. */
static void test_a_server_that_leaves_its_proof_out_is_refused(void **state)
{
    struct fixture *f = *state;
    struct agent agent = {.quiet = true};
    uint16_t port;
    int fd = listen_somewhere(&port);
    start(f, &agent, "a", 1,
          &(struct ct_link_options){.host = "127.0.0.1", .port = port, .token = &good});
    int peer = accept_one(f, fd);
    struct ct_msg *msg = calloc(1, sizeof(*msg));
    assert_non_null(msg);
    msg->type = CT_MSG_ACCEPTED;
    (void)snprintf(msg->text, sizeof(msg->text), "127.0.0.1");
    tell(peer, msg);
    while (!agent.up && !agent.lost) {
        (void)uv_run(&f->loop, UV_RUN_ONCE);
    }
    assert_false(agent.up);
    assert_int_equal(agent.err.code, CT_EPERM);
    assert_non_null(strstr(agent.err.text, "does not have this job's token"));
    free(msg);
    (void)close(peer);
    (void)close(fd);
    end(f, &agent);
}

static void count_beat(void *data, struct ct_msg *msg)
{
    (void)msg;
    ((struct agent *)data)->beats++;
}

/* A server that accepts the proof and says nothing more. It is asked again and again. */
static void test_a_silent_server_times_out(void **state)
{
    struct fixture *f = *state;
    struct agent agent = {.quiet = true};
    uint16_t port;
    int fd = listen_somewhere(&port);
    start(f, &agent, "a", 1,
          &(struct ct_link_options){.host = "127.0.0.1", .port = port, .on_beat = count_beat});
    int peer = accept_one(f, fd);
    struct ct_msg *msg = calloc(1, sizeof(*msg));
    assert_non_null(msg);
    msg->type = CT_MSG_CHALLENGE;
    tell(peer, msg);
    msg->type = CT_MSG_ACCEPTED;
    (void)snprintf(msg->text, sizeof(msg->text), "127.0.0.1");
    tell(peer, msg);
    ct_loop_run_until(&f->loop, &agent.up);
    msg->type = CT_MSG_JOIN;
    msg->join = agent.join;
    msg->join.heartbeat_ms = 600;
    ct_link_send(agent.link, msg);
    uint64_t begun = uv_hrtime();
    ct_loop_run_until(&f->loop, &agent.lost);
    uint64_t elapsed_ms = (uv_hrtime() - begun) / 1000000;
    assert_int_equal(agent.err.code, CT_ETIMEDOUT);
    assert_non_null(strstr(agent.err.text, "nothing was heard"));
    /* The first after 200 ms, without an answer each 50 ms. A pause of our own prolongs the wait.
     */
    assert_in_range(agent.beats, 6, 1 + elapsed_ms / 50);
    free(msg);
    (void)close(peer);
    (void)close(fd);
    end(f, &agent);
}

static void note_lease(void *data, int64_t sent_ns, int64_t lease_ms)
{
    struct agent *agent = data;
    assert_in_range(sent_ns, 1, (int64_t)uv_hrtime());
    agent->lease_ms = lease_ms;
    agent->leased = true;
}

/* A server that goes on talking, but gives no new lease, is lost when the last one ends. */
static void test_a_lease_ends_the_link(void **state)
{
    struct fixture *f = *state;
    struct agent agent = {.quiet = true};
    uint16_t port;
    int fd = listen_somewhere(&port);
    start(f, &agent, "a", 1,
          &(struct ct_link_options){
              .host = "127.0.0.1", .port = port, .on_beat = count_beat, .on_lease = note_lease});
    int peer = accept_one(f, fd);
    struct ct_msg *msg = calloc(1, sizeof(*msg));
    assert_non_null(msg);
    msg->type = CT_MSG_CHALLENGE;
    tell(peer, msg);
    msg->type = CT_MSG_ACCEPTED;
    (void)snprintf(msg->text, sizeof(msg->text), "127.0.0.1");
    tell(peer, msg);
    ct_loop_run_until(&f->loop, &agent.up);
    msg->type = CT_MSG_JOIN;
    msg->join = agent.join;
    msg->join.heartbeat_ms = 600;
    ct_link_send(agent.link, msg);
    int64_t begun_ms = (int64_t)(uv_hrtime() / 1000000);
    msg->type = CT_MSG_BEAT;
    msg->has_lease = true;
    msg->clock_ms = begun_ms + 3600000; /* of a beat that nobody has sent */
    msg->lease_ms = 1;
    tell(peer, msg);
    msg->clock_ms = begun_ms;
    msg->lease_ms = 99999; /* longer than the heartbeat timeout allows */
    tell(peer, msg);
    ct_loop_run_until(&f->loop, &agent.leased);
    assert_int_equal(agent.lease_ms, 600);
    msg->has_lease = false;
    while (!agent.lost) {
        tell(peer, msg);
        (void)uv_run(&f->loop, UV_RUN_ONCE);
    }
    assert_int_equal(agent.err.code, CT_ETIMEDOUT);
    assert_non_null(strstr(agent.err.text, "has not answered in time"));
    assert_true((int64_t)(uv_hrtime() / 1000000) - begun_ms >= 600);
    free(msg);
    (void)close(peer);
    (void)close(fd);
    end(f, &agent);
}

static void turn_for(struct fixture *f, uint64_t ms)
{
    uint64_t begun = uv_hrtime();
    while (uv_hrtime() - begun < ms * 1000000) {
        (void)uv_run(&f->loop, UV_RUN_ONCE);
    }
}

/* Beats go both ways although nobody has anything to say, and a pause of our own is forgiven. */
static void test_beats_keep_the_line_up(void **state)
{
    struct fixture *f = *state;
    struct agent agent = {.quiet = true};
    open_server(f, NULL, 0);
    start(f, &agent, "a", 1,
          &(struct ct_link_options){.host = "127.0.0.1", .port = ct_server_port(f->server)});
    ct_loop_run_until(&f->loop, &agent.up);
    struct ct_msg *msg = calloc(1, sizeof(*msg));
    assert_non_null(msg);
    msg->type = CT_MSG_JOIN;
    msg->join = agent.join;
    msg->join.min_nodes = msg->join.max_nodes = 2;
    msg->join.heartbeat_ms = 300;
    ct_link_send(agent.link, msg);
    turn_for(f, 700);
    (void)usleep(600000);
    turn_for(f, 700);
    assert_false(agent.lost || agent.over);
    free(msg);
    end(f, &agent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define WITH_LOOP(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)
        WITH_LOOP(test_local_and_remote_form_a_world),
        WITH_LOOP(test_only_an_agent_with_the_token_joins),
        WITH_LOOP(test_server_without_the_token_is_refused),
        WITH_LOOP(test_reset_keeps_agents),
        WITH_LOOP(test_another_jobs_agent_is_refused),
        WITH_LOOP(test_a_guest_with_the_token_stays),
        WITH_LOOP(test_a_store_without_a_token_takes_no_guests),
        WITH_LOOP(test_a_server_that_starts_late_is_found),
        WITH_LOOP(test_an_agent_hosts_the_store_when_nobody_else_does),
        WITH_LOOP(test_a_store_that_does_not_listen_is_named),
        WITH_LOOP(test_another_service_is_no_store),
        WITH_LOOP(test_a_link_may_close_while_it_connects),
        WITH_LOOP(test_a_server_that_leaves_its_proof_out_is_refused),
        WITH_LOOP(test_a_silent_server_times_out),
        WITH_LOOP(test_a_lease_ends_the_link),
        WITH_LOOP(test_beats_keep_the_line_up),
    };
    return cmocka_run_group_tests_name("link_uv", tests, NULL, NULL);
}
