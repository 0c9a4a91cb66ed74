/* SPDX-License-Identifier: Apache-2.0
 *
 * How long the next world waits for nodes that are lost and may still run the last one, and what
 * becomes of a voter that comes again before its loss was noticed.
 */
#include "tests/lib/members_scene.h"

#include "common/exit_code.h"

/* Nodes of the job. The last two have no vote. */
enum { COUNT = CT_VOTERS_MAX + 2 };

static const struct ct_members_failover first_host = {.self = {.id = 1}, .term = CT_TERM_FIRST};

/* Generation 0 runs, and there is one spare. */
static void run_large(struct scene *s)
{
    begin_failover(s, COUNT, COUNT, 4, 1, &first_host);
    for (int i = 1; i <= COUNT; i++) {
        join(s, i);
    }
    for (int i = 1; i <= COUNT; i++) {
        pledge(s, i);
    }
    say(s, 1, CT_MSG_SERVING, 0);
    for (int i = 1; i <= COUNT; i++) {
        say(s, i, CT_MSG_STARTED, 0);
    }
    join(s, COUNT + 1);
    forget(s);
}

static void all_but_the_last_stop(struct scene *s)
{
    for (int i = 1; i < COUNT; i++) {
        say(s, i, CT_MSG_STOPPED, 0);
    }
}

/* More spares come and go than the host remembers. */
static void many_come_and_go(struct scene *s)
{
    for (int i = 0; i < CT_VOTERS_BOTH; i++) {
        struct ct_msg_join spare = s->job;
        struct scene_node *node = &s->nodes[COUNT + 2];
        spare.voter = (struct ct_voter){.id = 1000 + (uint64_t)i, .port = 1};
        assert_int_equal(
            ct_members_join(s->members, &spare, "10.0.1.1", node, s->now, &node->member, &s->err),
            0);
        gone(s, COUNT + 2);
    }
}

static void test_a_silent_node_without_a_vote_is_waited_for_too(void **state)
{
    static struct scene s;
    (void)state;
    run_large(&s);
    gone(&s, COUNT); /* a firewall may have done that */
    many_come_and_go(&s);
    all_but_the_last_stop(&s);
    HEARS(&s, 1, "stop0,again");
    pass(&s, 3 * S);
    HEARS(&s, 1, "");
    pass(&s, S / 2);
    HEARS(&s, 1, "record");
    assert_int_equal(s.nodes[1].record.planned.generation, 1);
    end(&s);

    run_large(&s);
    gone(&s, COUNT);
    all_but_the_last_stop(&s);
    forget(&s);
    ct_members_dead(s.members, COUNT, s.now);
    ct_members_tick(s.members, s.now);
    HEARS(&s, 1, "record");
    end(&s);

    run_large(&s);
    gone(&s, COUNT);
    all_but_the_last_stop(&s);
    forget(&s);
    join(&s, COUNT); /* the same life, so its workers have stopped */
    HEARS(&s, 1, "record");
    end(&s);

    run_large(&s);
    fails(&s, 1, 0, 0, 1);
    say(&s, COUNT, CT_MSG_STOPPED, 0);
    gone(&s, COUNT); /* nothing of the last world runs there any more */
    all_but_the_last_stop(&s);
    HEARS(&s, 1, "stop0,again record");
    end(&s);
}

/* Generation 4 of voters 1 to `count` has been formed. Valid until the next call. */
static const struct ct_job_record *record_of(int count)
{
    static struct ct_job_record record;
    ct_job_record_init(&record);
    record.term = CT_TERM_FIRST;
    record.version = 8;
    record.formed.generation = 4;
    record.formed.count = count;
    for (int i = 0; i < count; i++) {
        record.formed.list[i] = (struct ct_voter){(uint64_t)i + 1, "", (uint16_t)(i + 1)};
    }
    return &record;
}

/* The world of the dead host may have had more nodes than vote. Those may have heard the host until
 * it died, and nobody here knows how many there are. */
