/* SPDX-License-Identifier: Apache-2.0
 *
 * Who votes for whom, who wins, and when. tests/sim/ plays many agents together.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/election_rig.h"

static struct ct_vote_ask ask(uint64_t id, uint64_t number)
{
    return (struct ct_vote_ask){id, number << 32 | id, CT_TERM_FIRST, 3};
}

static bool grants(struct ct_election *e, uint64_t id, uint64_t number, int64_t now_ns)
{
    struct ct_vote_ask question = ask(id, number);
    struct ct_vote_answer answer;
    ct_election_asked(e, &question, now_ns, &answer);
    return answer.granted;
}

/* Lets the agent ask who hosts until it stands itself. */
static struct ct_vote_ask stand_after_voting(struct ct_election *e, int64_t *now_ns,
                                             struct ct_election_todo *todo)
{
    struct ct_vote_ask question = rig_stand(e, now_ns, todo);
    assert_true(question.term == 0 && e->candidacy == 0);
    while (question.term == 0) {
        question = rig_stand(e, now_ns, todo);
    }
    return question;
}

static void test_who_hears_its_host_votes_for_nobody(void **state)
{
    struct ct_election e = rig_follower(2, 3);
    struct ct_vote_ask question = ask(3, 2);
    struct ct_vote_answer answer;
    (void)state;
    ct_election_asked(&e, &question, 0, &answer);
    assert_false(answer.granted);
    assert_true(answer.host != NULL && answer.host->id == 1 && answer.host_term == CT_TERM_FIRST);
    ct_election_lost(&e, 10 * MS);
    ct_election_asked(&e, &question, 250 * MS, &answer);
    assert_true(answer.granted && answer.host == NULL);
    assert_int_equal(answer.alone_ms, 240);
}

static void test_a_term_has_one_vote(void **state)
{
    struct ct_election e = rig_follower(2, 3);
    (void)state;
    ct_election_lost(&e, 0);
    assert_true(grants(&e, 3, 5, 0));
    assert_true(grants(&e, 3, 5, 0)); /* its question came twice */
    assert_false(grants(&e, 1, 5, 0));
    assert_false(grants(&e, 1, 4, 0));
    assert_true(grants(&e, 1, 6, 0));
    assert_true(grants(&e, 3, 5, 0)); /* the same vote again, not another one */
    assert_false(grants(&e, 4, 5, 0));
}

/* It learns soon who was elected, and two that have voted do not stand at the same time. */
static void test_who_has_voted_asks_who_hosts_before_it_stands(void **state)
{
    struct ct_election e = rig_follower(2, 3), f = rig_follower(3, 3);
    struct ct_voter winner = rig_voter(1);
    struct ct_election_todo todo;
    int64_t now_ns, other_ns;
    (void)state;
    ct_election_lost(&e, 0);
    assert_true(grants(&e, 1, 5, 0));
    struct ct_vote_ask question = rig_stand(&e, &now_ns, &todo);
    assert_true(question.term == 0 && now_ns == 40 * MS);
    const struct ct_vote_answer answer = {
        .id = 1, .seen = e.seen, .host = &winner, .host_term = UINT64_C(5) << 32 | 1};
    ct_election_answered(&e, &answer, now_ns, &todo);
    assert_true(todo.join && todo.at.id == 1);

    question = stand_after_voting(&e, &now_ns, &todo); /* that one cannot be reached */
    assert_true(ct_term_number(question.term) == 6 && now_ns > 80 * MS);
    ct_election_lost(&f, 0);
    assert_true(grants(&f, 1, 5, 0));
    (void)stand_after_voting(&f, &other_ns, &todo);
    assert_true(now_ns != other_ns);
}

static void test_an_older_record_gets_no_vote_but_the_newer_record(void **state)
{
    struct ct_election e = rig_follower(2, 3), c = rig_follower(3, 3);
    struct ct_job_record newer = rig_record(3);
    struct ct_vote_answer answer;
    struct ct_election_todo todo;
    int64_t now_ns;
    (void)state;
    newer.version = 4;
    assert_true(ct_election_recorded(&e, &newer));
    ct_election_lost(&e, 0);
    ct_election_lost(&c, 0);
    struct ct_vote_ask question = rig_stand(&c, &now_ns, &todo);
    ct_election_asked(&e, &question, now_ns, &answer);
    assert_false(answer.granted);
    assert_true(answer.record != NULL && answer.record->version == 4);
    ct_election_answered(&c, &answer, now_ns, &todo);
    assert_false(todo.host);
    uint64_t before = question.term;
    question = rig_stand(&c, &now_ns, &todo);
    assert_true(question.term > before && question.record_version == 4);
    ct_election_asked(&e, &question, now_ns, &answer);
    assert_true(answer.granted);
}

