/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's queues and barriers, and whom they wake.
 */
#include "tests/lib/store_probe.h"

#include <stdio.h>

static void push(struct ct_store *store, const char *queue, const char *value)
{
    assert_int_equal(ct_store_push(store, b(queue), b(value)), 0);
}

/* Pops for somebody who never waited, and checks what came. NULL = the queue is empty. */
static void expect_pop(struct ct_store *store, const char *queue, const char *want)
{
    struct ct_waiter nobody = {0};
    struct ct_blob *got = NULL;
    size_t before = ct_store_queue_len(store, b(queue)), len = 77;
    assert_int_equal(ct_store_pop(store, &nobody, b(queue), &len, &got), 0);
    assert_int_equal(len, before);
    assert_int_equal(got != NULL, want != NULL);
    if (got != NULL) {
        assert_int_equal(got->len, strlen(want));
        assert_memory_equal(got->bytes, want, got->len);
    }
    ct_blob_unref(got);
}

static void pop_by(struct ct_store *store, struct probe *probe, const char *queue)
{
    struct ct_blob *got = NULL;
    size_t len;
    assert_int_equal(ct_store_pop(store, &probe->waiter, b(queue), &len, &got), 0);
    ct_blob_unref(got);
}

static bool is_there(struct ct_store *store, char name)
{
    const unsigned char keys[] = {1, 0, 0, 0, 0, 0, 0, 0, (unsigned char)name};
    return ct_store_check(store, (struct ct_bytes){keys, sizeof(keys)}, 1);
}

/* ---- queues --------------------------------------------------------------------------------- */

static void test_first_in_first_out(void **state)
{
    struct ct_store *store = *state;
    expect_pop(store, "q", NULL);
    for (int i = 0; i < 100; i++) {
        char text[8];
        (void)snprintf(text, sizeof(text), "%d", i);
        push(store, "q", text);
        push(store, "q", "");
        (void)snprintf(text, sizeof(text), "%d", i / 2);
        expect_pop(store, "q", i % 2 == 0 ? text : "");
    }
    assert_int_equal(ct_store_queue_len(store, b("q")), 100);
    assert_int_equal(ct_store_num_queued(store), 100);
    for (int i = 0; i < 100; i++) {
        pop_by(store, &(struct probe){0}, "q");
    }
    expect_pop(store, "q", NULL);
    assert_int_equal(ct_store_num_queued(store), 0);
    assert_int_equal(ct_store_num_bytes(store), 0);
}

static void test_queue_and_key_of_one_name(void **state)
{
    struct ct_store *store = *state;
    push(store, "n", "element");
    assert_int_equal(ct_store_num_keys(store), 0);
    assert_null(ct_store_get(store, b("n")));
    assert_int_equal(ct_store_delete(store, b("n")), CT_STORE_E_MISSING);
    assert_true(is_there(store, 'n'));
    int64_t number = 0;
    assert_int_equal(ct_store_add(store, b("n"), 4, &number), 0);
    assert_int_equal(number, 4);
    assert_int_equal(ct_store_num_bytes(store), 1 + 1 + 7);
    assert_int_equal(ct_store_delete(store, b("n")), 0);
    expect_pop(store, "n", "element");
    assert_false(is_there(store, 'n'));
}

static void test_clear_empties_queues(void **state)
{
    struct ct_store *store = *state;
    push(store, "q", "1");
    push(store, "q", "2");
    ct_store_clear(store);
    assert_int_equal(ct_store_queue_len(store, b("q")), 0);
    assert_int_equal(ct_store_num_queued(store), 0);
    assert_int_equal(ct_store_num_bytes(store), 0);
    push(store, "left over", "for the end of the store");
}

/* ---- whom a push wakes ---------------------------------------------------------------------- */

struct crowd {
    int clock;
    struct probe one, two, three;
};

static void crowd_init(struct crowd *crowd)
{
    crowd->clock = 0;
    probe_init(&crowd->one, &crowd->clock);
    probe_init(&crowd->two, &crowd->clock);
    probe_init(&crowd->three, &crowd->clock);
}

