/* SPDX-License-Identifier: Apache-2.0
 *
 * Which part of the model a rank has memory for.
 */
#include "tests/lib/ct_test.h"
#include "trainer/session/stages.h"

static struct ct_trainer trainer;

static int setup(void **state)
{
    (void)state;
    const struct ct_hidden sizes = {.count = 3, .size = {8, 8, 8}};
    trainer = (struct ct_trainer){.options = {.pipeline_stages = 1}};
    return ct_layout_init(&trainer.layout, 5, &sizes, 3, NULL);
}

static void expect_all(void)
{
    struct ct_span held = ct_stages_held(&trainer);
    assert_int_equal(held.first, 0);
    assert_int_equal(held.count, trainer.layout.count);
}

static void test_without_stages_a_rank_holds_all(void **state)
{
    (void)state;
    expect_all();
    trainer.group.shares_model = true;
    expect_all();
}

/* On CPUs the model of a host is one block, whatever its ranks compute. */
static void test_ranks_that_share_the_model_hold_all(void **state)
{
    (void)state;
    trainer.options.pipeline_stages = 2;
    trainer.group.shares_model = true;
    expect_all();
}

/* Two replicas of two stages: ranks 0 and 2 hold the first stage, ranks 1 and 3 the second. */
static void test_a_rank_with_a_model_of_its_own_holds_its_stage(void **state)
{
    (void)state;
    trainer.options.pipeline_stages = 2;
    struct ct_span held[4];
    for (int rank = 0; rank < 4; rank++) {
        trainer.group.rank = rank;
        held[rank] = ct_stages_held(&trainer);
        assert_true(held[rank].count > 0);
    }
    assert_int_equal(held[0].first, 0);
    assert_int_equal(held[1].first, held[0].count);
    assert_int_equal(held[0].count + held[1].count, trainer.layout.count);
    assert_memory_equal(&held[2], &held[0], sizeof held[0]);
    assert_memory_equal(&held[3], &held[1], sizeof held[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_without_stages_a_rank_holds_all, setup),
        cmocka_unit_test_setup(test_ranks_that_share_the_model_hold_all, setup),
        cmocka_unit_test_setup(test_a_rank_with_a_model_of_its_own_holds_its_stage, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