static void test_more_than_half_elects(void **state)
{
    struct ct_election e = rig_follower(2, 4);
    struct ct_election_todo todo;
    int64_t now_ns;
    (void)state;
    ct_election_lost(&e, 5000 * MS);
    struct ct_vote_ask question = rig_stand(&e, &now_ns, &todo);
    assert_false(todo.host);
    rig_grant(&e, 3, question.term - 1, 0, now_ns, &todo); /* for another candidacy */
    rig_grant(&e, 3, question.term, 1000, now_ns, &todo);
    rig_grant(&e, 3, question.term, 1000, now_ns, &todo); /* the same vote */
    rig_grant(&e, 77, question.term, 0, now_ns, &todo);   /* of no voter */
    assert_false(todo.host);
    rig_grant(&e, 4, question.term, 0, now_ns, &todo);
    assert_true(todo.host && e.state == CT_ELECTION_HOSTING);
    assert_true(e.host_term == question.term);
    /* Voter 4 has only just lost its host. */
    assert_true(e.fence_ns == now_ns + LEASE_MS * MS + LEASE_MS * MS / 16);
}

/* Voter 3 may have been elected, and have died before anybody followed it. */
static void test_deaths_of_other_voters_are_noted_until_they_are_heard(void **state)
{
    struct ct_election e = rig_follower(2, 4);
    struct ct_vote_ask question = ask(1, 7);
    struct ct_vote_answer answer;
    struct ct_election_todo todo;
    (void)state;
    ct_election_dead(&e, 3, 0); /* it hears its host, so it does not matter */
    ct_election_lost(&e, 0);
    assert_false(ct_election_is_dead(&e, 3));
    for (int i = 0; i < 2; i++) {
        ct_election_dead(&e, 3, 0);
        ct_election_dead(&e, 1, 0);
        ct_election_dead(&e, 77, 0); /* of no world */
        ct_election_dead(&e, 0, 0);
    }
    assert_int_equal(e.num_dead, 2);
    assert_true(ct_election_is_dead(&e, 3) && ct_election_is_dead(&e, 1) && e.host_is_dead);

    rig_grant(&e, 3, 1, 0, 0, &todo); /* a firewall had refused it */
    assert_true(!ct_election_is_dead(&e, 3) && ct_election_is_dead(&e, 1));
    ct_election_asked(&e, &question, 0, &answer);
    assert_true(e.num_dead == 0 && !e.host_is_dead && e.died_ns == INT64_MIN);

    ct_election_dead(&e, 3, 0);
    struct ct_voter next = rig_voter(4);
    assert_true(ct_election_followed(&e, &next, UINT64_C(9) << 32 | 4, 0));
    ct_election_lost(&e, 0);
    assert_int_equal(e.num_dead, 0);
}

static void test_who_has_voted_for_a_dead_one_stands_at_once(void **state)
{
    struct ct_election e = rig_follower(2, 4);
    struct ct_election_todo todo;
    int64_t now_ns;
    (void)state;
    ct_election_lost(&e, 0);
    assert_true(grants(&e, 4, 5, 0));
    assert_true(grants(&e, 3, 6, 0));
    ct_election_dead(&e, 4, 0); /* voter 3 may still win */
    assert_int_equal(ct_election_next(&e), 40 * MS);
    ct_election_dead(&e, 3, 10 * MS);
    assert_true(rig_stand(&e, &now_ns, &todo).term != 0);
    assert_true(now_ns < 40 * MS);
}

