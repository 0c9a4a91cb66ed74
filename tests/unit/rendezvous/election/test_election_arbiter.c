/* SPDX-License-Identifier: Apache-2.0
 *
 * Elections in which an arbiter votes as well.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/election_rig.h"

/* Agent `id` has had no host, and begins to look for one at 1 s. */
static struct ct_election seeker(uint64_t id)
{
    struct ct_election e;
    struct ct_voter self = rig_voter(id);
    ct_election_init(&e, &self, true, LEASE_MS, GIVE_UP_MS);
    assert_true(ct_election_next(&e) == INT64_MAX);
    ct_election_seek(&e, 2000, 1000 * MS);
    return e;
}

static void test_who_seeks_a_job_stands_at_once_and_wins_by_the_arbiter_alone(void **state)
{
    struct ct_election e = seeker(2);
    struct ct_election_todo todo;
    int64_t now_ns;
    (void)state;
    struct ct_vote_ask question = rig_stand(&e, &now_ns, &todo);
    assert_true(now_ns == 1000 * MS && question.term == (UINT64_C(1) << 32 | 2));
    assert_true(question.record_term == 0 && question.record_version == 0);
    assert_false(todo.host);
    rig_grant(&e, 3, question.term, 0, now_ns, &todo); /* no agent has a vote yet */
    assert_false(todo.host);
    rig_grant(&e, CT_ARBITER_ID, question.term - 1, 0, now_ns, &todo); /* of an earlier candidacy */
    assert_false(todo.host);
    rig_grant(&e, CT_ARBITER_ID, question.term, 0, now_ns, &todo);
    assert_true(todo.host && e.state == CT_ELECTION_HOSTING && e.host_term == question.term);
    assert_true(todo.lost.id == 0 && !todo.lost_is_dead);
}

static void test_who_seeks_a_job_gives_up_in_its_own_time(void **state)
{
    struct ct_election e = seeker(2);
    struct ct_election_todo todo;
    (void)state;
    ct_election_tick(&e, 3000 * MS - 1, &todo);
    assert_false(todo.give_up);
    ct_election_tick(&e, 3000 * MS, &todo);
    assert_true(todo.give_up && todo.exit_code == -1);
}

/* An answer counts for the newest candidacy only, so a new one must not come before each answer. */
static void test_a_slow_arbiter_is_waited_for(void **state)
{
    const int64_t slow_ns = 700 * MS;
    struct ct_election e = seeker(2);
    struct ct_election_todo todo;
    int64_t now_ns;
    (void)state;
    ct_election_seek(&e, GIVE_UP_MS, 1000 * MS);
    struct ct_vote_ask first = rig_stand(&e, &now_ns, &todo), newest = first;
    int64_t answered_ns = now_ns + slow_ns;
    while (ct_election_next(&e) < answered_ns) {
        newest = rig_stand(&e, &now_ns, &todo);
    }
    assert_true(newest.term != first.term);
    rig_grant(&e, CT_ARBITER_ID, first.term, 0, answered_ns, &todo);
    assert_false(todo.host);
    assert_true(ct_election_next(&e) >= answered_ns + 2 * slow_ns);
    newest = rig_stand(&e, &now_ns, &todo);
    assert_true(ct_election_next(&e) >= now_ns + 2 * slow_ns);
    rig_grant(&e, CT_ARBITER_ID, newest.term, 0, now_ns + 2 * slow_ns, &todo);
    assert_true(todo.host);
}

/* A candidacy just before that moment would be in vain, and the pause after it lost time. */
static void test_a_refusal_of_the_arbiter_is_waited_out_to_the_moment(void **state)
{
    struct ct_election e = seeker(2);
    struct ct_election_todo todo;
    int64_t now_ns;
    (void)state;
    ct_election_seek(&e, GIVE_UP_MS, 1000 * MS);
    do {
        (void)rig_stand(&e, &now_ns, &todo);
    } while (ct_election_next(&e) < now_ns + 500 * MS);
    struct ct_vote_ask question = todo.question;
    struct ct_vote_answer refusal = {
        .id = CT_ARBITER_ID, .asked_term = question.term - 1, .free_ms = 300};
    ct_election_answered(&e, &refusal, now_ns, &todo); /* of an earlier candidacy */
    assert_true(ct_election_next(&e) >= now_ns + 500 * MS);
    refusal.asked_term = question.term;
    ct_election_answered(&e, &refusal, now_ns, &todo);
    assert_true(ct_election_next(&e) == now_ns + 300 * MS);
    refusal.free_ms = 5000; /* others may win before that, so it goes on asking */
    ct_election_answered(&e, &refusal, now_ns, &todo);
    assert_true(ct_election_next(&e) == now_ns + 300 * MS);
}

