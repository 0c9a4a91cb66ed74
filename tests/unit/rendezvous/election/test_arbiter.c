/* SPDX-License-Identifier: Apache-2.0
 *
 * For whom the arbiter votes, and whom it serves, by what one agent knows of its value.
 */
#include "tests/lib/ct_test.h"

#include "common/clock.h"
#include "rendezvous/election/arbiter.h"

#define LEASE_MS 3200
#define LEASE_NS (LEASE_MS * CT_NS_PER_MS)
#define SILENT_NS (LEASE_NS + LEASE_NS / 16)
#define PEACE_NS (LEASE_NS / 8)

static struct ct_vote_answer answer;
static struct ct_arbiter_state next;

static uint64_t term(uint64_t number, uint64_t id)
{
    return number << 32 | id;
}

static struct ct_voter voter(uint64_t id)
{
    return (struct ct_voter){.id = id, .address = "10.0.0.1", .port = 1};
}

/* Agent 1 hosts in its term 1, and has had version 3 of the record of a world of three pledged. */
static struct ct_arbiter_state hosted(void)
{
    struct ct_arbiter_state out = {
        .promised = term(1, 1), .promised_to = 1, .host = voter(1), .host_term = term(1, 1)};
    ct_job_record_init(&out.record);
    out.record.term = term(1, 1);
    out.record.version = 3;
    out.record.formed = (struct ct_world_voters){
        .generation = 0, .count = 3, .list = {voter(1), voter(2), voter(3)}};
    return out;
}

/* It has voted for agent 3 in term 2 since then. */
static struct ct_arbiter_state voted(void)
{
    struct ct_arbiter_state out = hosted();
    out.promised = term(2, 3);
    out.promised_to = 3;
    out.host = (struct ct_voter){0};
    out.host_term = 0;
    return out;
}

/* The value is known since time 0. */
static struct ct_arbiter known(const struct ct_arbiter_state *state)
{
    struct ct_arbiter arbiter;
    ct_arbiter_init(&arbiter);
    ct_arbiter_learned(&arbiter, state, state != NULL ? 7 : 0, 0);
    return arbiter;
}

/* The question of an agent that has the same record. */
static struct ct_vote_ask ask_of(uint64_t id, uint64_t number)
{
    return (struct ct_vote_ask){id, term(number, id), term(1, 1), 3};
}

static bool writes(const struct ct_arbiter *arbiter, const struct ct_vote_ask *ask, int64_t now_ns)
{
    return ct_arbiter_ask(arbiter, ask, 0, LEASE_MS, now_ns, &answer, &next);
}

static void test_who_hears_a_host_votes_for_nobody(void **state)
{
    struct ct_arbiter_state value = hosted();
    struct ct_arbiter arbiter = known(&value);
    struct ct_vote_ask ask = ask_of(2, 2);
    (void)state;
    assert_false(writes(&arbiter, &ask, LEASE_NS));
    assert_false(answer.granted);
    assert_true(answer.id == CT_ARBITER_ID && answer.asked_term == term(2, 2));
    assert_true(answer.seen == term(1, 1) && answer.candidacy == 0 && answer.record == NULL);
    assert_true(answer.host != NULL && answer.host->id == 1 && answer.host_term == term(1, 1));
}

static void test_a_host_is_silent_after_a_lease_and_a_sixteenth_without_change(void **state)
{
    struct ct_arbiter_state value = hosted();
    struct ct_arbiter arbiter = known(&value);
    struct ct_vote_ask ask = ask_of(2, 2);
    (void)state;
    ct_arbiter_learned(&arbiter, &value, 7, LEASE_NS); /* that is no change */
    assert_false(writes(&arbiter, &ask, SILENT_NS - 1));
    assert_true(writes(&arbiter, &ask, SILENT_NS));
    assert_true(answer.granted && answer.host == NULL && answer.seen == term(2, 2));
    assert_int_equal(answer.alone_ms, LEASE_MS + LEASE_MS / 16);
    assert_true(next.promised == term(2, 2) && next.promised_to == 2);
    assert_true(next.host.id == 0 && next.host_term == 0);
    assert_int_equal(ct_job_record_compare(&next.record, &value.record), 0);

    ct_arbiter_learned(&arbiter, &value, 8, LEASE_NS); /* it has written once more */
    assert_false(writes(&arbiter, &ask, LEASE_NS + SILENT_NS - 1));
    assert_true(writes(&arbiter, &ask, LEASE_NS + SILENT_NS));
}