static void test_half_elects_after_a_death_that_is_known_in_time(void **state)
{
    struct ct_election_todo todo;
    int64_t now_ns;
    (void)state;
    struct ct_election e = rig_follower(2, 2);
    ct_election_lost(&e, 100 * MS);
    ct_election_dead(&e, 1, 101 * MS);
    (void)rig_stand(&e, &now_ns, &todo);
    assert_true(todo.host);
    assert_true(e.fence_ns >= 101 * MS + LEASE_MS * MS);

    e = rig_follower(2, 2); /* the host may have gone on without it before it died */
    ct_election_lost(&e, 3000 * MS);
    ct_election_dead(&e, 1, 3000 * MS);
    (void)rig_stand(&e, &now_ns, &todo);
    assert_false(todo.host);

    e = rig_follower(2, 2); /* the death of anybody else says nothing */
    ct_election_lost(&e, 100 * MS);
    ct_election_dead(&e, 7, 101 * MS);
    (void)rig_stand(&e, &now_ns, &todo);
    assert_false(todo.host);

    e = rig_follower(2, 3); /* of three, one is not half */
    ct_election_lost(&e, 100 * MS);
    ct_election_dead(&e, 1, 101 * MS);
    (void)rig_stand(&e, &now_ns, &todo);
    assert_false(todo.host);

    e = rig_follower(2, 2); /* it does not know what the host has decided */
    struct ct_voter host = rig_voter(1);
    assert_true(ct_election_followed(&e, &host, CT_TERM_FIRST, 0));
    ct_election_leased(&e, 0, LEASE_MS);
    ct_election_lost(&e, 100 * MS);
    ct_election_dead(&e, 1, 101 * MS);
    (void)rig_stand(&e, &now_ns, &todo);
    assert_false(todo.host);
}

/* A new host dies before it has given a lease, with its record sent or not. The death of the host
 * before it counts as it did. */
static void test_half_still_elects_if_the_next_host_dies_at_once(void **state)
{
    struct ct_election_todo todo;
    struct ct_voter next = rig_voter(9);
    int64_t now_ns;
    (void)state;
    for (int sent = 0; sent < 3; sent++) {
        struct ct_election e = rig_follower(2, 2);
        ct_election_lost(&e, 100 * MS);
        ct_election_dead(&e, 1, 101 * MS);
        assert_true(ct_election_followed(&e, &next, CT_TERM_FIRST + 8, 102 * MS));
        if (sent) {
            struct ct_job_record record = e.record;
            record.term = CT_TERM_FIRST + 8;
            assert_true(ct_election_recorded(&e, &record));
        }
        bool leased = sent == 2;
        if (leased) {
            ct_election_leased(&e, 102 * MS, 1);
        }
        ct_election_lost(&e, 103 * MS);
        ct_election_dead(&e, 9, 104 * MS);
        (void)rig_stand(&e, &now_ns, &todo);
        assert_int_equal(todo.host, !leased);
        assert_int_equal(todo.lost.id, leased ? 0 : 1);
        assert_true(leased || e.fence_ns >= 103 * MS + LEASE_MS * MS);
    }
}

/* Two agents were elected at almost the same time. The one that gave up hosting is as good a
 * candidate as the others when the other one dies. */
static void test_half_still_elects_one_that_gave_up_hosting(void **state)
{
    struct ct_election_todo todo;
    struct ct_voter next = rig_voter(3);
    int64_t now_ns;
    (void)state;
    for (int certain = 0; certain < 2; certain++) {
        struct ct_election e = rig_follower(2, 4);
        ct_election_lost(&e, 100 * MS);
        ct_election_dead(&e, 1, 101 * MS);
        uint64_t term = rig_stand(&e, &now_ns, &todo).term;
        rig_grant(&e, 4, term, 0, now_ns, &todo);
        assert_true(todo.host);
        assert_true(ct_election_followed(&e, &e.self, term, now_ns));
        ct_election_leased(&e, now_ns, LEASE_MS);
        struct ct_job_record record = e.record;
        record.term = term;
        record.formed.generation += certain;
        assert_true(ct_election_recorded(&e, &record));
        ct_election_deposed(&e, now_ns + MS);
        assert_int_equal(e.host.id, certain ? 0 : 1);
        assert_true(ct_election_followed(&e, &next, term + (UINT64_C(1) << 32), now_ns + 2 * MS));
        ct_election_lost(&e, now_ns + 3 * MS);
        ct_election_dead(&e, 3, now_ns + 4 * MS);
        term = rig_stand(&e, &now_ns, &todo).term;
        rig_grant(&e, 4, term, 0, now_ns, &todo);
        assert_int_equal(todo.host, !certain);
    }
}