static void test_an_element_exists_for_those_who_wait(void **state)
{
    struct ct_store *store = *state;
    struct crowd c;
    crowd_init(&c);
    push(store, "q", "x");
    set(store, "k", "v");
    assert_int_equal(wait_for(store, &c.one, "q k"), 0);
    assert_int_equal(wait_for(store, &c.one, "q never"), CT_STORE_E_PENDING);
    assert_int_equal(c.one.waiter.missing, 1);
    ct_store_cancel(store, &c.one.waiter);
}

static void test_one_waiter_for_each_element(void **state)
{
    struct ct_store *store = *state;
    struct crowd c;
    crowd_init(&c);
    assert_int_equal(wait_for(store, &c.one, "q"), CT_STORE_E_PENDING);
    assert_int_equal(wait_for(store, &c.two, "q"), CT_STORE_E_PENDING);
    assert_int_equal(wait_for(store, &c.three, "q"), CT_STORE_E_PENDING);
    push(store, "q", "a");
    assert_int_equal(ct_store_num_waiters(store), 2);
    push(store, "q", "b");
    assert_int_equal(c.one.woken, 1);
    assert_int_equal(c.two.woken, 2);
    assert_int_equal(c.three.woken, 0);
    pop_by(store, &c.two, "q");
    pop_by(store, &c.one, "q");
    assert_int_equal(c.three.woken, 0);
    /* A value of that name is news to all. */
    set(store, "q", "");
    assert_int_equal(c.three.woken, 3);
}

static void test_waiter_for_more_keeps_no_element(void **state)
{
    struct ct_store *store = *state;
    struct crowd c;
    crowd_init(&c);
    assert_int_equal(wait_for(store, &c.one, "q k"), CT_STORE_E_PENDING);
    assert_int_equal(wait_for(store, &c.two, "q"), CT_STORE_E_PENDING);
    push(store, "q", "x");
    assert_int_equal(c.one.woken, 0);
    assert_int_equal(c.two.woken, 1);
    pop_by(store, &c.two, "q");
    set(store, "k", "");
    assert_int_equal(c.one.woken, 2);
}

static void test_a_queue_may_be_named_twice(void **state)
{
    struct ct_store *store = *state;
    struct crowd c;
    crowd_init(&c);
    assert_int_equal(wait_for(store, &c.one, "q q"), CT_STORE_E_PENDING);
    push(store, "q", "x");
    assert_int_equal(c.one.woken, 1);
    pop_by(store, &c.one, "q");
}

static void test_claim_passes_on_when_given_up(void **state)
{
    struct ct_store *store = *state;
    struct crowd c;
    crowd_init(&c);
    assert_int_equal(wait_for(store, &c.one, "q"), CT_STORE_E_PENDING);
    assert_int_equal(wait_for(store, &c.two, "q"), CT_STORE_E_PENDING);
    assert_int_equal(wait_for(store, &c.three, "q"), CT_STORE_E_PENDING);
    push(store, "q", "x");
    /* It was too late to cancel, or its client left. */
    ct_store_cancel(store, &c.one.waiter);
    assert_int_equal(c.two.woken, 2);
    /* It takes from another queue and waits again. */
    pop_by(store, &c.two, "other");
    assert_int_equal(c.three.woken, 3);
    /* Nobody is left to hand it to, and a stranger takes it. */
    expect_pop(store, "q", "x");
    ct_store_cancel(store, &c.three.waiter);
    assert_int_equal(ct_store_queue_len(store, b("q")), 0);
}

static void test_claim_ends_with_the_element(void **state)
{
    struct ct_store *store = *state;
    struct crowd c;
    crowd_init(&c);
    assert_int_equal(wait_for(store, &c.one, "q"), CT_STORE_E_PENDING);
    push(store, "q", "x");
    expect_pop(store, "q", "x");
    assert_int_equal(wait_for(store, &c.two, "q"), CT_STORE_E_PENDING);
    /* Nothing to hand on. */
    ct_store_cancel(store, &c.one.waiter);
    assert_int_equal(c.two.woken, 0);
    push(store, "q", "y");
    assert_int_equal(c.two.woken, 2);
    /* Waiting for something else gives the claim up, too. */
    assert_int_equal(wait_for(store, &c.three, "q never"), CT_STORE_E_PENDING);
    c.two.woken = 0;
    assert_int_equal(wait_for(store, &c.two, "never"), CT_STORE_E_PENDING);
    set(store, "never", "");
    assert_int_equal(c.two.woken > 0 && c.three.woken > 0, 1);
}

