/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversations with the store without a socket: bytes in, reply bytes out.
 */
#include "tests/lib/session_pair.h"

#include "rendezvous/wire/limits.h"

#include <stdio.h>
#include <stdlib.h>

#define SET_K_V "\x01\x02" Z7 "/k\x01" Z7 "v"
#define GET_K "\x03\x02" Z7 "/k"
#define WAIT_K "\x06\x01" Z7 "\x02" Z7 "/k"
#define CANCEL "\x0c"
#define VALUE_V "\x01" Z7 "v"

/* ---- the greeting --------------------------------------------------------------------------- */

static void test_every_operation_answers(void **state)
{
    struct peer *a = &((struct session_pair *)*state)->a;
    feed(a, B(HELLO "\x0d\x01\x02\x03\x04"));
    expect(a, B("\x01\x02\x03\x04"));
    feed(a, B(SET_K_V GET_K));
    expect(a, B(VALUE_V));
    feed(a, B("\x03\x01" Z7 "?"));
    expect(a, B("\0" Z7));
    feed(a, B("\x04\x01" Z7 "n\x05" Z7));
    expect(a, B("\x05" Z7));
    feed(a, B("\x05\x01" Z7 "\x02" Z7 "/k\x05\x01" Z7 "\x01" Z7 "?"));
    expect(a, B("\0\1"));
    feed(a, B(WAIT_K));
    expect(a, B("\0"));
    feed(a, B("\x07"));
    expect(a, B("\x02" Z7));
    feed(a, B("\x08\x01" Z7 "n\x08\x01" Z7 "n"));
    expect(a, B("\x01" Z7 "\0" Z7));
    feed(a, B("\x09\x02" Z7 "/k\x01" Z7 "w" GET_K));
    expect(a, B("\x02" Z7 "vw"));
    feed(a, B("\x0b\x02" Z7 "\x01" Z7 "a\x01" Z7 "1\x01" Z7 "b\x00" Z7));
    feed(a, B("\x0a\x03" Z7 "\x01" Z7 "b\x01" Z7 "?\x01" Z7 "a"));
    expect(a, B("\0" Z7 "\0" Z7 "\x01" Z7 "1"));
    feed(a, B(CANCEL));
    expect(a, B("\x01"));
    assert_int_equal(a->session.service->requests, 17);
}

static void test_compare_set_answers(void **state)
{
    struct peer *a = &((struct session_pair *)*state)->a;
    feed(a, B(HELLO));
    feed(a, B("\x02\x02" Z7 "/k\x01" Z7 "x\x01" Z7 "y"));
    expect(a, B("\x01" Z7 "x"));
    feed(a, B("\x02\x02" Z7 "/k\x00" Z7 "\x01" Z7 "v"));
    expect(a, B(VALUE_V));
    feed(a, B("\x02\x02" Z7 "/k\x01" Z7 "x\x01" Z7 "y"));
    expect(a, B(VALUE_V));
    feed(a, B("\x02\x02" Z7 "/k\x01" Z7 "v\x02" Z7 "zz"));
    expect(a, B("\x02" Z7 "zz"));
}

static void test_one_byte_at_a_time(void **state)
{
    struct peer *a = &((struct session_pair *)*state)->a;
    static const char bytes[] = HELLO SET_K_V GET_K WAIT_K CANCEL;
    for (size_t i = 0; i < sizeof(bytes) - 1; i++) {
        feed(a, bytes + i, 1);
    }
    assert_false(ct_session_mid_request(&a->session));
    expect(a, B(VALUE_V "\0\1"));
}

static void test_nothing_is_applied_before_the_last_byte(void **state)
{
    struct session_pair *f = *state;
    static const char multi_set[] = "\x0b\x02" Z7 "\x01" Z7 "a\x01" Z7 "1\x01" Z7 "b\x01" Z7 "2";
    feed(&f->a, B(HELLO));
    feed(&f->a, multi_set, sizeof(multi_set) - 2);
    assert_true(ct_session_mid_request(&f->a.session));
    assert_int_equal(ct_store_num_keys(f->store), 0);
    feed(&f->a, multi_set + sizeof(multi_set) - 2, 1);
    assert_int_equal(ct_store_num_keys(f->store), 2);
}

