/* SPDX-License-Identifier: Apache-2.0
 *
 * Membership: how a world forms, who gets which rank, who may join, and the status.
 */
#include "tests/lib/members_done.h"
#include "tests/lib/members_scene.h"

#include "common/progress_page.h"
#include "rendezvous/wire/json.h"

#include <math.h>
#include <stdio.h>

static void refused(struct scene *s, int i, int node_rank, int code, const char *words)
{
    assert_int_equal(try_join(s, i, node_rank), code);
    assert_string_equal(s->err.text, words);
    HEARS(s, i, "");
}

/* ---- forming -------------------------------------------------------------------------------- */

static void test_rank_0_begins_and_the_others_follow_its_store(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 3, 3, 0, 0);
    join(&s, 10);
    join(&s, 7);
    HEARS(&s, 7, "");
    join(&s, 9);
    /* Natural order of names; rank 0 begins alone, the others when its store is there. */
    HEARS(&s, 7, "world0:0/3,0/6,serve");
    HEARS(&s, 9, "");
    say(&s, 7, CT_MSG_SERVING, 0);
    HEARS(&s, 9, "world0:1/3,2/6@10.0.0.7");
    HEARS(&s, 10, "world0:2/3,4/6@10.0.0.7");
    HEARS(&s, 7, "");
    end(&s);
}

static void test_address_of_the_one_who_serves(void **state)
{
    static struct ct_msg msg = {.type = CT_MSG_SERVING, .port = 1, .text = "fd00::7"};
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 0);
    join(&s, 1);
    join(&s, 2);
    say_msg(&s, 1, &msg);
    HEARS(&s, 2, "world0:1/2,2/4@fd00::7");
    end(&s);
}

static void test_every_world_has_the_ports_that_rank_0_has_reserved(void **state)
{
    static struct ct_msg msg = {.type = CT_MSG_SERVING, .port = 1, .world.ports = "a=20001 b=7"};
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 1);
    join(&s, 1);
    join(&s, 2);
    say_msg(&s, 1, &msg);
    assert_string_equal(s.nodes[1].last_world.ports, "");
    assert_string_equal(s.nodes[2].last_world.ports, "a=20001 b=7");
    end(&s);
}

static void test_every_world_tells_how_others_reach_the_store(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 1);
    join(&s, 1);
    ct_members_reached(s.members, "127.0.0.1", false);
    ct_members_reached(s.members, "10.0.0.77", true);
    ct_members_reached(s.members, "10.1.0.77", true);
    join(&s, 2);
    assert_string_equal(s.nodes[1].last_world.store_addr, "10.0.0.77");
    say(&s, 1, CT_MSG_SERVING, 0);
    assert_string_equal(s.nodes[2].last_world.store_addr, "10.0.0.77");
    end(&s);
}

static void test_nodes_get_the_ranks_that_they_wish(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 3, 3, 0, 0);
    join_as(&s, 1, 2);
    join_as(&s, 2, 0);
    join(&s, 3); /* takes what is left */
    say(&s, 2, CT_MSG_SERVING, 0);
    HEARS(&s, 1, "world0:2/3,4/6@10.0.0.2");
    HEARS(&s, 2, "world0:0/3,0/6,serve");
    HEARS(&s, 3, "world0:1/3,2/6@10.0.0.2");
    end(&s);
}

static void test_ranks_by_the_schedulers_list(void **state)
{
    static const char *const expected[] = {"gpu-3.cluster", "gpu-1.cluster", "gpu-2.cluster"};
    struct scene s;
    (void)state;
    begin_expecting(&s, 3, 3, 0, 0, expected, 3);
    join(&s, 1);
    join(&s, 2);
    join(&s, 3);
    HEARS(&s, 3, "world0:0/3,0/6,serve");
    say(&s, 3, CT_MSG_SERVING, 0);
    HEARS(&s, 1, "world0:1/3,2/6@10.0.0.3");
    end(&s);
}