static void test_a_refusal_says_when_it_ends(void **state)
{
    struct ct_arbiter_state hosts = hosted(), has_voted = voted();
    struct ct_arbiter arbiter = known(&hosts);
    struct ct_vote_ask ask = ask_of(2, 3);
    (void)state;
    assert_false(writes(&arbiter, &ask, SILENT_NS - 1000 * CT_NS_PER_MS));
    assert_int_equal(answer.free_ms, 1000);
    assert_false(writes(&arbiter, &ask, SILENT_NS - 1)); /* never sooner than it ends */
    assert_int_equal(answer.free_ms, 1);
    assert_true(writes(&arbiter, &ask, SILENT_NS));
    assert_int_equal(answer.free_ms, 0);

    arbiter = known(&has_voted);
    assert_false(writes(&arbiter, &ask, PEACE_NS - 7 * CT_NS_PER_MS));
    assert_int_equal(answer.free_ms, 7);
}

static void test_a_dead_host_is_not_heard(void **state)
{
    struct ct_arbiter_state value = hosted();
    struct ct_arbiter arbiter = known(&value);
    struct ct_vote_ask ask = ask_of(2, 2);
    (void)state;
    assert_false(ct_arbiter_ask(&arbiter, &ask, 3, LEASE_MS, 0, &answer, &next));
    assert_false(answer.granted); /* the death of anybody else says nothing */
    assert_true(ct_arbiter_ask(&arbiter, &ask, 1, LEASE_MS, 0, &answer, &next));
    assert_true(answer.granted && answer.host == NULL);
}

static void test_an_older_record_gets_no_vote_but_the_newer_record(void **state)
{
    struct ct_arbiter_state value = hosted();
    struct ct_arbiter arbiter = known(&value);
    struct ct_vote_ask ask = ask_of(2, 2);
    (void)state;
    ask.record_version = 2;
    assert_false(writes(&arbiter, &ask, SILENT_NS));
    assert_false(answer.granted);
    assert_ptr_equal(answer.record, &arbiter.state.record);

    ask.record_version = 4;
    assert_true(writes(&arbiter, &ask, SILENT_NS));
    assert_true(answer.granted && answer.record == NULL);
}

static void test_a_term_has_one_vote(void **state)
{
    struct ct_arbiter_state value = voted();
    struct ct_arbiter arbiter = known(&value);
    struct ct_vote_ask ask = {2, term(2, 3), term(1, 1), 3};
    (void)state;
    assert_false(writes(&arbiter, &ask, SILENT_NS)); /* the term is another one's */
    assert_false(answer.granted);
    ask.term = term(2, 2); /* an earlier one */
    assert_false(writes(&arbiter, &ask, SILENT_NS));
    assert_false(answer.granted);
    assert_true(answer.seen == term(2, 3));
    ask.term = term(3, 2);
    assert_true(writes(&arbiter, &ask, SILENT_NS));
    assert_true(answer.granted);
}

/* The host was elected in a term that the arbiter has not voted in. */
static void test_there_is_no_vote_in_a_term_that_is_not_after_the_hosts(void **state)
{
    struct ct_arbiter_state value = hosted();
    (void)state;
    value.host_term = term(5, 1);
    struct ct_arbiter arbiter = known(&value);
    struct ct_vote_ask ask = ask_of(2, 4);
    assert_false(writes(&arbiter, &ask, SILENT_NS));
    assert_true(!answer.granted && answer.seen == term(5, 1));
}

static void test_a_question_that_comes_again_is_granted_without_writing(void **state)
{
    struct ct_arbiter_state value = voted();
    struct ct_arbiter arbiter = known(&value);
    struct ct_vote_ask ask = ask_of(3, 2);
    (void)state;
    assert_false(writes(&arbiter, &ask, 0));
    assert_true(answer.granted);

    ask.record_version = 2; /* another life of that agent, maybe */
    assert_false(writes(&arbiter, &ask, 0));
    assert_false(answer.granted);

    value = hosted(); /* who hosts has had its vote */
    arbiter = known(&value);
    ask = ask_of(1, 1);
    assert_false(writes(&arbiter, &ask, 0));
    assert_false(answer.granted);
}

