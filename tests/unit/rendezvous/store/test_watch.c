/* SPDX-License-Identifier: Apache-2.0
 *
 * Who watches what: telling, forgetting, and the memory it takes.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/store/watch.h"
#include "tests/lib/fault.h"

#include <string.h>

#define KEY(text) ((struct ct_bytes){(const unsigned char *)(text), sizeof(text) - 1})

/* The names of those who were told, in order. */
static char told[64];

static void on_notice(void *watcher, const struct ct_notice *notice)
{
    (void)notice;
    size_t len = strlen(told);
    assert_true(len + 1 < sizeof(told));
    told[len] = *(const char *)watcher;
    told[len + 1] = '\0';
}

static void expect_told(struct ct_watches *watches, struct ct_bytes key, const char *want)
{
    told[0] = '\0';
    const struct ct_notice notice = {.key = key};
    ct_watches_tell(watches, &notice);
    assert_string_equal(told, want);
}

static struct ct_watches *begin(struct ct_budget *budget)
{
    *budget = (struct ct_budget){.max = SIZE_MAX};
    struct ct_watches *watches = NULL;
    assert_int_equal(ct_watches_new(budget, &watches), 0);
    assert_true(ct_watches_empty(watches));
    return watches;
}

static void end(struct ct_watches *watches, const struct ct_budget *budget)
{
    assert_true(ct_watches_empty(watches));
    ct_watches_free(watches);
    assert_int_equal(budget->used, 0);
}

static char a = 'a', b = 'b';

static void test_those_who_watch_are_told(void **state)
{
    (void)state;
    struct ct_budget budget;
    struct ct_watches *w = begin(&budget);
    assert_int_equal(ct_watches_add(w, KEY("one"), &b, on_notice), 0);
    assert_int_equal(ct_watches_add(w, KEY("one"), &a, on_notice), 0);
    assert_int_equal(ct_watches_add(w, KEY(""), &a, on_notice), 0);
    expect_told(w, KEY("one"), "ba");
    expect_told(w, KEY(""), "a");
    expect_told(w, KEY("two"), "");
    expect_told(w, KEY("on"), "");
    ct_watches_drop(w, &a);
    expect_told(w, KEY("one"), "b");
    expect_told(w, KEY(""), "");
    ct_watches_drop(w, &a);
    ct_watches_drop(w, &b);
    expect_told(w, KEY("one"), "");
    end(w, &budget);
}

static void test_a_key_watched_twice_is_told_twice(void **state)
{
    (void)state;
    struct ct_budget budget;
    struct ct_watches *w = begin(&budget);
    assert_int_equal(ct_watches_add(w, KEY("k"), &a, on_notice), 0);
    assert_int_equal(ct_watches_add(w, KEY("k"), &b, on_notice), 0);
    assert_int_equal(ct_watches_add(w, KEY("k"), &a, on_notice), 0);
    expect_told(w, KEY("k"), "aba");
    ct_watches_drop(w, &a);
    expect_told(w, KEY("k"), "b");
    ct_watches_drop(w, &b);
    end(w, &budget);
}

static void test_the_budget_refuses(void **state)
{
    (void)state;
    struct ct_budget budget;
    struct ct_watches *w = begin(&budget);
    assert_int_equal(ct_watches_add(w, KEY("k"), &a, on_notice), 0);
    /* Each of the three parts of a watch is the one that does not fit. */
    for (size_t room = 0; room < 200; room += 20) {
        size_t used = budget.used;
        budget.max = used + room;
        if (ct_watches_add(w, KEY("other"), &b, on_notice) == 0) {
            assert_true(room > 0);
            ct_watches_drop(w, &b);
        }
        assert_int_equal(budget.used, used);
        expect_told(w, KEY("other"), "");
        expect_told(w, KEY("k"), "a");
    }
    assert_true(budget.refused > 0);
    ct_watches_drop(w, &a);
    end(w, &budget);
}

static int life(void *data)
{
    (void)data;
    struct ct_budget budget = {.max = SIZE_MAX};
    struct ct_watches *w;
    int rc = ct_watches_new(&budget, &w);
    if (rc != 0) {
        assert_int_equal(budget.used, 0);
        return rc;
    }
    rc = ct_watches_add(w, KEY("one"), &a, on_notice);
    rc = rc == 0 ? ct_watches_add(w, KEY("two"), &b, on_notice) : rc;
    rc = rc == 0 ? ct_watches_add(w, KEY("one"), &b, on_notice) : rc;
    ct_watches_drop(w, &a);
    ct_watches_drop(w, &b);
    end(w, &budget);
    return rc;
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(life, NULL, 0) >= 8);
    ct_watches_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_those_who_watch_are_told),
        cmocka_unit_test(test_a_key_watched_twice_is_told_twice),
        cmocka_unit_test(test_the_budget_refuses),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("watch", tests, NULL, NULL);
}
