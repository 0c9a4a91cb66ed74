/* SPDX-License-Identifier: Apache-2.0
 *
 * A job with an arbiter: what it must have pledged, what becomes of its loss, and how long its word
 * counts.
 */
#include "tests/lib/members_scene.h"

#include "rendezvous/wire/json.h"

/* The host was elected by the arbiter alone; the job has had no world. */
static void begin_with_arbiter(struct scene *s, bool there, int spares)
{
    const struct ct_members_failover elected = {.self = {.id = 1},
                                                .arbiter = true,
                                                .arbiter_there = there,
                                                .arbiter_said_ns = 100 * S,
                                                .term = UINT64_C(1) << 32 | 1,
                                                .fence_ns = INT64_MIN};
    begin_failover(s, 2, 2, spares, 5, &elected);
}

/* Generation 0 of nodes 1 and 2 runs; the arbiter has pledged it, too. */
static void run_arbitrated(struct scene *s, int spares)
{
    begin_with_arbiter(s, true, spares);
    join(s, 1);
    join(s, 2);
    arbiter_pledges(s);
    pledge(s, 1);
    pledge(s, 2);
    HEARS(s, 1, "record record world0:0/2,0/4,serve");
    arbiter_pledges(s);
    say(s, 1, CT_MSG_SERVING, 0);
    say(s, 1, CT_MSG_STARTED, 0);
    say(s, 2, CT_MSG_STARTED, 0);
    forget(s);
}

/* A worker of node 2 fails, and all have stopped. */
static void fail_and_stop(struct scene *s, int generation)
{
    fails(s, 2, generation, 2, 1);
    say(s, 1, CT_MSG_STOPPED, generation);
    say(s, 2, CT_MSG_STOPPED, generation);
}

static void test_no_world_begins_before_the_arbiter_has_pledged_it(void **state)
{
    struct scene s;
    (void)state;
    begin_with_arbiter(&s, true, 0);
    join(&s, 1);
    join(&s, 2);
    HEARS(&s, 1, "record");
    assert_int_equal(s.arbiter_record.planned.generation, 0);
    pledge(&s, 1);
    pledge(&s, 2);
    HEARS(&s, 1, "");
    ct_members_arbiter_pledged(s.members, s.arbiter_record.term, s.arbiter_record.version - 1,
                               s.now, s.now);
    HEARS(&s, 1, ""); /* that was an earlier record */
    arbiter_pledges(&s);
    HEARS(&s, 1, "record world0:0/2,0/4,serve");
    assert_int_equal(s.arbiter_record.formed.generation, 0); /* and it hears that it is certain */
    end(&s);
}

static void test_the_first_world_waits_for_the_arbiter(void **state)
{
    struct scene s;
    (void)state;
    begin_with_arbiter(&s, false, 0);
    join(&s, 1);
    join(&s, 2);
    HEARS(&s, 1, "");
    arbiter_pledges(&s); /* by its beat */
    HEARS(&s, 1, "record");
    assert_int_equal(s.nodes[1].record.planned.generation, 0);
    end(&s);
}

static void test_the_loss_of_the_arbiter_stops_an_attempt_that_asks_it(void **state)
{
    struct scene s;
    (void)state;
    run_arbitrated(&s, 0);
    ct_members_arbiter_lost(s.members, s.now);
    HEARS(&s, 1, ""); /* nobody has asked it for anything */
    arbiter_pledges(&s);
    fail_and_stop(&s, 0);
    HEARS(&s, 1, "stop0,again record");
    assert_int_equal(s.nodes[1].record.planned.generation, 1);
    ct_members_arbiter_lost(s.members, s.now);
    HEARS(&s, 1, "record"); /* all agents are there, so the next attempt does without it */
    assert_int_equal(s.nodes[1].record.planned.generation, 2);
    assert_int_equal(s.nodes[1].record.formed.generation, 0);
    ct_members_arbiter_lost(s.members, s.now); /* that is no news */
    pledge(&s, 1);
    pledge(&s, 2);
    HEARS(&s, 1, "record world2:0/2,0/4,serve");
    end(&s);
}

