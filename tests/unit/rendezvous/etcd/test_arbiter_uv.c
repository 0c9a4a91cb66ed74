/* SPDX-License-Identifier: Apache-2.0
 *
 * What the arbiter answers to an agent, its lease, and its end. test_arbiter_host_uv.c has what a
 * host asks of it.
 */
#include "tests/lib/arbiter_rig.h"
#include "tests/lib/loop.h"

/* ---- questions ------------------------------------------------------------------------------ */

static void test_an_empty_store_votes(void **state)
{
    (void)state;
    ask(TERM);
    carry_out(GRANT);
    carry_out(READ);
    carry_out(WRITE);
    assert_int_equal(rig->answers, 1);
    assert_int_equal(rig->answer.id, CT_ARBITER_ID);
    assert_true(rig->answer.granted);
    assert_int_equal(rig->answer.asked_term, TERM);
    assert_non_null(strstr(rig->value, "\"promised_to\":7"));
    assert_int_equal(rig->value_lease, 1);
    assert_int_equal(rig->troubles + rig->ends, 0);
}

static void test_a_conflict_begins_again(void **state)
{
    const struct ct_arbiter_state theirs = other(true);
    (void)state;
    ask(TERM);
    carry_out(GRANT);
    carry_out(READ);
    await_call(WRITE);
    put_state(&theirs);
    carry_out(WRITE);
    assert_int_equal(rig->answers, 1);
    assert_false(rig->answer.granted);
    assert_int_equal(rig->host.id, OTHER);
}

static void test_a_vote_whose_answer_was_lost_is_known_again(void **state)
{
    (void)state;
    ask(TERM);
    carry_out(GRANT);
    carry_out(READ);
    await_call(WRITE);
    put(rig->calls[0].value);
    lose(CT_ETIMEDOUT, "no answer");
    carry_out(WRITE);
    assert_int_equal(rig->answers, 1);
    assert_true(rig->answer.granted);
}

static void test_a_question_that_comes_meanwhile_is_answered_too(void **state)
{
    (void)state;
    ask(TERM);
    carry_out(GRANT);
    carry_out(READ);
    await_call(WRITE);
    ask(LATER);
    carry_out(WRITE);
    assert_int_equal(rig->answer.asked_term, TERM);
    carry_out(WRITE); /* the value is known */
    assert_int_equal(rig->answers, 2);
    assert_int_equal(rig->answer.asked_term, LATER);
}

static void test_a_question_that_was_taken_back_has_no_answer(void **state)
{
    (void)state;
    ask(TERM);
    carry_out(GRANT);
    carry_out(READ);
    await_call(WRITE);
    ct_etcd_arbiter_ask(rig->arbiter, NULL);
    carry_out(WRITE);
    assert_int_equal(rig->answers, 0);
    host(1); /* the next errand */
    carry_out(WRITE);
    assert_int_equal(rig->served, 1);
}

/* An answer that grants nothing is made from what is there now. */
static void test_a_refusal_is_read_first(void **state)
{
    const struct ct_arbiter_state theirs = other(true);
    (void)state;
    put_state(&theirs);
    ask(LATER);
    carry_out(GRANT);
    carry_out(READ);
    assert_int_equal(rig->host.id, OTHER);
    put(NULL);
    ask(LATER);
    carry_out(READ);
    carry_out(WRITE);
    assert_int_equal(rig->answers, 2);
    assert_true(rig->answer.granted);
}

/* Each reply shows that etcd answers, but nothing comes of it. */
static void test_others_that_write_all_the_time_are_told_once(void **state)
{
    (void)state;
    ask(TERM);
    carry_out(GRANT);
    for (int i = 0; i < 30; i++) {
        ct_loop_run_until(&rig->loop, &rig->called);
        put("{\"promised\":0,\"promised_to\":0,\"host_term\":0,\"ended\":false}");
        carry_out(rig->calls[0].what);
    }
    assert_int_equal(rig->troubles, 1);
    assert_non_null(strstr(rig->trouble, "the key /ctrun/job/arbiter"));
    assert_int_equal(rig->ends, 0);
    carry_out(WRITE);
    assert_int_equal(rig->answers, 1);
    assert_int_equal(rig->ends, 1);
}

