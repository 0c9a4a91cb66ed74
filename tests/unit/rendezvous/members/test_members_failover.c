/* SPDX-License-Identifier: Apache-2.0
 *
 * A job that outlives its host: what is pledged before anybody acts, what a new host does first,
 * and when a host has to stop.
 */
#include "tests/lib/members_scene.h"

#include "common/alloc.h"
#include "common/exit_code.h"
#include "tests/lib/fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ct_members_failover first_host = {.self = {.id = 1}, .term = CT_TERM_FIRST};

static void test_a_world_is_told_when_all_have_pledged_it(void **state)
{
    struct scene s;
    (void)state;
    begin_failover(&s, 2, 2, 0, 1, &first_host);
    join(&s, 1);
    HEARS(&s, 1, "");
    join(&s, 2);
    HEARS(&s, 1, "record");
    HEARS(&s, 2, "record");
    assert_int_equal(s.nodes[2].record.planned.generation, 0);
    assert_int_equal(s.nodes[2].record.planned.count, 2);
    assert_string_equal(s.nodes[2].record.planned.list[1].address, "10.0.0.2");
    assert_int_equal(s.nodes[2].record.planned.list[1].port, 2);
    pledge(&s, 2);
    HEARS(&s, 1, "");
    pledge(&s, 1);
    HEARS(&s, 1, "record world0:0/2,0/4,serve");
    HEARS(&s, 2, "record");
    assert_int_equal(s.nodes[2].record.formed.generation, 0);
    say(&s, 1, CT_MSG_SERVING, 0);
    HEARS(&s, 2, "world0:1/2,2/4@10.0.0.1");
    end(&s);
}

static void test_a_node_that_is_lost_before_it_has_pledged_is_replaced(void **state)
{
    struct scene s;
    (void)state;
    begin_failover(&s, 2, 2, 1, 1, &first_host);
    join(&s, 1);
    join(&s, 2);
    pledge(&s, 1);
    join(&s, 3);
    forget(&s);
    gone(&s, 2);
    HEARS(&s, 1, "record");
    HEARS(&s, 3, "record");
    assert_int_equal(s.nodes[3].record.planned.generation, 1);
    pledge(&s, 1);
    pledge(&s, 3);
    HEARS(&s, 1, "record world1:0/2,0/4,serve");
    end(&s);
}

/* The last node comes just before join_timeout, which is 60 s. */
static void test_a_world_that_is_pledged_late_loses_nobody(void **state)
{
    (void)state;
    for (int again = 0; again < 2; again++) {
        struct scene s;
        char want[64];
        begin_failover(&s, 2, 2, 0, 0, &first_host);
        join(&s, 1);
        pass(&s, 59 * S);
        join(&s, 2);
        forget(&s);
        pass(&s, again ? 31 * S : 29 * S);
        HEARS(&s, 1, again ? "record" : ""); /* of another attempt */
        pledge(&s, 1);
        pledge(&s, 2);
        (void)snprintf(want, sizeof(want), "record world%d:0/2,0/4,serve", again);
        HEARS(&s, 1, want);
        pass(&s, 29 * S);
        say(&s, 1, CT_MSG_SERVING, again);
        HEARS(&s, 1, "");
        end(&s);
    }
}

/* Only the first nodes are asked, and the world is void without any other one, too. */
static void test_a_node_without_a_vote_is_lost_before_all_have_pledged(void **state)
{
    enum { COUNT = CT_VOTERS_MAX + 2 };
    static struct scene s;
    (void)state;
    begin_failover(&s, COUNT, COUNT, 0, 1, &first_host);
    for (int i = 1; i <= COUNT; i++) {
        join(&s, i);
    }
    assert_int_equal(s.nodes[1].record.planned.count, CT_VOTERS_MAX);
    gone(&s, COUNT);
    for (int i = 1; i < COUNT; i++) {
        pledge(&s, i);
    }
    HEARS(&s, 1, "record");
    join(&s, COUNT);
    HEARS(&s, 1, "record");
    for (int i = 1; i <= COUNT; i++) {
        pledge(&s, i);
    }
    HEARS(&s, 1, "record world1:0/33,0/66,serve");
    end(&s);
}