/* ---- what ends a session -------------------------------------------------------------------- */

static int verdict(struct session_pair *f, const char *bytes, size_t len)
{
    struct ct_err err = {0};
    int rc = ct_session_feed(&f->a.session, bytes, len, &err);
    assert_true(rc >= 0 || err.text[0] != '\0');
    return rc;
}

static void test_stranger_is_told_by_the_first_byte(void **state)
{
    assert_int_equal(verdict(*state, B("G")), CT_EPROTO);
}

static void test_validate_comes_once(void **state)
{
    assert_int_equal(verdict(*state, B(HELLO HELLO)), CT_EPROTO);
}

static void test_a_wrong_greeting_is_refused(void **state)
{
    /* Neither the greeting nor, with so long a key, a SET of the legacy dialect. */
    assert_int_equal(verdict(*state, B("\x00\xce\xf7\x85\x3d\0\0\0\0")), CT_ELIMIT);
}

static void test_http_is_refused(void **state)
{
    assert_int_equal(verdict(*state, B("GET / HTTP/1.1\r\n\r\n")), CT_EPROTO);
}

static void test_only_cancel_may_follow_a_pending_wait(void **state)
{
    assert_int_equal(verdict(*state, B(HELLO WAIT_K GET_K)), CT_EPROTO);
}

static void test_add_to_a_text_is_refused(void **state)
{
    assert_int_equal(verdict(*state, B(HELLO SET_K_V "\x04\x02" Z7 "/k\x01" Z7)), CT_EFORMAT);
}

static void test_good_requests_before_a_bad_one_count(void **state)
{
    struct session_pair *f = *state;
    assert_int_equal(verdict(f, B(HELLO SET_K_V GET_K "\xff")), CT_EPROTO);
    expect(&f->a, B(VALUE_V));
    assert_int_equal(ct_store_num_keys(f->store), 1);
}

static void test_an_append_beyond_the_limit_is_refused(void **state)
{
    struct session_pair *f = *state;
    char *big = calloc(1, CT_MAX_VALUE_LEN);
    assert_non_null(big);
    struct ct_bytes key = {(const unsigned char *)"/k", 2};
    struct ct_bytes value = {(const unsigned char *)big, CT_MAX_VALUE_LEN};
    assert_int_equal(ct_store_set(f->store, key, value), 0);
    assert_int_equal(verdict(f, B(HELLO "\x09\x02" Z7 "/k\x01" Z7 "w")), CT_ELIMIT);
    free(big);
}

/* ---- waiting -------------------------------------------------------------------------------- */

static void test_a_waiter_is_woken_by_another_session(void **state)
{
    struct session_pair *f = *state;
    feed(&f->a, B(HELLO WAIT_K));
    expect(&f->a, B(""));
    feed(&f->b, B(HELLO SET_K_V));
    assert_int_equal(f->a.woken, 1);
    expect(&f->a, B("\0"));
    /* The next request is welcome again. */
    feed(&f->a, B(GET_K));
    expect(&f->a, B(VALUE_V));
}

static void test_cancelled_wait_is_answered_once(void **state)
{
    struct session_pair *f = *state;
    feed(&f->a, B(HELLO WAIT_K CANCEL));
    expect(&f->a, B("\x01"));
    feed(&f->b, B(HELLO SET_K_V));
    assert_int_equal(f->a.woken, 0);
    expect(&f->a, B(""));
}

static void test_cancel_that_comes_too_late(void **state)
{
    struct session_pair *f = *state;
    feed(&f->a, B(HELLO WAIT_K));
    feed(&f->b, B(HELLO SET_K_V));
    feed(&f->a, B(CANCEL));
    expect(&f->a, B("\0\1"));
}

static void test_end_of_a_waiting_session(void **state)
{
    struct session_pair *f = *state;
    feed(&f->a, B(HELLO WAIT_K));
    ct_session_fini(&f->a.session);
    ct_session_fini(&f->a.session);
    assert_int_equal(ct_store_num_waiters(f->store), 0);
    feed(&f->b, B(HELLO SET_K_V));
    assert_int_equal(f->a.woken, 0);
}