/* The read that was sent long ago shows a value that may be new. */
static void test_silence_counts_from_the_answer(void **state)
{
    const struct ct_arbiter_state theirs = other(true);
    (void)state;
    ask(LATER + CT_TERM_FIRST);
    carry_out(GRANT);
    await_call(READ);
    move_clock(2 * LEASE_MS);
    put_state(&theirs);
    carry_out(READ);
    assert_int_equal(rig->answers, 1);
    assert_int_equal(rig->host.id, OTHER);
    move_clock(2 * LEASE_MS);
    ask(LATER + CT_TERM_FIRST);
    carry_out(WRITE);
    assert_true(rig->answer.granted);
}

/* A host that was silent for long may have gone on in an etcd from a backup, up to that revision.
 */
static void test_a_restored_value_is_not_silent_yet(void **state)
{
    const struct ct_arbiter_state theirs = other(true);
    (void)state;
    put_state(&theirs);
    ask(LATER + CT_TERM_FIRST);
    carry_out(GRANT);
    carry_out(READ);
    move_clock(2 * LEASE_MS);
    rig->cluster = "5";
    ask(TERM); /* it gets no vote in this one, so the value is read */
    carry_out(READ);
    assert_int_equal(rig->answers, 2);
    assert_int_equal(rig->host.id, OTHER);
    move_clock(2 * LEASE_MS);
    ask(TERM);
    carry_out(READ);
    assert_int_equal(rig->host.id, 0);
}

/* The compare has passed by chance. The vote counts, but others may have a lease until now. */
static void test_a_vote_over_a_restored_value_waits_for_all_leases(void **state)
{
    const struct ct_arbiter_state theirs = other(true);
    (void)state;
    put_state(&theirs);
    rig->revision = 10; /* by other keys */
    ask(LATER + CT_TERM_FIRST);
    carry_out(GRANT);
    carry_out(READ);
    move_clock(2 * LEASE_MS);
    ask(LATER + CT_TERM_FIRST);
    await_call(WRITE);
    rig->revision = 5;
    carry_out(WRITE);
    assert_int_equal(rig->answers, 1);
    carry_out(READ);
    assert_int_equal(rig->answers, 2);
    assert_true(rig->answer.granted);
    assert_true(rig->answer.alone_ms < LEASE_MS);
}

/* ---- the lease ------------------------------------------------------------------------------ */

static void test_the_lease_is_kept_alive(void **state)
{
    (void)state;
    begin_hosting();
    move_clock(61000);
    carry_out(KEEP);
    carry_out(WRITE);
    carry_out(WRITE);
    assert_int_equal(rig->served, 3);
    assert_int_equal(rig->value_lease, 1);
    move_clock(61000);
    await_call(KEEP);
    lose(CT_ETIMEDOUT, "no answer");
    await_call(WRITE);
    lose(CT_ETIMEDOUT, "no answer");
    assert_int_equal(rig->troubles, 1);
    assert_int_equal(rig->unserved, 1);
    carry_out(KEEP); /* the lease may well be there */
    carry_out(WRITE);
    assert_int_equal(rig->served, 4);
    assert_int_equal(rig->value_lease, 1);
}

static void test_a_lease_that_has_ended_is_made_anew(void **state)
{
    (void)state;
    begin_hosting();
    rig->lease = 0; /* etcd has deleted the key as well */
    put(NULL);
    carry_out(WRITE); /* the key is not what it was, ... */
    carry_out(WRITE); /* ... and the lease has ended */
    carry_out(GRANT);
    carry_out(WRITE);
    assert_int_equal(rig->served, 2);
    assert_int_equal(rig->value_lease, 2);
    assert_int_equal(rig->troubles + rig->unserved + rig->bound, 0);
}

static void test_nothing_is_written_without_a_lease(void **state)
{
    (void)state;
    ask(TERM);
    carry_out(GRANT);
    carry_out(READ);
    carry_out(WRITE);
    rig->lease = 0;
    put(NULL);
    move_clock(599000);
    ask(LATER);
    carry_out(KEEP);
    carry_out(WRITE); /* it conflicts, and the lease has ended meanwhile */
    carry_out(GRANT);
    carry_out(WRITE);
    move_clock(601000);
    ask(LATER + 1);
    carry_out(GRANT); /* that lease is over for certain, so nobody waits for what etcd says */
    carry_out(WRITE);
    assert_int_equal(rig->answers, 3);
    assert_int_equal(rig->value_lease, 3);
    assert_int_equal(rig->troubles, 0);
}