static void test_unequal_nodes_and_roles_are_ranked(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 3, 3, 0, 0);
    s.job.workers = 1;
    (void)snprintf(s.job.role, sizeof(s.job.role), "reader");
    join(&s, 1);
    s.job.workers = 4;
    (void)snprintf(s.job.role, sizeof(s.job.role), "trainer");
    join(&s, 2);
    s.job.workers = 3;
    join(&s, 3);
    HEARS(&s, 1, "world0:0/3,0/8,serve");
    say(&s, 1, CT_MSG_SERVING, 0);
    HEARS(&s, 2, "world0:1/3,1/8@10.0.0.1");
    assert_int_equal(s.nodes[2].last_world.first_role_rank, 0);
    assert_int_equal(s.nodes[2].last_world.role_size, 7);
    HEARS(&s, 3, "world0:2/3,5/8@10.0.0.1");
    assert_int_equal(s.nodes[3].last_world.first_role_rank, 4);
    assert_int_equal(s.nodes[1].last_world.role_size, 1);
    end(&s);
}

static void test_elastic_world_settles(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 4, 0, 0);
    join(&s, 1);
    join(&s, 2);
    pass(&s, 2 * S);
    HEARS(&s, 1, "");
    join(&s, 3);
    pass(&s, S + MS); /* 3 s after the second came */
    HEARS(&s, 1, "world0:0/3,0/6,serve");
    end(&s);

    begin(&s, 2, 4, 0, 0);
    for (int i = 1; i <= 4; i++) {
        join(&s, i);
    }
    HEARS(&s, 1, "world0:0/4,0/8,serve"); /* at once with all */
    end(&s);
}

static void test_settling_begins_again(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 4, 0, 0);
    join(&s, 1);
    join(&s, 2);
    pass(&s, 2 * S);
    gone(&s, 2);
    pass(&s, 2 * S);
    join(&s, 3);
    pass(&s, 2 * S);
    HEARS(&s, 1, "waiting");
    pass(&s, S + MS);
    HEARS(&s, 1, "world0:0/2,0/4,serve");
    end(&s);
}

static void test_rank_0_is_lost_while_forming(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 0);
    join(&s, 1);
    join(&s, 2);
    HEARS(&s, 1, "world0:0/2,0/4,serve");
    gone(&s, 1);
    HEARS(&s, 2, "");
    join(&s, 3);
    HEARS(&s, 2, ""); /* keeps its number, and no two worlds have the same */
    HEARS(&s, 3, "world1:0/2,0/4,serve");
    say(&s, 3, CT_MSG_SERVING, 1);
    HEARS(&s, 2, "world1:1/2,2/4@10.0.0.3");
    end(&s);
}

static void test_another_is_lost_while_forming(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 0);
    join(&s, 1);
    join(&s, 2);
    gone(&s, 2);
    HEARS(&s, 1, "world0:0/2,0/4,serve stop0,again");
    say(&s, 1, CT_MSG_SERVING, 0); /* was on its way */
    say(&s, 1, CT_MSG_STOPPED, 0);
    join(&s, 3);
    HEARS(&s, 1, "world1:0/2,0/4,serve");
    end(&s);
}

static void test_store_is_never_served(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 0);
    join(&s, 1);
    join(&s, 2);
    pass(&s, 61 * S);
    HEARS(&s, 1, "world0:0/2,0/4,serve dropped");
    pass(&s, 61 * S);
    assert_non_null(strstr(s.nodes[2].log, "waiting"));
    assert_non_null(strstr(s.nodes[2].log, "over=120"));
    end(&s);
}

/* ---- who may join --------------------------------------------------------------------------- */