static void test_wake_without_memory_ends_the_waiter_alone(void **state)
{
    struct session_pair *f = *state;
    feed(&f->a, B(HELLO WAIT_K));
    struct ct_bytes key = {(const unsigned char *)"/k", 2};
    /* The value takes the one allocation there is; the reply's buffer finds none. */
    ct_fault_begin(1);
    int rc = ct_store_set(f->store, key, key);
    int settled = ct_session_answer_wait(&f->a.session);
    (void)ct_fault_end();
    assert_int_equal(rc, 0);
    assert_int_equal(f->a.woken, 1);
    assert_int_equal(settled, CT_ENOMEM);
}

/* ---- unsent replies ------------------------------------------------------------------------- */

/* Sets /k to `len` bytes and returns them. */
static char *big_value(struct session_pair *f, size_t len)
{
    char *big = malloc(len);
    assert_non_null(big);
    for (size_t i = 0; i < len; i++) {
        big[i] = (char)(i >> 8 ^ i);
    }
    struct ct_bytes key = {(const unsigned char *)"/k", 2};
    assert_int_equal(ct_store_set(f->store, key, (struct ct_bytes){(unsigned char *)big, len}), 0);
    return big;
}

static void test_a_stalled_session_goes_on_when_read(void **state)
{
    struct session_pair *f = *state;
    struct ct_session *s = &f->a.session;
    enum { GETS = 5 };
    size_t len = CT_OUT_STALL_BYTES * 2 / 3;
    char *big = big_value(f, len);
    feed(&f->a, B(HELLO));
    /* Two replies pass the mark; the other requests wait, together with half of one. */
    assert_int_equal(ct_session_feed(s, B(GET_K GET_K GET_K GET_K GET_K "\x0c\x0d"), NULL),
                     CT_SESSION_E_STALLED);
    assert_true(s->out.total < CT_OUT_STALL_BYTES * 2);
    assert_int_equal(s->service->requests, 3);
    struct ct_buf got = CT_BUF_INIT;
    int rc = CT_SESSION_E_STALLED;
    for (int i = 0; i < GETS && rc == CT_SESSION_E_STALLED; i++) {
        take(&f->a, &got);
        rc = ct_session_feed(s, NULL, 0, NULL);
    }
    assert_int_equal(rc, 0);
    feed(&f->a, B("\x01\x02\x03\x04"));
    take(&f->a, &got);
    assert_int_equal(got.len, GETS * (8 + len) + 1 + 4);
    for (size_t i = 0; i < GETS; i++) {
        assert_int_equal(memcmp(ct_buf_bytes(&got) + i * (8 + len) + 8, big, len), 0);
    }
    assert_int_equal(memcmp(ct_buf_tail(&got) - 5, "\1\1\2\3\4", 5), 0);
    ct_buf_fini(&got);
    free(big);
}

static void test_large_values_are_not_copied(void **state)
{
    struct session_pair *f = *state;
    struct ct_session *s = &f->a.session;
    char *big = big_value(f, 100000);
    struct ct_bytes key = {(const unsigned char *)"/k", 2};
    const unsigned char *held = ct_store_get(f->store, key)->bytes;
    feed(&f->a, B(HELLO "\x0a\x03" Z7 "\x02" Z7 "/k\x01" Z7 "?\x02" Z7 "/k"));
    struct iovec iov[8];
    assert_int_equal(ct_outq_iov(&s->out, iov, 8), 4);
    assert_ptr_equal(iov[1].iov_base, held);
    assert_int_equal(iov[2].iov_len, 16); /* the missing one, and the next one's length */
    assert_ptr_equal(iov[3].iov_base, held);
    assert_int_equal(ct_outq_iov(&s->out, iov, 2), 2);
    /* Overwritten before it was sent: the reply keeps what was asked for. */
    assert_int_equal(ct_store_set(f->store, key, key), 0);
    ct_outq_consume(&s->out, 8 + 10);
    assert_int_equal(ct_outq_iov(&s->out, iov, 8), 3);
    assert_int_equal(iov[0].iov_len, 100000 - 10);
    assert_memory_equal(iov[0].iov_base, big + 10, 100);
    free(big);
}

/* Fifty clients that listed a large store without a pause held up all others for a third of a
 * second. */
