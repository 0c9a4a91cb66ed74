/* SPDX-License-Identifier: Apache-2.0
 *
 * A verdict is given once and stands until the hang is over; and a rank that gets no CPU is not
 * judged.
 */
#include "tests/unit/launcher/hang/hang_rig.h"

/* All wait in a collective, each of them for the others, and the verdict is given. */
static void begin_hang(struct rig *rig)
{
    begin(rig, 5 * S, true);
    for (int step = 4; step <= 5; step++) {
        for (int i = 0; i < RANKS; i++) {
            stamp(rig, i, CT_PHASE_COLLECTIVE, step);
        }
        assert_int_equal(tick(rig), CT_HANG_NONE);
    }
    assert_int_equal(wait_for(rig, 10), CT_HANG_ALL);
}

static struct ct_hang_verdict take(struct rig *rig, int rank, int kind)
{
    struct ct_hang_verdict out;
    ct_hang_take_job_verdict(&rig->hang, rank, kind, rig->now, &out);
    return out;
}

static void a_pause_does_not_tell_it_again(void **state)
{
    (void)state;
    struct rig rig;
    begin_hang(&rig);
    rig.now += 60 * S; /* ctrun was suspended */
    assert_int_equal(wait_for(&rig, 30), CT_HANG_NONE);
    rig.samples[1].state = 't'; /* a debugger looks at it */
    assert_int_equal(wait_for(&rig, 3), CT_HANG_NONE);
    rig.samples[1].state = 'S';
    assert_int_equal(wait_for(&rig, 30), CT_HANG_NONE);
    for (int i = 0; i < 3; i++) { /* it wants the CPU for a moment and gets none */
        rig.samples[2].queued_ns += S;
        assert_int_equal(tick(&rig), CT_HANG_NONE);
    }
    assert_int_equal(wait_for(&rig, 30), CT_HANG_NONE);
    stamp(&rig, 2, CT_PHASE_COMPUTE, 6);
    assert_int_equal(wait_for(&rig, 30), CT_HANG_BUSY); /* another one */
    end(&rig);
}

/* The time begins anew, but others must hear for how long no rank has made progress. */
static void a_vote_tells_the_time_since_the_last_progress(void **state)
{
    (void)state;
    struct rig rig;
    begin_hang(&rig);
    rig.now += 60 * S;
    (void)tick(&rig);
    assert_int_equal(still(&rig).kind, CT_HANG_VOTE_NO);
    (void)wait_for(&rig, 6);
    assert_int_equal(still(&rig).kind, CT_HANG_VOTE_WAITING);
    assert_true(still(&rig).still_ms >= 70000);
    end(&rig);
}

static void who_is_stopped_stays_so_under_a_debugger(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, false);
    burn(&rig, 3);
    rig.samples[2].state = 'T';
    assert_int_equal(wait_for(&rig, 10), CT_HANG_STOPPED);
    const struct ct_hang_verdict verdict = rig.verdict;
    rig.samples[2].state = 't';
    for (int i = 0; i < 20; i++) { /* the others spin meanwhile, the debugger has it run */
        for (int r = 0; r < RANKS; r++) {
            rig.samples[r].cpu_ns += S;
        }
        assert_int_equal(tick(&rig), CT_HANG_NONE);
        assert_false(ct_hang_is_over(&rig.hang, rig.samples, &verdict));
    }
    rig.samples[2].state = 'S';
    rig.samples[2].cpu_ns += S;
    (void)tick(&rig);
    assert_true(ct_hang_is_over(&rig.hang, rig.samples, &verdict));
    end(&rig);
}

/* Nobody would act upon a verdict on a rank that has ended, and the others hang on. */
static void a_hang_ends_with_its_suspect(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, false);
    burn(&rig, 3);
    rig.samples[2].state = 'D';
    assert_int_equal(wait_for(&rig, 10), CT_HANG_UNINTERRUPTIBLE);
    const struct ct_hang_verdict verdict = rig.verdict;
    rig.samples[2].alive = false;
    assert_int_equal(tick(&rig), CT_HANG_ALL);
    assert_true(ct_hang_is_over(&rig.hang, rig.samples, &verdict));
    end(&rig);
}

static void a_verdict_of_all_machines_names_whom_none_was_named_for(void **state)
{
    (void)state;
    struct rig rig;
    begin_hang(&rig);
    assert_int_equal(take(&rig, 2, CT_HANG_VOTE_ALL).reason, CT_HANG_NONE); /* that is known */
    assert_int_equal(take(&rig, 2, CT_HANG_VOTE_STOPPED).reason, CT_HANG_STOPPED);
    assert_int_equal(take(&rig, 1, CT_HANG_VOTE_BUSY).reason, CT_HANG_NONE);
    end(&rig);
}

