/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests about very many keys, served in slices: one in each turn of the loop.
 */
#include "tests/lib/session_pair.h"

#include "rendezvous/wire/limits.h"

#include <stdio.h>
#include <stdlib.h>

#define KEYS 10000
#define PING "\x0d\1\2\3\4"
#define PONG "\1\2\3\4"
/* Pieces in which a request comes. */
#define PIECE 50000

static struct ct_bytes key_of(int i, char name[8])
{
    return (struct ct_bytes){(unsigned char *)name, (size_t)snprintf(name, 8, "k%05d", i)};
}

/* The request `op` about k00000, k00001 ..., each with a value of `value_len` bytes if it is a
 * MULTI_SET. */
static struct ct_buf many(enum ct_op op, int count, size_t value_len)
{
    struct ct_buf buf = CT_BUF_INIT;
    char name[8];
    char *value = calloc(1, value_len + 1);
    assert_non_null(value);
    assert_int_equal(ct_put_u8(&buf, (uint8_t)op), 0);
    assert_int_equal(ct_put_u64(&buf, (uint64_t)count), 0);
    for (int i = 0; i < count; i++) {
        struct ct_bytes key = key_of(i, name);
        assert_int_equal(ct_put_bytes(&buf, key.ptr, key.len), 0);
        if (op == CT_OP_MULTI_SET) {
            (void)snprintf(value, value_len + 1, "%d", i);
            assert_int_equal(ct_put_bytes(&buf, value, value_len), 0);
        }
    }
    free(value);
    return buf;
}

/* Feeds all of the request, without a turn for it yet, and frees it. */
static void send_all(struct session_pair *f, struct ct_buf request)
{
    struct ct_err err = {0};
    feed(&f->a, B(HELLO));
    for (size_t at = 0; at < request.len; at += PIECE) {
        size_t n = request.len - at < PIECE ? request.len - at : PIECE;
        f->service.turn_bytes = n;
        assert_int_equal(ct_session_feed(&f->a.session, ct_buf_bytes(&request) + at, n, &err),
                         at + n < request.len ? 0 : CT_SESSION_E_YIELDED);
    }
    ct_buf_fini(&request);
}

static int turn(struct session_pair *f)
{
    struct ct_err err = {0};
    f->service.turn_bytes = 0;
    return ct_session_feed(&f->a.session, NULL, 0, &err);
}

static void last_turns(struct session_pair *f, int count)
{
    for (int i = 1; i < count; i++) {
        assert_int_equal(turn(f), CT_SESSION_E_YIELDED);
    }
    assert_int_equal(turn(f), 0);
}

static void set_key(struct session_pair *f, int i)
{
    char name[8];
    struct ct_bytes key = key_of(i, name);
    assert_int_equal(ct_store_set(f->store, key, key), 0);
}

static struct ct_blob *get_key(struct session_pair *f, int i)
{
    char name[8];
    return ct_store_get(f->store, key_of(i, name));
}

static void test_a_long_multi_set_is_done_in_slices(void **state)
{
    struct session_pair *f = *state;
    struct ct_buf request = many(CT_OP_MULTI_SET, KEYS, 50);
    assert_int_equal(ct_buf_append(&request, B(PING)), 0);
    send_all(f, request);
    assert_int_equal(ct_store_num_keys(f->store), 0);
    assert_int_equal(turn(f), CT_SESSION_E_YIELDED);
    size_t done = ct_store_num_keys(f->store);
    assert_in_range(done, 1000, CT_SLICE_KEYS);
    /* Others are served in between, and what they change stays. */
    feed(&f->b, B(HELLO PING));
    expect(&f->b, B(PONG));
    set_key(f, 0);
    assert_int_equal(f->a.session.out.total, 0);
    int rc;
    do {
        rc = turn(f);
        assert_true(ct_store_num_keys(f->store) <= done + CT_SLICE_KEYS);
        done = ct_store_num_keys(f->store);
    } while (rc == CT_SESSION_E_YIELDED);
    assert_int_equal(rc, 0);
    expect(&f->a, B(PONG));
    assert_int_equal(done, KEYS);
    assert_string_equal((const char *)get_key(f, KEYS - 1)->bytes, "9999");
    assert_memory_equal(get_key(f, 0)->bytes, "k00000", 6);
    assert_int_equal(f->service.by_op[CT_OP_MULTI_SET], 1);
    assert_false(ct_session_mid_request(&f->a.session));
}

static void test_large_values_are_set_one_by_one(void **state)
{
    struct session_pair *f = *state;
    send_all(f, many(CT_OP_MULTI_SET, 5, CT_SLICE_BYTES));
    for (size_t i = 1; i <= 5; i++) {
        assert_int_equal(turn(f), i < 5 ? CT_SESSION_E_YIELDED : 0);
        assert_int_equal(ct_store_num_keys(f->store), i);
    }
    assert_int_equal(get_key(f, 4)->bytes[0], '4');
}

static void test_a_long_multi_get_is_done_in_slices(void **state)
{
    struct session_pair *f = *state;
    set_key(f, 7);
    set_key(f, KEYS - 1);
    send_all(f, many(CT_OP_MULTI_GET, KEYS, 0));
    assert_int_equal(turn(f), CT_SESSION_E_YIELDED);
    assert_int_equal(f->a.session.out.total, CT_SLICE_KEYS * 8 + 6);
    last_turns(f, 2);
    struct ct_buf got = CT_BUF_INIT;
    take(&f->a, &got);
    assert_int_equal(got.len, KEYS * 8 + 2 * 6);
    assert_memory_equal(ct_buf_bytes(&got) + 7 * 8, "\6" Z7 "k00007\0", 15);
    assert_memory_equal(ct_buf_bytes(&got) + got.len - 14, "\6" Z7 "k09999", 14);
    ct_buf_fini(&got);
}