static void test_a_new_host_waits_for_nodes_without_a_vote(void **state)
{
    static struct scene s;
    const struct ct_job_record *record = record_of(CT_VOTERS_MAX);
    const struct ct_members_failover elected = {.self = {.id = 1},
                                                .term = UINT64_C(1) << 32 | 1,
                                                .record = record,
                                                .fence_ns = 103 * S,
                                                .lost = {.id = CT_VOTERS_MAX},
                                                .lost_is_dead = true};
    (void)state;
    begin_failover(&s, CT_VOTERS_MAX - 1, CT_VOTERS_MAX - 1, 0, 2, &elected);
    for (int i = 1; i < CT_VOTERS_MAX; i++) {
        join(&s, i);
    }
    pass(&s, 2 * S);
    assert_int_equal(s.nodes[1].record.planned.generation, -1);
    pass(&s, 2 * S);
    assert_int_equal(s.nodes[1].record.planned.generation, 5);
    end(&s);
}

/* Nodes 2 and 3 are alive, but node 3 takes longer to stop its workers. */
static void elect_in_an_elastic_job(struct scene *s)
{
    const struct ct_job_record *record = record_of(4);
    const struct ct_members_failover elected = {.self = {.id = 1},
                                                .term = UINT64_C(2) << 32 | 1,
                                                .record = record,
                                                .fence_ns = 190 * S,
                                                .lost = {.id = 4},
                                                .lost_is_dead = true};
    begin_failover(s, 2, 4, 0, 2, &elected);
    join(s, 1);
    join(s, 2);
    pass(s, s->job.settle_ms * MS);
    assert_int_equal(s->nodes[1].record.planned.generation, -1);
}

static void test_whoever_ends_the_fence_ends_the_wait_of_an_elastic_job(void **state)
{
    static struct scene s;
    (void)state;
    elect_in_an_elastic_job(&s);
    join(&s, 3);
    assert_int_equal(s.nodes[1].record.planned.generation, 5);
    assert_int_equal(s.nodes[1].record.planned.count, 3);
    end(&s);

    elect_in_an_elastic_job(&s);
    ct_members_dead(s.members, 3, s.now);
    ct_members_tick(s.members, s.now);
    assert_int_equal(s.nodes[1].record.planned.generation, 5);
    assert_int_equal(s.nodes[1].record.planned.count, 2);
    end(&s);

    elect_in_an_elastic_job(&s);
    gone(&s, 2); /* then one waits for others again */
    join(&s, 2);
    ct_members_dead(s.members, 3, s.now);
    ct_members_tick(s.members, s.now);
    assert_int_equal(s.nodes[1].record.planned.generation, -1);
    pass(&s, s.job.settle_ms * MS);
    assert_int_equal(s.nodes[1].record.planned.generation, 5);
    end(&s);
}

/* Node 4 has hosted generation 4 and is dead. Node 3 may have been elected, and did not come. */
static void elect_first_of_four(struct scene *s, uint64_t dead)
{
    const struct ct_job_record *record = record_of(4);
    const struct ct_members_failover elected = {.self = {.id = 1},
                                                .term = UINT64_C(2) << 32 | 1,
                                                .record = record,
                                                .fence_ns = 103 * S,
                                                .lost = {.id = 4},
                                                .lost_is_dead = true,
                                                .dead = {4, dead},
                                                .num_dead = 2};
    begin_failover(s, 2, 2, 0, 2, &elected);
    join(s, 1);
    join(s, 2);
}

static void test_a_voter_that_died_before_it_came_is_not_waited_for(void **state)
{
    static struct scene s;
    (void)state;
    elect_first_of_four(&s, 3);
    assert_int_equal(s.nodes[1].record.planned.generation, 5);
    end(&s);

    elect_first_of_four(&s, 99); /* of no world */
    assert_int_equal(s.nodes[1].record.planned.generation, -1);
    ct_members_dead(s.members, 98, s.now);
    ct_members_dead(s.members, 2, s.now); /* it is there */
    ct_members_tick(s.members, s.now);
    assert_int_equal(s.nodes[1].record.planned.generation, -1);
    assert_false(ct_members_stands_no_more(s.members, 3));
    ct_members_dead(s.members, 3, s.now);
    assert_true(ct_members_stands_no_more(s.members, 3));
    ct_members_tick(s.members, s.now);
    assert_int_equal(s.nodes[1].record.planned.generation, 5);
    end(&s);
}

