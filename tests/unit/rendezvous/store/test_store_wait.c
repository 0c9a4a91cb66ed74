/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting for keys, and the engine without memory.
 */
#include "tests/lib/store_probe.h"

#include <stdio.h>

/* ---- waiting -------------------------------------------------------------------------------- */

static void test_a_waited_for_key_does_not_exist(void **state)
{
    struct ct_store *store = *state;
    int clock = 0;
    struct probe probe;
    probe_init(&probe, &clock);
    assert_int_equal(wait_for(store, &probe, "k"), CT_STORE_E_PENDING);
    assert_int_equal(ct_store_num_waiters(store), 1);
    assert_int_equal(ct_store_num_keys(store), 0);
    assert_null(ct_store_get(store, b("k")));
    assert_int_equal(ct_store_delete(store, b("k")), CT_STORE_E_MISSING);
    set(store, "k", "v");
    assert_int_equal(probe.woken, 1);
    assert_int_equal(ct_store_num_waiters(store), 0);
}

static void test_wait_for_what_is_there(void **state)
{
    struct ct_store *store = *state;
    int clock = 0;
    struct probe probe;
    probe_init(&probe, &clock);
    set(store, "a", "");
    assert_int_equal(wait_for(store, &probe, "a a"), 0);
    assert_int_equal(wait_for(store, &probe, ""), 0);
    assert_int_equal(ct_store_num_waiters(store), 0);
}

static void test_every_change_that_creates_wakes(void **state)
{
    struct ct_store *store = *state;
    int clock = 0;
    struct probe probes[3];
    static const char *const keys[] = {"s", "p", "n"};
    for (int i = 0; i < 3; i++) {
        probe_init(&probes[i], &clock);
        assert_int_equal(wait_for(store, &probes[i], keys[i]), CT_STORE_E_PENDING);
    }
    int64_t n;
    set(store, "s", "");
    assert_int_equal(ct_store_append(store, b("p"), b("")), 0);
    assert_int_equal(ct_store_add(store, b("n"), 0, &n), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(probes[i].woken, i + 1);
    }
}

static void test_wakes_in_the_order_of_waiting(void **state)
{
    struct ct_store *store = *state;
    int clock = 0;
    struct probe probes[20];
    for (int i = 0; i < 20; i++) {
        probe_init(&probes[i], &clock);
        assert_int_equal(wait_for(store, &probes[i], "k"), CT_STORE_E_PENDING);
    }
    set(store, "k", "");
    for (int i = 0; i < 20; i++) {
        assert_int_equal(probes[i].woken, i + 1);
    }
}

static void test_several_keys_are_all_needed(void **state)
{
    struct ct_store *store = *state;
    int clock = 0;
    struct probe probe;
    probe_init(&probe, &clock);
    set(store, "have", "");
    assert_int_equal(wait_for(store, &probe, "a have b c"), CT_STORE_E_PENDING);
    assert_int_equal(probe.waiter.missing, 3);
    set(store, "b", "");
    set(store, "b", "");
    set(store, "a", "");
    /* Gone again: it came once, which is what counts. */
    assert_int_equal(ct_store_delete(store, b("a")), 0);
    assert_int_equal(ct_store_delete(store, b("have")), 0);
    assert_int_equal(probe.woken, 0);
    set(store, "c", "");
    assert_int_equal(probe.woken, 1);
}

static void test_a_wait_may_name_a_key_twice(void **state)
{
    struct ct_store *store = *state;
    int clock = 0;
    struct probe probe;
    probe_init(&probe, &clock);
    assert_int_equal(wait_for(store, &probe, "k k x k"), CT_STORE_E_PENDING);
    assert_int_equal(probe.waiter.missing, 4);
    set(store, "k", "");
    assert_int_equal(probe.waiter.missing, 1);
    set(store, "x", "");
    assert_int_equal(probe.woken, 1);
}

static void test_a_wait_may_name_keys_in_several_calls(void **state)
{
    struct ct_store *store = *state;
    int clock = 0;
    struct probe first, second;
    probe_init(&first, &clock);
    probe_init(&second, &clock);
    static const unsigned char name[] = "\1\0\0\0\0\0\0\0q\1\0\0\0\0\0\0\0z";
    const struct ct_bytes q = {name, 9}, z = {name + 9, 9};
    assert_int_equal(ct_store_wait(store, &first.waiter, q, 1, true), CT_STORE_E_PENDING);
    assert_int_equal(wait_for(store, &second, "q"), CT_STORE_E_PENDING);
    /* The element goes to the one that misses nothing else. */
    assert_int_equal(ct_store_push(store, b("q"), b("v")), 0);
    assert_int_equal(second.woken, 1);
    assert_int_equal(ct_store_wait(store, &first.waiter, z, 1, false), CT_STORE_E_PENDING);
    set(store, "z", "");
    assert_int_equal(first.woken, 2);
    assert_int_equal(ct_store_num_waiters(store), 0);
    ct_store_cancel(store, &second.waiter);
    ct_store_clear(store);
}

