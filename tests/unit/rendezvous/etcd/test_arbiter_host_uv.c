/* SPDX-License-Identifier: Apache-2.0
 *
 * An agent that hosts the job, and the arbiter: beats, trouble with etcd and with the value.
 */
#include "tests/lib/arbiter_rig.h"

static void test_a_record_is_pledged_and_beats_follow(void **state)
{
    (void)state;
    begin_hosting();
    assert_int_equal(rig->version, 1);
    host(2);
    await_call(WRITE);
    host(3); /* while the second one is being written */
    carry_out(WRITE);
    assert_int_equal(rig->version, 2);
    carry_out(WRITE);
    assert_int_equal(rig->version, 3);
    for (int i = 4; i < 8; i++) { /* beats */
        carry_out(WRITE);
        assert_int_equal(rig->served, i);
        assert_int_equal(rig->version, 3);
    }
    assert_int_equal(rig->unserved + rig->bound + rig->troubles, 0);
}

/* A beat that is under way tells nothing new. */
static void test_who_ends_knows_when_its_record_is_written(void **state)
{
    (void)state;
    assert_true(ct_etcd_arbiter_is_settled(rig->arbiter));
    begin_hosting();
    await_call(WRITE);
    assert_true(ct_etcd_arbiter_is_settled(rig->arbiter));
    host(2);
    carry_out(WRITE); /* the beat */
    assert_false(ct_etcd_arbiter_is_settled(rig->arbiter));
    await_call(WRITE);
    assert_false(ct_etcd_arbiter_is_settled(rig->arbiter));
    rig->lease = 0;
    carry_out(WRITE);
    assert_false(ct_etcd_arbiter_is_settled(rig->arbiter));
    carry_out(GRANT);
    carry_out(WRITE);
    assert_true(ct_etcd_arbiter_is_settled(rig->arbiter));
    host(3);
    await_call(WRITE);
    lose(CT_EIO, "nobody");
    assert_true(ct_etcd_arbiter_is_settled(rig->arbiter)); /* it is not waited for */
}

static void test_who_hosts_no_more_is_not_served(void **state)
{
    (void)state;
    begin_hosting();
    await_call(WRITE);
    ct_etcd_arbiter_serve(rig->arbiter, NULL, NULL);
    carry_out(WRITE);
    assert_int_equal(rig->served, 1);
    assert_false(uv_loop_alive(&rig->loop)); /* nothing is awaited */
}

static void test_a_silent_store_is_told_once(void **state)
{
    (void)state;
    begin_hosting();
    for (int i = 0; i < 3; i++) {
        await_call(WRITE);
        lose(CT_ETIMEDOUT, "no answer");
        assert_int_equal(rig->unserved, 1);
        assert_int_equal(rig->troubles, 1);
    }
    assert_string_equal(rig->trouble, "no answer");
    carry_out(WRITE);
    assert_int_equal(rig->ends, 1);
    assert_int_equal(rig->served, 2);
    await_call(WRITE);
    lose(CT_ETIMEDOUT, "no answer");
    assert_int_equal(rig->unserved, 2);
    assert_int_equal(rig->troubles, 2);
    assert_int_equal(rig->bound, 0);
}

/* Waiting does not help then, also if etcd was away at first. */
static void test_a_refusal_is_told_apart_until_the_value_was_seen(void **state)
{
    (void)state;
    ask(TERM);
    await_call(GRANT);
    lose(CT_EIO, "nobody listens");
    assert_int_equal(rig->refusals, 0);
    await_call(GRANT);
    lose(CT_EPERM, "wrong password");
    assert_int_equal(rig->refusals, 1);
    assert_string_equal(rig->trouble, "wrong password");
    await_call(GRANT);
    lose(CT_EINVAL, "no such file: ca.pem"); /* as TLS needs */
    assert_int_equal(rig->refusals, 2);
    carry_out(GRANT); /* a lease needs no permission, a key does */
    await_call(READ);
    lose(CT_EPERM, "permission denied");
    assert_int_equal(rig->refusals, 3);
    carry_out(READ);
    await_call(WRITE);
    lose(CT_EPERM, "wrong password");
    assert_int_equal(rig->refusals, 3);
    assert_int_equal(rig->troubles, 5);
    assert_int_equal(rig->ends, 1);
}

