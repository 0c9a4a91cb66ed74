/* SPDX-License-Identifier: Apache-2.0
 *
 * Watching over the wire: who is told what in which order, and who is ended because it does not
 * read.
 */
#include "tests/lib/session_pair.h"

#include "rendezvous/wire/limits.h"
#include "tests/lib/fault.h"

#define WATCH_K "\x07\x01" Z7 "k"
#define SET_K(v) "\x00\x01" Z7 "k\x01" Z7 v
#define ADD_K "\x03\x01" Z7 "k\x01" Z7
#define DELETE_K "\x08\x01" Z7 "k"
#define CREATED(v) "\1\x01" Z7 "k\x00" Z7 "\x01" Z7 v
#define UPDATED(v, w) "\0\x01" Z7 "k\x01" Z7 v "\x01" Z7 w
#define DELETED(v) "\2\x01" Z7 "k\x01" Z7 v "\x00" Z7

/* ---- what is told --------------------------------------------------------------------------- */

static void test_another_client_changes_it(void **state)
{
    struct session_pair *f = *state;
    feed(&f->a, B(WATCH_K));
    expect(&f->a, B("\3"));
    assert_int_equal(f->a.woken, 0);
    feed(&f->b, B(SET_K("1")));
    assert_int_equal(f->a.woken, 1);
    expect(&f->a, B(CREATED("1")));
    feed(&f->b, B(ADD_K DELETE_K));
    expect(&f->a, B(UPDATED("1", "2") DELETED("2")));
    expect(&f->b, B("\x02" Z7 "\x01" Z7));
    assert_int_equal(f->b.woken, 0);
    /* One more watcher of the key, which also changes it. */
    feed(&f->b, B(WATCH_K SET_K("3")));
    expect(&f->b, B("\3" CREATED("3")));
    expect(&f->a, B(CREATED("3")));
}

static void test_the_current_dialect_changes_it_but_cannot_watch(void **state)
{
    struct session_pair *f = *state;
    feed(&f->a, B(WATCH_K));
    expect(&f->a, B("\3"));
    feed(&f->b, B(HELLO "\x01\x01" Z7 "k\x01" Z7 "1\x12\x01" Z7 "k\x02" Z7));
    expect(&f->a, B(CREATED("1") UPDATED("1", "2")));
    expect(&f->b, B("\0"));
    struct ct_err err = {0};
    assert_int_equal(ct_session_feed(&f->b.session, B("\x1f\x01" Z7 "k"), &err), CT_EPROTO);
    assert_string_equal(err.text, "unknown operation 31");
}

/* PyTorch's server answers the WAIT first. */
static void test_a_wait_is_answered_before_a_watch(void **state)
{
    struct session_pair *f = *state;
    feed(&f->a, B(WATCH_K "\x07\x01" Z7 "o" /* WAIT */ "\x05\x01" Z7 "\x01" Z7 "k"));
    expect(&f->a, B("\3\3"));
    feed(&f->b, B("\x00\x01" Z7 "o\x00" Z7 SET_K("1") SET_K("2")));
    expect(&f->a, B("\1\x01" Z7 "o\x00" Z7 "\x00" Z7 "\0" CREATED("1") UPDATED("1", "2")));
}

static void test_who_leaves_is_forgotten(void **state)
{
    struct session_pair *f = *state;
    feed(&f->a, B(WATCH_K));
    feed(&f->b, B(SET_K("1")));
    assert_true(f->a.session.out.total > 1);
    ct_session_fini(&f->a.session);
    f->a.woken = 0;
    feed(&f->b, B(SET_K("2")));
    assert_int_equal(f->a.woken, 0);
}

/* ---- who does not read ---------------------------------------------------------------------- */

/* Somebody sets the watched key to so many bytes. */
static int try_large(struct ct_store *store, size_t len)
{
    static const unsigned char value[CT_OUT_STALL_BYTES / 4];
    assert_true(len <= sizeof(value));
    const struct ct_bytes key = {(const unsigned char *)"k", 1};
    return ct_store_set(store, key, (struct ct_bytes){value, len});
}

static void set_large(struct session_pair *f, size_t len)
{
    assert_int_equal(try_large(f->store, len), 0);
}

static void test_a_burst_of_large_values_is_not_its_fault(void **state)
{
    struct session_pair *f = *state;
    feed(&f->a, B(WATCH_K));
    for (int i = 0; i < 20; i++) {
        set_large(f, CT_OUT_STALL_BYTES / 4);
    }
    assert_int_equal(ct_session_answer_wait(&f->a.session), 0);
    assert_true(f->a.session.out.total > 5 * CT_OUT_STALL_BYTES);
}