/* One that was away does not keep an agent from standing for as long. */
static void test_an_arbiter_that_was_away_is_not_waited_for_as_long(void **state)
{
    struct ct_election e = seeker(2);
    struct ct_election_todo todo;
    int64_t now_ns;
    (void)state;
    ct_election_seek(&e, GIVE_UP_MS, 1000 * MS);
    struct ct_vote_ask first = rig_stand(&e, &now_ns, &todo);
    (void)rig_stand(&e, &now_ns, &todo);
    now_ns += 10000 * MS;
    rig_grant(&e, CT_ARBITER_ID, first.term, 0, now_ns, &todo);
    assert_true(ct_election_next(&e) <= now_ns + 4000 * MS);
}

/* The arbiter votes for it after the silence of the last host, but only a voter may win. */
static void test_who_learns_of_a_world_of_others_stands_no_more(void **state)
{
    struct ct_job_record record = rig_record(3);
    struct ct_vote_answer answer = {.id = CT_ARBITER_ID, .seen = 7, .record = &record};
    struct ct_election_todo todo;
    int64_t now_ns;
    (void)state;
    for (int i = 0; i < 2; i++) {
        uint64_t id = i == 0 ? 9 : 2; /* a stranger, and one of that world */
        struct ct_election e = seeker(id);
        (void)rig_stand(&e, &now_ns, &todo);
        ct_election_answered(&e, &answer, now_ns, &todo);
        assert_false(todo.host);
        assert_true(ct_election_next(&e) == now_ns); /* it asks again with that record */
        struct ct_vote_ask question = rig_stand(&e, &now_ns, &todo);
        assert_true(question.record_term == CT_TERM_FIRST && question.record_version == 3);
        assert_int_equal(question.term != 0, id == 2);
        rig_grant(&e, CT_ARBITER_ID, question.term, 0, now_ns, &todo);
        assert_int_equal(todo.host, id == 2);
    }
}

/* All machines of a job were killed, and the store has dropped its value meanwhile. */
static void test_who_waits_for_a_job_that_the_arbiter_forgets_begins_it_anew(void **state)
{
    struct ct_job_record record = rig_record(3);
    struct ct_voter host = rig_voter(1);
    const uint64_t first = UINT64_C(1) << 32 | 1, last = UINT64_C(3) << 32 | 1;
    const struct ct_vote_answer known = {.id = CT_ARBITER_ID, .seen = last, .record = &record};
    const struct ct_vote_answer none = {.id = CT_ARBITER_ID};
    const struct ct_vote_answer other = {
        .id = CT_ARBITER_ID, .seen = first, .host = &host, .host_term = first};
    const struct ct_vote_answer alive = {.id = 2, .seen = last};
    struct ct_election_todo todo;
    int64_t now_ns;
    (void)state;
    struct ct_election e = seeker(9);
    (void)rig_stand(&e, &now_ns, &todo);
    ct_election_answered(&e, &known, now_ns, &todo);
    struct ct_vote_ask question = rig_stand(&e, &now_ns, &todo);
    assert_true(question.term == 0);
    ct_election_answered(&e, &none, now_ns, &todo);
    assert_true(ct_election_next(&e) == now_ns);
    question = rig_stand(&e, &now_ns, &todo);
    assert_true(question.term != 0 && question.record_version == 0);
    rig_grant(&e, CT_ARBITER_ID, question.term, 0, now_ns, &todo);
    assert_true(todo.host);

    e = seeker(9); /* one that came later was faster */
    (void)rig_stand(&e, &now_ns, &todo);
    record.term = last;
    ct_election_answered(&e, &known, now_ns, &todo);
    ct_election_answered(&e, &other, now_ns, &todo);
    assert_true(todo.join && todo.at_term == other.host_term);
    assert_true(ct_election_followed(&e, &host, other.host_term, now_ns));
    record.term = CT_TERM_FIRST;

    e = seeker(9); /* one of that job is alive, so it goes on, and tells the store again */
    (void)rig_stand(&e, &now_ns, &todo);
    ct_election_answered(&e, &known, now_ns, &todo);
    ct_election_answered(&e, &alive, now_ns, &todo);
    ct_election_answered(&e, &none, now_ns, &todo);
    assert_true(rig_stand(&e, &now_ns, &todo).term == 0);

    e = seeker(9); /* it has belonged to that job, which may have another host */
    (void)rig_stand(&e, &now_ns, &todo);
    assert_true(ct_election_followed(&e, &host, CT_TERM_FIRST, now_ns));
    assert_true(ct_election_recorded(&e, &record));
    ct_election_lost(&e, now_ns);
    ct_election_answered(&e, &none, now_ns, &todo);
    assert_true(rig_stand(&e, &now_ns, &todo).term == 0);
}