/* A machine fails its check, and another one is lost. The one that is left is a third of the last
 * world, but the one that is left out is there as well. If that one is lost before it has pledged,
 * the plan is void. */
static void test_a_node_that_is_left_out_pledges_too(void **state)
{
    struct scene s;
    (void)state;
    begin_failover(&s, 1, 3, 0, 5, &first_host);
    run_pledged(&s, 3);
    is_unfit(&s, 3, 0, 118);
    gone(&s, 2);
    say(&s, 3, CT_MSG_STOPPED, 0);
    ct_members_dead(s.members, 2, s.now);
    say(&s, 1, CT_MSG_STOPPED, 0);
    pass(&s, 3 * S); /* a third one might come */
    HEARS(&s, 1, "stop0,again waiting record");
    HEARS(&s, 3, "stop0,again waiting spare record");
    pledge(&s, 1);
    HEARS(&s, 1, "");
    gone(&s, 3);
    forget(&s);
    ct_members_dead(s.members, 3, s.now);
    pass(&s, 4 * S);
    HEARS(&s, 1, "record");
    pledge(&s, 1);
    HEARS(&s, 1, "record world2:0/1,0/2,serve");
    end(&s);
}

static void test_the_end_is_told_when_all_have_pledged_it(void **state)
{
    struct scene s;
    (void)state;
    begin_failover(&s, 2, 2, 1, 1, &first_host);
    run_pledged(&s, 2);
    join(&s, 3);
    forget(&s);
    say(&s, 1, CT_MSG_FINISHED, 0);
    HEARS(&s, 1, "");
    say(&s, 2, CT_MSG_FINISHED, 0);
    HEARS(&s, 1, "record");
    HEARS(&s, 2, "record");
    assert_true(s.nodes[2].record.over && s.nodes[2].record.exit_code == 0);
    pledge(&s, 3); /* it has no vote */
    pledge(&s, 1);
    HEARS(&s, 1, "");
    gone(&s, 2); /* the other one is half of the world, and its host */
    HEARS(&s, 1, "record");
    pledge(&s, 1);
    HEARS(&s, 1, "over=0");
    end(&s);
}

static void test_no_world_begins_while_a_silent_node_may_run_the_last_one(void **state)
{
    struct scene s;
    (void)state;
    begin_failover(&s, 2, 2, 1, 1, &first_host);
    run_pledged(&s, 2);
    join(&s, 3);
    forget(&s);
    gone(&s, 2); /* a firewall may have done that */
    HEARS(&s, 1, "stop0,again");
    say(&s, 1, CT_MSG_STOPPED, 0);
    HEARS(&s, 1, "");
    pass(&s, 3 * S);
    HEARS(&s, 1, "");
    pass(&s, S / 2);
    HEARS(&s, 1, "record");
    assert_int_equal(s.nodes[1].record.planned.generation, 1);
    end(&s);
}

static void test_nothing_waits_for_the_dead(void **state)
{
    struct scene s;
    (void)state;
    begin_failover(&s, 2, 2, 1, 1, &first_host);
    run_pledged(&s, 2);
    join(&s, 3);
    forget(&s);
    gone(&s, 2);
    say(&s, 1, CT_MSG_STOPPED, 0);
    HEARS(&s, 1, "stop0,again");
    ct_members_dead(s.members, 2, s.now);
    ct_members_tick(s.members, s.now);
    HEARS(&s, 1, "record");
    HEARS(&s, 3, "record");
    end(&s);
}

/* What the host of generation 4, voter 9, has left behind. */
static struct ct_job_record left_behind(void)
{
    struct ct_job_record record;
    ct_job_record_init(&record);
    record.term = CT_TERM_FIRST;
    record.version = 8;
    record.restarts = 1;
    record.formed = (struct ct_world_voters){
        .generation = 4, .count = 3, .list = {{9, "10.0.0.9", 9}, {1, "", 1}, {2, "", 2}}};
    return record;
}

