/* SPDX-License-Identifier: Apache-2.0
 *
 * Each sample comes once per epoch, in the same batches for any number of ranks.
 */
#include "tests/lib/ct_test.h"
#include "trainer/data/sampler.h"
#include "trainer/formats/rng.h"

#include <stdlib.h>

/* Marks the samples that all ranks of a world get in one epoch; each must come exactly once. */
static void check_coverage(size_t count, size_t batch, int world, unsigned epoch)
{
    unsigned char *seen = calloc(count, 1);
    assert_non_null(seen);
    for (int rank = 0; rank < world; rank++) {
        struct ct_sampler s;
        assert_int_equal(ct_sampler_init(&s, count, batch, rank, world, 7), 0);
        ct_sampler_shuffle(&s, epoch);
        for (size_t t = 0; t < ct_sampler_batches(&s); t++) {
            size_t rows, global;
            const uint32_t *index = ct_sampler_batch(&s, t, &rows, &global);
            assert_true(rows <= global && global <= batch);
            for (size_t i = 0; i < rows; i++) {
                assert_true(index[i] < count);
                seen[index[i]]++;
            }
        }
        ct_sampler_fini(&s);
    }
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(seen[i], 1);
    }
    free(seen);
}

static void test_each_sample_comes_once(void **state)
{
    (void)state;
    static const struct {
        size_t count, batch;
        int world;
    } cases[] = {
        {1, 1, 1},   {1, 256, 4},  {10, 3, 1},    {10, 3, 2},     {10, 3, 4},
        {100, 7, 8}, {1000, 1, 3}, {257, 256, 4}, {1024, 128, 2}, {5, 100, 7},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_coverage(cases[i].count, cases[i].batch, cases[i].world, (unsigned)i);
    }
}

static void test_batches_do_not_depend_on_the_world(void **state)
{
    (void)state;
    enum { COUNT = 103, BATCH = 10 };
    struct ct_sampler one;
    assert_int_equal(ct_sampler_init(&one, COUNT, BATCH, 0, 1, 3), 0);
    ct_sampler_shuffle(&one, 2);
    for (int world = 2; world <= 12; world++) {
        for (size_t t = 0; t < ct_sampler_batches(&one); t++) {
            size_t all, global, place = 0;
            const uint32_t *want = ct_sampler_batch(&one, t, &all, &global);
            assert_int_equal(all, global);
            for (int rank = 0; rank < world; rank++) {
                struct ct_sampler s;
                size_t rows;
                assert_int_equal(ct_sampler_init(&s, COUNT, BATCH, rank, world, 3), 0);
                ct_sampler_shuffle(&s, 2);
                const uint32_t *part = ct_sampler_batch(&s, t, &rows, &global);
                assert_true(rows <= (all - 1) / (size_t)world + 1);
                assert_memory_equal(part, want + place, rows * sizeof *part);
                place += rows;
                ct_sampler_fini(&s);
            }
            assert_int_equal(place, all);
        }
    }
    ct_sampler_fini(&one);
}

static void test_epochs_and_seeds_differ_and_repeat(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    uint32_t first[COUNT];
    struct ct_sampler s;
    assert_int_equal(ct_sampler_init(&s, COUNT, 10, 0, 1, 1), 0);
    ct_sampler_shuffle(&s, 0);
    memcpy(first, s.order, sizeof first);
    ct_sampler_shuffle(&s, 1);
    assert_memory_not_equal(first, s.order, sizeof first);
    ct_sampler_shuffle(&s, 0);
    assert_memory_equal(first, s.order, sizeof first);
    ct_sampler_fini(&s);
    assert_int_equal(ct_sampler_init(&s, COUNT, 10, 0, 1, 2), 0);
    ct_sampler_shuffle(&s, 0);
    assert_memory_not_equal(first, s.order, sizeof first);
    /* Shuffled, not merely rotated: about one element in COUNT stays where it was. */
    size_t fixed = 0;
    for (size_t i = 0; i < COUNT; i++) {
        fixed += first[i] == i;
    }
    assert_true(fixed < 20);
    ct_sampler_fini(&s);
}

static void test_shares_are_even(void **state)
{
    (void)state;
    for (size_t total = 0; total < 40; total++) {
        for (int world = 1; world < 12; world++) {
            size_t next = 0;
            for (int rank = 0; rank < world; rank++) {
                size_t begin, end;
                ct_sampler_share(total, rank, world, &begin, &end);
                assert_int_equal(begin, next);
                assert_true(end - begin == total / (size_t)world ||
                            end - begin == total / (size_t)world + 1);
                next = end;
            }
            assert_int_equal(next, total);
        }
    }
}

static void test_random_numbers_look_uniform(void **state)
{
    (void)state;
    enum { DRAWS = 100000, BINS = 10 };
    size_t bins[BINS] = {0};
    double sum = 0;
    for (size_t i = 0; i < DRAWS; i++) {
        float u = ct_rng_unit(1, CT_RNG_INIT, i);
        assert_true(u >= 0 && u < 1);
        bins[(size_t)(u * BINS)]++;
        sum += u;
    }
    assert_true(sum / DRAWS > 0.495 && sum / DRAWS < 0.505);
    for (size_t b = 0; b < BINS; b++) {
        assert_in_range(bins[b], DRAWS / BINS * 95 / 100, DRAWS / BINS * 105 / 100);
    }
    assert_true(ct_rng_u64(1, 2, 3) != ct_rng_u64(1, 3, 2));
    assert_true(ct_rng_u64(1, 2, 3) != ct_rng_u64(2, 2, 3));
    assert_int_equal(ct_rng_below(UINT64_MAX, 10), 9);
    assert_int_equal(ct_rng_below(0, 10), 0);
}

static int sampler_body(void *data)
{
    (void)data;
    struct ct_sampler s;
    int rc = ct_sampler_init(&s, 10, 2, 0, 1, 0);
    if (rc == 0) {
        ct_sampler_fini(&s);
        ct_sampler_fini(&s);
    }
    return rc;
}

static void test_a_sampler_survives_lack_of_memory(void **state)
{
    (void)state;
    assert_int_equal(ct_fault_sweep(sampler_body, NULL, 0), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_sample_comes_once),
        cmocka_unit_test(test_batches_do_not_depend_on_the_world),
        cmocka_unit_test(test_epochs_and_seeds_differ_and_repeat),
        cmocka_unit_test(test_shares_are_even),
        cmocka_unit_test(test_random_numbers_look_uniform),
        cmocka_unit_test(test_a_sampler_survives_lack_of_memory),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