static void test_who_seeks_a_job_joins_the_host_that_the_arbiter_names(void **state)
{
    struct ct_election e = seeker(9);
    struct ct_voter host = rig_voter(1);
    const struct ct_vote_answer answer = {
        .id = CT_ARBITER_ID, .seen = 7, .host = &host, .host_term = 7};
    struct ct_election_todo todo;
    int64_t now_ns;
    (void)state;
    (void)rig_stand(&e, &now_ns, &todo);
    ct_election_answered(&e, &answer, now_ns, &todo);
    assert_true(todo.join && todo.at.id == 1 && todo.at_term == 7);
    assert_true(ct_election_followed(&e, &host, 7, now_ns));
}

/* The job may have lost so many hosts. Only the arbiter can tell a newcomer. */
static void test_who_seeks_a_job_believes_the_arbiter_in_any_term(void **state)
{
    struct ct_election e = seeker(9);
    struct ct_voter host = rig_voter(1);
    struct ct_election_todo todo;
    uint64_t term = UINT64_C(200000) << 32 | 1;
    struct ct_vote_answer answer = {.id = 3, .seen = term, .host = &host, .host_term = term};
    int64_t now_ns;
    (void)state;
    (void)rig_stand(&e, &now_ns, &todo);
    ct_election_answered(&e, &answer, now_ns, &todo);
    assert_false(todo.join); /* anybody may say so */
    answer.id = CT_ARBITER_ID;
    ct_election_answered(&e, &answer, now_ns, &todo);
    assert_true(todo.join && todo.at_term == term);
    assert_true(ct_election_followed(&e, &host, term, now_ns));

    e = seeker(9); /* it has no host, and ... */
    struct ct_vote_ask question = rig_stand(&e, &now_ns, &todo);
    answer =
        (struct ct_vote_answer){.id = CT_ARBITER_ID, .seen = term, .asked_term = question.term};
    ct_election_answered(&e, &answer, now_ns, &todo);
    question = rig_stand(&e, &now_ns, &todo);
    assert_int_equal(ct_term_number(question.term), 200001); /* ... votes in a later term only */

    struct ct_job_record record = rig_record(3);
    record.term = term; /* that of a job with a world */
    e = seeker(2);
    (void)rig_stand(&e, &now_ns, &todo);
    answer.record = &record;
    ct_election_answered(&e, &answer, now_ns, &todo);
    question = rig_stand(&e, &now_ns, &todo);
    assert_true(question.record_term == term && ct_term_number(question.term) == 200001);

    record.version++;
    record.over = record.ended = true; /* nothing is left to look for */
    record.exit_code = 7;
    ct_election_answered(&e, &answer, now_ns, &todo);
    assert_true(todo.give_up && todo.exit_code == 7 && e.state == CT_ELECTION_ENDED);
}

static void test_one_agent_wins_with_the_arbiter_after_silence(void **state)
{
    struct ct_election_todo todo;
    int64_t now_ns;
    (void)state;
    struct ct_election e = rig_follower_in(2, 4, true);
    ct_election_lost(&e, LEASE_MS * MS);
    struct ct_vote_ask question = rig_stand(&e, &now_ns, &todo);
    assert_false(todo.host);
    rig_grant(&e, CT_ARBITER_ID, question.term, 1000, now_ns, &todo);
    assert_true(todo.host && todo.lost.id == 1 && !todo.lost_is_dead);
    /* Others may have heard the host until the arbiter heard it no more, and it until now. */
    assert_true(e.fence_ns >= LEASE_MS * MS + LEASE_MS * MS + LEASE_MS * MS / 16);

    e = rig_follower_in(2, 4, true); /* half are not enough, nor are all others of a silent host */
    ct_election_lost(&e, LEASE_MS * MS);
    question = rig_stand(&e, &now_ns, &todo);
    rig_grant(&e, 3, question.term, 0, now_ns, &todo);
    rig_grant(&e, 4, question.term, 0, now_ns, &todo);
    assert_false(todo.host);
    rig_grant(&e, 1, question.term, 0, now_ns, &todo);
    assert_true(todo.host); /* all are */
}

static void test_a_job_without_an_arbiter_counts_no_vote_of_one(void **state)
{
    struct ct_election e = rig_follower(2, 3);
    struct ct_election_todo todo;
    int64_t now_ns;
    (void)state;
    ct_election_lost(&e, LEASE_MS * MS);
    struct ct_vote_ask question = rig_stand(&e, &now_ns, &todo);
    rig_grant(&e, CT_ARBITER_ID, question.term, 0, now_ns, &todo);
    assert_false(todo.host);
    assert_int_equal(e.num_granted, 1);
}