static void test_options_must_agree(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 3);
    join(&s, 1);
    s.job.min_nodes = s.job.max_nodes = 4;
    refused(&s, 3, -1, CT_EINVAL, "node gpu-3 says --nnodes 4, the job was begun with --nnodes 2");
    s.job.min_nodes = 1;
    refused(&s, 3, -1, CT_EINVAL,
            "node gpu-3 says --nnodes 1:4, the job was begun with --nnodes 2");
    s.job.min_nodes = s.job.max_nodes = 2;
    s.job.spares = 1;
    refused(&s, 3, -1, CT_EINVAL, "node gpu-3 says --spares 1, the job was begun with --spares 0");
    s.job.spares = 0;
    s.job.max_restarts = 0;
    refused(&s, 3, -1, CT_EINVAL,
            "node gpu-3 says --max-restarts 0, the job was begun with --max-restarts 3");
    s.job.max_restarts = 3;
    s.job.preflight = CT_JOIN_PREFLIGHT_EACH;
    refused(&s, 3, -1, CT_EINVAL,
            "node gpu-3 says --preflight=each, the job was begun with no --preflight; all machines "
            "of the job need the same");
    s.job.preflight = CT_JOIN_PREFLIGHT_NONE;
    s.job.run_id[0] = 'x';
    refused(&s, 3, -1, CT_EINVAL, "node gpu-3 says --rdzv-id x, the job here is r");
    s.job.run_id[0] = 'r';
    s.job.workers = 5; /* may differ */
    join(&s, 3);
    end(&s);
}

static void test_wishes_are_unique(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 3, 3, 0, 0);
    join_as(&s, 1, 1);
    refused(&s, 2, 1, CT_EBUSY, "node rank 1 is taken by gpu-1 at 10.0.0.1");
    refused(&s, 2, 3, CT_EINVAL, "node gpu-2 says --node-rank 3, the job has node ranks 0 to 2");
    refused(&s, 1, 1, CT_EBUSY, "node rank 1 is taken by gpu-1 at 10.0.0.1");
    end(&s);
}

static void test_restarted_agent_replaces_its_old_self(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 0);
    join_as(&s, 1, 1);
    s.now += 2 * S; /* two beats are missing */
    join_as(&s, 1, 1);
    HEARS(&s, 1, "dropped");
    assert_false(members_done(s.members));
    end(&s);
}

static void test_one_node_too_many_is_refused(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 1, 0);
    run(&s, 2);
    join(&s, 3);
    HEARS(&s, 3, "spare");
    refused(&s, 4, -1, CT_ELIMIT,
            "node gpu-4 is one too many: the job r has its 3 nodes; --spares lets more wait");
    end(&s);
}

/* Would the JOIN of a ctrun on node i's machine be held, which came at `since_ns`? */
static bool holds(const struct scene *s, int i, int node_rank, const char *address,
                  int64_t since_ns)
{
    struct ct_msg_join join = s->job;
    (void)snprintf(join.host, sizeof(join.host), "gpu-%d", i);
    join.node_rank = node_rank;
    return ct_members_holds(s->members, &join, address, since_ns, s->now);
}

static void beat(struct scene *s, int i, int64_t sent_ns)
{
    static struct ct_msg msg;
    memset(&msg, 0, sizeof(msg));
    msg.type = CT_MSG_BEAT;
    msg.clock_ms = sent_ns / MS;
    say_msg(s, i, &msg);
}

/* A ctrun that was started again comes before the end of the old one's connection. */
static void test_who_comes_before_the_end_of_its_old_self_is_held(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 3);
    run(&s, 2);
    beat(&s, 1, s.now);
    beat(&s, 2, s.now);
    s.now += S;
    int64_t since_ns = s.now;
    assert_int_equal(try_join(&s, 2, -1), CT_ELIMIT);
    assert_true(holds(&s, 2, -1, "10.0.0.2", since_ns));
    s.now += S / 4;
    beat(&s, 2, since_ns - S / 4); /* it was on its way */
    assert_true(holds(&s, 2, -1, "10.0.0.2", since_ns));
    gone(&s, 2);
    assert_false(holds(&s, 2, -1, "10.0.0.2", since_ns)); /* it has a place now */
    join(&s, 2);
    end(&s);
}

static void test_who_is_one_too_many_is_not_held(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 3);
    run(&s, 2);
    beat(&s, 2, s.now);
    s.now += S;
    int64_t since_ns = s.now;
    assert_false(holds(&s, 3, -1, "10.0.0.3", since_ns)); /* another machine */
    assert_false(holds(&s, 2, -1, "10.6.6.6", since_ns)); /* says that it is this one */
    assert_true(holds(&s, 2, -1, "10.0.0.2", since_ns));
    s.nodes[2].wire_ns = -1; /* of our process, so it lives */
    assert_false(holds(&s, 2, -1, "10.0.0.2", since_ns));
    s.nodes[2].wire_ns = 0;
    s.now += S;
    beat(&s, 2, s.now); /* both live */
    assert_false(holds(&s, 2, -1, "10.0.0.2", since_ns));
    end(&s);
}

