/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks how a slot of the progress page is read, that values which make no sense are not believed,
 * and how the place of a slot is told to a worker.
 */
#include "tests/lib/ct_test.h"

#include "common/progress_page.h"

#include <math.h>

#define NOW INT64_C(1000)

static struct ct_progress_slot good(void)
{
    return (struct ct_progress_slot){
        .version = CT_PROGRESS_VERSION,
        .where = ct_progress_where(CT_PHASE_COLLECTIVE, 345),
        .stamp_ns = 900,
        .loss = 0.5,
        .rate = 1e6,
        .first_ns = 800,
        .waits = 1,
    };
}

static void a_stamp_is_read(void **state)
{
    (void)state;
    struct ct_progress_slot slot = good();
    struct ct_progress progress;
    assert_true(ct_progress_decode(&slot, NOW, &progress));
    assert_int_equal(progress.phase, CT_PHASE_COLLECTIVE);
    assert_int_equal(progress.step, 345);
    assert_int_equal(progress.stamp_ns, 900);
    assert_true(progress.loss == 0.5 && progress.rate == 1e6);
    assert_int_equal(progress.first_ns, 800);
    assert_true(progress.tells_waits);
    assert_string_equal(ct_phase_name(progress.phase), "collective");
}

static void nonsense_is_not_believed(void **state)
{
    (void)state;
    struct ct_progress progress;
    struct ct_progress_slot slots[5];
    for (size_t i = 0; i < 5; i++) {
        slots[i] = good();
    }
    slots[0].version = 0;
    slots[1].where |= 0xff; /* a phase that is none */
    slots[2].where = UINT64_MAX;
    slots[3].stamp_ns = 0;
    slots[4].stamp_ns = INT64_MIN;
    for (size_t i = 0; i < 5; i++) {
        assert_false(ct_progress_decode(&slots[i], NOW, &progress));
    }
}

static void numbers_are_made_harmless(void **state)
{
    (void)state;
    struct ct_progress_slot slot = good();
    struct ct_progress progress;
    slot.stamp_ns = INT64_MAX; /* in the future */
    slot.loss = (double)INFINITY;
    slot.rate = -1;
    slot.total = 5000;
    assert_true(ct_progress_decode(&slot, NOW, &progress));
    assert_int_equal(progress.total, 5000);
    slot.total = CT_PROGRESS_STEP_MAX + 1;
    assert_true(ct_progress_decode(&slot, NOW, &progress));
    assert_int_equal(progress.total, 0);
    slot.total = -1;
    assert_true(ct_progress_decode(&slot, NOW, &progress));
    assert_int_equal(progress.total, 0);
    slot.first_ns = NOW + 1;
    assert_true(ct_progress_decode(&slot, NOW, &progress));
    assert_int_equal(progress.stamp_ns, NOW);
    assert_true(isnan(progress.loss) && isnan(progress.rate));
    assert_int_equal(progress.first_ns, 0);
    slot.first_ns = -1;
    slot.rate = 0.5;
    assert_true(ct_progress_decode(&slot, NOW, &progress));
    assert_true(progress.rate > 0.4);
    assert_int_equal(progress.first_ns, 0);
    slot.rate = 0; /* nothing moves, which is not the same as an unknown rate */
    assert_true(ct_progress_decode(&slot, NOW, &progress));
    assert_true(progress.rate == 0);
}

static void steps_stay_in_their_range(void **state)
{
    (void)state;
    assert_int_equal(ct_progress_step(ct_progress_where(CT_PHASE_DATA, -5)), 0);
    assert_int_equal(ct_progress_step(ct_progress_where(CT_PHASE_DATA, INT64_MAX)),
                     CT_PROGRESS_STEP_MAX);
}

static void a_place_needs_an_absolute_path_and_an_aligned_offset(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        int want;
    } cases[] = {
        {"/proc/4711/fd/9:256", 0},
        {"/a:b:0", 0},
        {"", CT_EFORMAT},
        {"/proc/1/fd/3", CT_EFORMAT},
        {":0", CT_EFORMAT},
        {"relative:0", CT_EFORMAT},
        {"/p:-128", CT_EFORMAT},
        {"/p:1", CT_EFORMAT},
        {"/p:", CT_EFORMAT},
        {"/p:99999999999999999999", CT_EFORMAT},
        {"/a/path/that/is/much/too/long:0", CT_ELIMIT},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char path[24];
        int64_t offset = -1;
        assert_int_equal(ct_progress_parse(cases[i].value, path, sizeof(path), &offset),
                         cases[i].want);
        if (i == 0) {
            assert_string_equal(path, "/proc/4711/fd/9");
            assert_int_equal(offset, 256);
        }
    }
}

static void each_phase_has_its_name(void **state)
{
    static const char *const names[CT_PHASES] = {"starting",   "data",       "compute",
                                                 "collective", "checkpoint", "done"};
    (void)state;
    for (int i = 0; i < CT_PHASES; i++) {
        assert_string_equal(ct_phase_name((enum ct_phase)i), names[i]);
    }
    assert_string_equal(ct_phase_name((enum ct_phase)CT_PHASES), "?");
}

static void a_worker_is_parked_for_one_generation_alone(void **state)
{
    struct ct_progress_slot slot = good();
    (void)state;
    assert_int_equal(ct_progress_stay(&slot, 0), CT_STAY_NOT);
    slot.stay = ct_generation_word(7, CT_STAY_ABLE);
    assert_int_equal(ct_progress_stay(&slot, 7), CT_STAY_ABLE);
    assert_int_equal(ct_progress_stay(&slot, 8), CT_STAY_ABLE);
    slot.stay = ct_generation_word(7, CT_STAY_PARKED);
    assert_int_equal(ct_progress_stay(&slot, 7), CT_STAY_PARKED);
    assert_int_equal(ct_progress_stay(&slot, 8), CT_STAY_ABLE);
    slot.stay = ct_generation_word(7, 3); /* no such word */
    assert_int_equal(ct_progress_stay(&slot, 7), CT_STAY_NOT);
    slot.stay = ct_generation_word(7, CT_STAY_PARKED);
    slot.version = 0; /* nobody has come yet */
    assert_int_equal(ct_progress_stay(&slot, 7), CT_STAY_NOT);
}

static void only_the_exact_word_says_that_a_restart_cannot_help(void **state)
{
    struct ct_progress_slot slot = good();
    (void)state;
    assert_false(ct_progress_permanent(&slot));
    slot.permanent = 1;
    assert_false(ct_progress_permanent(&slot));
    slot.permanent = CT_PROGRESS_PERMANENT;
    assert_true(ct_progress_permanent(&slot));
    slot.version = 0;
    assert_false(ct_progress_permanent(&slot));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stamp_is_read),
        cmocka_unit_test(nonsense_is_not_believed),
        cmocka_unit_test(numbers_are_made_harmless),
        cmocka_unit_test(steps_stay_in_their_range),
        cmocka_unit_test(a_place_needs_an_absolute_path_and_an_aligned_offset),
        cmocka_unit_test(each_phase_has_its_name),
        cmocka_unit_test(a_worker_is_parked_for_one_generation_alone),
        cmocka_unit_test(only_the_exact_word_says_that_a_restart_cannot_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