static void test_the_first_world_is_not_formed_after_the_loss_of_the_arbiter(void **state)
{
    struct scene s;
    (void)state;
    begin_with_arbiter(&s, true, 0);
    join(&s, 1);
    join(&s, 2);
    HEARS(&s, 1, "record");
    ct_members_arbiter_lost(s.members, s.now);
    pledge(&s, 1);
    pledge(&s, 2);
    HEARS(&s, 1, "");
    arbiter_pledges(&s);
    HEARS(&s, 1, "record");
    pledge(&s, 1);
    pledge(&s, 2);
    arbiter_pledges(&s);
    HEARS(&s, 1, "record world1:0/2,0/4,serve");
    end(&s);
}

static void test_the_end_is_pledged_without_an_arbiter_that_is_lost(void **state)
{
    struct scene s;
    (void)state;
    run_arbitrated(&s, 0);
    say(&s, 1, CT_MSG_FINISHED, 0);
    say(&s, 2, CT_MSG_FINISHED, 0);
    pledge(&s, 1);
    pledge(&s, 2);
    HEARS(&s, 1, "record");
    ct_members_arbiter_lost(s.members, s.now);
    HEARS(&s, 1, "record");
    pledge(&s, 1);
    pledge(&s, 2);
    HEARS(&s, 1, "over=0");
    assert_true(s.arbiter_record.ended); /* it may be there again, and another job may begin */
    end(&s);
}

/* It was asked about the plan of a former host. */
static void test_a_plan_is_taken_over_without_an_arbiter_that_is_lost(void **state)
{
    struct scene s;
    struct ct_job_record record;
    (void)state;
    ct_job_record_init(&record);
    record.term = CT_TERM_FIRST;
    record.version = 8;
    record.formed =
        (struct ct_world_voters){.generation = 4, .count = 2, .list = {{1, "", 1}, {2, "", 2}}};
    record.planned = record.formed;
    record.planned.generation = 5;
    const struct ct_members_failover elected = {.self = {.id = 1},
                                                .arbiter = true,
                                                .arbiter_there = true,
                                                .arbiter_said_ns = 100 * S,
                                                .term = UINT64_C(1) << 32 | 1,
                                                .record = &record,
                                                .fence_ns = INT64_MIN,
                                                .lost = {.id = 2}};
    begin_failover(&s, 2, 2, 0, 5, &elected);
    join(&s, 1);
    HEARS(&s, 1, "record record"); /* what it knows, and the plan */
    join(&s, 2);
    forget(&s);
    ct_members_arbiter_lost(s.members, s.now);
    HEARS(&s, 1, "record");
    assert_int_equal(s.nodes[1].record.planned.generation, 5);
    pledge(&s, 1);
    pledge(&s, 2);
    HEARS(&s, 1, "record record");
    assert_int_equal(s.nodes[1].record.formed.generation, 5);
    assert_int_equal(s.nodes[1].record.planned.generation, 6);
    end(&s);
}

/* Node 2, the host of generation 4, may be alive and cut off. */
static void begin_alone(struct scene *s, bool there)
{
    struct ct_job_record record;
    ct_job_record_init(&record);
    record.term = CT_TERM_FIRST;
    record.version = 8;
    record.formed = (struct ct_world_voters){
        .generation = 4, .count = 2, .list = {{2, "10.0.0.2", 2}, {1, "10.0.0.1", 1}}};
    const struct ct_members_failover elected = {.self = {.id = 1},
                                                .arbiter = true,
                                                .arbiter_there = there,
                                                .arbiter_said_ns = 100 * S,
                                                .term = UINT64_C(1) << 32 | 1,
                                                .record = &record,
                                                .fence_ns = 104 * S,
                                                .lost = {.id = 2},
                                                .ended_by = {.id = 2},
                                                .ended_by_silence = true};
    begin_failover(s, 1, 2, 0, 5, &elected);
    join(s, 1);
    HEARS(s, 1, "record"); /* what it knows */
}