static void begin_elected(struct scene *s, const struct ct_job_record *record, int max_restarts)
{
    const struct ct_members_failover elected = {
        .self = {.id = 1}, .term = UINT64_C(1) << 32 | 1, .record = record, .fence_ns = 105 * S};
    begin_failover(s, 2, 2, 0, max_restarts, &elected);
}

static void test_a_new_host_goes_on_where_the_old_one_was(void **state)
{
    struct scene s;
    struct ct_job_record record = left_behind();
    (void)state;
    begin_elected(&s, &record, 2);
    join(&s, 1);
    join(&s, 2);
    HEARS(&s, 1, "record"); /* what it knows; the old host may still run */
    assert_int_equal(s.nodes[1].record.formed.generation, 4);
    pass(&s, 4 * S);
    HEARS(&s, 1, "");
    pass(&s, 2 * S);
    HEARS(&s, 1, "record");
    assert_int_equal(s.nodes[1].record.planned.generation, 5);
    assert_int_equal(s.nodes[1].record.restarts, 2); /* the loss of the old host uses one */
    pledge(&s, 1);
    pledge(&s, 2);
    HEARS(&s, 1, "record world5:0/2,0/4,serve");
    assert_int_equal(s.nodes[1].last_world.restarts, 2);
    end(&s);
}

/* Nobody waits for a host whose process is known to be dead, and its loss stands in the history,
 * with what was there before. */
static void test_a_dead_host_is_named_and_not_waited_for(void **state)
{
    struct scene s;
    struct ct_job_record record = left_behind();
    struct ct_failure_history *history = calloc(1, sizeof(*history));
    (void)state;
    assert_non_null(history);
    history->num_rounds = 1;
    history->rounds[0] = (struct ct_history_round){.generation = 3, .nodes = 3};
    const struct ct_members_failover elected = {.self = {.id = 1},
                                                .term = UINT64_C(1) << 32 | 1,
                                                .record = &record,
                                                .fence_ns = 105 * S,
                                                .lost = {.id = 9},
                                                .lost_is_dead = true,
                                                .ended_by = {.id = 9, .address = "10.0.0.9"},
                                                .ended_by_name = "gpu-9",
                                                .ended_why = "connection reset by peer",
                                                .history = history,
                                                .round = {.generation = 4, .nodes = 3}};
    begin_failover(&s, 2, 2, 0, 1, &elected); /* no restart is left */
    join(&s, 1);
    join(&s, 2);
    pledge(&s, 1);
    pledge(&s, 2);
    HEARS(&s, 1, "record record over=121");
    assert_int_equal(s.nodes[1].last_round.generation, 4);
    assert_non_null(strstr(s.nodes[1].last_round.why, "node 0 (gpu-9 at 10.0.0.9): "));
    assert_string_equal(s.nodes[1].last_failure.host, "gpu-9");
    assert_string_equal(s.nodes[1].last_failure.address, "10.0.0.9");
    assert_int_equal(s.nodes[1].last_failure.generation, 4);
    assert_int_equal(s.nodes[1].last_failure.node_rank, 0);
    assert_string_equal(s.nodes[1].last_failure.what,
                        "its ctrun is gone: connection reset by peer (it hosted the job's store)");
    end(&s);
    free(history);
}

/* Another host came between, and was lost before it had formed a world. */
static void test_the_host_that_ended_the_world_is_not_waited_for_once_it_is_dead(void **state)
{
    struct scene s;
    struct ct_job_record record = left_behind();
    const struct ct_members_failover elected = {.self = {.id = 1},
                                                .term = UINT64_C(2) << 32 | 1,
                                                .record = &record,
                                                .fence_ns = 105 * S,
                                                .lost = {.id = 3},
                                                .lost_is_dead = true,
                                                .ended_by = {.id = 9, .address = "10.0.0.9"}};
    (void)state;
    record.formed.count = 4;
    record.formed.list[3] = (struct ct_voter){3, "", 3};
    begin_failover(&s, 2, 2, 0, 2, &elected);
    join(&s, 1);
    join(&s, 2);
    pass(&s, S);
    assert_int_equal(s.nodes[1].record.planned.generation, -1); /* that one may still run */
    ct_members_dead(s.members, 9, s.now);
    ct_members_tick(s.members, s.now);
    assert_int_equal(s.nodes[1].record.planned.generation, 5);
    end(&s);
}

