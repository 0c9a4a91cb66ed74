/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rows of a batch belong to which shard and rank, and which jobs can share the shards.
 */
#include "tests/lib/ct_test.h"
#include "trainer/model/shards.h"

static void a_shard_has_the_same_rows_whoever_computes_it(void **state)
{
    (void)state;
    for (size_t count = 1; count <= 16; count *= 2) {
        for (size_t total = 1; total <= 70; total++) {
            struct ct_shards one;
            ct_shards_init(&one, count, 0, (int)count);
            size_t rows = ct_shards_rows(&one, total);
            assert_in_range(rows * count, total, total + count - 1);
            for (int world = 1; world <= (int)count; world *= 2) {
                for (int rank = 0; rank < world; rank++) {
                    struct ct_shards shards;
                    ct_shards_init(&shards, count, rank, world);
                    assert_int_equal(shards.mine * (size_t)world, count);
                    assert_int_equal(ct_shards_begin(&shards, total), shards.first * rows);
                    assert_int_equal(ct_shards_rows(&shards, total), shards.mine * rows);
                }
            }
        }
    }
}

static void workers_must_share_the_shards_evenly(void **state)
{
    (void)state;
    struct ct_err err = {0};
    assert_int_equal(ct_shards_check(0, 3, &err), 0); /* without --consistent */
    for (int world = 1; world <= 8; world *= 2) {
        assert_int_equal(ct_shards_check(8, world, &err), 0);
    }
    assert_int_equal(ct_shards_check(8, 3, &err), CT_EINVAL);
    assert_non_null(strstr(err.text, "must be a power of two, at most 8"));
    assert_int_equal(ct_shards_check(8, 24, &err), CT_EINVAL);
    assert_non_null(strstr(err.text, "must be a power of two, at most 8"));
    assert_int_equal(ct_shards_check(8, 16, &err), CT_EINVAL);
    assert_non_null(strstr(err.text, "take --consistent=16 or more shards"));
}

static void machines_must_make_a_tree(void **state)
{
    (void)state;
    static const struct {
        int machines, here, world, code;
    } cases[] = {
        {1, 3, 3, 0}, /* the workers' number is checked elsewhere */
        {2, 2, 4, 0},          {4, 1, 4, 0},
        {3, 4, 12, CT_EINVAL}, /* three machines are no balanced tree */
        {2, 1, 4, CT_EINVAL},  /* the other one has three */
        {2, 3, 4, CT_EINVAL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct ctw_env env = {.node_count = cases[i].machines,
                                    .local_world_size = cases[i].here,
                                    .world_size = cases[i].world};
        assert_int_equal(ct_shards_check_machines(4, &env, NULL), cases[i].code);
        assert_int_equal(ct_shards_check_machines(0, &env, NULL), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shard_has_the_same_rows_whoever_computes_it),
        cmocka_unit_test(workers_must_share_the_shards_evenly),
        cmocka_unit_test(machines_must_make_a_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