/* Is this among the problems in the status? */
static bool is_problem(const struct scene *s, const char *text)
{
    struct ct_status_rows rows = {.print = true};
    bool found = false;
    ct_json_use_our_memory();
    cJSON *root = cJSON_CreateObject(), *problems = cJSON_CreateArray(), *item;
    assert_int_equal(ct_members_status(s->members, s->now, &rows, root, problems), 0);
    cJSON_ArrayForEach(item, problems)
    {
        found = found || strstr(item->valuestring, text) != NULL;
    }
    cJSON_Delete(root);
    cJSON_Delete(problems);
    return found;
}

static void
test_one_of_two_machines_goes_on_with_the_arbiter_when_the_other_has_stopped(void **state)
{
    struct scene s;
    (void)state;
    begin_alone(&s, true);
    pass(&s, 4 * S - MS);
    HEARS(&s, 1, "");
    pass(&s, MS);
    HEARS(&s, 1, "record");
    assert_int_equal(s.arbiter_record.planned.generation, 5);
    assert_int_equal(s.arbiter_record.planned.count, 1);
    pledge(&s, 1);
    HEARS(&s, 1, "");
    arbiter_pledges(&s);
    HEARS(&s, 1, "record world5:0/1,0/2,serve");
    end(&s);

    begin_alone(&s, false); /* the other one may go on with it */
    pass(&s, 9 * S);
    assert_true(is_problem(&s, "1 node is there: gpu-1; etcd does not answer, and without it all"));
    assert_null(strstr(s.nodes[1].log, "record"));
    assert_int_equal(s.deposed, 1);
    pass(&s, 52 * S);
    assert_string_equal(s.nodes[1].last_text,
                        "the host of the job may not decide about it any more: etcd does not "
                        "answer, and without it all nodes of the last world are needed");
    end(&s);
}

static void test_who_follows_this_host_or_is_dead_stands_no_more(void **state)
{
    struct scene s;
    (void)state;
    run_arbitrated(&s, 2);
    join(&s, 3);
    join(&s, 4);
    assert_true(ct_members_stands_no_more(s.members, 2));
    assert_true(ct_members_stands_no_more(s.members, 3)); /* a spare, too */
    assert_false(ct_members_stands_no_more(s.members, 9));
    assert_false(ct_members_stands_no_more(s.members, 0));
    gone(&s, 2);
    assert_false(ct_members_stands_no_more(s.members, 2)); /* it may be cut off */
    ct_members_dead(s.members, 2, s.now);
    assert_true(ct_members_stands_no_more(s.members, 2));
    say(&s, 4, CT_MSG_LEAVE, 0);
    assert_true(ct_members_stands_no_more(s.members, 4));
    gone(&s, 3);
    assert_false(ct_members_stands_no_more(s.members, 3));
    join(&s, 3);
    assert_true(ct_members_stands_no_more(s.members, 3));
    end(&s);
}

/* All that are there beat now. */
static int64_t lease_after_beats(struct scene *s)
{
    for (int i = 1; i <= 2; i++) {
        if (s->nodes[i].member != NULL) {
            say(s, i, CT_MSG_BEAT, 0);
        }
    }
    return ct_members_lease_ms(s->members, s->now);
}

static void test_a_lease_ends_with_the_beats_of_the_arbiter_if_it_is_needed(void **state)
{
    struct scene s;
    (void)state;
    run_arbitrated(&s, 0);
    pass(&s, 2 * S);
    assert_int_equal(lease_after_beats(&s), 3000); /* both agents are enough */
    arbiter_pledges(&s);
    gone(&s, 2);
    pass(&s, 2 * S);
    assert_int_equal(lease_after_beats(&s), 1000);
    assert_int_equal(s.deposed, 0);
    arbiter_pledges(&s);
    assert_int_equal(lease_after_beats(&s), 3000);
    pass(&s, 3 * S - MS);
    assert_int_equal(lease_after_beats(&s), 1);
    assert_int_equal(s.deposed, 0);
    pass(&s, MS);
    assert_int_equal(lease_after_beats(&s), 0);
    assert_int_equal(s.deposed, 1);
    end(&s);
}