/* Its rank is taken, although there is room. */
static void test_a_rank_of_its_old_self_is_waited_for(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 3, 3, 0, 0);
    join_as(&s, 1, 1);
    s.now += S;
    int64_t since_ns = s.now;
    assert_int_equal(try_join(&s, 1, 1), CT_EBUSY);
    assert_true(holds(&s, 1, 1, "10.0.0.1", since_ns));
    assert_false(holds(&s, 2, 1, "10.0.0.2", since_ns));
    s.now += S; /* two beats are missing */
    join_as(&s, 1, 1);
    HEARS(&s, 1, "dropped");
    end(&s);
}

static void test_a_join_is_held_for_a_limited_time(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 0);
    s.job.heartbeat_ms = CT_CONTROL_MAX_MS;
    join(&s, 1);
    join(&s, 2);
    s.now += S;
    int64_t since_ns = s.now;
    s.now += CT_MEMBERS_HOLD_MS * MS - 1;
    assert_true(holds(&s, 2, -1, "10.0.0.2", since_ns));
    s.now++;
    assert_false(holds(&s, 2, -1, "10.0.0.2", since_ns));
    end(&s);
}

/* Nobody is waited for by a job that ends. */
static void test_nobody_is_held_when_the_job_is_over(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 0);
    run(&s, 2);
    s.now += S;
    int64_t since_ns = s.now;
    assert_true(holds(&s, 2, -1, "10.0.0.2", since_ns));
    preempt(&s, 1, 15);
    assert_false(holds(&s, 2, -1, "10.0.0.2", since_ns));
    end(&s);
}

static void test_the_host_says_what_the_job_is(void **state)
{
    struct scene s;
    (void)state;
    begin_hosted(&s, 2, 2, 0, 1);
    const struct ct_msg_join ours = s.job;
    s.job.max_restarts = 1000;
    refused(&s, 1, -1, CT_EINVAL,
            "node gpu-1 says --max-restarts 1000, the job was begun with --max-restarts 1");
    s.job = ours;
    s.job.heartbeat_ms = CT_CONTROL_MAX_MS; /* its own affair */
    join(&s, 1);
    s.job = ours;
    join(&s, 2);
    assert_int_equal(ct_members_next(s.members), s.now + ours.heartbeat_ms * MS);
    end(&s);
}

static void test_a_place_is_taken_over_from_its_own_address(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 0);
    join_as(&s, 1, 1);
    s.now += 2 * S;
    struct ct_msg_join stranger = s.job;
    (void)snprintf(stranger.host, sizeof(stranger.host), "gpu-1");
    stranger.node_rank = 1;
    struct ct_member *member = NULL;
    assert_int_equal(
        ct_members_join(s.members, &stranger, "10.6.6.6", NULL, s.now, &member, &s.err), CT_EBUSY);
    assert_string_equal(s.err.text, "node rank 1 is taken by gpu-1 at 10.0.0.1");
    HEARS(&s, 1, "");
    end(&s);
}

static void test_world_does_not_form(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 0);
    join_as(&s, 1, 0);
    pass(&s, 61 * S);
    HEARS(&s, 1, "waiting waiting over=120");
    assert_string_equal(
        s.nodes[1].last_text,
        "join_timeout (60 s) is over while waiting for 1 of 2 nodes: node rank 1 never "
        "connected; present: gpu-1");
    refused(&s, 2, -1, CT_EBUSY, "the job r is over (exit code 120)");
    assert_false(members_done(s.members));
    say(&s, 1, CT_MSG_LEAVE, 0);
    HEARS(&s, 1, "dropped");
    assert_true(members_done(s.members));
    assert_true(ct_members_next(s.members) == INT64_MAX);
    end(&s);
}

/* ---- status --------------------------------------------------------------------------------- */

