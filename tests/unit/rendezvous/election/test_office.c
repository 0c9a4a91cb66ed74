/* SPDX-License-Identifier: Apache-2.0
 *
 * What a host may decide: with whom, after whose pledge, and what a new host must do first.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/election/office.h"

static struct ct_world_voters world(int generation, int from, int count)
{
    struct ct_world_voters out = {.generation = generation, .count = count};
    for (int i = 0; i < count; i++) {
        out.list[i].id = (uint64_t)(from + i);
    }
    return out;
}

static struct ct_presence there(int from, int count)
{
    struct ct_presence out = {.num_there = count};
    for (int i = 0; i < count; i++) {
        out.there[i] = (uint64_t)(from + i);
    }
    return out;
}

/* A host in term 1, voter 1 of 4, whose world 0 is certain. */
static struct ct_office office_of_four(void)
{
    struct ct_office office;
    struct ct_job_record record;
    ct_job_record_init(&record);
    record.formed = world(0, 1, 4);
    ct_office_begin(&office, 1, 0, false, 1, &record);
    return office;
}

static enum ct_proposal pledge(struct ct_office *office, uint64_t id)
{
    return ct_office_pledged(office, id, office->record.term, office->record.version);
}

static void test_a_world_is_certain_when_all_its_voters_have_pledged(void **state)
{
    struct ct_office office = office_of_four();
    struct ct_presence who = there(1, 4);
    struct ct_world_voters next = world(1, 1, 4);
    (void)state;
    assert_int_equal(ct_office_propose_world(&office, &next, 1, &who), 0);
    assert_int_equal(office.record.planned.generation, 1);
    assert_int_equal(pledge(&office, 1), CT_PROPOSAL_NONE);
    assert_int_equal(pledge(&office, 2), CT_PROPOSAL_NONE);
    assert_int_equal(pledge(&office, 2), CT_PROPOSAL_NONE);
    assert_int_equal(pledge(&office, 99), CT_PROPOSAL_NONE);
    assert_int_equal(pledge(&office, 3), CT_PROPOSAL_NONE);
    uint64_t version = office.record.version;
    assert_int_equal(ct_office_pledged(&office, 4, 1, version - 1), CT_PROPOSAL_NONE);
    assert_int_equal(ct_office_pledged(&office, 4, 2, version), CT_PROPOSAL_NONE);
    assert_int_equal(pledge(&office, 4), CT_PROPOSAL_WORLD);
    assert_int_equal(office.record.formed.generation, 1);
    assert_int_equal(office.record.planned.generation, -1);
    assert_int_equal(office.record.restarts, 1);
    assert_true(office.record.version > version);
}

static void test_the_loss_of_a_voter_ends_its_proposal_only(void **state)
{
    struct ct_office office = office_of_four();
    struct ct_presence who = there(1, 3);
    struct ct_world_voters next = world(1, 1, 3);
    (void)state;
    assert_false(ct_office_left(&office, 2));
    assert_int_equal(ct_office_propose_world(&office, &next, 0, &who), 0);
    assert_false(ct_office_left(&office, 4));
    assert_true(ct_office_left(&office, 2));
    assert_int_equal(pledge(&office, 1), CT_PROPOSAL_NONE);
    /* The host knows that its own plan was not carried out, so only the last world counts. */
    assert_false(ct_office_must_take_over(&office));
    next = world(2, 3, 2);
    next.list[0].id = 1;
    assert_int_equal(ct_office_propose_world(&office, &next, 0, &who), 0);
    assert_int_equal(office.record.formed.generation, 0);
}

/* A machine that is left out of the next world has lost nobody, and counts half of the last world
 * if the host dies. So it must know that world before it begins. */
static void test_a_voter_that_is_left_out_must_know_the_next_world(void **state)
{
    struct ct_office office = office_of_four();
    struct ct_presence who = there(1, 3);
    struct ct_world_voters next = world(1, 1, 1);
    next.list[next.count++].id = 9;
    (void)state;
    assert_int_equal(ct_office_propose_world(&office, &next, 0, &who), 0);
    assert_int_equal(pledge(&office, 1), CT_PROPOSAL_NONE);
    assert_int_equal(pledge(&office, 2), CT_PROPOSAL_NONE);
    assert_int_equal(pledge(&office, 9), CT_PROPOSAL_NONE);
    assert_int_equal(pledge(&office, 3), CT_PROPOSAL_WORLD);
    assert_int_equal(office.record.formed.count, 2);

    next = world(2, 1, 1);
    who = there(1, 1);
    who.there[who.num_there++] = 9;
    assert_int_equal(ct_office_propose_world(&office, &next, 0, &who), 0);
    assert_true(ct_office_left(&office, 9));
}