/* Else the agent would wait without a word. */
static void test_leases_that_end_at_once_are_told(void **state)
{
    (void)state;
    ask(TERM);
    for (int i = 1; i <= 2; i++) {
        carry_out(GRANT);
        if (i == 1) {
            carry_out(READ);
        }
        rig->lease = 0;
        carry_out(WRITE);
        assert_int_equal(rig->troubles, 1);
        assert_non_null(strstr(rig->trouble, "lease"));
    }
    carry_out(GRANT);
    carry_out(WRITE);
    assert_int_equal(rig->ends, 1);
    assert_int_equal(rig->answers, 1);
}

/* ---- closing -------------------------------------------------------------------------------- */

static void test_nothing_is_said_after_close(void **state)
{
    (void)state;
    begin_hosting();
    rig->closes = ON_TROUBLE;
    await_call(WRITE);
    lose(CT_EIO, "nobody");
    assert_int_equal(rig->troubles, 1);
    assert_int_equal(rig->unserved, 0);
}

static void test_the_end_of_trouble_may_close(void **state)
{
    (void)state;
    begin_hosting();
    await_call(WRITE);
    lose(CT_EIO, "nobody");
    rig->closes = ON_END;
    carry_out(WRITE);
    assert_int_equal(rig->ends, 1);
    assert_int_equal(rig->served, 1);
    assert_int_equal(rig->num_calls, 0);
}

static void test_the_first_contact_may_close(void **state)
{
    (void)state;
    rig->closes = ON_MET;
    ask(0);
    carry_out(GRANT);
    carry_out(READ);
    assert_int_equal(rig->met, 1);
    assert_int_equal(rig->answers, 0);
    assert_int_equal(rig->num_calls, 0);
}

static void test_an_answer_may_close(void **state)
{
    (void)state;
    rig->closes = ON_ANSWER;
    ask(0);
    carry_out(GRANT);
    carry_out(READ);
    assert_int_equal(rig->answers, 1);
    assert_int_equal(rig->num_calls, 0);
}

static void test_a_run_id_that_is_too_long(void **state)
{
    char id[CT_ETCD_KEY_MAX + 1];
    struct ct_err err = {0};
    struct ct_etcd_arbiter *arbiter = NULL;
    const struct ct_etcd_arbiter_options options = {.run_id = id};
    (void)state;
    memset(id, 'x', sizeof(id) - 1);
    id[sizeof(id) - 1] = '\0';
    assert_int_equal(ct_etcd_arbiter_open(&rig->loop, &options, &arbiter, &err), CT_EINVAL);
}

/* Whoever it is: an agent may be elected and die before anybody has followed it. */
static void test_a_host_that_is_dead_does_not_bind(void **state)
{
    const struct ct_arbiter_state theirs = other(true);
    (void)state;
    put_state(&theirs);
    rig->dead_id = OTHER;
    ask(LATER + CT_TERM_FIRST);
    carry_out(GRANT);
    carry_out(READ);
    carry_out(WRITE);
    assert_int_equal(rig->answers, 1);
    assert_true(rig->answer.granted && rig->host.id == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_host_that_is_dead_does_not_bind),
        TEST(test_an_empty_store_votes),
        TEST(test_a_conflict_begins_again),
        TEST(test_a_vote_whose_answer_was_lost_is_known_again),
        TEST(test_a_question_that_comes_meanwhile_is_answered_too),
        TEST(test_a_question_that_was_taken_back_has_no_answer),
        TEST(test_a_refusal_is_read_first),
        TEST(test_silence_counts_from_the_answer),
        TEST(test_a_restored_value_is_not_silent_yet),
        TEST(test_a_vote_over_a_restored_value_waits_for_all_leases),
        TEST(test_the_lease_is_kept_alive),
        TEST(test_a_lease_that_has_ended_is_made_anew),
        TEST(test_nothing_is_written_without_a_lease),
        TEST(test_leases_that_end_at_once_are_told),
        TEST(test_others_that_write_all_the_time_are_told_once),
        TEST(test_nothing_is_said_after_close),
        TEST(test_the_end_of_trouble_may_close),
        TEST(test_the_first_contact_may_close),
        TEST(test_an_answer_may_close),
        TEST(test_a_run_id_that_is_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
