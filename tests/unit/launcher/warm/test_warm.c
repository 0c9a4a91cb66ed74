/* SPDX-License-Identifier: Apache-2.0
 *
 * When spares are made, given up, used and left out; the time is a number.
 */
#include "launcher/warm/warm.h"

#include "common/clock.h"
#include "tests/lib/ct_test.h"
#include "tests/lib/fault.h"

#define MIB ((uint64_t)1 << 20)

static const struct ct_warm_memory much = {.total = 1000 * MIB, .available = 900 * MIB};

static int64_t ms(int64_t number)
{
    return number * CT_NS_PER_MS;
}

static struct ct_warm_action step(struct ct_warm *warm, int64_t at_ms)
{
    return ct_warm_step(warm, &much, ms(at_ms));
}

/* A job of `count` workers whose plan is there. */
static void open_planned(struct ct_warm *warm, int count, uint64_t limit)
{
    assert_int_equal(ct_warm_init(warm, count, limit), 0);
    ct_warm_run(warm, 0);
    assert_int_equal(step(warm, CT_WARM_BEGIN_MS).act, CT_WARM_PLAN);
    ct_warm_planned(warm);
}

static void test_nothing_is_made_before_all_workers_run(void **state)
{
    (void)state;
    struct ct_warm warm;
    assert_int_equal(ct_warm_init(&warm, 2, 0), 0);
    struct ct_warm_action action = step(&warm, 100000);
    assert_int_equal(action.act, CT_WARM_WAIT);
    assert_int_equal(action.wait_ms, -1);
    ct_warm_run(&warm, ms(100000));
    action = step(&warm, 100400);
    assert_int_equal(action.act, CT_WARM_WAIT);
    assert_int_equal(action.wait_ms, CT_WARM_BEGIN_MS - 400);
    ct_warm_fini(&warm);
}

static void test_spares_are_made_one_after_the_other(void **state)
{
    (void)state;
    struct ct_warm warm;
    open_planned(&warm, 2, 0);
    for (int spare = 0; spare < 2; spare++) {
        struct ct_warm_action action = step(&warm, 1100);
        assert_int_equal(action.act, CT_WARM_MAKE);
        assert_int_equal(action.spare, spare);
        action = step(&warm, 1200);
        assert_int_equal(action.act, CT_WARM_WAIT);
        assert_int_equal(action.wait_ms, CT_WARM_BUSY_MS);
        ct_warm_ready(&warm, spare, 100 * MIB);
    }
    assert_int_equal(step(&warm, 1300).wait_ms, CT_WARM_QUIET_MS);
    assert_int_equal(ct_warm_count(&warm, CT_WARM_READY), 2);
    ct_warm_taken(&warm, 0);
    ct_warm_stop(&warm);
    assert_int_equal(step(&warm, 1400).wait_ms, CT_WARM_QUIET_MS); /* one is left */
    ct_warm_run(&warm, ms(2000));
    assert_int_equal(step(&warm, 3000).act, CT_WARM_PLAN); /* the program may have changed */
    ct_warm_planned(&warm);
    struct ct_warm_action action = step(&warm, 3000);
    assert_int_equal(action.act, CT_WARM_MAKE);
    assert_int_equal(action.spare, 0);
    ct_warm_fini(&warm);
}

static void test_an_import_that_uses_no_cpu_hangs(void **state)
{
    (void)state;
    struct ct_warm warm;
    open_planned(&warm, 1, 0);
    assert_int_equal(step(&warm, 1100).act, CT_WARM_MAKE);
    ct_warm_used(&warm, 10, ms(500000));
    assert_int_equal(step(&warm, 1000000).act, CT_WARM_WAIT);
    ct_warm_used(&warm, 10, ms(1000000)); /* no more than before */
    struct ct_warm_action action = step(&warm, 1100001);
    assert_int_equal(action.act, CT_WARM_DROP);
    assert_int_equal(action.spare, 0);
    assert_string_equal(warm.why, "an import has hung for 10 minutes");
    assert_int_equal(step(&warm, 1100002).wait_ms, -1);
    ct_warm_fini(&warm);
}

static void test_an_import_that_never_ends_is_ended(void **state)
{
    (void)state;
    struct ct_warm warm;
    open_planned(&warm, 1, 0);
    assert_int_equal(step(&warm, 1100).act, CT_WARM_MAKE);
    ct_warm_used(&warm, CT_WARM_IMPORT_CPU_MS, ms(1200));
    assert_int_equal(step(&warm, 1200).act, CT_WARM_DROP);
    assert_string_equal(warm.why, "an import has computed for 10 minutes");
    ct_warm_fini(&warm);
}