/* Two machines with an arbiter that cannot be asked: the host died before its lease had ended, so
 * it has decided nothing without the other one. */
static void test_the_last_one_goes_on_without_an_arbiter(void **state)
{
    (void)state;
    for (int in_time = 0; in_time < 2; in_time++) {
        struct scene s;
        struct ct_job_record record = left_behind();
        record.formed.count = 2; /* the host 9, and node 1 */
        const struct ct_members_failover elected = {.self = {.id = 1},
                                                    .arbiter = true,
                                                    .term = UINT64_C(1) << 32 | 1,
                                                    .record = &record,
                                                    .fence_ns = INT64_MIN,
                                                    .lost = {.id = 9, .address = "10.0.0.9"},
                                                    .lost_is_dead = true,
                                                    .lost_in_time = in_time != 0};
        begin_failover(&s, 1, 2, 0, 2, &elected);
        join(&s, 1);
        pass(&s, 5 * S);
        assert_int_equal(s.nodes[1].record.planned.generation, in_time ? 5 : -1);
        end(&s);
    }
}

/* A job of a fixed number of nodes waits for another one. It does not know the new host's address.
 */
static void test_those_who_wait_are_told_whom_they_lost_and_where_to_come(void **state)
{
    struct scene s;
    struct ct_job_record record = left_behind();
    const struct ct_members_failover elected = {.self = {.id = 1, .address = "10.0.0.1", .port = 7},
                                                .term = UINT64_C(1) << 32 | 1,
                                                .record = &record,
                                                .fence_ns = INT64_MIN,
                                                .lost = {.id = 12},
                                                .lost_is_dead = true,
                                                .ended_by = {.id = 12, .address = "10.0.0.9"},
                                                .ended_by_name = "gpu-9",
                                                .ended_why = "connection reset by peer"};
    (void)state;
    record.formed.list[0].id = 12;
    begin_failover(&s, 3, 3, 0, 5, &elected);
    join(&s, 1);
    join(&s, 2);
    pledge(&s, 1);
    pledge(&s, 2);
    pass(&s, 6 * S);
    assert_string_equal(
        s.nodes[1].last_text,
        "waiting for 1 of 3 nodes: node rank 0 (gpu-9) hosted the job's store at "
        "10.0.0.9 and was lost 5 s ago; present: gpu-[1-2]; a replacement must come "
        "to 10.0.0.1:7 (--rdzv-endpoint) within 55 s");
    join(&s, 9); /* another life of that ctrun gets its node rank back */
    pledge(&s, 1);
    pledge(&s, 2);
    pledge(&s, 9);
    say(&s, 9, CT_MSG_SERVING, 5);
    assert_int_equal(s.nodes[9].last_world.node_rank, 0);
    end(&s);
}

/* Ranks stay with those that had them, although a spare has joined first. */
static void test_survivors_keep_their_node_ranks(void **state)
{
    struct scene s;
    struct ct_job_record record = left_behind();
    (void)state;
    record.formed.list[0].id = 1; /* 1, 3 and 2 have the node ranks 0, 1 and 2 */
    record.formed.list[1].id = 3;
    const struct ct_members_failover elected = {
        .self = {.id = 1}, .term = UINT64_C(1) << 32 | 1, .record = &record, .fence_ns = INT64_MIN};
    begin_failover(&s, 3, 3, 1, 2, &elected);
    join(&s, 4);
    join(&s, 2);
    join(&s, 1);
    pledge(&s, 4);
    pledge(&s, 2);
    pledge(&s, 1);
    say(&s, 1, CT_MSG_SERVING, 5);
    assert_int_equal(s.nodes[1].last_world.node_rank, 0);
    assert_int_equal(s.nodes[2].last_world.node_rank, 2);
    assert_int_equal(s.nodes[4].last_world.node_rank, 1);
    end(&s);
}

