/* SPDX-License-Identifier: Apache-2.0
 *
 * What the engine tells those who watch a key.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/store/store.h"
#include "tests/lib/fault.h"

#include <stdlib.h>
#include <string.h>

#define KEY(text) ((struct ct_bytes){(const unsigned char *)(text), sizeof(text) - 1})
#define Z7 "\0\0\0\0\0\0\0"

struct fixture {
    struct ct_store *store;
    struct ct_waiter waiter;
    char log[256]; /* "key:before>after " of each notice, '-' for no value; '!' for a wake */
};

static void append(struct fixture *f, const void *bytes, size_t len)
{
    size_t at = strlen(f->log);
    assert_true(at + len < sizeof(f->log));
    memcpy(f->log + at, bytes, len);
    f->log[at + len] = '\0';
}

static void append_value(struct fixture *f, const struct ct_blob *value)
{
    append(f, value != NULL ? (const void *)value->bytes : "-", value != NULL ? value->len : 1);
}

static void on_notice(void *watcher, const struct ct_notice *notice)
{
    struct fixture *f = watcher;
    append(f, notice->key.ptr, notice->key.len);
    append(f, ":", 1);
    append_value(f, notice->before);
    append(f, ">", 1);
    append_value(f, notice->after);
    append(f, " ", 1);
}