/* ---- barriers ------------------------------------------------------------------------------- */

static int arrive(struct ct_store *store, struct probe *probe, int64_t needed)
{
    return ct_store_barrier(store, &probe->waiter, b("bar"), needed);
}

static void expect_count(struct ct_store *store, const char *want)
{
    const struct ct_blob *held = ct_store_get(store, b("bar"));
    assert_non_null(held);
    assert_int_equal(held->len, strlen(want));
    assert_memory_equal(held->bytes, want, held->len);
}

static void test_barrier_lets_all_go_at_once(void **state)
{
    struct ct_store *store = *state;
    struct crowd c;
    crowd_init(&c);
    assert_int_equal(arrive(store, &c.one, 3), CT_STORE_E_PENDING);
    assert_int_equal(arrive(store, &c.two, 3), CT_STORE_E_PENDING);
    expect_count(store, "2");
    assert_int_equal(ct_store_num_waiters(store), 2);
    assert_int_equal(arrive(store, &c.three, 3), 0);
    assert_int_equal(c.one.woken, 1);
    assert_int_equal(c.two.woken, 2);
    assert_int_equal(c.three.woken, 0);
    /* The count stays, and the barrier is open from now on. */
    assert_int_equal(arrive(store, &c.three, 3), 0);
    expect_count(store, "4");
}

static void test_barrier_opens_for_nothing_else(void **state)
{
    struct ct_store *store = *state;
    struct crowd c;
    crowd_init(&c);
    assert_int_equal(wait_for(store, &c.two, "bar"), CT_STORE_E_PENDING);
    assert_int_equal(arrive(store, &c.one, 3), CT_STORE_E_PENDING);
    assert_int_equal(c.two.woken, 0);
    int64_t number = 0;
    push(store, "bar", "");
    assert_int_equal(c.two.woken, 1);
    assert_int_equal(ct_store_add(store, b("bar"), 1, &number), 0);
    assert_int_equal(number, 2);
    assert_int_equal(c.one.woken, 0);
    assert_int_equal(arrive(store, &c.three, 3), 0);
    assert_int_equal(c.one.woken, 2);
    ct_store_cancel(store, &c.two.waiter); /* gives up its claim to the element */
}

static void test_barrier_counts_those_who_gave_up(void **state)
{
    struct ct_store *store = *state;
    struct crowd c;
    crowd_init(&c);
    assert_int_equal(arrive(store, &c.one, 2), CT_STORE_E_PENDING);
    ct_store_cancel(store, &c.one.waiter);
    assert_int_equal(arrive(store, &c.two, 2), 0);
    assert_int_equal(c.one.woken, 0);
    assert_int_equal(arrive(store, &c.two, 0), 0);
    assert_int_equal(arrive(store, &c.two, INT64_MIN), 0);
}

static void test_a_barrier_at_a_text_is_refused(void **state)
{
    struct ct_store *store = *state;
    struct crowd c;
    crowd_init(&c);
    set(store, "bar", "text");
    assert_int_equal(arrive(store, &c.one, 2), CT_EFORMAT);
    assert_int_equal(ct_store_num_waiters(store), 0);
    expect_count(store, "text");
}

/* ---- MULTI_SET ------------------------------------------------------------------------------ */

#define PAIRS                            \
    "\1\0\0\0\0\0\0\0a\1\0\0\0\0\0\0\0"  \
    "1\1\0\0\0\0\0\0\0b\1\0\0\0\0\0\0\0" \
    "2\1\0\0\0\0\0\0\0a\1\0\0\0\0\0\0\0" \
    "3"

static void test_multi_set_sets_in_order(void **state)
{
    struct ct_store *store = *state;
    struct crowd c;
    crowd_init(&c);
    assert_int_equal(wait_for(store, &c.one, "b"), CT_STORE_E_PENDING);
    assert_int_equal(wait_for(store, &c.two, "a"), CT_STORE_E_PENDING);
    const struct ct_bytes pairs = {(const unsigned char *)PAIRS, sizeof(PAIRS) - 1};
    assert_int_equal(ct_store_multi_set(store, pairs, 3), 0);
    assert_int_equal(c.two.woken, 1);
    assert_int_equal(c.one.woken, 2);
    assert_int_equal(ct_store_num_keys(store), 2);
    assert_memory_equal(ct_store_get(store, b("a"))->bytes, "3", 1);
    assert_int_equal(ct_store_multi_set(store, pairs, 0), 0);
}