/* The wait for more nodes is over before the fence is. */
static void test_an_elastic_job_settles_once(void **state)
{
    static struct scene s;
    (void)state;
    begin_failover(&s, 1, 3, 0, 1, &first_host);
    run_pledged(&s, 3);
    gone(&s, 3);
    say(&s, 1, CT_MSG_STOPPED, 0);
    say(&s, 2, CT_MSG_STOPPED, 0);
    pass(&s, s.job.settle_ms * MS);
    HEARS(&s, 1, "stop0,again");
    pass(&s, S / 2);
    HEARS(&s, 1, "record");
    assert_int_equal(s.nodes[1].record.planned.generation, 1);
    end(&s);
}

/* Enough nodes are there, and a quorum, but one that was lost at last may still run. */
static void test_who_waits_too_long_for_the_fence_is_told_so(void **state)
{
    static struct scene s;
    (void)state;
    begin_failover(&s, 5, 5, 2, 1, &first_host);
    for (int i = 1; i <= 5; i++) {
        join(&s, i);
    }
    for (int i = 1; i <= 5; i++) {
        pledge(&s, i);
    }
    say(&s, 1, CT_MSG_SERVING, 0);
    fails(&s, 1, 0, 0, 1);
    gone(&s, 5);
    for (int i = 1; i < 5; i++) {
        say(&s, i, CT_MSG_STOPPED, 0);
    }
    pass(&s, 59 * S);
    gone(&s, 4);
    join(&s, 6);
    join(&s, 7);
    forget(&s);
    pass(&s, S);
    assert_true(s.nodes[1].record.over && s.nodes[1].record.exit_code == CT_EXIT_RDZV_TIMEOUT);
    for (int i = 1; i <= 3; i++) {
        pledge(&s, i);
    }
    assert_string_equal(s.nodes[1].last_text,
                        "join_timeout (60 s) is over while 5 nodes are there: gpu-[1-3,6-7]; the "
                        "next world waits until the nodes that are lost have stopped");
    end(&s);
}

/* This node's clock has lost a ten-thousandth since `since_ns`. */
static void say_slowly(struct scene *s, int i, struct ct_msg *msg, int64_t since_ns)
{
    msg->clock_ms = (s->now - (s->now - since_ns) / 10000) / MS;
    say_msg(s, i, msg);
}

/* After half a day two clocks are four seconds behind. */
/* Of a world of `count`, all but this host were refused, perhaps by a firewall here. */
static int planned_before_the_fence(int count)
{
    static struct scene s;
    const struct ct_job_record *record = record_of(count);
    struct ct_members_failover elected = {.self = {.id = 1},
                                          .arbiter = true,
                                          .arbiter_there = true,
                                          .arbiter_said_ns = 100 * S,
                                          .term = UINT64_C(2) << 32 | 1,
                                          .record = record,
                                          .fence_ns = 190 * S,
                                          .lost = {.id = (uint64_t)count},
                                          .lost_is_dead = true};
    for (int i = 2; i <= count; i++) {
        elected.dead[elected.num_dead++] = (uint64_t)i;
    }
    begin_failover(&s, 1, count, 0, 2, &elected);
    join(&s, 1);
    pass(&s, s.job.settle_ms * MS);
    int planned = s.nodes[1].record.planned.generation;
    end(&s);
    return planned;
}

static void test_a_host_that_is_left_alone_waits_for_the_fence(void **state)
{
    (void)state;
    assert_int_equal(planned_before_the_fence(3), -1);
    assert_int_equal(planned_before_the_fence(2), 5);
}

static void test_clocks_that_go_slower_are_followed(void **state)
{
    static struct scene s;
    static struct ct_msg msg;
    const int64_t began_ns = 100 * S;
    (void)state;
    begin_failover(&s, 3, 3, 0, 0, &first_host);
    for (int i = 1; i <= 3; i++) {
        join(&s, i);
    }
    for (int i = 1; i <= 3; i++) {
        pledge(&s, i);
    }
    say(&s, 1, CT_MSG_SERVING, 0);
    for (int beat = 0; beat < 12 * 3600; beat++) {
        s.now += S;
        for (int i = 1; i <= 3; i++) {
            msg = (struct ct_msg){.type = CT_MSG_BEAT};
            say_slowly(&s, i, &msg, i == 1 ? s.now : began_ns);
        }
        if (ct_members_lease_ms(s.members, s.now) < 2990) {
            fail_msg("the lease is short after %d s", beat);
        }
    }
    fails(&s, 1, 0, 0, 1); /* this is why the other one fails */
    s.now += S / 5;
    msg = (struct ct_msg){.type = CT_MSG_FAILED, .failure = {.rank = 2, .exit_code = 1}};
    say_slowly(&s, 2, &msg, began_ns);
    for (int i = 1; i <= 3; i++) {
        say(&s, i, CT_MSG_STOPPED, 0);
    }
    for (int i = 1; i <= 3; i++) {
        pledge(&s, i);
    }
    assert_non_null(strstr(s.nodes[1].log, "over=1"));
    assert_int_equal(s.nodes[1].last_failure.node_rank, 0);
    end(&s);
}

