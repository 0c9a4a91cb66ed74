/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's values: the four cases of COMPARE_SET, ADD's idea of a number, CHECK.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/store/store.h"
#include "rendezvous/wire/limits.h"

#include <stdlib.h>

static struct ct_bytes b(const char *text)
{
    return (struct ct_bytes){(const unsigned char *)text, strlen(text)};
}

static int set_up(void **state)
{
    struct ct_store *store = NULL;
    assert_int_equal(ct_store_new(&store), 0);
    *state = store;
    return 0;
}

static int tear_down(void **state)
{
    ct_store_free(*state);
    return 0;
}

static void set(struct ct_store *store, const char *key, const char *value)
{
    assert_int_equal(ct_store_set(store, b(key), b(value)), 0);
}

static void expect(struct ct_store *store, const char *key, const char *value)
{
    const struct ct_blob *blob = ct_store_get(store, b(key));
    assert_non_null(blob);
    assert_int_equal(blob->len, strlen(value));
    assert_memory_equal(blob->bytes, value, blob->len);
}

/* ---- values --------------------------------------------------------------------------------- */

static void test_a_key_is_set_replaced_and_deleted(void **state)
{
    struct ct_store *store = *state;
    assert_null(ct_store_get(store, b("k")));
    set(store, "k", "v");
    expect(store, "k", "v");
    set(store, "k", "longer");
    expect(store, "k", "longer");
    assert_int_equal(ct_store_num_keys(store), 1);
    assert_int_equal(ct_store_num_bytes(store), 7);
    assert_int_equal(ct_store_delete(store, b("k")), 0);
    assert_int_equal(ct_store_delete(store, b("k")), CT_STORE_E_MISSING);
    assert_null(ct_store_get(store, b("k")));
    assert_int_equal(ct_store_num_keys(store), 0);
    assert_int_equal(ct_store_num_bytes(store), 0);
}

static void test_empty_value_and_empty_key_exist(void **state)
{
    struct ct_store *store = *state;
    set(store, "", "");
    expect(store, "", "");
    assert_int_equal(ct_store_num_keys(store), 1);
    assert_int_equal(ct_store_delete(store, b("")), 0);
}

static void test_keys_are_bytes(void **state)
{
    struct ct_store *store = *state;
    const struct ct_bytes one = {(const unsigned char *)"a\0b", 3};
    const struct ct_bytes two = {(const unsigned char *)"a\0c", 3};
    assert_int_equal(ct_store_set(store, one, b("1")), 0);
    assert_null(ct_store_get(store, two));
    assert_null(ct_store_get(store, b("a")));
    assert_non_null(ct_store_get(store, one));
}

static void test_old_value_lives_while_referenced(void **state)
{
    struct ct_store *store = *state;
    set(store, "k", "old");
    struct ct_blob *held = ct_blob_ref(ct_store_get(store, b("k")));
    set(store, "k", "new");
    assert_memory_equal(held->bytes, "old", 3);
    ct_blob_unref(held);
}

static void test_append_makes_a_key_and_extends_it(void **state)
{
    struct ct_store *store = *state;
    assert_int_equal(ct_store_append(store, b("k"), b("ab")), 0);
    assert_int_equal(ct_store_append(store, b("k"), b("")), 0);
    assert_int_equal(ct_store_append(store, b("k"), b("c")), 0);
    expect(store, "k", "abc");
    assert_int_equal(ct_store_num_keys(store), 1);
}

/* Appending to a large value copied all of it each time: 10 s for a few thousand small ones. */
static void test_append_copies_only_what_somebody_else_holds(void **state)
{
    struct ct_store *store = *state;
    size_t moved = 0;
    const void *at = NULL;
    for (int i = 0; i < 10000; i++) {
        assert_int_equal(ct_store_append_copies(store, b("k")), 0);
        assert_int_equal(ct_store_append(store, b("k"), b("ab")), 0);
        const struct ct_blob *value = ct_store_get(store, b("k"));
        moved += value->bytes != at;
        at = value->bytes;
    }
    assert_in_range(moved, 1, 40);
    struct ct_blob *held = ct_blob_ref(ct_store_get(store, b("k")));
    assert_int_equal(ct_store_append_copies(store, b("k")), 20000);
    assert_int_equal(ct_store_append(store, b("k"), b("c")), 0);
    assert_int_equal(held->len, 20000);
    assert_int_equal(ct_store_get(store, b("k"))->len, 20001);
    assert_memory_equal(ct_store_get(store, b("k"))->bytes + 19998, "abc", 3);
    ct_blob_unref(held);
    assert_int_equal(ct_store_delete(store, b("k")), 0);
    assert_int_equal(ct_store_budget(store)->used, 0);
}

static void test_append_keeps_the_value_limit(void **state)
{
    struct ct_store *store = *state;
    unsigned char *big = calloc(1, CT_MAX_VALUE_LEN);
    assert_non_null(big);
    assert_int_equal(ct_store_set(store, b("k"), (struct ct_bytes){big, CT_MAX_VALUE_LEN - 1}), 0);
    assert_int_equal(ct_store_append(store, b("k"), b("12")), CT_ELIMIT);
    assert_int_equal(ct_store_append(store, b("k"), b("1")), 0);
    assert_int_equal(ct_store_get(store, b("k"))->len, CT_MAX_VALUE_LEN);
    free(big);
}