static void test_all_others_elect_without_the_arbiter_after_a_death_known_in_time(void **state)
{
    struct ct_election_todo todo;
    int64_t now_ns;
    (void)state;
    struct ct_election e = rig_follower_in(2, 4, true);
    ct_election_lost(&e, 100 * MS);
    ct_election_dead(&e, 1, 101 * MS);
    struct ct_vote_ask question = rig_stand(&e, &now_ns, &todo);
    rig_grant(&e, 3, question.term, 0, now_ns, &todo);
    assert_false(todo.host); /* half; the other one may win with the arbiter */
    rig_grant(&e, 4, question.term, 0, now_ns, &todo);
    assert_true(todo.host && todo.lost_is_dead);

    e = rig_follower_in(2, 2, true); /* the other one of two */
    ct_election_lost(&e, 100 * MS);
    ct_election_dead(&e, 1, 101 * MS);
    (void)rig_stand(&e, &now_ns, &todo);
    assert_true(todo.host);

    e = rig_follower_in(2, 2, true); /* not in time: the host may have gone on with the arbiter */
    ct_election_lost(&e, LEASE_MS * MS);
    ct_election_dead(&e, 1, LEASE_MS * MS);
    question = rig_stand(&e, &now_ns, &todo);
    assert_false(todo.host);
    rig_grant(&e, CT_ARBITER_ID, question.term, 0, now_ns, &todo);
    assert_true(todo.host);
}

static void test_both_worlds_must_elect_with_the_arbiter_too(void **state)
{
    struct ct_election e = rig_follower_in(2, 3, true);
    struct ct_job_record record = rig_record(3);
    struct ct_election_todo todo;
    int64_t now_ns;
    (void)state;
    record.version = 4;
    record.planned =
        (struct ct_world_voters){.generation = 1, .count = 2, .list = {rig_voter(8), rig_voter(9)}};
    assert_true(ct_election_recorded(&e, &record));
    ct_election_lost(&e, 0);
    struct ct_vote_ask question = rig_stand(&e, &now_ns, &todo);
    rig_grant(&e, CT_ARBITER_ID, question.term, 0, now_ns, &todo);
    assert_false(todo.host);
    rig_grant(&e, 9, question.term, 0, now_ns, &todo);
    assert_true(todo.host);
}

static void test_a_host_whose_arbiter_has_another_one_asks_who_that_is(void **state)
{
    struct ct_election e = rig_follower_in(2, 2, true);
    struct ct_election_todo todo;
    struct ct_voter later = rig_voter(1);
    int64_t now_ns;
    (void)state;
    ct_election_doubted(&e, 0); /* it follows another one */
    assert_true(ct_election_next(&e) == INT64_MAX);
    ct_election_lost(&e, LEASE_MS * MS);
    struct ct_vote_ask question = rig_stand(&e, &now_ns, &todo);
    rig_grant(&e, CT_ARBITER_ID, question.term, 0, now_ns, &todo);
    assert_true(todo.host && ct_election_next(&e) == INT64_MAX);

    ct_election_doubted(&e, now_ns);
    assert_true(ct_election_next(&e) > now_ns && ct_election_next(&e) < now_ns + 100 * MS);
    ct_election_tick(&e, ct_election_next(&e), &todo);
    assert_true(todo.ask && todo.question.term == 0); /* it wants no vote */
    assert_false(todo.stop_hosting);
    const struct ct_vote_answer answer = {.id = CT_ARBITER_ID,
                                          .seen = question.term + 1,
                                          .host = &later,
                                          .host_term = question.term + 1};
    ct_election_answered(&e, &answer, now_ns, &todo);
    assert_true(todo.stop_hosting && todo.join && todo.at.id == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_seeks_a_job_stands_at_once_and_wins_by_the_arbiter_alone),
        cmocka_unit_test(test_who_seeks_a_job_gives_up_in_its_own_time),
        cmocka_unit_test(test_a_slow_arbiter_is_waited_for),
        cmocka_unit_test(test_a_refusal_of_the_arbiter_is_waited_out_to_the_moment),
        cmocka_unit_test(test_an_arbiter_that_was_away_is_not_waited_for_as_long),
        cmocka_unit_test(test_who_learns_of_a_world_of_others_stands_no_more),
        cmocka_unit_test(test_who_waits_for_a_job_that_the_arbiter_forgets_begins_it_anew),
        cmocka_unit_test(test_who_seeks_a_job_joins_the_host_that_the_arbiter_names),
        cmocka_unit_test(test_who_seeks_a_job_believes_the_arbiter_in_any_term),
        cmocka_unit_test(test_one_agent_wins_with_the_arbiter_after_silence),
        cmocka_unit_test(test_a_job_without_an_arbiter_counts_no_vote_of_one),
        cmocka_unit_test(test_all_others_elect_without_the_arbiter_after_a_death_known_in_time),
        cmocka_unit_test(test_both_worlds_must_elect_with_the_arbiter_too),
        cmocka_unit_test(test_a_host_whose_arbiter_has_another_one_asks_who_that_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