/* A rank that the stacks have named is the one whose end counts. */
static void the_stacks_may_name_the_suspect(void **state)
{
    (void)state;
    struct rig rig;
    begin_hang(&rig);
    const struct ct_hang_verdict named = {.reason = CT_HANG_BUSY, .local_rank = 1};
    ct_hang_name(&rig.hang, &named);
    assert_int_equal(tick(&rig), CT_HANG_NONE);
    rig.samples[1].alive = false;
    assert_int_equal(tick(&rig), CT_HANG_ALL);
    end(&rig);
}

static void asking_does_not_hide_who_stays_stopped(void **state)
{
    (void)state;
    struct rig rig;
    begin_hang(&rig);
    assert_true(ct_hang_resume(&rig.hang, rig.samples, rig.now));
    stamp(&rig, 0, CT_PHASE_COMPUTE, 6);
    assert_false(ct_hang_resume(&rig.hang, rig.samples, rig.now));
    const struct ct_hang_verdict stopped = {.reason = CT_HANG_STOPPED, .local_rank = 1};
    ct_hang_name(&rig.hang, &stopped);
    rig.samples[1].state = 'T';
    assert_true(ct_hang_resume(&rig.hang, rig.samples, rig.now));
    end(&rig);
}

/* ---- no CPU ---------------------------------------------------------------------------------- */

/* For long it got none. What it then does within a timeout is a small part of all that time. */
static void what_counts_as_work_is_measured_within_the_timeout(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, false);
    burn(&rig, 3);
    for (int i = 0; i < 200; i++) {
        rig.samples[1].queued_ns += S;
        assert_int_equal(tick(&rig), CT_HANG_NONE);
    }
    for (int i = 0; i < 30; i++) { /* a tenth of a CPU */
        rig.samples[1].cpu_ns += S / 10;
        rig.samples[1].queued_ns += S / 10;
        assert_int_equal(tick(&rig), CT_HANG_NONE);
    }
    assert_int_equal(wait_for(&rig, 10), CT_HANG_ALL);
    /* After a long hang it is soon seen to go on. */
    (void)wait_for(&rig, 3600);
    const struct ct_hang_verdict verdict = {.reason = CT_HANG_ALL};
    assert_false(ct_hang_is_over(&rig.hang, rig.samples, &verdict));
    rig.samples[0].cpu_ns += S / 10;
    (void)tick(&rig);
    assert_true(ct_hang_is_over(&rig.hang, rig.samples, &verdict));
    end(&rig);
}

/* A trickle that did not keep the verdict from being given does not end the hang either. */
static void a_trickle_ends_no_hang(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, false);
    burn(&rig, 3);
    assert_int_equal(wait_for(&rig, 10), CT_HANG_ALL);
    const struct ct_hang_verdict verdict = rig.verdict;
    for (int i = 0; i < 300; i++) {
        rig.samples[0].cpu_ns += i % 10 == 0 ? S / 20 : 0;
        (void)tick(&rig);
        assert_false(ct_hang_is_over(&rig.hang, rig.samples, &verdict));
    }
    end(&rig);
}

/* The kernel counts the time in the queue of the CPU when it is over. */
static void who_waits_for_a_cpu_all_the_time_is_not_judged(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, false);
    burn(&rig, 3);
    rig.samples[3].state = 'R';
    assert_int_equal(wait_for(&rig, 100), CT_HANG_NONE);
    rig.samples[3].state = 'S';
    assert_int_equal(wait_for(&rig, 10), CT_HANG_ALL);
    end(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pause_does_not_tell_it_again),
        cmocka_unit_test(a_vote_tells_the_time_since_the_last_progress),
        cmocka_unit_test(who_is_stopped_stays_so_under_a_debugger),
        cmocka_unit_test(a_hang_ends_with_its_suspect),
        cmocka_unit_test(a_verdict_of_all_machines_names_whom_none_was_named_for),
        cmocka_unit_test(the_stacks_may_name_the_suspect),
        cmocka_unit_test(asking_does_not_hide_who_stays_stopped),
        cmocka_unit_test(what_counts_as_work_is_measured_within_the_timeout),
        cmocka_unit_test(a_trickle_ends_no_hang),
        cmocka_unit_test(who_waits_for_a_cpu_all_the_time_is_not_judged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