static void test_half_is_enough_for_a_host_of_that_world(void **state)
{
    struct ct_office office = office_of_four();
    struct ct_presence two = there(1, 2), one = there(1, 1);
    (void)state;
    assert_true(ct_office_has_quorum(&office, &two));
    assert_false(ct_office_has_quorum(&office, &one));
    office.self = 9; /* elected, but of another world */
    assert_false(ct_office_has_quorum(&office, &two));
    office.lost = 7; /* a dead host of another world says nothing about this one */
    assert_false(ct_office_has_quorum(&office, &two));
    office.lost = 4; /* its candidate could count half, so its office can, too */
    assert_true(ct_office_has_quorum(&office, &two));
    assert_false(ct_office_has_quorum(&office, &one));
    office.lost = 0;
    office.self = 0; /* a ctrdzvd */
    assert_true(ct_office_has_quorum(&office, &two));
    assert_int_equal(ct_office_propose_end(&office, 0, &one), CT_EBUSY);
    assert_false(office.record.over);
}

static void test_a_host_goes_on_alone_only_if_all_others_are_dead(void **state)
{
    struct ct_office office = office_of_four();
    struct ct_presence who = there(1, 1);
    (void)state;
    who.dead[who.num_dead++] = 2;
    who.dead[who.num_dead++] = 3;
    assert_false(ct_office_has_quorum(&office, &who)); /* voter 4 may have been elected by them */
    who.dead[who.num_dead++] = 4;
    assert_true(ct_office_has_quorum(&office, &who));
}

static void test_a_former_hosts_plan_comes_first(void **state)
{
    struct ct_office office;
    struct ct_job_record record;
    struct ct_presence few = there(1, 2), all = there(1, 3);
    (void)state;
    ct_job_record_init(&record);
    record.formed = world(4, 1, 3);
    record.planned = world(5, 3, 3);
    ct_office_begin(&office, 1, 0, false, 7, &record);
    assert_true(ct_office_must_take_over(&office));
    assert_false(ct_office_has_quorum(&office, &few)); /* of the old world alone */
    assert_false(ct_office_has_quorum(&office, &all));
    all.there[all.num_there++] = 4;
    assert_int_equal(ct_office_take_over(&office, &few), CT_EBUSY);
    assert_int_equal(ct_office_take_over(&office, &all), 0);
    /* What is pledged still names both worlds. */
    assert_true(office.record.formed.generation == 4 && office.record.planned.generation == 5);
    for (uint64_t id = 1; id <= 3; id++) {
        assert_int_equal(pledge(&office, id), CT_PROPOSAL_NONE);
    }
    assert_int_equal(pledge(&office, 4), CT_PROPOSAL_TAKE_OVER);
    assert_true(office.record.formed.generation == 5 && office.record.planned.generation == -1);
    assert_false(ct_office_must_take_over(&office));
}

static void test_the_end_is_pledged_like_a_world(void **state)
{
    struct ct_office office = office_of_four();
    struct ct_presence who = there(1, 3);
    (void)state;
    assert_int_equal(ct_office_propose_end(&office, 3, &who), 0);
    assert_true(office.record.over && office.record.exit_code == 3);
    assert_int_equal(pledge(&office, 1), CT_PROPOSAL_NONE);
    assert_int_equal(pledge(&office, 2), CT_PROPOSAL_NONE);
    assert_false(office.record.ended);
    assert_int_equal(pledge(&office, 3), CT_PROPOSAL_END);
    assert_true(office.record.ended);
}