static void test_a_long_list_waits_for_a_turn_that_has_room(void **state)
{
    struct session_pair *f = *state;
    char name[8];
    for (int i = 0; i < 6000; i++) {
        struct ct_bytes key = {(unsigned char *)name,
                               (size_t)snprintf(name, sizeof(name), "%d", i)};
        assert_int_equal(ct_store_set(f->store, key, key), 0);
    }
    struct ct_err err = {0};
    f->service.turn_bytes = CT_TURN_BYTES - 50000;
    assert_int_equal(ct_session_feed(&f->a.session, B(HELLO GET_K "\x11\x07"), &err),
                     CT_SESSION_E_YIELDED);
    expect(&f->a, B("\0" Z7)); /* what came before it is answered */
    feed(&f->b, B(HELLO "\x0d\x01\x02\x03\x04"));
    expect(&f->b, B("\x01\x02\x03\x04"));
    assert_int_equal(ct_session_feed(&f->a.session, NULL, 0, &err), CT_SESSION_E_YIELDED);
    f->service.turn_bytes = 0;
    feed(&f->a, NULL, 0);
    size_t want = 8 + 6000 * 8 + ct_store_key_bytes(f->store);
    assert_int_equal(f->a.session.out.total, want + 8);
    assert_int_equal(f->service.turn_bytes, want - 8);
    assert_int_equal(f->service.requests, 6);
}

/* ---- memory --------------------------------------------------------------------------------- */

static int converse(void *data)
{
    (void)data;
    static char value[3000] = "x";
    struct session_pair f;
    int rc = pair_open(&f);
    if (rc != 0) {
        return rc;
    }
    struct ct_bytes key = {(const unsigned char *)"/b", 2};
    rc = ct_store_set(f.store, key, (struct ct_bytes){(unsigned char *)value, sizeof(value)});
    static const char first[] = HELLO "\x06\x02" Z7 "\x01" Z7 "1\x01" Z7 "2" CANCEL "\x0a\x02" Z7
                                      "\x02" Z7 "/b\x02" Z7 "/b" WAIT_K;
    static const char second[] =
        HELLO "\x0d\1\2\3\4\x0b\x01" Z7 "\x01" Z7 "m\x01" Z7 "1" SET_K_V "\x03\x02" Z7;
    rc = rc == 0 ? ct_session_feed(&f.a.session, B(first), NULL) : rc;
    rc = rc == 0 ? ct_session_feed(&f.b.session, B(second), NULL) : rc;
    rc = rc == 0 ? ct_session_answer_wait(&f.a.session) : rc;
    pair_close(&f);
    return rc;
}

static void test_a_session_survives_lack_of_memory(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(converse, NULL, 0) >= 12);
}

#define WITH_STORE(test) cmocka_unit_test_setup_teardown(test, pair_set_up, pair_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_STORE(test_a_long_list_waits_for_a_turn_that_has_room),
        WITH_STORE(test_every_operation_answers),
        WITH_STORE(test_compare_set_answers),
        WITH_STORE(test_one_byte_at_a_time),
        WITH_STORE(test_nothing_is_applied_before_the_last_byte),
        WITH_STORE(test_stranger_is_told_by_the_first_byte),
        WITH_STORE(test_validate_comes_once),
        WITH_STORE(test_a_wrong_greeting_is_refused),
        WITH_STORE(test_http_is_refused),
        WITH_STORE(test_only_cancel_may_follow_a_pending_wait),
        WITH_STORE(test_add_to_a_text_is_refused),
        WITH_STORE(test_good_requests_before_a_bad_one_count),
        WITH_STORE(test_an_append_beyond_the_limit_is_refused),
        WITH_STORE(test_a_waiter_is_woken_by_another_session),
        WITH_STORE(test_cancelled_wait_is_answered_once),
        WITH_STORE(test_cancel_that_comes_too_late),
        WITH_STORE(test_end_of_a_waiting_session),
        WITH_STORE(test_wake_without_memory_ends_the_waiter_alone),
        WITH_STORE(test_a_stalled_session_goes_on_when_read),
        WITH_STORE(test_large_values_are_not_copied),
        cmocka_unit_test(test_a_session_survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