static void test_a_cancelled_wait_is_not_woken(void **state)
{
    struct ct_store *store = *state;
    int clock = 0;
    struct probe gone, stays;
    probe_init(&gone, &clock);
    probe_init(&stays, &clock);
    ct_store_cancel(store, &gone.waiter);
    assert_int_equal(wait_for(store, &gone, "a k k b"), CT_STORE_E_PENDING);
    assert_int_equal(wait_for(store, &stays, "k"), CT_STORE_E_PENDING);
    set(store, "b", "");
    ct_store_cancel(store, &gone.waiter);
    ct_store_cancel(store, &gone.waiter);
    assert_int_equal(ct_store_num_waiters(store), 1);
    set(store, "a", "");
    set(store, "k", "");
    assert_int_equal(gone.woken, 0);
    assert_int_equal(stays.woken, 1);
}

static void test_waiter_can_be_used_again(void **state)
{
    struct ct_store *store = *state;
    int clock = 0;
    struct probe probe;
    probe_init(&probe, &clock);
    assert_int_equal(wait_for(store, &probe, "a b"), CT_STORE_E_PENDING);
    set(store, "a", "");
    set(store, "b", "");
    assert_int_equal(probe.woken, 1);
    probe.woken = 0;
    assert_int_equal(wait_for(store, &probe, "a c"), CT_STORE_E_PENDING);
    set(store, "c", "");
    assert_int_equal(probe.woken, 2);
}

static void test_compare_set_wakes_only_when_the_key_came(void **state)
{
    struct ct_store *store = *state;
    int clock = 0;
    struct probe probe;
    probe_init(&probe, &clock);
    assert_int_equal(wait_for(store, &probe, "k"), CT_STORE_E_PENDING);
    struct ct_blob *held = NULL;
    assert_int_equal(ct_store_compare_set(store, b("k"), b("x"), b("new"), &held), 0);
    assert_int_equal(probe.woken, 0);
    assert_int_equal(ct_store_compare_set(store, b("k"), b(""), b("new"), &held), 0);
    assert_int_equal(probe.woken, 1);
}

/* ---- the whole ------------------------------------------------------------------------------ */

static void test_clear_keeps_waiters(void **state)
{
    struct ct_store *store = *state;
    int clock = 0;
    struct probe probe;
    probe_init(&probe, &clock);
    for (int i = 0; i < 100; i++) {
        char key[8];
        (void)snprintf(key, sizeof(key), "k%d", i);
        set(store, key, "v");
    }
    assert_int_equal(wait_for(store, &probe, "w"), CT_STORE_E_PENDING);
    ct_store_clear(store);
    assert_int_equal(ct_store_num_keys(store), 0);
    assert_int_equal(ct_store_num_bytes(store), 0);
    assert_null(ct_store_get(store, b("k7")));
    set(store, "w", "");
    assert_int_equal(probe.woken, 1);
    ct_store_clear(store);
}

static int use_everything(void *data)
{
    (void)data;
    struct ct_store *store = NULL;
    int clock = 0;
    struct probe probe;
    probe_init(&probe, &clock);
    int rc = ct_store_new(&store);
    if (rc != 0) {
        return rc;
    }
    int64_t n = 0;
    struct ct_blob *held;
    static const unsigned char keys[] = "\1\0\0\0\0\0\0\0a\1\0\0\0\0\0\0\0b";
    rc = ct_store_wait(store, &probe.waiter, (struct ct_bytes){keys, 18}, 2, false);
    /* A wait that failed has left nothing behind. */
    assert_int_equal(ct_store_num_waiters(store), rc == CT_STORE_E_PENDING);
    rc = rc == CT_STORE_E_PENDING ? ct_store_set(store, b("s"), b("v")) : rc;
    rc = rc == 0 ? ct_store_append(store, b("s"), b("v")) : rc;
    rc = rc == 0 ? ct_store_append(store, b("t"), b("v")) : rc;
    rc = rc == 0 ? ct_store_add(store, b("n"), 1, &n) : rc;
    rc = rc == 0 ? ct_store_compare_set(store, b("c"), b(""), b("1"), &held) : rc;
    for (int i = 0; i < 40 && rc == 0; i++) {
        char key[8];
        (void)snprintf(key, sizeof(key), "k%d", i);
        size_t before = ct_store_num_keys(store);
        rc = ct_store_set(store, b(key), b("v"));
        assert_int_equal(ct_store_num_keys(store), before + (rc == 0));
    }
    ct_store_cancel(store, &probe.waiter);
    ct_store_free(store);
    return rc;
}

static void test_waits_survive_lack_of_memory(void **state)
{
    (void)state;
    /* Tolerant, as a map that cannot grow only becomes slower. */
    assert_true(ct_fault_sweep(use_everything, NULL, 1) >= 50);
}

#define WITH_STORE(test) cmocka_unit_test_setup_teardown(test, ct_probe_set_up, ct_probe_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_STORE(test_compare_set_wakes_only_when_the_key_came),
        WITH_STORE(test_a_waited_for_key_does_not_exist),
        WITH_STORE(test_wait_for_what_is_there),
        WITH_STORE(test_every_change_that_creates_wakes),
        WITH_STORE(test_wakes_in_the_order_of_waiting),
        WITH_STORE(test_several_keys_are_all_needed),
        WITH_STORE(test_a_wait_may_name_a_key_twice),
        WITH_STORE(test_a_wait_may_name_keys_in_several_calls),
        WITH_STORE(test_a_cancelled_wait_is_not_woken),
        WITH_STORE(test_waiter_can_be_used_again),
        WITH_STORE(test_clear_keeps_waiters),
        cmocka_unit_test(test_waits_survive_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