static char *status_text(struct scene *s)
{
    ct_json_use_our_memory();
    cJSON *root = cJSON_CreateObject(), *problems = cJSON_CreateArray();
    struct ct_status_rows rows = {.print = true};
    assert_int_equal(ct_members_status(s->members, s->now, &rows, root, problems), 0);
    assert_true(cJSON_AddItemToObject(root, "problems", problems));
    char *text = cJSON_PrintUnformatted(root);
    cJSON_Delete(root);
    return text;
}

static void test_quotes_among_the_problems_are_harmless(void **state)
{
    static struct ct_msg msg = {.type = CT_MSG_FAILED,
                                .failure = {.exit_code = 1, .what = "\x1b[31mred"}};
    struct scene s;
    (void)state;
    begin(&s, 1, 1, 0, 0);
    join_as(&s, 1, 0);
    say(&s, 1, CT_MSG_SERVING, 0);
    say(&s, 1, CT_MSG_STARTED, 0);
    msg.clock_ms = s.now / MS;
    say_msg(&s, 1, &msg);
    char *text = status_text(&s);
    assert_non_null(strstr(text, "\"problems\":[\"rank 0 on gpu-1 at 10.0.0.1: ?[31mred\"]"));
    cJSON_free(text);
    end(&s);
}

static void test_the_status_follows_the_job(void **state)
{
    static struct ct_msg msg = {.type = CT_MSG_BEAT};
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 1);
    char *text = status_text(&s);
    assert_string_equal(
        text, "{\"job\":{\"run_id\":\"\",\"state\":\"waiting\",\"generation\":0,"
              "\"max_restarts\":0,\"restarts\":0,\"world_size\":0,\"min_nodes\":0,"
              "\"max_nodes\":0,\"nodes\":[],"
              "\"missing_nodes\":[],\"workers\":[],\"workers_more\":false,"
              "\"failures\":[],"
              "\"failure_count\":0,\"rounds\":[],\"hangs\":[],\"hang_count\":0},\"problems\":[]}");
    cJSON_free(text);
    join_as(&s, 1, 0);
    text = status_text(&s);
    assert_non_null(strstr(text, "\"missing_nodes\":[\"node rank 1 never connected\"]"));
    assert_non_null(strstr(text, "\"problems\":[\"waiting for 1 of 2 nodes: node rank 1 never"));
    cJSON_free(text);
    join_as(&s, 2, 1);
    say(&s, 1, CT_MSG_SERVING, 0);
    say(&s, 1, CT_MSG_STARTED, 0);
    text = status_text(&s);
    assert_non_null(strstr(text, "\"state\":\"starting\",\"generation\":0"));
    cJSON_free(text);
    say(&s, 2, CT_MSG_STARTED, 0);
    give_rows(&msg, 2, 2, 0);
    msg.rows[1].phase = CT_PHASE_COMPUTE;
    msg.rows[1].step = 7;
    msg.rows[1].age_ms = 1050;
    memcpy(msg.rows[1].loss_text, "0.25", 5);
    say_msg(&s, 2, &msg);
    s.now += 250 * MS;
    text = status_text(&s);
    assert_string_equal(
        text, "{\"job\":{\"run_id\":\"r\",\"state\":\"running\",\"generation\":0,"
              "\"max_restarts\":1,\"restarts\":0,\"world_size\":4,\"min_nodes\":2,\"max_nodes\":2,"
              "\"nodes\":["
              "{\"index\":0,\"host\":\"gpu-1\",\"address\":\"10.0.0.1\",\"state\":\"running\","
              "\"workers\":2,\"last_seen_s\":0.25},"
              "{\"index\":1,\"host\":\"gpu-2\",\"address\":\"10.0.0.2\",\"state\":\"running\","
              "\"workers\":2,\"last_seen_s\":0.25}],"
              "\"missing_nodes\":[],\"workers\":["
              "{\"rank\":2,\"local_rank\":0,\"pid\":100,\"host\":\"gpu-2\",\"state\":"
              "\"running\",\"exit\":null,\"restarts\":0,\"progress\":null},"
              "{\"rank\":3,\"local_rank\":1,\"pid\":101,\"host\":\"gpu-2\",\"state\":"
              "\"running\",\"exit\":null,\"restarts\":0,\"progress\":{\"phase\":\"compute\","
              "\"step\":7,\"age_s\":1.050,\"loss\":0.25,\"samples_per_s\":null}}],"
              "\"workers_more\":false,\"failures\":[],"
              "\"failure_count\":0,\"rounds\":[{\"generation\":0,\"nodes\":2,\"world_size\":4,"
              "\"waited_s\":0,\"formed\":105,\"ended\":0,\"why\":\"\"}],\"hangs\":[],"
              "\"hang_count\":0},\"problems\":[]}");
    cJSON_free(text);
    fails(&s, 2, 0, 3, 7);
    text = status_text(&s);
    assert_non_null(strstr(text, "\"state\":\"stopping\""));
    assert_non_null(strstr(text,
                           "{\"generation\":0,\"node\":1,\"rank\":3,\"pid\":0,\"host\":"
                           "\"gpu-2\",\"exit\":7,\"reason\":\"exited with code 7\",\"time\":"));
    assert_non_null(
        strstr(text, "\"problems\":[\"rank 3 on gpu-2 at 10.0.0.2: exited with code 7\"]"));
    cJSON_free(text);
    end(&s);
}