/* Its workers took long to stop, and spares have none. They must not take its place while they are
 * no quorum without it. */
static void test_a_survivor_that_comes_last_is_taken_first(void **state)
{
    struct scene s;
    struct ct_job_record record = left_behind();
    const struct ct_members_failover elected = {.self = {.id = 1},
                                                .term = UINT64_C(1) << 32 | 1,
                                                .record = &record,
                                                .fence_ns = INT64_MIN,
                                                .lost = {.id = 9},
                                                .lost_is_dead = true};
    (void)state;
    begin_failover(&s, 3, 3, 2, 5, &elected);
    join(&s, 3);
    join(&s, 4);
    join(&s, 1);
    assert_int_equal(s.nodes[1].record.planned.generation, -1);
    join(&s, 2);
    assert_int_equal(s.nodes[2].record.planned.generation, 5);
    assert_int_equal(s.nodes[2].record.planned.list[1].id, 1);
    assert_int_equal(s.nodes[2].record.planned.list[2].id, 2);
    end(&s);
}

/* It was cut off for a moment, and waits for the next world when it is asked to end. */
static void test_a_node_that_came_back_may_end_the_job(void **state)
{
    struct scene s;
    (void)state;
    begin_failover(&s, 3, 3, 0, 1, &first_host);
    for (int i = 1; i <= 3; i++) {
        join(&s, i);
    }
    for (int i = 1; i <= 3; i++) {
        pledge(&s, i);
    }
    say(&s, 1, CT_MSG_SERVING, 0);
    gone(&s, 2);
    gone(&s, 3);
    say(&s, 1, CT_MSG_STOPPED, 0);
    s.job.record_term = s.nodes[2].record.term;
    s.job.record_version = s.nodes[2].record.version;
    join(&s, 2);
    forget(&s);
    preempt(&s, 2, 15);
    HEARS(&s, 2, "preempt record");
    pledge(&s, 1);
    pledge(&s, 2);
    HEARS(&s, 2, "over=123");
    end(&s);
}

/* It has stopped everything and votes for nobody any more. */
static void test_nobody_waits_for_a_node_that_took_its_leave(void **state)
{
    struct scene s;
    (void)state;
    begin_failover(&s, 2, 2, 1, 1, &first_host);
    run_pledged(&s, 2);
    join(&s, 3);
    forget(&s);
    say(&s, 2, CT_MSG_LEAVE, 0);
    say(&s, 1, CT_MSG_STOPPED, 0);
    HEARS(&s, 1, "stop0,again record");
    end(&s);
}

static void test_a_host_that_nobody_joins_gives_up(void **state)
{
    struct scene s;
    struct ct_job_record record = left_behind();
    (void)state;
    begin_elected(&s, &record, 2);
    join(&s, 1);
    pass(&s, 5 * S);
    assert_int_equal(s.deposed, 0);
    pass(&s, 2 * S);
    assert_int_equal(s.deposed, 1);
    end(&s);
}

static void test_the_budget_is_spent_once(void **state)
{
    struct scene s;
    struct ct_job_record record = left_behind();
    (void)state;
    begin_elected(&s, &record, 2);
    join(&s, 1);
    join(&s, 2);
    pass(&s, 6 * S);
    assert_int_equal(s.nodes[1].record.restarts, 2);
    assert_int_equal(s.nodes[1].record.planned.generation, 5);
    gone(&s, 2); /* before that world has begun */
    join(&s, 2);
    pass(&s, 6 * S);
    assert_int_equal(s.nodes[1].record.restarts, 2);
    assert_int_equal(s.nodes[1].record.planned.generation, 6);
    end(&s);

    /* Now it is used up. */
    begin_elected(&s, &record, 1);
    join(&s, 1);
    join(&s, 2);
    forget(&s);
    pass(&s, 6 * S);
    HEARS(&s, 1, "record");
    assert_true(s.nodes[1].record.over && s.nodes[1].record.exit_code == CT_EXIT_NODE_LOST);
    pledge(&s, 1);
    pledge(&s, 2);
    HEARS(&s, 2, "record over=121");
    end(&s);
}