static void on_wake(struct ct_waiter *waiter)
{
    append(CT_CONTAINER_OF(waiter, struct fixture, waiter), "! ", 2);
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    f->waiter.wake = on_wake;
    assert_int_equal(ct_store_new(&f->store), 0);
    assert_int_equal(ct_store_watch(f->store, KEY("k"), f, on_notice), 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    ct_store_cancel(f->store, &f->waiter);
    ct_store_unwatch(f->store, f);
    ct_store_free(f->store);
    free(f);
    return 0;
}

static void expect(struct fixture *f, const char *want)
{
    assert_string_equal(f->log, want);
    f->log[0] = '\0';
}

static void test_every_change_is_told(void **state)
{
    struct fixture *f = *state;
    struct ct_store *s = f->store;
    int64_t sum = 0;
    struct ct_blob *held;
    assert_int_equal(ct_store_set(s, KEY("k"), KEY("1")), 0);
    expect(f, "k:->1 ");
    assert_int_equal(ct_store_set(s, KEY("k"), KEY("1")), 0);
    expect(f, "k:1>1 ");
    assert_int_equal(ct_store_add(s, KEY("k"), 4, &sum), 0);
    expect(f, "k:1>5 ");
    assert_int_equal(ct_store_append(s, KEY("k"), KEY("0")), 0);
    expect(f, "k:5>50 ");
    assert_int_equal(ct_store_compare_set(s, KEY("k"), KEY("other"), KEY("x"), &held), 0);
    expect(f, "");
    assert_int_equal(ct_store_compare_set(s, KEY("k"), KEY("50"), KEY("x"), &held), 0);
    expect(f, "k:50>x ");
    const char pairs[] = "\x01" Z7 "k\x01" Z7 "a\x01" Z7 "o\x01" Z7 "b\x01" Z7 "k\x00" Z7;
    assert_int_equal(ct_store_multi_set(s, KEY(pairs), 3), 0);
    expect(f, "k:x>a k:a> ");
    assert_int_equal(ct_store_delete(s, KEY("k")), 0);
    expect(f, "k:>- ");
    assert_int_equal(ct_store_delete(s, KEY("k")), CT_STORE_E_MISSING);
    expect(f, "");
    assert_int_equal(ct_store_compare_set(s, KEY("k"), KEY("x"), KEY("y"), &held), 0);
    expect(f, "");
    assert_int_equal(ct_store_compare_set(s, KEY("k"), KEY(""), KEY("y"), &held), 0);
    expect(f, "k:->y ");
}

static void test_other_names_are_not_told(void **state)
{
    struct fixture *f = *state;
    struct ct_blob *value;
    size_t len;
    assert_int_equal(ct_store_set(f->store, KEY("kk"), KEY("1")), 0);
    assert_int_equal(ct_store_push(f->store, KEY("k"), KEY("1")), 0);
    assert_int_equal(ct_store_pop(f->store, &f->waiter, KEY("k"), &len, &value), 0);
    ct_blob_unref(value);
    expect(f, "");
}

static void test_a_barrier_counts(void **state)
{
    struct fixture *f = *state;
    struct ct_waiter last = {.wake = on_wake};
    assert_int_equal(ct_store_barrier(f->store, &f->waiter, KEY("k"), 2), CT_STORE_E_PENDING);
    expect(f, "k:->1 ");
    assert_int_equal(ct_store_barrier(f->store, &last, KEY("k"), 2), 0);
    expect(f, "! k:1>2 ");
}

static void test_waiters_go_first(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(ct_store_wait(f->store, &f->waiter, KEY("\x01" Z7 "k"), 1, false),
                     CT_STORE_E_PENDING);
    assert_int_equal(ct_store_set(f->store, KEY("k"), KEY("1")), 0);
    expect(f, "! k:->1 ");
}

/* As waiters do, watchers stay; what clears the store ends the connections itself. */
static void test_clearing_is_not_told(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(ct_store_set(f->store, KEY("k"), KEY("1")), 0);
    expect(f, "k:->1 ");
    ct_store_clear(f->store);
    expect(f, "");
    assert_int_equal(ct_store_set(f->store, KEY("k"), KEY("2")), 0);
    expect(f, "k:->2 ");
}

static void test_an_unwatched_key_sends_no_notice(void **state)
{
    struct fixture *f = *state;
    ct_store_unwatch(f->store, f);
    ct_store_unwatch(f->store, f);
    assert_int_equal(ct_store_budget(f->store)->used, 0);
    assert_int_equal(ct_store_set(f->store, KEY("k"), KEY("1")), 0);
    expect(f, "");
}

static int refuse(struct ct_change_log *change_log, const struct ct_change *change)
{
    (void)change_log;
    (void)change;
    return CT_EIO;
}

static void test_what_the_journal_refuses_is_not_told(void **state)
{
    struct fixture *f = *state;
    int64_t sum;
    assert_int_equal(ct_store_set(f->store, KEY("k"), KEY("1")), 0);
    expect(f, "k:->1 ");
    struct ct_change_log change_log = {.append = refuse};
    ct_store_set_change_log(f->store, &change_log);
    assert_int_equal(ct_store_set(f->store, KEY("k"), KEY("2")), CT_EIO);
    assert_int_equal(ct_store_add(f->store, KEY("k"), 1, &sum), CT_EIO);
    assert_int_equal(ct_store_delete(f->store, KEY("k")), CT_EIO);
    assert_int_equal(ct_store_multi_set(f->store, KEY("\x01" Z7 "k\x01" Z7 "a"), 1), CT_EIO);
    expect(f, "");
    ct_store_set_change_log(f->store, NULL);
}

static int changes(void *data)
{
    struct fixture *f = data;
    f->log[0] = '\0';
    struct ct_store *s;
    int rc = ct_store_new(&s);
    if (rc != 0) {
        return rc;
    }
    const char *want = "";
    rc = ct_store_watch(s, KEY("k"), f, on_notice);
    if (rc == 0) {
        rc = ct_store_set(s, KEY("k"), KEY("1"));
        want = rc == 0 ? "k:->1 " : want;
    }
    int64_t sum;
    if (rc == 0) {
        rc = ct_store_add(s, KEY("k"), 1, &sum);
        want = rc == 0 ? "k:->1 k:1>2 " : want;
    }
    if (rc == 0) {
        rc = ct_store_delete(s, KEY("k"));
        want = rc == 0 ? "k:->1 k:1>2 k:2>- " : want;
    }
    assert_string_equal(f->log, want);
    ct_store_unwatch(s, f);
    ct_store_free(s);
    return rc;
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    struct fixture f = {0};
    assert_true(ct_fault_sweep(changes, &f, 0) >= 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_change_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_other_names_are_not_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_barrier_counts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_waiters_go_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_clearing_is_not_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_unwatched_key_sends_no_notice, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_the_journal_refuses_is_not_told, set_up,
                                        tear_down),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("store_watch", tests, NULL, NULL);
}