static void test_a_host_that_was_lost_at_once_may_be_followed_again(void **state)
{
    struct ct_voter next = rig_voter(9);
    (void)state;
    struct ct_election e = rig_follower(2, 2);
    ct_election_lost(&e, 100 * MS);
    ct_election_dead(&e, 1, 101 * MS);
    assert_true(ct_election_followed(&e, &next, CT_TERM_FIRST + 8, 102 * MS));
    ct_election_lost(&e, 103 * MS);
    assert_true(ct_election_followed(&e, &next, CT_TERM_FIRST + 8, 104 * MS));
}

static void test_a_plan_counts_beside_the_last_world(void **state)
{
    struct ct_election e = rig_follower(2, 3);
    struct ct_job_record record = rig_record(3);
    struct ct_election_todo todo;
    int64_t now_ns;
    (void)state;
    record.version = 4;
    record.planned = (struct ct_world_voters){
        .generation = 1, .count = 3, .list = {rig_voter(2), rig_voter(8), rig_voter(9)}};
    assert_true(ct_election_recorded(&e, &record));
    ct_election_lost(&e, 0);
    struct ct_vote_ask question = rig_stand(&e, &now_ns, &todo);
    rig_grant(&e, 3, question.term, 0, now_ns, &todo);
    assert_false(todo.host); /* of the last world only */
    rig_grant(&e, 8, question.term, 0, now_ns, &todo);
    assert_true(todo.host);
}

static void test_there_is_no_election_before_the_first_world(void **state)
{
    struct ct_voter self = rig_voter(2), host = rig_voter(1);
    struct ct_job_record record;
    struct ct_election_todo todo;
    struct ct_election e;
    int64_t now_ns;
    (void)state;
    ct_election_init(&e, &self, false, LEASE_MS, GIVE_UP_MS);
    assert_true(ct_election_next(&e) == INT64_MAX);
    assert_true(ct_election_followed(&e, &host, CT_TERM_FIRST, 0));
    ct_job_record_init(&record);
    record.term = CT_TERM_FIRST;
    record.planned = (struct ct_world_voters){.generation = 0, .count = 1, .list = {self}};
    assert_true(ct_election_recorded(&e, &record));
    ct_election_lost(&e, 0);
    (void)rig_stand(&e, &now_ns, &todo);
    assert_false(todo.host);
}

static void test_an_older_record_is_not_pledged(void **state)
{
    struct ct_election e = rig_follower(2, 3);
    struct ct_job_record record = rig_record(3);
    (void)state;
    assert_true(ct_election_recorded(&e, &record)); /* the same again */
    record.version--;
    assert_false(ct_election_recorded(&e, &record));
    assert_true(e.record.version == record.version + 1);
    record.version += 2;
    record.term++;
    assert_false(ct_election_recorded(&e, &record)); /* of a host that it does not follow */
}

static void test_an_agent_joins_the_host_that_others_name(void **state)
{
    struct ct_election e = rig_follower(3, 3);
    struct ct_voter other = rig_voter(2);
    struct ct_election_todo todo;
    uint64_t term = UINT64_C(2) << 32 | 2;
    const struct ct_vote_answer answer = {.id = 1, .seen = term, .host = &other, .host_term = term};
    (void)state;
    ct_election_answered(&e, &answer, 0, &todo);
    assert_false(todo.join); /* it has a host */
    ct_election_lost(&e, 0);
    ct_election_answered(&e, &answer, 0, &todo);
    assert_true(todo.join && todo.at.id == 2 && todo.at_term == term);
    assert_true(ct_election_followed(&e, &other, term, 0));
    assert_int_equal(e.state, CT_ELECTION_FOLLOWING);
    struct ct_job_record old = rig_record(3);
    assert_false(ct_election_recorded(&e, &old)); /* of a former host */
}

