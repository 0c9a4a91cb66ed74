/* SPDX-License-Identifier: Apache-2.0
 *
 * The change log: what it gets of each change, that its refusal changes nothing, and that what it
 * got makes the same store again.
 */
#include "tests/lib/ct_test.h"

#include "common/list.h"
#include "rendezvous/store/store.h"

struct copy {
    struct ct_change_log change_log;
    struct ct_store *store; /* gets every change */
    int told;
    int answer;
    enum ct_change_kind last;
};

static struct ct_bytes b(const char *text)
{
    return (struct ct_bytes){(const unsigned char *)text, strlen(text)};
}

static int on_change(struct ct_change_log *change_log, const struct ct_change *change)
{
    struct copy *copy = CT_CONTAINER_OF(change_log, struct copy, change_log);
    copy->told++;
    copy->last = change->kind;
    return copy->answer != 0 ? copy->answer : ct_store_apply(copy->store, change);
}

struct fixture {
    struct ct_store *store;
    struct copy copy;
};

static int set_up(void **state)
{
    static struct fixture f;
    f = (struct fixture){.copy = {.change_log = {on_change}}};
    assert_int_equal(ct_store_new(&f.store), 0);
    assert_int_equal(ct_store_new(&f.copy.store), 0);
    ct_store_set_change_log(f.store, &f.copy.change_log);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    ct_store_free(f->store);
    ct_store_free(f->copy.store);
    return 0;
}

static void expect(struct ct_store *store, const char *key, const char *value)
{
    const struct ct_blob *blob = ct_store_get(store, b(key));
    assert_non_null(blob);
    assert_int_equal(blob->len, strlen(value));
    assert_memory_equal(blob->bytes, value, blob->len);
}

static void change_everything(struct ct_store *store)
{
    int64_t n = 0;
    struct ct_blob *held = NULL;
    assert_int_equal(ct_store_set(store, b("set"), b("one")), 0);
    assert_int_equal(ct_store_set(store, b("gone"), b("x")), 0);
    assert_int_equal(ct_store_append(store, b("set"), b("two")), 0);
    assert_int_equal(ct_store_add(store, b("n"), -7, &n), 0);
    assert_int_equal(ct_store_compare_set(store, b("cas"), b(""), b("new"), &held), 0);
    assert_int_equal(ct_store_set(store, b(""), b("")), 0);
    assert_int_equal(ct_store_delete(store, b("gone")), 0);
}

static void expect_everything(struct ct_store *store)
{
    expect(store, "set", "onetwo");
    expect(store, "n", "-7");
    expect(store, "cas", "new");
    expect(store, "", "");
    assert_int_equal(ct_store_num_keys(store), 4);
}

static void test_told_changes_make_the_same_store(void **state)
{
    struct fixture *f = *state;
    change_everything(f->store);
    expect_everything(f->store);
    expect_everything(f->copy.store);
    assert_int_equal(f->copy.told, 7);
}

static void test_what_changes_nothing_is_not_told(void **state)
{
    struct fixture *f = *state;
    struct ct_blob *held = NULL;
    int64_t n;
    assert_int_equal(ct_store_set(f->store, b("k"), b("v")), 0);
    assert_int_equal(ct_store_delete(f->store, b("none")), CT_STORE_E_MISSING);
    assert_int_equal(ct_store_compare_set(f->store, b("k"), b("w"), b("x"), &held), 0);
    assert_int_equal(ct_store_add(f->store, b("k"), 1, &n), CT_EFORMAT);
    assert_int_equal(f->copy.told, 1);
}

static void on_wake(struct ct_waiter *waiter)
{
    (void)waiter;
    fail_msg("woken by a change that was refused");
}

static void test_refusal_changes_nothing(void **state)
{
    struct fixture *f = *state;
    struct ct_blob *held = NULL;
    int64_t n = 5;
    assert_int_equal(ct_store_set(f->store, b("k"), b("1")), 0);
    static const unsigned char missing[] = "\1\0\0\0\0\0\0\0w";
    struct ct_waiter waiter = {.wake = on_wake};
    assert_int_equal(ct_store_wait(f->store, &waiter, (struct ct_bytes){missing, 9}, 1, false),
                     CT_STORE_E_PENDING);
    f->copy.answer = CT_EIO;
    assert_int_equal(ct_store_set(f->store, b("k"), b("2")), CT_EIO);
    assert_int_equal(ct_store_set(f->store, b("w"), b("2")), CT_EIO);
    assert_int_equal(ct_store_append(f->store, b("k"), b("2")), CT_EIO);
    assert_int_equal(ct_store_add(f->store, b("k"), 1, &n), CT_EIO);
    assert_int_equal(ct_store_compare_set(f->store, b("k"), b("1"), b("2"), &held), CT_EIO);
    assert_int_equal(ct_store_delete(f->store, b("k")), CT_EIO);
    assert_int_equal(f->copy.told, 7);
    assert_int_equal(n, 5);
    assert_null(held);
    expect(f->store, "k", "1");
    assert_int_equal(ct_store_num_keys(f->store), 1);
    assert_int_equal(ct_store_num_bytes(f->store), 2);
    assert_int_equal(ct_store_num_waiters(f->store), 1);
    ct_store_cancel(f->store, &waiter);
}

static void test_dump_makes_the_same_store(void **state)
{
    struct fixture *f = *state;
    ct_store_set_change_log(f->store, NULL);
    change_everything(f->store);
    assert_int_equal(f->copy.told, 0);
    assert_int_equal(ct_store_dump(f->store, &f->copy.change_log), 0);
    expect_everything(f->copy.store);
    assert_int_equal(f->copy.told, 4);
    f->copy.answer = CT_EIO;
    assert_int_equal(ct_store_dump(f->store, &f->copy.change_log), CT_EIO);
    assert_int_equal(f->copy.told, 5);
}

static void test_apply_refuses_what_it_does_not_know(void **state)
{
    struct fixture *f = *state;
    const struct ct_change odd = {.kind = (enum ct_change_kind)99, .key = b("k")};
    assert_int_equal(ct_store_apply(f->store, &odd), CT_EFORMAT);
    const struct ct_change gone = {.kind = CT_CHANGE_DELETE, .key = b("none")};
    assert_int_equal(ct_store_apply(f->store, &gone), 0);
}

#define WITH_STORES(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_STORES(test_told_changes_make_the_same_store),
        WITH_STORES(test_what_changes_nothing_is_not_told),
        WITH_STORES(test_refusal_changes_nothing),
        WITH_STORES(test_dump_makes_the_same_store),
        WITH_STORES(test_apply_refuses_what_it_does_not_know),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