static void test_a_plan_that_does_not_come_is_given_up(void **state)
{
    (void)state;
    struct ct_warm warm;
    assert_int_equal(ct_warm_init(&warm, 1, 0), 0);
    ct_warm_run(&warm, 0);
    assert_int_equal(step(&warm, 1000).act, CT_WARM_PLAN);
    assert_int_equal(step(&warm, 1000 + CT_WARM_PLAN_MS - 1).act, CT_WARM_WAIT);
    assert_int_equal(step(&warm, 1000 + CT_WARM_PLAN_MS).act, CT_WARM_GIVE_UP);
    assert_true(warm.off);
    ct_warm_fini(&warm);
}

static void test_a_plan_that_a_stop_has_ended_is_made_again(void **state)
{
    (void)state;
    struct ct_warm warm;
    assert_int_equal(ct_warm_init(&warm, 1, 0), 0);
    ct_warm_run(&warm, 0);
    assert_int_equal(step(&warm, 1000).act, CT_WARM_PLAN);
    ct_warm_plan_failed(&warm);
    assert_int_equal(step(&warm, 2000).wait_ms, -1);
    ct_warm_run(&warm, ms(5000));
    assert_int_equal(step(&warm, 6000).act, CT_WARM_PLAN);
    ct_warm_fini(&warm);
}

static void test_a_tenth_of_the_memory_stays_free(void **state)
{
    (void)state;
    const struct ct_warm_memory enough = {.total = 1000 * MIB, .available = 200 * MIB};
    const struct ct_warm_memory short_of = {.total = 1000 * MIB, .available = 199 * MIB};
    const struct ct_warm_memory scarce = {.total = 1000 * MIB, .available = 99 * MIB};
    struct ct_warm warm;
    open_planned(&warm, 3, 0);
    assert_int_equal(step(&warm, 1100).act, CT_WARM_MAKE);
    ct_warm_ready(&warm, 0, 100 * MIB); /* so another one takes as much */
    assert_int_equal(ct_warm_step(&warm, &enough, ms(1200)).act, CT_WARM_MAKE);
    ct_warm_ready(&warm, 1, 50 * MIB);
    assert_int_equal(ct_warm_step(&warm, &short_of, ms(1300)).act, CT_WARM_WAIT);
    assert_int_equal(step(&warm, 1300).act, CT_WARM_WAIT); /* not again in this generation */
    struct ct_warm_action action = ct_warm_step(&warm, &scarce, ms(1400));
    assert_int_equal(action.act, CT_WARM_DROP);
    assert_int_equal(action.spare, 1);
    assert_int_equal(ct_warm_count(&warm, CT_WARM_READY), 1);
    ct_warm_fini(&warm);
}

static void test_memory_is_looked_at_while_no_generation_runs(void **state)
{
    (void)state;
    const struct ct_warm_memory scarce = {.total = 1000 * MIB, .available = 99 * MIB};
    struct ct_warm warm;
    open_planned(&warm, 1, 0);
    assert_int_equal(step(&warm, 1100).act, CT_WARM_MAKE);
    ct_warm_ready(&warm, 0, 100 * MIB);
    ct_warm_stop(&warm);
    assert_int_equal(step(&warm, 1200).wait_ms, CT_WARM_QUIET_MS);
    assert_int_equal(ct_warm_step(&warm, &scarce, ms(1300)).act, CT_WARM_DROP);
    assert_int_equal(ct_warm_step(&warm, &scarce, ms(1300)).wait_ms, -1);
    ct_warm_fini(&warm);
}

static void test_all_spares_together_stay_below_the_limit(void **state)
{
    (void)state;
    struct ct_warm_memory memory = much;
    struct ct_warm warm;
    open_planned(&warm, 3, 150 * MIB);
    assert_int_equal(ct_warm_step(&warm, &memory, ms(1100)).act, CT_WARM_MAKE);
    ct_warm_ready(&warm, 0, 80 * MIB);
    memory.spares = 80 * MIB;
    assert_int_equal(ct_warm_step(&warm, &memory, ms(1100)).act, CT_WARM_WAIT);
    memory.spares = 151 * MIB;
    assert_int_equal(ct_warm_step(&warm, &memory, ms(1100)).act, CT_WARM_DROP);
    ct_warm_fini(&warm);
}