static void test_a_lease_ends_with_the_quorum(void **state)
{
    struct ct_office office = office_of_four();
    struct ct_presence who = there(1, 4);
    const int64_t heard[] = {100, 90, 40, 10};
    (void)state;
    assert_int_equal(ct_office_lease(&office, &who, heard, 1000), 1090); /* half: 1 and 2 */
    office.self = 9;
    assert_int_equal(ct_office_lease(&office, &who, heard, 1000), 1040); /* 1, 2 and 3 */
    who.num_there = 2;
    assert_true(ct_office_lease(&office, &who, heard, 1000) == INT64_MIN);
    office.record.formed.count = 0;
    assert_true(ct_office_lease(&office, &who, heard, 1000) == INT64_MAX);
}

/* ---- an arbiter ----------------------------------------------------------------------------- */

static struct ct_presence with_arbiter(struct ct_presence who)
{
    who.there[who.num_there++] = CT_ARBITER_ID;
    return who;
}

/* The same host in a job with an arbiter. */
static struct ct_office arbitrated_office_of_four(void)
{
    struct ct_office office = office_of_four();
    struct ct_job_record record = office.record;
    ct_office_begin(&office, 1, 0, true, 2, &record);
    return office;
}

static void test_the_first_world_needs_the_arbiter(void **state)
{
    struct ct_office office;
    struct ct_job_record record;
    struct ct_presence agents = there(1, 2), all = with_arbiter(agents);
    struct ct_world_voters first = world(0, 1, 2);
    (void)state;
    ct_job_record_init(&record);
    ct_office_begin(&office, 1, 0, true, 1, &record);
    assert_false(ct_office_has_quorum(&office, &agents));
    assert_int_equal(ct_office_propose_world(&office, &first, 0, &agents), CT_EBUSY);
    assert_int_equal(office.open, CT_PROPOSAL_NONE);
    assert_int_equal(ct_office_propose_world(&office, &first, 0, &all), 0);
    assert_int_equal(pledge(&office, 1), CT_PROPOSAL_NONE);
    assert_int_equal(pledge(&office, 2), CT_PROPOSAL_NONE);
    assert_int_equal(pledge(&office, CT_ARBITER_ID), CT_PROPOSAL_WORLD);
    assert_int_equal(office.record.formed.generation, 0);
}

static void test_the_arbiter_is_asked_if_it_is_there(void **state)
{
    struct ct_office office = arbitrated_office_of_four();
    struct ct_presence agents = there(1, 4), all = with_arbiter(agents);
    struct ct_world_voters next = world(1, 1, 4);
    (void)state;
    assert_int_equal(ct_office_propose_world(&office, &next, 0, &all), 0);
    for (uint64_t id = 1; id <= 4; id++) {
        assert_int_equal(pledge(&office, id), CT_PROPOSAL_NONE);
    }
    assert_int_equal(pledge(&office, CT_ARBITER_ID), CT_PROPOSAL_WORLD);

    next = world(2, 1, 4); /* and not if it is not */
    assert_int_equal(ct_office_propose_world(&office, &next, 0, &agents), 0);
    for (uint64_t id = 1; id <= 3; id++) {
        assert_int_equal(pledge(&office, id), CT_PROPOSAL_NONE);
    }
    assert_int_equal(pledge(&office, 4), CT_PROPOSAL_WORLD);
}

static void test_the_loss_of_the_arbiter_ends_only_what_it_was_asked_about(void **state)
{
    struct ct_office office = arbitrated_office_of_four();
    struct ct_presence agents = there(1, 4), all = with_arbiter(agents);
    struct ct_world_voters next = world(1, 1, 4);
    (void)state;
    assert_int_equal(ct_office_propose_world(&office, &next, 0, &all), 0);
    assert_true(ct_office_left(&office, CT_ARBITER_ID));
    for (uint64_t id = 1; id <= 4; id++) {
        assert_int_equal(pledge(&office, id), CT_PROPOSAL_NONE);
    }
    assert_int_equal(pledge(&office, CT_ARBITER_ID), CT_PROPOSAL_NONE);

    assert_int_equal(ct_office_propose_end(&office, 0, &agents), 0);
    assert_false(ct_office_left(&office, CT_ARBITER_ID));
    assert_int_equal(office.open, CT_PROPOSAL_END);
}

