/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that all memory comes through one table, whose functions a test can replace, and that a
 * fault counter makes each kind of allocation fail and notices a leak.
 */
#include "common/alloc.h"
#include "common/err.h"
#include "tests/lib/ct_test.h"

#include <stdlib.h>

static void test_zero_size_gives_a_pointer(void **state)
{
    (void)state;
    void *a = ct_malloc(0), *b = ct_calloc(0, 8), *c = ct_calloc(8, 0);
    assert_non_null(a);
    assert_non_null(b);
    assert_non_null(c);
    assert_ptr_not_equal(a, b);
    /* Shrinking to nothing must not free behind the caller's back. */
    a = ct_realloc(a, 0);
    assert_non_null(a);
    ct_free(a);
    ct_free(b);
    ct_free(c);
    ct_free(NULL);
}

static void test_calloc_zeroes_and_refuses_overflow(void **state)
{
    (void)state;
    unsigned char *p = ct_calloc(33, 3);
    assert_non_null(p);
    for (size_t i = 0; i < 99; i++) {
        assert_int_equal(p[i], 0);
    }
    ct_free(p);
    /* 2^33 * 2^33 wraps to 4 in 64 bits. */
    assert_null(ct_calloc((size_t)1 << 33, (size_t)1 << 33));
    assert_null(ct_calloc(SIZE_MAX, 2));
}

static void test_text_functions_copy_cut_and_format(void **state)
{
    (void)state;
    char *a = ct_strdup("gradient");
    char *b = ct_strndup("gradient", 4);
    char *c = ct_strndup("ab", 100);
    char *d = ct_asprintf("rank %d of %s", 3, "eight");
    char *e = ct_strdup("");
    char *f = ct_asprintf("%s", "");
    assert_string_equal(a, "gradient");
    assert_string_equal(b, "grad");
    assert_string_equal(c, "ab");
    assert_string_equal(d, "rank 3 of eight");
    assert_string_equal(e, "");
    assert_string_equal(f, "");
    ct_free(a);
    ct_free(b);
    ct_free(c);
    ct_free(d);
    ct_free(e);
    ct_free(f);
}

struct counts {
    int mallocs, reallocs, frees;
};

static void *count_malloc(size_t size, void *data)
{
    ((struct counts *)data)->mallocs++;
    return malloc(size);
}

static void *count_realloc(void *ptr, size_t size, void *data)
{
    ((struct counts *)data)->reallocs++;
    return realloc(ptr, size);
}

static void count_free(void *ptr, void *data)
{
    ((struct counts *)data)->frees++;
    free(ptr);
}

static void test_everything_goes_through_the_table(void **state)
{
    (void)state;
    struct counts counts = {0};
    const struct ct_allocator table = {count_malloc, count_realloc, count_free, &counts};
    ct_alloc_install(&table);
    void *p = ct_malloc(8);
    p = ct_realloc(p, 16);
    ct_free(p);
    ct_free(ct_calloc(2, 4));
    ct_free(ct_strdup("x"));
    ct_free(ct_asprintf("%d", 1));
    ct_free(NULL);
    ct_alloc_install(NULL);
    ct_free(ct_malloc(8));
    assert_int_equal(counts.mallocs, 4);
    assert_int_equal(counts.reallocs, 1);
    assert_int_equal(counts.frees, 4);
}

static int allocate_all_kinds(void *data)
{
    (void)data;
    char *a = ct_strdup("a"), *b = ct_asprintf("%d", 2);
    void *c = ct_calloc(1, 1), *d = ct_realloc(NULL, 9);
    int rc = a != NULL && b != NULL && c != NULL && d != NULL ? 0 : CT_ENOMEM;
    ct_free(a);
    ct_free(b);
    ct_free(c);
    ct_free(d);
    return rc;
}

static void test_each_kind_can_be_made_to_fail(void **state)
{
    (void)state;
    assert_int_equal(ct_fault_sweep(allocate_all_kinds, NULL, 0), 4);
}

static void test_fault_counter_sees_a_leak(void **state)
{
    (void)state;
    ct_fault_begin(-1);
    void *kept = ct_malloc(1);
    void *freed = ct_malloc(1);
    ct_free(freed);
    assert_int_equal(ct_fault_end(), 1);
    assert_int_equal(ct_fault_hit(), 0);
    ct_free(kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zero_size_gives_a_pointer),
        cmocka_unit_test(test_calloc_zeroes_and_refuses_overflow),
        cmocka_unit_test(test_text_functions_copy_cut_and_format),
        cmocka_unit_test(test_everything_goes_through_the_table),
        cmocka_unit_test(test_each_kind_can_be_made_to_fail),
        cmocka_unit_test(test_fault_counter_sees_a_leak),
    };
    return cmocka_run_group_tests_name("alloc", tests, NULL, NULL);
}