static void test_spares_that_die_again_and_again_end_it(void **state)
{
    (void)state;
    struct ct_warm warm;
    open_planned(&warm, 1, 0);
    for (int i = 0; i < CT_WARM_DEATHS; i++) {
        assert_int_equal(step(&warm, 1100).act, CT_WARM_MAKE);
        ct_warm_died(&warm, 0);
    }
    assert_false(warm.off);
    assert_int_equal(step(&warm, 1100).act, CT_WARM_MAKE);
    ct_warm_died(&warm, 0);
    assert_true(warm.off);
    ct_warm_turn_off(&warm, "another reason");
    assert_string_equal(warm.why, "too many of them have died");
    assert_int_equal(step(&warm, 1100).wait_ms, -1);
    ct_warm_fini(&warm);
}

static void test_deaths_are_counted_in_each_generation(void **state)
{
    (void)state;
    struct ct_warm warm;
    open_planned(&warm, 1, 0);
    for (int i = 0; i < 3 * CT_WARM_DEATHS; i++) {
        assert_int_equal(step(&warm, 1100).act, CT_WARM_MAKE);
        ct_warm_died(&warm, 0);
        if (i % CT_WARM_DEATHS == 0) {
            ct_warm_stop(&warm);
            ct_warm_run(&warm, 0);
            assert_int_equal(step(&warm, 1100).act, CT_WARM_PLAN);
            ct_warm_planned(&warm);
        }
    }
    assert_false(warm.off);
    ct_warm_fini(&warm);
}

static void test_a_plan_that_was_killed_is_made_again(void **state)
{
    (void)state;
    struct ct_warm warm;
    assert_int_equal(ct_warm_init(&warm, 1, 0), 0);
    ct_warm_run(&warm, 0);
    for (int i = 1; i <= CT_WARM_DEATHS + 1; i++) {
        assert_false(warm.off);
        assert_int_equal(step(&warm, i * CT_WARM_BEGIN_MS).act, CT_WARM_PLAN);
        ct_warm_plan_died(&warm);
    }
    assert_true(warm.off);
    ct_warm_fini(&warm);
}

static void test_a_plan_that_holds_no_more_is_made_again(void **state)
{
    (void)state;
    struct ct_warm warm;
    open_planned(&warm, 1, 0);
    assert_int_equal(step(&warm, 1100).act, CT_WARM_MAKE);
    ct_warm_plan_again(&warm, 0);
    assert_int_equal(step(&warm, 1100).act, CT_WARM_WAIT);
    assert_int_equal(step(&warm, 1100 + CT_WARM_BEGIN_MS).act, CT_WARM_PLAN);
    ct_warm_planned(&warm);
    assert_int_equal(step(&warm, 3000).act, CT_WARM_MAKE);
    ct_warm_fini(&warm);
}

static void test_no_spare_fits(void **state)
{
    (void)state;
    const struct ct_warm_memory scarce = {.total = 1000 * MIB, .available = 99 * MIB};
    struct ct_warm warm;
    open_planned(&warm, 1, 0);
    assert_false(ct_warm_none_fits(&warm));
    assert_int_equal(ct_warm_step(&warm, &scarce, ms(1100)).act, CT_WARM_WAIT);
    assert_true(ct_warm_none_fits(&warm));
    ct_warm_run(&warm, 0); /* in the next generation there may be more memory */
    assert_false(ct_warm_none_fits(&warm));
    ct_warm_fini(&warm);
}

static void test_it_says_what_becomes_of_the_spares(void **state)
{
    (void)state;
    const struct ct_warm_memory scarce = {.total = 1000 * MIB, .available = 99 * MIB};
    struct ct_warm warm;
    assert_int_equal(ct_warm_init(&warm, 2, 0), 0);
    assert_int_equal(ct_warm_making(&warm), CT_WARM_MAKING_LATER);
    ct_warm_run(&warm, 0);
    assert_int_equal(ct_warm_making(&warm), CT_WARM_MAKING_NOW);
    assert_int_equal(step(&warm, 1000).act, CT_WARM_PLAN);
    ct_warm_planned(&warm);
    for (int spare = 0; spare < 2; spare++) {
        assert_int_equal(step(&warm, 1100).act, CT_WARM_MAKE);
        assert_int_equal(ct_warm_making(&warm), CT_WARM_MAKING_NOW);
        ct_warm_ready(&warm, spare, MIB);
    }
    assert_int_equal(ct_warm_making(&warm), CT_WARM_MAKING_DONE);
    assert_int_equal(ct_warm_step(&warm, &scarce, ms(1200)).act, CT_WARM_DROP);
    assert_int_equal(ct_warm_making(&warm), CT_WARM_MAKING_MEMORY);
    ct_warm_run(&warm, 0);
    ct_warm_stop(&warm);
    assert_int_equal(ct_warm_making(&warm), CT_WARM_MAKING_LATER);
    ct_warm_turn_off(&warm, "an import has printed");
    assert_int_equal(ct_warm_making(&warm), CT_WARM_MAKING_OFF);
    ct_warm_fini(&warm);
}