/* More pairs than fit on the stack, the last of them for a key that is waited for. */
#define MANY 50

static struct ct_bytes many_pairs(void)
{
    static unsigned char bytes[MANY * 18];
    for (int i = 0; i < MANY; i++) {
        unsigned char *at = bytes + (size_t)i * 18;
        at[0] = at[9] = 1;
        at[8] = (unsigned char)('0' + i);
        at[17] = 'v';
    }
    return (struct ct_bytes){bytes, sizeof(bytes)};
}

static int multi_set_whole_or_not(void *data)
{
    struct ct_store *store = NULL;
    struct crowd c;
    crowd_init(&c);
    int rc = ct_store_new(&store);
    if (rc != 0) {
        return rc;
    }
    rc = ct_store_set(store, b("0"), b("old"));
    static const unsigned char one[] = "\1\0\0\0\0\0\0\0001";
    const struct ct_bytes keys = {one, 9};
    int waiting = rc == 0 ? ct_store_wait(store, &c.one.waiter, keys, 1, false) : rc;
    if (waiting == CT_STORE_E_PENDING) {
        rc = ct_store_multi_set(store, many_pairs(), MANY);
        assert_int_equal(ct_store_num_keys(store), rc == 0 ? MANY : 1);
        assert_int_equal(ct_store_num_bytes(store), rc == 0 ? MANY * 2 : 4);
        assert_int_equal(c.one.woken, rc == 0);
        *(int *)data += rc != 0;
    } else {
        rc = waiting;
    }
    ct_store_cancel(store, &c.one.waiter);
    ct_store_free(store);
    return rc;
}

static void test_multi_set_is_done_whole_or_not_at_all(void **state)
{
    (void)state;
    int refused = 0;
    /* Tolerant, as a map that cannot grow only becomes slower. */
    (void)ct_fault_sweep(multi_set_whole_or_not, &refused, 1);
    /* The list, a value for each pair, and an entry where there was none. */
    assert_int_equal(refused, 1 + MANY + MANY - 2);
}

static int use_queue_and_barrier(void *data)
{
    (void)data;
    struct ct_store *store = NULL;
    struct crowd c;
    crowd_init(&c);
    int rc = ct_store_new(&store);
    for (int i = 0; i < 20 && rc == 0; i++) {
        size_t before = ct_store_num_queued(store);
        rc = ct_store_push(store, b("q"), b("x"));
        assert_int_equal(ct_store_num_queued(store), before + (rc == 0));
    }
    rc = rc == 0 ? arrive(store, &c.one, 2) : rc;
    if (store != NULL) {
        assert_int_equal(ct_store_num_waiters(store), rc == CT_STORE_E_PENDING);
        ct_store_cancel(store, &c.one.waiter);
    }
    ct_store_free(store);
    return rc == CT_STORE_E_PENDING ? 0 : rc;
}

static void test_queues_and_barriers_survive_lack_of_memory(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(use_queue_and_barrier, NULL, 1) >= 25);
}

#define WITH_STORE(test) cmocka_unit_test_setup_teardown(test, ct_probe_set_up, ct_probe_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_STORE(test_first_in_first_out),
        WITH_STORE(test_queue_and_key_of_one_name),
        WITH_STORE(test_clear_empties_queues),
        WITH_STORE(test_an_element_exists_for_those_who_wait),
        WITH_STORE(test_one_waiter_for_each_element),
        WITH_STORE(test_waiter_for_more_keeps_no_element),
        WITH_STORE(test_a_queue_may_be_named_twice),
        WITH_STORE(test_claim_passes_on_when_given_up),
        WITH_STORE(test_claim_ends_with_the_element),
        WITH_STORE(test_barrier_lets_all_go_at_once),
        WITH_STORE(test_barrier_opens_for_nothing_else),
        WITH_STORE(test_barrier_counts_those_who_gave_up),
        WITH_STORE(test_a_barrier_at_a_text_is_refused),
        WITH_STORE(test_multi_set_sets_in_order),
        cmocka_unit_test(test_multi_set_is_done_whole_or_not_at_all),
        cmocka_unit_test(test_queues_and_barriers_survive_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