static void test_who_has_no_vote_asks_after_those_that_have(void **state)
{
    struct ct_election spare = rig_follower(4, 3), last = rig_follower(3, 3);
    struct ct_election_todo todo;
    int64_t now_ns, voter_ns;
    (void)state;
    ct_election_lost(&spare, 0);
    ct_election_lost(&last, 0);
    assert_int_equal(rig_stand(&spare, &now_ns, &todo).term, 0);
    assert_int_not_equal(rig_stand(&last, &voter_ns, &todo).term, 0);
    assert_true(now_ns > voter_ns && now_ns < 40 * MS);
}

static void test_a_vote_binds_until_it_is_void(void **state)
{
    struct ct_election e = rig_follower(2, 4);
    struct ct_voter old = rig_voter(1);
    struct ct_election_todo todo;
    struct ct_vote_answer answer = {.id = 3, .seen = UINT64_C(9) << 32};
    (void)state;
    ct_election_lost(&e, 0);
    assert_true(grants(&e, 3, 5, 0));
    assert_true(grants(&e, 4, 6, 0));
    assert_false(ct_election_followed(&e, &old, CT_TERM_FIRST, 0));
    ct_election_dead(&e, 4, 0);
    assert_false(ct_election_followed(&e, &old, CT_TERM_FIRST, 0)); /* the older vote binds */
    answer.candidacy = UINT64_C(5) << 32 | 3;
    ct_election_answered(&e, &answer, 0, &todo); /* still a candidate */
    assert_false(ct_election_followed(&e, &old, CT_TERM_FIRST, 0));
    answer.candidacy = 0;
    ct_election_answered(&e, &answer, 0, &todo);
    assert_true(ct_election_followed(&e, &old, CT_TERM_FIRST, 0));
}

static void test_a_host_yields_to_one_of_a_later_term(void **state)
{
    struct ct_election e = rig_follower(2, 2);
    struct ct_voter other = rig_voter(1);
    struct ct_election_todo todo;
    int64_t now_ns;
    (void)state;
    ct_election_lost(&e, 100 * MS);
    ct_election_dead(&e, 1, 101 * MS);
    (void)rig_stand(&e, &now_ns, &todo);
    assert_true(todo.host);
    struct ct_vote_answer answer = {.id = 1, .host = &other, .host_term = e.host_term - 1};
    ct_election_answered(&e, &answer, now_ns, &todo);
    assert_false(todo.stop_hosting);
    answer.host_term = e.host_term + 1;
    ct_election_answered(&e, &answer, now_ns, &todo);
    assert_true(todo.stop_hosting && todo.join && e.state == CT_ELECTION_LOOKING);
    assert_true(ct_election_next(&e) >= now_ns + 40 * MS); /* it has the time to join that one */
}

static void test_who_finds_nobody_ends(void **state)
{
    struct ct_election e = rig_follower(2, 3);
    struct ct_election_todo todo;
    int asked = 0;
    (void)state;
    ct_election_lost(&e, 0);
    do {
        ct_election_tick(&e, ct_election_next(&e), &todo);
        asked += todo.ask;
    } while (!todo.give_up && asked < 1000);
    assert_true(todo.give_up && todo.exit_code == -1 && asked > 10);
    assert_int_equal(e.state, CT_ELECTION_ENDED);
    assert_true(ct_election_next(&e) == INT64_MAX);

    e = rig_follower(2, 3);
    e.record.over = true;
    e.record.exit_code = 7;
    ct_election_lost(&e, 0);
    ct_election_tick(&e, GIVE_UP_MS * MS, &todo);
    assert_true(todo.give_up && todo.exit_code == 7);
}

/* The loser of an election, and an agent that follows its host, hear terms that nobody can have
 * reached. Both must be able to stand and to vote afterwards. */