static void test_who_does_not_read_is_ended(void **state)
{
    struct session_pair *f = *state;
    feed(&f->a, B(WATCH_K));
    feed(&f->b, B(WATCH_K));
    f->a.session.blocked = true;
    int told = 0;
    while (ct_session_answer_wait(&f->a.session) == 0 && told < 100) {
        set_large(f, CT_OUT_STALL_BYTES / 4);
        told++;
        ct_outq_consume(&f->b.session.out, f->b.session.out.total);
    }
    assert_int_equal(ct_session_answer_wait(&f->a.session), CT_ELIMIT);
    assert_in_range(told, 3, 5);
    assert_true(f->a.session.out.total < 2 * CT_OUT_STALL_BYTES);
    struct ct_err err = {0};
    assert_int_equal(ct_session_feed(&f->a.session, B("\x06"), &err), CT_ELIMIT);
    assert_string_equal(err.text, CT_SESSION_LAGS);
    /* Nothing more is put there, and nobody else is disturbed. */
    size_t total = f->a.session.out.total;
    set_large(f, 10);
    assert_int_equal(f->a.session.out.total, total);
    assert_int_equal(ct_session_answer_wait(&f->b.session), 0);
    assert_true(f->b.session.out.total > 10);
}

/* Watching one key very often would multiply what a change takes, within one request. */
static void test_a_flood_of_its_own_making(void **state)
{
    struct session_pair *f = *state;
    for (int i = 0; i < 2000; i++) {
        feed(&f->a, B(WATCH_K));
    }
    ct_outq_consume(&f->a.session.out, f->a.session.out.total);
    set_large(f, CT_OUT_COPY_MAX);
    assert_int_equal(ct_session_answer_wait(&f->a.session), CT_ELIMIT);
    assert_true(ct_outq_memory(&f->a.session.out) <= 2 * CT_OUT_STALL_BYTES);
}

/* Its own requests wait instead, as they do behind any replies; what others do cannot. */
static void test_its_own_requests_stall(void **state)
{
    struct session_pair *f = *state;
    feed(&f->a, B(WATCH_K SET_K("1")));
    f->a.session.blocked = true;
    /* Not much is left, so the limit is a small one. */
    ct_store_budget(f->store)->max = ct_store_budget(f->store)->used + 5000;
    int rc = 0;
    for (int i = 0; i < 2000 && rc == 0; i++) {
        rc = ct_session_feed(&f->a.session, B(ADD_K), NULL);
    }
    assert_int_equal(rc, CT_SESSION_E_STALLED);
    assert_int_equal(ct_session_answer_wait(&f->a.session), 0);
    feed(&f->b, B(ADD_K));
    assert_int_equal(ct_session_answer_wait(&f->a.session), CT_ELIMIT);
}

static void test_a_watch_beyond_the_memory_is_refused(void **state)
{
    struct session_pair *f = *state;
    feed(&f->a, B(WATCH_K));
    ct_store_budget(f->store)->max = 1;
    struct ct_err err = {0};
    assert_int_equal(ct_session_feed(&f->b.session, B(WATCH_K), &err), CT_ENOMEM);
    assert_string_equal(err.text, "the store's memory is used up (--max-memory)");
}

/* ---- no memory ------------------------------------------------------------------------------ */

static int conversation(void *data)
{
    (void)data;
    struct session_pair f;
    int rc = pair_open(&f);
    if (rc != 0) {
        return rc;
    }
    rc = ct_session_feed(&f.a.session, B(WATCH_K), NULL);
    rc = rc == 0 ? ct_session_feed(&f.b.session, B(SET_K("1") ADD_K DELETE_K), NULL) : rc;
    rc = rc == 0 ? try_large(f.store, CT_OUT_COPY_MAX + 1) : rc;
    rc = rc == 0 ? ct_session_answer_wait(&f.a.session) : rc;
    pair_close(&f);
    return rc;
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(conversation, NULL, 0) >= 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_another_client_changes_it, pair_set_up,
                                        pair_tear_down),
        cmocka_unit_test_setup_teardown(test_the_current_dialect_changes_it_but_cannot_watch,
                                        pair_set_up, pair_tear_down),
        cmocka_unit_test_setup_teardown(test_a_wait_is_answered_before_a_watch, pair_set_up,
                                        pair_tear_down),
        cmocka_unit_test_setup_teardown(test_who_leaves_is_forgotten, pair_set_up, pair_tear_down),
        cmocka_unit_test_setup_teardown(test_a_burst_of_large_values_is_not_its_fault, pair_set_up,
                                        pair_tear_down),
        cmocka_unit_test_setup_teardown(test_who_does_not_read_is_ended, pair_set_up,
                                        pair_tear_down),
        cmocka_unit_test_setup_teardown(test_a_flood_of_its_own_making, pair_set_up,
                                        pair_tear_down),
        cmocka_unit_test_setup_teardown(test_its_own_requests_stall, pair_set_up, pair_tear_down),
        cmocka_unit_test_setup_teardown(test_a_watch_beyond_the_memory_is_refused, pair_set_up,
                                        pair_tear_down),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("session_watch", tests, NULL, NULL);
}