/* Another one may be elected after a silence of the arbiter, even if there has been no world. */
static void test_a_host_without_a_world_is_deposed_when_the_arbiter_hears_it_no_more(void **state)
{
    struct scene s;
    (void)state;
    begin_with_arbiter(&s, true, 0);
    join(&s, 1);
    pass(&s, 5 * S);
    assert_int_equal(s.deposed, 0); /* it has two leases, as any new host */
    ct_members_arbiter_pledged(s.members, 0, 0, s.now, s.now); /* any word of it will do */
    pass(&s, 3 * S - MS);
    assert_int_equal(s.deposed, 0);
    pass(&s, MS);
    assert_int_equal(s.deposed, 1);
    end(&s);
}

/* Its word counts from when its request was sent, and that it is not there now does not take back
 * what it has said. */
static void test_a_lease_counts_from_when_the_arbiter_was_asked(void **state)
{
    struct scene s;
    (void)state;
    run_arbitrated(&s, 0);
    gone(&s, 2);
    pass(&s, 2 * S);
    ct_members_arbiter_pledged(s.members, s.arbiter_record.term, s.arbiter_record.version,
                               s.now - S, s.now);
    assert_int_equal(ct_members_lease_ms(s.members, s.now), 2000);
    ct_members_arbiter_lost(s.members, s.now);
    assert_int_equal(lease_after_beats(&s), 2000);
    end(&s);
}

/* The address of the new host is no --rdzv-endpoint there, which says where the arbiter is. */
static void test_a_replacement_is_told_of_no_address(void **state)
{
    struct scene s;
    struct ct_job_record record;
    const struct ct_members_failover elected = {.self = {.id = 1, .address = "10.0.0.1", .port = 7},
                                                .arbiter = true,
                                                .arbiter_there = true,
                                                .arbiter_said_ns = 100 * S,
                                                .term = UINT64_C(1) << 32 | 1,
                                                .record = &record,
                                                .fence_ns = INT64_MIN,
                                                .lost = {.id = 2},
                                                .lost_is_dead = true,
                                                .ended_by = {.id = 2, .address = "10.0.0.2"},
                                                .ended_by_name = "gpu-2",
                                                .ended_why = "connection reset by peer"};
    (void)state;
    ct_job_record_init(&record);
    record.formed =
        (struct ct_world_voters){.count = 2, .list = {{2, "10.0.0.2", 2}, {1, "10.0.0.1", 1}}};
    begin_failover(&s, 2, 2, 0, 5, &elected);
    join(&s, 1);
    pass(&s, 6 * S);
    assert_string_equal(s.nodes[1].last_text,
                        "waiting for 1 of 2 nodes: node rank 0 (gpu-2) hosted the job's store at "
                        "10.0.0.2 and was lost 5 s ago; present: gpu-1; a replacement must be "
                        "started within 55 s, with the same --rdzv-endpoint");
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_world_begins_before_the_arbiter_has_pledged_it),
        cmocka_unit_test(test_the_first_world_waits_for_the_arbiter),
        cmocka_unit_test(test_the_loss_of_the_arbiter_stops_an_attempt_that_asks_it),
        cmocka_unit_test(test_the_first_world_is_not_formed_after_the_loss_of_the_arbiter),
        cmocka_unit_test(test_the_end_is_pledged_without_an_arbiter_that_is_lost),
        cmocka_unit_test(test_a_plan_is_taken_over_without_an_arbiter_that_is_lost),
        cmocka_unit_test(
            test_one_of_two_machines_goes_on_with_the_arbiter_when_the_other_has_stopped),
        cmocka_unit_test(test_who_follows_this_host_or_is_dead_stands_no_more),
        cmocka_unit_test(test_a_lease_ends_with_the_beats_of_the_arbiter_if_it_is_needed),
        cmocka_unit_test(test_a_host_without_a_world_is_deposed_when_the_arbiter_hears_it_no_more),
        cmocka_unit_test(test_a_lease_counts_from_when_the_arbiter_was_asked),
        cmocka_unit_test(test_a_replacement_is_told_of_no_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