static void test_a_new_host_carries_on_a_plan_first(void **state)
{
    struct scene s;
    struct ct_job_record record = left_behind();
    (void)state;
    record.planned =
        (struct ct_world_voters){.generation = 5, .count = 2, .list = {{1, "", 1}, {2, "", 2}}};
    begin_elected(&s, &record, 2);
    join(&s, 1);
    join(&s, 2);
    forget(&s);
    pass(&s, 6 * S);
    assert_int_equal(s.nodes[1].record.formed.generation, 4);
    assert_int_equal(s.nodes[1].record.planned.generation, 5);
    forget(&s);
    pledge(&s, 1);
    pledge(&s, 2);
    HEARS(&s, 1, "record record"); /* certain, and then the next world */
    assert_int_equal(s.nodes[1].record.formed.generation, 5);
    assert_int_equal(s.nodes[1].record.planned.generation, 6);
    end(&s);
}

static void test_a_finished_job_stays_finished(void **state)
{
    struct scene s;
    struct ct_job_record record = left_behind();
    (void)state;
    record.over = true;
    record.exit_code = 3;
    begin_elected(&s, &record, 2);
    join(&s, 1);
    join(&s, 2);
    pass(&s, 6 * S);
    forget(&s);
    pledge(&s, 1);
    pledge(&s, 2);
    HEARS(&s, 1, "over=3");
    HEARS(&s, 2, "over=3");
    end(&s);
}

static void test_less_than_half_of_a_world_decides_nothing(void **state)
{
    struct scene s;
    struct ct_job_record record = left_behind();
    (void)state;
    record.formed.list[1].id = 7;
    begin_elected(&s, &record, 2);
    join(&s, 1);
    join(&s, 2);
    forget(&s);
    pass(&s, 50 * S);
    assert_null(strstr(s.nodes[1].log, "record"));
    pass(&s, 20 * S); /* join_timeout */
    assert_non_null(strstr(s.nodes[1].log, "over=121"));
    assert_null(strstr(s.nodes[1].log, "world"));
    end(&s);
}

static void test_a_host_without_a_quorum_is_deposed(void **state)
{
    struct scene s;
    (void)state;
    begin_failover(&s, 3, 3, 0, 1, &first_host);
    for (int i = 1; i <= 3; i++) {
        join(&s, i);
    }
    assert_int_equal(ct_members_lease_ms(s.members, s.now), 3000);
    for (int i = 1; i <= 3; i++) {
        pledge(&s, i);
    }
    say(&s, 1, CT_MSG_SERVING, 0);
    pass(&s, 5 * S);
    assert_int_equal(s.deposed, 0);
    assert_true(ct_members_lease_ms(s.members, s.now) > 1500);
    gone(&s, 2);
    pass(&s, 5 * S);
    assert_int_equal(s.deposed, 0); /* two of three are there */
    int64_t before = s.now;
    gone(&s, 3);
    pass(&s, 4 * S);
    assert_int_equal(s.deposed, 1);
    assert_int_equal(ct_members_lease_ms(s.members, s.now), 0);
    assert_true(s.now - before == 4 * S);
    end(&s);
}

static int lookups;

int __real_ct_job_record_voters(const struct ct_job_record *record, uint64_t ids[CT_VOTERS_BOTH]);
int __wrap_ct_job_record_voters(const struct ct_job_record *record, uint64_t ids[CT_VOTERS_BOTH]);
int __wrap_ct_job_record_voters(const struct ct_job_record *record, uint64_t ids[CT_VOTERS_BOTH])
{
    lookups++;
    return __real_ct_job_record_voters(record, ids);
}

/* Each beat asks how long there is a quorum. Thousands of members cannot all be searched for that.
 */