static void test_one_agent_with_the_arbiter_or_all_without_it_are_a_quorum(void **state)
{
    struct ct_office office = arbitrated_office_of_four();
    struct ct_presence one = there(1, 1), half = there(1, 2), three = there(1, 3),
                       all = there(1, 4);
    (void)state;
    assert_true(ct_office_has_quorum(&office, &all));
    assert_false(ct_office_has_quorum(&office, &three));
    assert_false(ct_office_has_quorum(&office, &half));
    assert_false(ct_office_has_quorum(&office, &one));
    one = with_arbiter(one);
    assert_true(ct_office_has_quorum(&office, &one));
    assert_int_equal(ct_office_propose_end(&office, 0, &three), CT_EBUSY);
    assert_int_equal(ct_office_propose_end(&office, 0, &one), 0);
}

/* With the arbiter and an old world alone, a world that may have begun would be passed over. */
static void test_both_worlds_count_with_the_arbiter_too(void **state)
{
    struct ct_office office;
    struct ct_job_record record;
    struct ct_presence old = with_arbiter(there(1, 1)), both = with_arbiter(there(2, 1));
    (void)state;
    ct_job_record_init(&record);
    record.formed = world(4, 1, 2);
    record.planned = world(5, 2, 2);
    ct_office_begin(&office, 1, 0, true, 7, &record);
    assert_int_equal(ct_office_take_over(&office, &old), CT_EBUSY);
    assert_int_equal(ct_office_take_over(&office, &both), 0);
    assert_int_equal(pledge(&office, 2), CT_PROPOSAL_NONE);
    assert_int_equal(pledge(&office, CT_ARBITER_ID), CT_PROPOSAL_TAKE_OVER);
}

static void test_a_host_goes_on_without_the_arbiter_if_all_others_are_dead(void **state)
{
    struct ct_office office = arbitrated_office_of_four();
    struct ct_presence who = there(1, 1);
    (void)state;
    who.dead[who.num_dead++] = 2;
    who.dead[who.num_dead++] = 3;
    assert_false(ct_office_has_quorum(&office, &who));
    who.dead[who.num_dead++] = 4;
    assert_true(ct_office_has_quorum(&office, &who));
}

static void test_a_lease_ends_with_the_beats_of_the_arbiter_where_it_is_needed(void **state)
{
    struct ct_office office = arbitrated_office_of_four();
    struct ct_presence two = with_arbiter(there(1, 1)), all = with_arbiter(there(1, 4));
    struct ct_presence agents = there(1, 3);
    const int64_t late[] = {100, 40}, early[] = {100, 90, 80, 20, 10},
                  often[] = {100, 90, 80, 20, 95};
    (void)state;
    assert_int_equal(ct_office_lease(&office, &two, late, 1000), 1040);
    assert_int_equal(ct_office_lease(&office, &all, early, 1000), 1020); /* all agents */
    assert_int_equal(ct_office_lease(&office, &all, often, 1000), 1095); /* it and agent 1 */
    assert_true(ct_office_lease(&office, &agents, early, 1000) == INT64_MIN);
    agents.dead[agents.num_dead++] = 4; /* nobody else can decide */
    assert_int_equal(ct_office_lease(&office, &agents, early, 1000), 1080);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_world_is_certain_when_all_its_voters_have_pledged),
        cmocka_unit_test(test_the_loss_of_a_voter_ends_its_proposal_only),
        cmocka_unit_test(test_a_voter_that_is_left_out_must_know_the_next_world),
        cmocka_unit_test(test_half_is_enough_for_a_host_of_that_world),
        cmocka_unit_test(test_a_host_goes_on_alone_only_if_all_others_are_dead),
        cmocka_unit_test(test_a_former_hosts_plan_comes_first),
        cmocka_unit_test(test_the_end_is_pledged_like_a_world),
        cmocka_unit_test(test_a_lease_ends_with_the_quorum),
        cmocka_unit_test(test_the_first_world_needs_the_arbiter),
        cmocka_unit_test(test_the_arbiter_is_asked_if_it_is_there),
        cmocka_unit_test(test_the_loss_of_the_arbiter_ends_only_what_it_was_asked_about),
        cmocka_unit_test(test_one_agent_with_the_arbiter_or_all_without_it_are_a_quorum),
        cmocka_unit_test(test_both_worlds_count_with_the_arbiter_too),
        cmocka_unit_test(test_a_host_goes_on_without_the_arbiter_if_all_others_are_dead),
        cmocka_unit_test(test_a_lease_ends_with_the_beats_of_the_arbiter_where_it_is_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
