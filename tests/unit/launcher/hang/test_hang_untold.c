/* SPDX-License-Identifier: Apache-2.0
 *
 * Hang detection of programs that tell their steps, and never that they wait.
 */
#include "tests/unit/launcher/hang/hang_rig.h"

/* Everybody does some steps of a second each, and stands in the last one then. */
static void live_untold(struct rig *rig, int64_t timeout)
{
    begin(rig, timeout, true);
    for (int step = 0; step < 6; step++) {
        for (int i = 0; i < RANKS; i++) {
            stamp(rig, i, CT_PHASE_COMPUTE, step);
        }
        assert_int_equal(tick(rig), CT_HANG_NONE);
    }
}

static void set_wchan(struct rig *rig, int rank, const char *wchan)
{
    (void)snprintf(rig->samples[rank].wchan, sizeof(rig->samples[rank].wchan), "%s", wchan);
}

static void who_tells_no_waits_is_judged_by_its_sleep(void **state)
{
    (void)state;
    struct rig rig;
    live_untold(&rig, 5 * S);
    set_wchan(&rig, 2, "hrtimer_nanosleep");
    assert_int_equal(wait_for(&rig, 3), CT_HANG_NONE);
    assert_int_equal(wait_for(&rig, 3), CT_HANG_SLEEPS_ELSEWHERE);
    assert_int_equal(rig.verdict.local_rank, 2);
    end(&rig);

    live_untold(&rig, 5 * S);
    assert_int_equal(wait_for(&rig, 6), CT_HANG_ALL);
    end(&rig);

    live_untold(&rig, 5 * S);
    stamp(&rig, 1, CT_PHASE_COMPUTE, 4);
    stamp(&rig, 2, CT_PHASE_COMPUTE, 4);
    assert_int_equal(wait_for(&rig, 7), CT_HANG_ALL); /* two are behind */
    end(&rig);

    live_untold(&rig, 5 * S);
    stamp(&rig, 1, CT_PHASE_COMPUTE, 4);
    assert_int_equal(wait_for(&rig, 7), CT_HANG_BEHIND);
    assert_int_equal(rig.verdict.local_rank, 1);
    end(&rig);
}

static void who_tells_no_waits_may_work_between_its_steps(void **state)
{
    (void)state;
    struct rig rig;
    live_untold(&rig, 5 * S);
    burn(&rig, 100); /* all evaluate */
    for (int i = 0; i < 100; i++) {
        rig.samples[1].cpu_ns += S / 20; /* one writes, and waits for a disk */
        assert_int_equal(tick(&rig), CT_HANG_NONE);
    }
    /* But it may also be caught in an endless loop, which its stack can tell. */
    assert_int_equal(ct_hang_busy_alone(&rig.hang, rig.samples, rig.now), 1);
    assert_int_equal(wait_for(&rig, 7), CT_HANG_ALL);
    end(&rig);
}

/* A phase that was told is believed. */
static void who_tells_no_waits_may_tell_that_it_works_alone(void **state)
{
    (void)state;
    struct rig rig;
    live_untold(&rig, 5 * S);
    stamp(&rig, 3, CT_PHASE_CHECKPOINT, 5);
    for (int i = 0; i < 100; i++) {
        rig.samples[3].cpu_ns += S;
        assert_int_equal(tick(&rig), CT_HANG_NONE);
        assert_int_equal(ct_hang_busy_alone(&rig.hang, rig.samples, rig.now), -1);
    }
    assert_int_equal(wait_for(&rig, 7), CT_HANG_BUSY); /* the disk gives no answer */
    assert_int_equal(rig.verdict.local_rank, 3);
    end(&rig);

    live_untold(&rig, 5 * S);
    for (int i = 0; i < RANKS; i++) {
        stamp(&rig, i, CT_PHASE_CHECKPOINT, 5);
    }
    assert_int_equal(wait_for(&rig, 1000), CT_HANG_NONE);
    end(&rig);
}

static void one_told_wait_is_enough(void **state)
{
    (void)state;
    struct rig rig;
    live_untold(&rig, 5 * S);
    stamp(&rig, 0, CT_PHASE_COLLECTIVE, 5);
    assert_int_equal(tick(&rig), CT_HANG_NONE);
    for (int i = 0; i < RANKS; i++) {
        stamp(&rig, i, CT_PHASE_COMPUTE, 6);
    }
    assert_int_equal(wait_for(&rig, 1000), CT_HANG_NONE); /* all say that they compute */
    ct_hang_reset(&rig.hang);
    assert_int_equal(wait_for(&rig, 7), CT_HANG_ALL); /* the next generation has not told it */
    end(&rig);
}

static void who_tells_no_waits_has_more_time_by_auto(void **state)
{
    (void)state;
    struct rig rig;
    live_untold(&rig, 0);
    set_wchan(&rig, 2, "hrtimer_nanosleep");
    assert_int_equal(wait_for(&rig, 58), CT_HANG_NONE);
    assert_int_equal(wait_for(&rig, 3), CT_HANG_SLEEPS_ELSEWHERE);
    end(&rig);
}

static void who_tells_no_waits_votes_among_machines(void **state)
{
    (void)state;
    struct rig rig;
    live_untold(&rig, 5 * S);
    rig.hang.whole_job = false;
    assert_int_equal(wait_for(&rig, 10), CT_HANG_NONE);
    assert_int_equal(still(&rig).kind, CT_HANG_VOTE_QUIET);
    set_wchan(&rig, 3, "hrtimer_nanosleep");
    assert_int_equal(still(&rig).kind, CT_HANG_VOTE_NAPPING);
    end(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_tells_no_waits_is_judged_by_its_sleep),
        cmocka_unit_test(who_tells_no_waits_may_work_between_its_steps),
        cmocka_unit_test(who_tells_no_waits_may_tell_that_it_works_alone),
        cmocka_unit_test(one_told_wait_is_enough),
        cmocka_unit_test(who_tells_no_waits_has_more_time_by_auto),
        cmocka_unit_test(who_tells_no_waits_votes_among_machines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