static void test_a_candidate_with_the_vote_is_left_in_peace_for_a_moment(void **state)
{
    struct ct_arbiter_state value = voted();
    struct ct_arbiter arbiter = known(&value);
    struct ct_vote_ask other = ask_of(2, 3), same = ask_of(3, 3);
    (void)state;
    assert_false(writes(&arbiter, &other, PEACE_NS - 1));
    assert_true(!answer.granted && answer.host == NULL && answer.host_term == 0);
    assert_true(writes(&arbiter, &other, PEACE_NS));
    assert_true(answer.granted);
    assert_true(writes(&arbiter, &same, 0)); /* it stands again itself */
    assert_true(answer.granted);
}

static void test_who_wants_no_vote_gets_none(void **state)
{
    struct ct_arbiter_state value = hosted();
    struct ct_arbiter arbiter = known(&value), fresh = known(NULL);
    const struct ct_vote_ask ask = {.id = 2};
    (void)state;
    assert_false(writes(&fresh, &ask, SILENT_NS));
    assert_false(answer.granted);
    assert_false(writes(&arbiter, &ask, 0));
    assert_true(!answer.granted && answer.host->id == 1 && answer.record != NULL);
}

static void test_a_new_job_gets_its_first_vote(void **state)
{
    struct ct_arbiter arbiter = known(NULL);
    const struct ct_vote_ask ask = {.id = 2, .term = term(1, 2)};
    (void)state;
    assert_true(writes(&arbiter, &ask, SILENT_NS));
    assert_true(answer.granted && answer.alone_ms == 0); /* it has heard nobody ever */
    assert_true(next.promised == term(1, 2) && next.record.formed.generation == -1);
}

static void test_a_newcomer_begins_anew_after_the_end_of_the_job(void **state)
{
    struct ct_arbiter_state value = hosted();
    (void)state;
    value.record.over = value.record.ended = true;
    struct ct_arbiter arbiter = known(&value);
    struct ct_vote_ask ask = {.id = 9, .term = term(1, 0)};
    assert_false(writes(&arbiter, &ask, 0)); /* still, a term is used once */
    assert_true(answer.seen == term(1, 1) && answer.host == NULL && answer.record == NULL);
    ask.term = term(2, 9);
    assert_true(writes(&arbiter, &ask, 0));
    assert_true(answer.granted && next.promised_to == 9 && next.host.id == 0);
    assert_true(next.record.version == 0 && !next.record.over && !next.record.ended);
    assert_int_equal(next.record.formed.generation, -1);

    ask = ask_of(2, 2); /* who knows the job finds its end */
    assert_false(writes(&arbiter, &ask, 0));
    assert_true(!answer.granted && answer.host->id == 1);
    assert_true(writes(&arbiter, &ask, SILENT_NS));
    assert_true(next.record.over);
    ask.record_version = 2;
    assert_false(writes(&arbiter, &ask, SILENT_NS));
    assert_true(answer.record != NULL && answer.record->over);

    ask = (struct ct_vote_ask){.id = 9, .term = term(2, 9), .followed = true};
    assert_false(writes(&arbiter, &ask, SILENT_NS)); /* so does who has had a host of it */
    assert_true(!answer.granted && answer.record != NULL && answer.record->ended);

    value.record.ended = false; /* its end is not certain: a newcomer learns of the job */
    arbiter = known(&value);
    ask = (struct ct_vote_ask){.id = 9, .term = term(2, 9)};
    assert_false(writes(&arbiter, &ask, 0));
    assert_true(!answer.granted && answer.host->id == 1 && answer.record != NULL);
    assert_false(writes(&arbiter, &ask, SILENT_NS));
    assert_true(!answer.granted && answer.host == NULL && answer.record != NULL);
}

/* ---- the host ------------------------------------------------------------------------------- */