/* A notice would stand in the middle of the answer. */
static void test_a_watcher_gets_its_answer_in_one_piece(void **state)
{
    struct session_pair *f = *state;
    struct ct_err err = {0};
    feed(&f->a, B("\x07\x01" Z7 "w")); /* legacy WATCH_KEY */
    expect(&f->a, B("\3"));
    struct ct_buf request = many(CT_OP_MULTI_GET, KEYS, 0);
    f->service.turn_bytes = request.len;
    assert_int_equal(ct_session_feed(&f->a.session, ct_buf_bytes(&request), request.len, &err), 0);
    assert_int_equal(f->a.session.out.total, KEYS * 8);
    ct_buf_fini(&request);
}

static void test_a_long_check_is_done_in_slices(void **state)
{
    struct session_pair *f = *state;
    for (int i = 0; i < KEYS - 1; i++) {
        set_key(f, i);
    }
    send_all(f, many(CT_OP_CHECK, KEYS, 0));
    last_turns(f, 3);
    expect(&f->a, B("\1"));
    set_key(f, KEYS - 1);
    struct ct_buf request = many(CT_OP_CHECK, KEYS, 0);
    struct ct_err err = {0};
    assert_int_equal(ct_session_feed(&f->a.session, ct_buf_bytes(&request), request.len, &err),
                     CT_SESSION_E_YIELDED);
    last_turns(f, 3);
    expect(&f->a, B("\0"));
    assert_int_equal(f->service.by_op[CT_OP_CHECK], 2);
    ct_buf_fini(&request);
}

static void test_check_ends_at_the_first_missing_key(void **state)
{
    struct session_pair *f = *state;
    send_all(f, many(CT_OP_CHECK, KEYS, 0));
    last_turns(f, 1);
    expect(&f->a, B("\1"));
    feed(&f->a, B(PING));
    expect(&f->a, B(PONG));
}

static void test_a_long_wait_is_done_in_slices(void **state)
{
    struct session_pair *f = *state;
    send_all(f, many(CT_OP_WAIT, KEYS, 0));
    assert_int_equal(turn(f), CT_SESSION_E_YIELDED);
    /* All that it misses so far comes, and the next keys come before they are looked at. */
    for (int i = 0; i < KEYS - 1; i++) {
        set_key(f, i);
    }
    assert_int_equal(f->a.woken, 0);
    last_turns(f, 2);
    assert_int_equal(ct_store_num_waiters(f->store), 1);
    expect(&f->a, NULL, 0);
    set_key(f, KEYS - 1);
    assert_int_equal(f->a.woken, 1);
    expect(&f->a, B("\0"));
}

static void test_wait_for_what_comes_meanwhile(void **state)
{
    struct session_pair *f = *state;
    send_all(f, many(CT_OP_WAIT, KEYS, 0));
    assert_int_equal(turn(f), CT_SESSION_E_YIELDED);
    for (int i = 0; i < KEYS; i++) {
        set_key(f, i);
    }
    last_turns(f, 2);
    expect(&f->a, B("\0"));
    assert_int_equal(f->a.woken, 0);
    assert_int_equal(ct_store_num_waiters(f->store), 0);
}

/* The tear-down sees that nothing is left. */
static void test_a_client_may_leave_between_slices(void **state)
{
    struct session_pair *f = *state;
    static const enum ct_op ops[] = {CT_OP_WAIT, CT_OP_MULTI_SET, CT_OP_MULTI_GET, CT_OP_WAIT};
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        send_all(f, many(ops[i], KEYS, 1));
        assert_int_equal(turn(f), CT_SESSION_E_YIELDED);
        ct_session_fini(&f->a.session);
        assert_int_equal(ct_store_num_waiters(f->store), 0);
        ct_session_init(&f->a.session, &f->service);
    }
}

static void test_memory_may_run_out_between_slices(void **state)
{
    struct session_pair *f = *state;
    struct ct_budget *budget = ct_store_budget(f->store);
    static const enum ct_op ops[] = {CT_OP_WAIT, CT_OP_MULTI_SET};
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        send_all(f, many(ops[i], KEYS, 1));
        assert_int_equal(turn(f), CT_SESSION_E_YIELDED);
        size_t keys = ct_store_num_keys(f->store);
        budget->max = budget->used;
        assert_int_equal(turn(f), CT_ENOMEM);
        assert_int_equal(budget->refused, i + 1);
        /* What was set before stays. */
        assert_int_equal(ct_store_num_keys(f->store), keys);
        assert_int_equal(ct_store_num_waiters(f->store), 0);
        budget->max = SIZE_MAX;
        ct_session_fini(&f->a.session);
        ct_session_init(&f->a.session, &f->service);
    }
}

#define WITH_PAIR(test) cmocka_unit_test_setup_teardown(test, pair_set_up, pair_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_PAIR(test_a_long_multi_set_is_done_in_slices),
        WITH_PAIR(test_large_values_are_set_one_by_one),
        WITH_PAIR(test_a_long_multi_get_is_done_in_slices),
        WITH_PAIR(test_a_watcher_gets_its_answer_in_one_piece),
        WITH_PAIR(test_a_long_check_is_done_in_slices),
        WITH_PAIR(test_check_ends_at_the_first_missing_key),
        WITH_PAIR(test_a_long_wait_is_done_in_slices),
        WITH_PAIR(test_wait_for_what_comes_meanwhile),
        WITH_PAIR(test_a_client_may_leave_between_slices),
        WITH_PAIR(test_memory_may_run_out_between_slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