static void test_a_beat_looks_for_no_voter(void **state)
{
    struct scene s;
    (void)state;
    begin_failover(&s, 2, 2, 1, 1, &first_host);
    run_pledged(&s, 2);
    join(&s, 3);
    assert_true(ct_members_next(s.members) > s.now);
    lookups = 0;
    for (int beat = 0; beat < 5; beat++) {
        s.now += S;
        assert_int_equal(ct_members_lease_ms(s.members, s.now), 2000);
        say(&s, 3, CT_MSG_BEAT, 0);
        assert_int_equal(ct_members_lease_ms(s.members, s.now), 2000);
        say(&s, 1, CT_MSG_BEAT, 0);
        assert_int_equal(ct_members_lease_ms(s.members, s.now), 3000);
        s.now += S;
        say(&s, 2, CT_MSG_BEAT, 0);
        assert_int_equal(ct_members_lease_ms(s.members, s.now), 3000);
        assert_true(ct_members_next(s.members) > s.now);
    }
    assert_int_equal(lookups, 0);
    end(&s);
}

/* ---- a ctrdzvd ------------------------------------------------------------------------------ */

/* It gives records and leases; half of the nodes are enough for it, and nobody deposes it. */
static void test_a_daemon_hosts_and_has_no_vote(void **state)
{
    struct scene s;
    const struct ct_members_failover daemon = {
        .self = {.id = 99}, .is_daemon = true, .term = CT_TERM_FIRST};
    (void)state;
    begin_failover(&s, 1, 2, 0, 1, &daemon);
    run_pledged(&s, 2);
    assert_int_equal(s.nodes[2].record.formed.count, 2);
    assert_true(ct_members_lease_ms(s.members, s.now) > 0);
    forget(&s);
    gone(&s, 2);
    say(&s, 1, CT_MSG_STOPPED, 0);
    pass(&s, 10 * S);
    HEARS(&s, 1, "stop0,again record");
    assert_int_equal(s.nodes[1].record.planned.generation, 1);
    gone(&s, 1);
    pass(&s, 30 * S);
    assert_int_equal(s.deposed, 0);
    end(&s);
}

/* Nobody of the job is lost with it, so no restart is needed. So it is if the next host lost its
 * office before it had formed a world, and was elected again: it has followed nobody since. */
static void test_the_loss_of_a_daemon_uses_no_restart(void **state)
{
    struct scene s;
    struct ct_job_record record = left_behind();
    const struct ct_members_failover elected = {.self = {.id = 1},
                                                .term = UINT64_C(1) << 32 | 1,
                                                .record = &record,
                                                .fence_ns = INT64_MIN,
                                                .ended_by = {.id = 99, .address = "10.0.0.9"},
                                                .ended_by_daemon = true,
                                                .ended_by_name = "login-1",
                                                .ended_why = "connection reset by peer"};
    (void)state;
    record.formed.count = 2;
    record.formed.list[0] = record.formed.list[1];
    record.formed.list[1] = record.formed.list[2];
    begin_failover(&s, 2, 2, 0, 1, &elected); /* it is used up */
    join(&s, 1);
    join(&s, 2);
    HEARS(&s, 1, "record record");
    assert_int_equal(s.nodes[1].record.planned.generation, 5);
    assert_int_equal(s.nodes[1].record.restarts, 1);
    pledge(&s, 1);
    pledge(&s, 2);
    HEARS(&s, 1, "record world5:0/2,0/4,serve");
    end(&s);
}

/* A daemon that has forgotten the job would begin it anew. */
static void test_a_node_that_knows_more_than_the_host_is_not_taken(void **state)
{
    struct scene s;
    const struct ct_members_failover daemon = {
        .self = {.id = 99}, .is_daemon = true, .term = CT_TERM_FIRST};
    (void)state;
    begin_failover(&s, 2, 2, 0, 1, &daemon);
    s.job.record_term = CT_TERM_FIRST;
    s.job.record_version = 3;
    assert_int_equal(try_join(&s, 1, -1), CT_MEMBERS_E_BEHIND);
    assert_true(ct_members_waits_first(s.members));
    s.job.record_term = s.job.record_version = 0;
    run_pledged(&s, 2);
    assert_false(ct_members_waits_first(s.members));
    gone(&s, 2);
    s.job.record_term = CT_TERM_FIRST;
    s.job.record_version = 3; /* this host's own */
    assert_int_equal(try_join(&s, 2, -1), 0);
    end(&s);
}