static void test_a_host_without_any_lease_is_unserved(void **state)
{
    (void)state;
    host(1);
    for (int i = 0; i < 2; i++) {
        await_call(GRANT);
        lose(CT_EIO, "nobody");
        assert_int_equal(rig->unserved, 1);
        assert_int_equal(rig->troubles, 1);
    }
    carry_out(GRANT);
    carry_out(READ);
    carry_out(WRITE);
    assert_int_equal(rig->served, 1);
    assert_int_equal(rig->ends, 1);
}

static void test_a_key_that_was_deleted_is_written_again(void **state)
{
    (void)state;
    begin_hosting();
    put(NULL);
    carry_out(WRITE);
    carry_out(WRITE);
    assert_int_equal(rig->served, 2);
    assert_non_null(rig->value);
    assert_int_equal(rig->unserved + rig->bound + rig->troubles, 0);
}

static void test_a_value_of_somebody_else_is_told_with_its_key(void **state)
{
    (void)state;
    begin_hosting();
    put("{\"a\":1}garbage");
    carry_out(WRITE);
    assert_int_equal(rig->troubles, 1);
    assert_int_equal(rig->unserved, 1);
    assert_non_null(strstr(rig->trouble, "/ctrun/job/arbiter has a value that is not ctrun's"));
    put(NULL);
    carry_out(WRITE);
    carry_out(WRITE);
    assert_int_equal(rig->served, 2);
    assert_int_equal(rig->ends, 1);
}

static void test_a_value_that_is_too_long_is_told_with_its_key(void **state)
{
    (void)state;
    begin_hosting();
    await_call(WRITE);
    lose(CT_ELIMIT, "etcd at h: the value has more bytes");
    assert_string_equal(rig->trouble,
                        "the key /ctrun/job/arbiter: etcd at h: the value has more bytes");
}

static void test_a_bound_host_can_ask_and_looks_again(void **state)
{
    const struct ct_arbiter_state theirs = other(false);
    (void)state;
    begin_hosting();
    put_state(&theirs);
    host(2);
    carry_out(WRITE);
    assert_int_equal(rig->bound, 1);
    ask(0); /* who was elected? */
    carry_out(READ);
    assert_int_equal(rig->answers, 1);
    assert_int_equal(rig->answer.seen, LATER);
    host(3);
    carry_out(READ);
    assert_int_equal(rig->bound, 2);
    for (int i = 0; i < 3; i++) {
        (void)uv_run(&rig->loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(rig->bound, 2); /* not before the next beat */
    carry_out(READ);
    assert_int_equal(rig->bound, 3);
    put(NULL);
    carry_out(READ);
    carry_out(WRITE);
    assert_int_equal(rig->version, 3);
    assert_int_equal(rig->unserved + rig->troubles, 0);
}

static void test_a_candidate_that_is_void_does_not_bind(void **state)
{
    const struct ct_arbiter_state theirs = other(false);
    (void)state;
    begin_hosting();
    rig->void_id = OTHER;
    put_state(&theirs);
    carry_out(WRITE);
    carry_out(WRITE);
    assert_int_equal(rig->served, 2);
    assert_int_equal(rig->bound, 0);
}

/* Each beat is late, so the next one is due at once. */
static void test_a_slow_store_answers_questions_of_a_host(void **state)
{
    (void)state;
    begin_hosting();
    await_call(WRITE);
    move_clock(LEASE_MS);
    ask(0);
    carry_out(WRITE);
    await_call(READ);
    move_clock(LEASE_MS);
    carry_out(READ);
    assert_int_equal(rig->answers, 1);
    carry_out(WRITE);
    assert_int_equal(rig->served, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_record_is_pledged_and_beats_follow),
        TEST(test_who_ends_knows_when_its_record_is_written),
        TEST(test_who_hosts_no_more_is_not_served),
        TEST(test_a_silent_store_is_told_once),
        TEST(test_a_refusal_is_told_apart_until_the_value_was_seen),
        TEST(test_a_host_without_any_lease_is_unserved),
        TEST(test_a_key_that_was_deleted_is_written_again),
        TEST(test_a_value_of_somebody_else_is_told_with_its_key),
        TEST(test_a_value_that_is_too_long_is_told_with_its_key),
        TEST(test_a_bound_host_can_ask_and_looks_again),
        TEST(test_a_candidate_that_is_void_does_not_bind),
        TEST(test_a_slow_store_answers_questions_of_a_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