static void test_a_generation_waits_for_the_last_import_alone(void **state)
{
    (void)state;
    struct ct_warm warm;
    open_planned(&warm, 2, 0);
    assert_false(ct_warm_waits(&warm, 2));
    assert_int_equal(step(&warm, 1100).spare, 0);
    assert_false(ct_warm_waits(&warm, 2)); /* the other worker starts cold */
    ct_warm_ready(&warm, 0, MIB);
    assert_int_equal(step(&warm, 1100).spare, 1);
    ct_warm_stop(&warm);
    assert_int_equal(step(&warm, 1200).wait_ms, CT_WARM_QUIET_MS); /* it goes on */
    assert_int_equal(ct_warm_making(&warm), CT_WARM_MAKING_NOW);
    assert_true(ct_warm_waits(&warm, 2));
    assert_false(ct_warm_waits(&warm, 3)); /* --warm=2 of three workers */
    ct_warm_waited_in_vain(&warm);
    assert_false(ct_warm_waits(&warm, 2));
    ct_warm_ready(&warm, 1, MIB);
    assert_false(ct_warm_waits(&warm, 2));
    ct_warm_fini(&warm);
}

static void test_a_generation_does_not_wait_for_an_import_that_is_given_up(void **state)
{
    (void)state;
    struct ct_warm warm;
    open_planned(&warm, 1, 0);
    assert_int_equal(step(&warm, 1100).act, CT_WARM_MAKE);
    assert_true(ct_warm_waits(&warm, 1));
    ct_warm_turn_off(&warm, "an import has printed");
    assert_false(ct_warm_waits(&warm, 1));
    ct_warm_fini(&warm);
}

static void test_turning_off_ends_all_spares(void **state)
{
    (void)state;
    struct ct_warm warm;
    open_planned(&warm, 2, 0);
    assert_int_equal(step(&warm, 1100).act, CT_WARM_MAKE);
    ct_warm_ready(&warm, 0, MIB);
    assert_int_equal(step(&warm, 1100).act, CT_WARM_MAKE);
    ct_warm_turn_off(&warm, "an import has printed");
    assert_int_equal(step(&warm, 1100).spare, 1);
    assert_int_equal(step(&warm, 1100).spare, 0);
    assert_int_equal(step(&warm, 1100).act, CT_WARM_WAIT);
    assert_int_equal(ct_warm_count(&warm, CT_WARM_NONE), 2);
    ct_warm_fini(&warm);
}

static int open_and_close(void *data)
{
    (void)data;
    struct ct_warm warm;
    int rc = ct_warm_init(&warm, 4, 0);
    ct_warm_fini(&warm);
    ct_warm_fini(&warm);
    return rc;
}

static void test_opening_survives_lack_of_memory(void **state)
{
    (void)state;
    assert_int_equal(ct_fault_sweep(open_and_close, NULL, 0), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_made_before_all_workers_run),
        cmocka_unit_test(test_spares_are_made_one_after_the_other),
        cmocka_unit_test(test_an_import_that_uses_no_cpu_hangs),
        cmocka_unit_test(test_an_import_that_never_ends_is_ended),
        cmocka_unit_test(test_a_plan_that_does_not_come_is_given_up),
        cmocka_unit_test(test_a_plan_that_a_stop_has_ended_is_made_again),
        cmocka_unit_test(test_a_tenth_of_the_memory_stays_free),
        cmocka_unit_test(test_memory_is_looked_at_while_no_generation_runs),
        cmocka_unit_test(test_all_spares_together_stay_below_the_limit),
        cmocka_unit_test(test_spares_that_die_again_and_again_end_it),
        cmocka_unit_test(test_it_says_what_becomes_of_the_spares),
        cmocka_unit_test(test_a_generation_waits_for_the_last_import_alone),
        cmocka_unit_test(test_a_generation_does_not_wait_for_an_import_that_is_given_up),
        cmocka_unit_test(test_turning_off_ends_all_spares),
        cmocka_unit_test(test_deaths_are_counted_in_each_generation),
        cmocka_unit_test(test_a_plan_that_was_killed_is_made_again),
        cmocka_unit_test(test_a_plan_that_holds_no_more_is_made_again),
        cmocka_unit_test(test_no_spare_fits),
        cmocka_unit_test(test_opening_survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