static void test_a_host_is_served_with_its_record(void **state)
{
    struct ct_arbiter_state value = voted();
    struct ct_arbiter arbiter = known(&value);
    struct ct_voter self = voter(3);
    struct ct_job_record record = value.record;
    (void)state;
    record.term = term(2, 3);
    record.version = 1;
    assert_true(ct_arbiter_serve(&arbiter, &self, &record, 0, &next));
    assert_true(next.promised == term(2, 3) && next.promised_to == 3);
    assert_true(next.host.id == 3 && next.host_term == term(2, 3));
    assert_int_equal(ct_job_record_compare(&next.record, &record), 0);
    ct_arbiter_learned(&arbiter, &next, 8, 0); /* and so at each beat */
    assert_true(ct_arbiter_serve(&arbiter, &self, &record, 0, &next));
}

static void test_a_host_is_refused_after_a_later_host(void **state)
{
    struct ct_arbiter_state value = hosted();
    struct ct_voter self = voter(1);
    struct ct_job_record record = value.record;
    (void)state;
    value.host = voter(2);
    value.host_term = term(2, 2);
    struct ct_arbiter arbiter = known(&value);
    assert_false(ct_arbiter_serve(&arbiter, &self, &record, 0, &next));
    assert_false(ct_arbiter_serve(&arbiter, &self, &record, 2, &next)); /* void or not */
}

static void test_a_host_is_refused_after_a_later_candidate_unless_that_one_is_void(void **state)
{
    struct ct_arbiter_state value = voted();
    struct ct_arbiter arbiter = known(&value);
    struct ct_voter self = voter(1);
    (void)state;
    assert_false(ct_arbiter_serve(&arbiter, &self, &value.record, 0, &next));
    assert_false(ct_arbiter_serve(&arbiter, &self, &value.record, 2, &next));
    assert_true(ct_arbiter_serve(&arbiter, &self, &value.record, 3, &next));
    assert_true(next.host.id == 1 && next.promised == term(1, 1) && next.promised_to == 1);

    value.promised = term(1, 0); /* that of an earlier candidate, whom agents have not elected */
    arbiter = known(&value);
    assert_true(ct_arbiter_serve(&arbiter, &self, &value.record, 0, &next));
    value.promised = term(2, 1);
    value.promised_to = 1; /* it was a candidate itself, and won in an earlier term */
    arbiter = known(&value);
    assert_true(ct_arbiter_serve(&arbiter, &self, &value.record, 0, &next));
}

static void test_a_host_never_replaces_a_newer_record(void **state)
{
    struct ct_arbiter_state value = hosted();
    struct ct_arbiter arbiter = known(&value);
    struct ct_voter self = voter(1);
    struct ct_job_record record = value.record;
    (void)state;
    record.version--;
    assert_false(ct_arbiter_serve(&arbiter, &self, &record, 0, &next));
    record.version += 2;
    assert_true(ct_arbiter_serve(&arbiter, &self, &record, 0, &next));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_hears_a_host_votes_for_nobody),
        cmocka_unit_test(test_a_host_is_silent_after_a_lease_and_a_sixteenth_without_change),
        cmocka_unit_test(test_a_refusal_says_when_it_ends),
        cmocka_unit_test(test_a_dead_host_is_not_heard),
        cmocka_unit_test(test_an_older_record_gets_no_vote_but_the_newer_record),
        cmocka_unit_test(test_a_term_has_one_vote),
        cmocka_unit_test(test_there_is_no_vote_in_a_term_that_is_not_after_the_hosts),
        cmocka_unit_test(test_a_question_that_comes_again_is_granted_without_writing),
        cmocka_unit_test(test_a_candidate_with_the_vote_is_left_in_peace_for_a_moment),
        cmocka_unit_test(test_who_wants_no_vote_gets_none),
        cmocka_unit_test(test_a_new_job_gets_its_first_vote),
        cmocka_unit_test(test_a_newcomer_begins_anew_after_the_end_of_the_job),
        cmocka_unit_test(test_a_host_is_served_with_its_record),
        cmocka_unit_test(test_a_host_is_refused_after_a_later_host),
        cmocka_unit_test(test_a_host_is_refused_after_a_later_candidate_unless_that_one_is_void),
        cmocka_unit_test(test_a_host_never_replaces_a_newer_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