/* ---- ADD ------------------------------------------------------------------------------------ */

static void test_add_counts_up_and_down(void **state)
{
    struct ct_store *store = *state;
    int64_t n = 0;
    assert_int_equal(ct_store_add(store, b("n"), 5, &n), 0);
    assert_int_equal(n, 5);
    expect(store, "n", "5");
    assert_int_equal(ct_store_add(store, b("n"), -8, &n), 0);
    assert_int_equal(n, -3);
    expect(store, "n", "-3");
    assert_int_equal(ct_store_add(store, b("zero"), 0, &n), 0);
    expect(store, "zero", "0");
}

static void test_add_reads_numbers_as_stoll_does(void **state)
{
    struct ct_store *store = *state;
    static const struct {
        const char *value;
        int64_t number;
    } good[] = {
        {"7", 7},
        {" \t\n\v\f\r42", 42},
        {"+3", 3},
        {"-3", -3},
        {"12abc", 12},
        {"0x10", 0},
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775808", INT64_MIN},
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        int64_t n = 1;
        set(store, "n", good[i].value);
        assert_int_equal(ct_store_add(store, b("n"), 0, &n), 0);
        assert_true(n == good[i].number);
    }
    static const char *const bad[] = {"",
                                      " ",
                                      "abc",
                                      "-",
                                      "+",
                                      "+-1",
                                      "- 1",
                                      "9223372036854775808",
                                      "-9223372036854775809",
                                      "99999999999999999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        int64_t n = 77;
        set(store, "n", bad[i]);
        assert_int_equal(ct_store_add(store, b("n"), 1, &n), CT_EFORMAT);
        assert_int_equal(n, 77);
        expect(store, "n", bad[i]);
    }
}

static void test_add_wraps_around(void **state)
{
    struct ct_store *store = *state;
    int64_t n = 0;
    set(store, "n", "9223372036854775807");
    assert_int_equal(ct_store_add(store, b("n"), 1, &n), 0);
    assert_true(n == INT64_MIN);
    expect(store, "n", "-9223372036854775808");
}

/* ---- COMPARE_SET ---------------------------------------------------------------------------- */

static struct ct_blob *compare_set(struct ct_store *store, const char *expected,
                                   const char *desired)
{
    struct ct_blob *held = NULL;
    assert_int_equal(ct_store_compare_set(store, b("k"), b(expected), b(desired), &held), 0);
    return held;
}

static void test_compare_set_replaces_only_what_is_expected(void **state)
{
    struct ct_store *store = *state;
    /* Missing, something expected: nothing is stored. */
    assert_null(compare_set(store, "x", "new"));
    assert_null(ct_store_get(store, b("k")));
    /* Missing, nothing expected: stored. */
    assert_memory_equal(compare_set(store, "", "one")->bytes, "one", 3);
    expect(store, "k", "one");
    /* Different: what is held comes back. */
    assert_memory_equal(compare_set(store, "", "two")->bytes, "one", 3);
    assert_memory_equal(compare_set(store, "onE", "two")->bytes, "one", 3);
    expect(store, "k", "one");
    /* Equal: stored. */
    assert_memory_equal(compare_set(store, "one", "two")->bytes, "two", 3);
    expect(store, "k", "two");
    /* An empty value is a value. */
    assert_int_equal(compare_set(store, "two", "")->len, 0);
    assert_memory_equal(compare_set(store, "", "end")->bytes, "end", 3);
}

/* ---- CHECK ---------------------------------------------------------------------------------- */

static void test_check_needs_all_keys(void **state)
{
    struct ct_store *store = *state;
    static const unsigned char keys[] = "\1\0\0\0\0\0\0\0a\1\0\0\0\0\0\0\0b";
    assert_true(ct_store_check(store, (struct ct_bytes){keys, 0}, 0));
    set(store, "a", "");
    assert_true(ct_store_check(store, (struct ct_bytes){keys, 9}, 1));
    assert_false(ct_store_check(store, (struct ct_bytes){keys, 18}, 2));
    set(store, "b", "");
    assert_true(ct_store_check(store, (struct ct_bytes){keys, 18}, 2));
}

/* ---- the whole ------------------------------------------------------------------------------ */

static void test_freeing_nothing_is_allowed(void **state)
{
    (void)state;
    ct_store_free(NULL);
    ct_blob_unref(NULL);
}

#define WITH_STORE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_STORE(test_a_key_is_set_replaced_and_deleted),
        WITH_STORE(test_empty_value_and_empty_key_exist),
        WITH_STORE(test_keys_are_bytes),
        WITH_STORE(test_old_value_lives_while_referenced),
        WITH_STORE(test_append_makes_a_key_and_extends_it),
        WITH_STORE(test_append_copies_only_what_somebody_else_holds),
        WITH_STORE(test_append_keeps_the_value_limit),
        WITH_STORE(test_add_counts_up_and_down),
        WITH_STORE(test_add_reads_numbers_as_stoll_does),
        WITH_STORE(test_add_wraps_around),
        WITH_STORE(test_compare_set_replaces_only_what_is_expected),
        WITH_STORE(test_check_needs_all_keys),
        cmocka_unit_test(test_freeing_nothing_is_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