static void assert_status(struct scene *s, const char *wanted, const char *unwanted)
{
    char *text = status_text(s);
    if (wanted != NULL && strstr(text, wanted) == NULL) {
        fail_msg("'%s' is not in %s", wanted, text);
    }
    if (unwanted != NULL && strstr(text, unwanted) != NULL) {
        fail_msg("'%s' is in %s", unwanted, text);
    }
    cJSON_free(text);
}

static void test_a_hang_stands_in_the_status_until_it_is_over(void **state)
{
    static struct ct_msg msg = {.type = CT_MSG_BEAT,
                                .hang = {true, 0, 3, 12000, "it is stopped\x1b[2J"}};
    static const struct ct_hang_report odd[] = {
        {true, 1, 3, 1, "of another generation"},
        {true, 0, 0, 1, "of a rank on another machine"},
        {true, 0, 4, 1, "of a rank that there is not"},
    };
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 1);
    join_as(&s, 1, 0);
    join_as(&s, 2, 1);
    say(&s, 1, CT_MSG_SERVING, 0);
    say(&s, 1, CT_MSG_STARTED, 0);
    say(&s, 2, CT_MSG_STARTED, 0);
    say_msg(&s, 2, &msg);
    s.now += 250 * MS;
    assert_status(&s,
                  "\"hangs\":[{\"rank\":3,\"node\":1,\"host\":\"gpu-2\",\"for_s\":12.25,"
                  "\"why\":\"it is stopped\\\\x1b[2J\"}],\"hang_count\":1},\"problems\":[\"rank 3 "
                  "on gpu-2 hangs: "
                  "it is stopped?[2J\"]}",
                  NULL);
    msg.hang.rank = -1;
    say_msg(&s, 2, &msg);
    assert_status(&s, "\"problems\":[\"the job hangs: it is stopped?[2J\"]}", NULL);
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        msg.hang = odd[i];
        say_msg(&s, 2, &msg);
        assert_status(&s, "\"hangs\":[],\"hang_count\":0},\"problems\":[]}", NULL);
    }
    msg.hang = (struct ct_hang_report){true, 0, 2, 1, "x"};
    say_msg(&s, 2, &msg);
    assert_status(&s, "rank 2 on gpu-2 hangs", NULL);
    msg.hang = (struct ct_hang_report){0}; /* the next beat says nothing of it */
    say_msg(&s, 2, &msg);
    assert_status(&s, "\"hangs\":[],\"hang_count\":0},\"problems\":[]}", NULL);
    msg.hang = (struct ct_hang_report){true, 0, 2, 1, "x"};
    say_msg(&s, 2, &msg);
    fails(&s, 2, 0, 2, 122); /* the failure says it from now on */
    assert_status(&s, "\"hangs\":[]", "hangs:");
    end(&s);
}