static void test_all_or_none_have_a_vote(void **state)
{
    struct scene s;
    (void)state;
    begin_failover(&s, 2, 2, 0, 1, &first_host);
    join(&s, 1);
    s.job.voter.id = 0; /* an older ctrun */
    assert_int_equal(try_join(&s, 2, -1), CT_EINVAL);
    assert_string_equal(s.err.text,
                        "node gpu-2 cannot outlive the job's host, and the job was begun with "
                        "ctruns that can; all need the same --rdzv-backend, --rdzv-conf "
                        "failover=N and version");
    end(&s);
}

static int begin_once(void *data)
{
    struct ct_members *members = NULL;
    const struct ct_members_options options = {.failover = data};
    int rc = ct_members_new(&options, &members);
    ct_members_free(members);
    return rc;
}

static void test_memory_may_run_out_at_the_beginning(void **state)
{
    struct ct_job_record record = left_behind();
    struct ct_failure_history *history = calloc(1, sizeof(*history));
    (void)state;
    assert_non_null(history);
    history->num_failures = history->num_rounds = 1;
    history->failures[0].tail = ct_strdup("the last line\n");
    history->failures[0].advice = ct_strdup("buy memory");
    struct ct_members_failover elected = {.self = {.id = 1},
                                          .term = UINT64_C(1) << 32 | 1,
                                          .record = &record,
                                          .lost = {.id = 9},
                                          .history = history};
    assert_true(ct_fault_sweep(begin_once, &elected, 0) >= 4);
    ct_failure_history_fini(history);
    free(history);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_daemon_hosts_and_has_no_vote),
        cmocka_unit_test(test_the_loss_of_a_daemon_uses_no_restart),
        cmocka_unit_test(test_a_node_that_knows_more_than_the_host_is_not_taken),
        cmocka_unit_test(test_a_world_is_told_when_all_have_pledged_it),
        cmocka_unit_test(test_a_node_that_is_lost_before_it_has_pledged_is_replaced),
        cmocka_unit_test(test_a_world_that_is_pledged_late_loses_nobody),
        cmocka_unit_test(test_a_node_without_a_vote_is_lost_before_all_have_pledged),
        cmocka_unit_test(test_a_node_that_is_left_out_pledges_too),
        cmocka_unit_test(test_the_end_is_told_when_all_have_pledged_it),
        cmocka_unit_test(test_no_world_begins_while_a_silent_node_may_run_the_last_one),
        cmocka_unit_test(test_nothing_waits_for_the_dead),
        cmocka_unit_test(test_a_new_host_goes_on_where_the_old_one_was),
        cmocka_unit_test(test_a_dead_host_is_named_and_not_waited_for),
        cmocka_unit_test(test_the_host_that_ended_the_world_is_not_waited_for_once_it_is_dead),
        cmocka_unit_test(test_the_last_one_goes_on_without_an_arbiter),
        cmocka_unit_test(test_those_who_wait_are_told_whom_they_lost_and_where_to_come),
        cmocka_unit_test(test_survivors_keep_their_node_ranks),
        cmocka_unit_test(test_a_survivor_that_comes_last_is_taken_first),
        cmocka_unit_test(test_a_node_that_came_back_may_end_the_job),
        cmocka_unit_test(test_nobody_waits_for_a_node_that_took_its_leave),
        cmocka_unit_test(test_a_host_that_nobody_joins_gives_up),
        cmocka_unit_test(test_the_budget_is_spent_once),
        cmocka_unit_test(test_a_new_host_carries_on_a_plan_first),
        cmocka_unit_test(test_a_finished_job_stays_finished),
        cmocka_unit_test(test_less_than_half_of_a_world_decides_nothing),
        cmocka_unit_test(test_a_host_without_a_quorum_is_deposed),
        cmocka_unit_test(test_a_beat_looks_for_no_voter),
        cmocka_unit_test(test_all_or_none_have_a_vote),
        cmocka_unit_test(test_memory_may_run_out_at_the_beginning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