/* ---- a voter that comes again ---------------------------------------------------------------- */

/* Generation 0 of two nodes runs. */
static void run_two(struct scene *s)
{
    join(s, 1);
    join(s, 2);
    pledge(s, 1);
    pledge(s, 2);
    say(s, 1, CT_MSG_SERVING, 0);
    say(s, 1, CT_MSG_STARTED, 0);
    say(s, 2, CT_MSG_STARTED, 0);
    forget(s);
}

/* The network was cut for a moment, and this host has not noticed the end of the old connection. */
static void test_a_voter_that_comes_by_another_connection_is_one_voter(void **state)
{
    (void)state;
    for (int spares = 0; spares < 2; spares++) {
        struct scene s;
        begin_failover(&s, 2, 2, spares, 1, &first_host);
        run_two(&s);
        const struct ct_member *old = s.nodes[2].member;
        join(&s, 2);
        assert_ptr_not_equal(s.nodes[2].member, old);
        HEARS(&s, 2, "record dropped");
        HEARS(&s, 1, "stop0,again");
        say(&s, 1, CT_MSG_STOPPED, 0); /* the other one had stopped before it came */
        HEARS(&s, 1, "record");
        HEARS(&s, 2, "record");
        assert_int_equal(s.nodes[2].record.planned.count, 2);
        assert_true(s.nodes[2].record.planned.list[0].id != s.nodes[2].record.planned.list[1].id);
        end(&s);
    }
}

/* The same before its first world. */
static void test_a_newcomer_with_two_connections_is_on_record_once(void **state)
{
    struct scene s;
    (void)state;
    begin_failover(&s, 3, 3, 1, 1, &first_host);
    join(&s, 1);
    join(&s, 2);
    const struct ct_member *old = s.nodes[2].member;
    join(&s, 2);
    assert_ptr_not_equal(s.nodes[2].member, old);
    HEARS(&s, 1, "record");
    assert_int_equal(s.nodes[1].record.planned.count, 2);
    assert_int_equal(s.nodes[1].record.planned.list[0].id, 1);
    assert_int_equal(s.nodes[1].record.planned.list[1].id, 2);
    end(&s);
}

/* With its id, somebody else could have it dropped. */
static void test_nobody_comes_as_the_host_itself(void **state)
{
    struct scene s;
    (void)state;
    begin_failover(&s, 2, 2, 1, 1, &first_host);
    s.nodes[1].wire_ns = -1;
    run_two(&s);
    struct ct_member *host = s.nodes[1].member;
    assert_int_equal(try_join(&s, 1, -1), CT_EINVAL);
    assert_string_equal(s.err.text, "node gpu-1 has the id of the job's host");
    assert_ptr_equal(s.nodes[1].member, host);
    HEARS(&s, 2, "");
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_silent_node_without_a_vote_is_waited_for_too),
        cmocka_unit_test(test_a_new_host_waits_for_nodes_without_a_vote),
        cmocka_unit_test(test_whoever_ends_the_fence_ends_the_wait_of_an_elastic_job),
        cmocka_unit_test(test_a_voter_that_died_before_it_came_is_not_waited_for),
        cmocka_unit_test(test_a_host_that_is_left_alone_waits_for_the_fence),
        cmocka_unit_test(test_clocks_that_go_slower_are_followed),
        cmocka_unit_test(test_an_elastic_job_settles_once),
        cmocka_unit_test(test_who_waits_too_long_for_the_fence_is_told_so),
        cmocka_unit_test(test_a_voter_that_comes_by_another_connection_is_one_voter),
        cmocka_unit_test(test_a_newcomer_with_two_connections_is_on_record_once),
        cmocka_unit_test(test_nobody_comes_as_the_host_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