/* The others were left out in silence. */
static void test_hangs_that_are_not_shown_are_counted(void **state)
{
    static struct ct_msg msg = {.type = CT_MSG_BEAT};
    enum { MACHINES = 18 };
    struct scene s;
    (void)state;
    begin(&s, MACHINES, MACHINES, 0, 1);
    run(&s, MACHINES);
    for (int i = 1; i <= MACHINES; i++) {
        msg.hang = (struct ct_hang_report){true, 0, -1, 1, "x"};
        say_msg(&s, i, &msg);
        if (i == 16) {
            assert_status(&s, "\"hang_count\":16}", "more nodes");
        }
    }
    assert_status(&s, "\"hang_count\":18}", NULL);
    assert_status(&s, "\"the job hangs: x\",\"2 more nodes report a hang\"]}", NULL);
    end(&s);
}

/* ---- memory --------------------------------------------------------------------------------- */

static int form_a_world(void *data)
{
    static const char *const expected[] = {"gpu-1", "gpu-2"};
    static struct scene s;
    struct ct_status_rows rows = {.print = true};
    (void)data;
    memset(&s, 0, sizeof(s));
    int rc = scene_open(&s, 2, 2, 0, 1, expected, 2);
    for (int i = 1; rc == 0 && i <= 2; i++) {
        rc = try_join(&s, i, -1);
    }
    if (rc == 0) {
        say(&s, 1, CT_MSG_SERVING, 0);
        fails(&s, 2, 0, 2, 1);
        gone(&s, 1);
        HEARS(&s, 2, "world0:1/2,2/4@10.0.0.1 stop0,again");
        cJSON *root = cJSON_CreateObject(), *problems = cJSON_CreateArray();
        rc = root != NULL && problems != NULL
                 ? ct_members_status(s.members, s.now, &rows, root, problems)
                 : CT_ENOMEM;
        cJSON_Delete(root);
        cJSON_Delete(problems);
    }
    end(&s);
    return rc;
}

static void test_forming_a_world_survives_lack_of_memory(void **state)
{
    (void)state;
    ct_json_use_our_memory();
    assert_true(ct_fault_sweep(form_a_world, NULL, 1) > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rank_0_begins_and_the_others_follow_its_store),
        cmocka_unit_test(test_every_world_has_the_ports_that_rank_0_has_reserved),
        cmocka_unit_test(test_every_world_tells_how_others_reach_the_store),
        cmocka_unit_test(test_address_of_the_one_who_serves),
        cmocka_unit_test(test_nodes_get_the_ranks_that_they_wish),
        cmocka_unit_test(test_ranks_by_the_schedulers_list),
        cmocka_unit_test(test_unequal_nodes_and_roles_are_ranked),
        cmocka_unit_test(test_elastic_world_settles),
        cmocka_unit_test(test_settling_begins_again),
        cmocka_unit_test(test_rank_0_is_lost_while_forming),
        cmocka_unit_test(test_another_is_lost_while_forming),
        cmocka_unit_test(test_store_is_never_served),
        cmocka_unit_test(test_options_must_agree),
        cmocka_unit_test(test_wishes_are_unique),
        cmocka_unit_test(test_restarted_agent_replaces_its_old_self),
        cmocka_unit_test(test_one_node_too_many_is_refused),
        cmocka_unit_test(test_who_comes_before_the_end_of_its_old_self_is_held),
        cmocka_unit_test(test_who_is_one_too_many_is_not_held),
        cmocka_unit_test(test_a_rank_of_its_old_self_is_waited_for),
        cmocka_unit_test(test_a_join_is_held_for_a_limited_time),
        cmocka_unit_test(test_nobody_is_held_when_the_job_is_over),
        cmocka_unit_test(test_the_host_says_what_the_job_is),
        cmocka_unit_test(test_a_place_is_taken_over_from_its_own_address),
        cmocka_unit_test(test_world_does_not_form),
        cmocka_unit_test(test_quotes_among_the_problems_are_harmless),
        cmocka_unit_test(test_the_status_follows_the_job),
        cmocka_unit_test(test_a_hang_stands_in_the_status_until_it_is_over),
        cmocka_unit_test(test_hangs_that_are_not_shown_are_counted),
        cmocka_unit_test(test_forming_a_world_survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