static void test_a_term_out_of_reach_blocks_no_election(void **state)
{
    const struct ct_vote_ask far = {3, CT_TERM_MAX, CT_TERM_MAX, 9};
    struct ct_election e = rig_follower(2, 3);
    struct ct_vote_answer answer;
    struct ct_election_todo todo;
    int64_t now_ns;
    (void)state;
    ct_election_asked(&e, &far, 0, &answer);
    ct_election_lost(&e, 0);
    ct_election_asked(&e, &far, 0, &answer);
    assert_false(answer.granted);
    assert_int_equal(e.far_id, 3);
    assert_true(grants(&e, 3, CT_TERM_REACH, 0));
    assert_false(grants(&e, 3, CT_TERM_REACH + 1, 0));

    e = rig_follower(2, 3);
    ct_election_lost(&e, 0);
    struct ct_job_record late = rig_record(3);
    struct ct_voter host = rig_voter(3);
    late.term = CT_TERM_MAX;
    const struct ct_vote_answer lie = {
        .id = 3, .seen = CT_TERM_MAX, .record = &late, .host = &host, .host_term = CT_TERM_MAX};
    ct_election_answered(&e, &lie, 0, &todo);
    assert_false(todo.join);
    assert_int_equal(e.record.term, CT_TERM_FIRST);
    assert_false(ct_election_followed(&e, &host, CT_TERM_MAX, 0));
    struct ct_vote_ask question = rig_stand(&e, &now_ns, &todo);
    assert_int_equal(ct_term_number(question.term), 1);
    rig_grant(&e, 1, question.term, 0, now_ns, &todo);
    assert_true(todo.host);
    ct_election_answered(&e, &lie, now_ns, &todo); /* nor does a host yield to it */
    assert_true(!todo.stop_hosting && e.state == CT_ELECTION_HOSTING);
}

/* Somebody asks in the highest term that is within reach, again and again. */
static void test_who_uses_terms_up_reaches_a_sixteenth_of_them(void **state)
{
    struct ct_election e = rig_follower(2, 3);
    struct ct_election_todo todo;
    int64_t now_ns;
    (void)state;
    ct_election_lost(&e, 0);
    for (uint64_t number = 1; number <= CT_TERM_NUMBER_MAX; number += CT_TERM_REACH / 2) {
        (void)grants(&e, 3, number, 0);
    }
    struct ct_vote_ask question = stand_after_voting(&e, &now_ns, &todo);
    assert_true(ct_term_number(question.term) <= CT_TERM_REACH + 1);
}

/* A new life of the first host, which waits for a job of its own, joins the running one. */
static void test_a_first_host_without_a_world_joins_the_job_that_runs(void **state)
{
    struct ct_election e;
    struct ct_voter self = rig_voter(9), host = rig_voter(2);
    struct ct_election_todo todo;
    uint64_t term = UINT64_C(1) << 32 | 2;
    (void)state;
    ct_election_init(&e, &self, false, LEASE_MS, GIVE_UP_MS);
    ct_election_told(&e, &host, term, 0, &todo);
    assert_false(todo.join); /* it does not host */
    ct_election_begin_hosting(&e);
    ct_election_told(&e, &self, term, 0, &todo);
    assert_false(todo.join);
    ct_election_told(&e, &host, term, 0, &todo);
    assert_true(todo.stop_hosting && todo.join && todo.at.id == 2 && todo.at_term == term);
    assert_int_equal(e.state, CT_ELECTION_LOOKING);
    assert_true(ct_election_followed(&e, &host, term, 0));

    struct ct_job_record record = rig_record(1);
    ct_election_init(&e, &self, false, LEASE_MS, GIVE_UP_MS);
    ct_election_begin_hosting(&e);
    assert_true(ct_election_followed(&e, &self, CT_TERM_FIRST, 0));
    assert_true(ct_election_recorded(&e, &record));
    ct_election_told(&e, &host, term, 0, &todo);
    assert_false(todo.join); /* it has had a world */
}

/* Those who voted for both follow the later one. The earlier one must not wait for them. */
static void test_a_host_asks_whether_a_later_candidate_has_won(void **state)
{
    struct ct_election e = rig_follower(2, 3);
    struct ct_election_todo todo;
    struct ct_voter later = rig_voter(3);
    int64_t now_ns;
    (void)state;
    ct_election_lost(&e, 0);
    struct ct_vote_ask won = rig_stand(&e, &now_ns, &todo);
    const struct ct_vote_answer vote = {.id = 1, .asked_term = won.term, .granted = true};
    ct_election_answered(&e, &vote, now_ns, &todo);
    assert_int_equal(e.state, CT_ELECTION_HOSTING);
    assert_true(ct_election_next(&e) == INT64_MAX);
    assert_false(grants(&e, 3, 7, now_ns));
    assert_true(ct_election_next(&e) > now_ns && ct_election_next(&e) < now_ns + 100 * MS);
    now_ns = ct_election_next(&e);
    ct_election_tick(&e, now_ns, &todo);
    assert_true(todo.ask && todo.question.term == 0); /* it wants no vote */
    int64_t again_ns = now_ns;
    for (int i = 0; i < 30 && ct_election_next(&e) != INT64_MAX; i++) { /* the votes may be slow */
        again_ns = ct_election_next(&e);
        ct_election_tick(&e, again_ns, &todo);
        assert_true(todo.ask);
    }
    assert_true(ct_election_next(&e) == INT64_MAX && again_ns >= now_ns + LEASE_MS * MS);
    const struct ct_vote_answer found = {
        .id = 3, .seen = ask(3, 7).term, .host = &later, .host_term = ask(3, 7).term};
    ct_election_answered(&e, &found, now_ns, &todo);
    assert_true(todo.stop_hosting && todo.join && todo.at.id == 3);
}

/* A ctrdzvd that was started again has the first term, as its former life had, but another id. */
static void test_a_later_life_of_the_first_host_is_not_followed(void **state)
{
    struct ct_election e = rig_follower(2, 3);
    struct ct_voter again = rig_voter(9), first = e.host;
    (void)state;
    ct_election_lost(&e, 0);
    assert_false(ct_election_followed(&e, &again, CT_TERM_FIRST, 0));
    assert_int_equal(e.state, CT_ELECTION_LOOKING);
    assert_true(ct_election_followed(&e, &first, CT_TERM_FIRST, 0));
}

/* An agent that comes late follows a host of any term, and is misled by nobody else. */
static void test_the_first_host_of_an_agent_may_have_any_term(void **state)
{
    struct ct_election e;
    struct ct_voter self = rig_voter(9), host = rig_voter(1);
    (void)state;
    ct_election_init(&e, &self, false, LEASE_MS, GIVE_UP_MS);
    assert_false(grants(&e, 3, CT_TERM_NUMBER_MAX, 0));
    assert_true(ct_election_followed(&e, &host, UINT64_C(200000) << 32 | 1, 0));
    ct_election_lost(&e, 0);
    assert_true(ct_election_followed(&e, &host, UINT64_C(200001) << 32 | 1, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_hears_its_host_votes_for_nobody),
        cmocka_unit_test(test_a_term_has_one_vote),
        cmocka_unit_test(test_who_has_voted_asks_who_hosts_before_it_stands),
        cmocka_unit_test(test_an_older_record_gets_no_vote_but_the_newer_record),
        cmocka_unit_test(test_more_than_half_elects),
        cmocka_unit_test(test_deaths_of_other_voters_are_noted_until_they_are_heard),
        cmocka_unit_test(test_who_has_voted_for_a_dead_one_stands_at_once),
        cmocka_unit_test(test_half_elects_after_a_death_that_is_known_in_time),
        cmocka_unit_test(test_half_still_elects_if_the_next_host_dies_at_once),
        cmocka_unit_test(test_half_still_elects_one_that_gave_up_hosting),
        cmocka_unit_test(test_a_host_that_was_lost_at_once_may_be_followed_again),
        cmocka_unit_test(test_a_plan_counts_beside_the_last_world),
        cmocka_unit_test(test_there_is_no_election_before_the_first_world),
        cmocka_unit_test(test_an_older_record_is_not_pledged),
        cmocka_unit_test(test_an_agent_joins_the_host_that_others_name),
        cmocka_unit_test(test_who_has_no_vote_asks_after_those_that_have),
        cmocka_unit_test(test_a_vote_binds_until_it_is_void),
        cmocka_unit_test(test_a_host_yields_to_one_of_a_later_term),
        cmocka_unit_test(test_who_finds_nobody_ends),
        cmocka_unit_test(test_a_term_out_of_reach_blocks_no_election),
        cmocka_unit_test(test_who_uses_terms_up_reaches_a_sixteenth_of_them),
        cmocka_unit_test(test_a_first_host_without_a_world_joins_the_job_that_runs),
        cmocka_unit_test(test_a_host_asks_whether_a_later_candidate_has_won),
        cmocka_unit_test(test_a_later_life_of_the_first_host_is_not_followed),
        cmocka_unit_test(test_the_first_host_of_an_agent_may_have_any_term),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
