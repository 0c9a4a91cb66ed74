/* SPDX-License-Identifier: Apache-2.0
 *
 * The core of hang detection on a clock of its own: a second per sample, nothing but numbers.
 */
#include "tests/unit/launcher/hang/hang_rig.h"

#include <stdio.h>

/* Everybody does some steps of `seconds` each, and stands in a collective then. */
static void live(struct rig *rig, int seconds)
{
    for (int step = 0; step < 6; step++) {
        for (int i = 0; i < RANKS; i++) {
            stamp(rig, i, CT_PHASE_COMPUTE, step);
        }
        assert_int_equal(wait_for(rig, seconds), CT_HANG_NONE);
    }
    for (int i = 0; i < RANKS; i++) {
        stamp(rig, i, CT_PHASE_COLLECTIVE, 5);
    }
    assert_int_equal(tick(rig), CT_HANG_NONE);
}

static void the_busy_one_is_named(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, true);
    live(&rig, 1);
    stamp(&rig, 2, CT_PHASE_COMPUTE, 6);
    assert_int_equal(wait_for(&rig, 4), CT_HANG_NONE);
    assert_int_equal(wait_for(&rig, 3), CT_HANG_BUSY);
    assert_int_equal(rig.verdict.local_rank, 2);
    assert_in_range(rig.verdict.still_ns, 5 * S, 6 * S);
    /* Said once; again only after somebody has moved. */
    assert_int_equal(wait_for(&rig, 60), CT_HANG_NONE);
    stamp(&rig, 2, CT_PHASE_COMPUTE, 7);
    assert_int_equal(wait_for(&rig, 60), CT_HANG_BUSY);
    end(&rig);
}

static void who_is_only_slow_is_not(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, true);
    live(&rig, 1);
    for (int i = 0; i < 100; i++) { /* rank 2 goes on in small pieces, the others wait for it */
        stamp(&rig, 2, CT_PHASE_COMPUTE, 6);
        assert_int_equal(wait_for(&rig, 4), CT_HANG_NONE);
    }
    end(&rig);
}

static void a_long_first_step_is_not(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, true);
    for (int i = 0; i < RANKS; i++) {
        stamp(&rig, i, i == 0 ? CT_PHASE_COMPUTE : CT_PHASE_COLLECTIVE, 0);
    }
    assert_int_equal(wait_for(&rig, 1000), CT_HANG_NONE);
    end(&rig);
}

/* It uses the CPU, or it does not: only then is it a hang. */
static void a_checkpoint_hangs_only_without_cpu_use(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, true);
    live(&rig, 1);
    stamp(&rig, 0, CT_PHASE_CHECKPOINT, 6);
    for (int i = 0; i < 60; i++) {
        rig.samples[0].cpu_ns += S / 10;
        assert_int_equal(tick(&rig), CT_HANG_NONE);
    }
    assert_int_equal(wait_for(&rig, 10), CT_HANG_BUSY);
    assert_int_equal(rig.verdict.local_rank, 0);
    end(&rig);
}

static void a_spinning_one_is_named(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, true);
    live(&rig, 1);
    stamp(&rig, 1, CT_PHASE_COMPUTE, 6);
    int said = 0;
    for (int i = 0; i < 10; i++) {
        rig.samples[1].cpu_ns += S;
        said += tick(&rig) == CT_HANG_BUSY && rig.verdict.local_rank == 1;
    }
    assert_int_equal(said, 1);
    end(&rig);
}

/* Nobody waits for the only rank, so a chosen timeout must tell, or with auto (0) the CPU. */
static void a_rank_alone_hangs_by_its_timeout_or_without_cpu(void **state)
{
    static const struct {
        int64_t timeout;
        bool works;
        enum ct_hang_reason reason;
    } cases[] = {
        {5 * S, true, CT_HANG_BUSY},
        {0, true, CT_HANG_NONE},
        {0, false, CT_HANG_BUSY},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rig rig;
        begin(&rig, cases[i].timeout, true);
        for (int rank = 1; rank < RANKS; rank++) {
            rig.samples[rank].alive = false;
        }
        live(&rig, 1);
        stamp(&rig, 0, CT_PHASE_COMPUTE, 6);
        enum ct_hang_reason reason = CT_HANG_NONE;
        for (int s = 0; s < 1000 && reason == CT_HANG_NONE; s++) {
            rig.samples[0].cpu_ns += cases[i].works ? S : 0;
            reason = tick(&rig);
        }
        assert_int_equal(reason, cases[i].reason);
        end(&rig);
    }
}

/* /proc is read of a rank without a page, and when any rank has used half of its time. */
static void proc_is_read_only_when_it_can_matter(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 10 * S, true);
    live(&rig, 1);
    for (int s = 0; s < 8; s++) {
        for (int i = 0; i < RANKS; i++) {
            if (i != 2) {
                stamp(&rig, i, CT_PHASE_COMPUTE, 6 + s);
            }
        }
        assert_int_equal(ct_hang_wants_proc(&rig.hang, 0, rig.now), s >= 5);
        assert_int_equal(tick(&rig), CT_HANG_NONE);
    }
    end(&rig);

    begin(&rig, 10 * S, false);
    assert_int_equal(tick(&rig), CT_HANG_NONE);
    assert_true(ct_hang_wants_proc(&rig.hang, 0, rig.now));
    end(&rig);
}

static void without_a_waiter_nothing_is_wrong(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, true);
    live(&rig, 1);
    for (int i = 0; i < RANKS; i++) {
        stamp(&rig, i, CT_PHASE_COMPUTE, 6); /* all evaluate, without a stamp */
    }
    assert_int_equal(wait_for(&rig, 1000), CT_HANG_NONE);
    end(&rig);
}

static void auto_takes_the_slowest_usual_step(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 0, true);
    live(&rig, 4); /* and one more second in the last step */
    stamp(&rig, 3, CT_PHASE_DATA, 6);
    assert_int_equal(wait_for(&rig, 24), CT_HANG_NONE);
    assert_int_equal(wait_for(&rig, 3), CT_HANG_BUSY);
    assert_in_range(rig.verdict.timeout_ns, 25 * S, 25 * S);
    end(&rig);
    begin(&rig, 0, true);
    live(&rig, 1);
    stamp(&rig, 3, CT_PHASE_DATA, 6);
    assert_int_equal(wait_for(&rig, 9), CT_HANG_NONE); /* never below ten seconds */
    assert_int_equal(wait_for(&rig, 3), CT_HANG_BUSY);
    end(&rig);
}

static void the_stopped_one_is_named_first(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, true);
    live(&rig, 1);
    stamp(&rig, 0, CT_PHASE_COMPUTE, 6);
    rig.samples[3].state = 'T';
    assert_int_equal(wait_for(&rig, 10), CT_HANG_STOPPED);
    assert_int_equal(rig.verdict.local_rank, 3);
    end(&rig);

    begin(&rig, 5 * S, true);
    live(&rig, 1);
    for (int i = 0; i < RANKS; i++) { /* somebody has suspended the job */
        rig.samples[i].state = 'T';
    }
    assert_int_equal(wait_for(&rig, 100), CT_HANG_NONE);
    end(&rig);

    begin(&rig, 5 * S, true);
    live(&rig, 1);
    rig.samples[1].state = 't'; /* a debugger is at it */
    assert_int_equal(wait_for(&rig, 100), CT_HANG_NONE);
    end(&rig);
}

static void set_states(struct rig *rig, char state)
{
    for (int i = 0; i < RANKS; i++) {
        rig->samples[i].state = state;
    }
}

/* A job that went on after it had been suspended for longer than its timeout was called hung at the
 * first sample, and a worker of it was killed. */
static void the_time_begins_anew_when_a_suspended_job_goes_on(void **state)
{
    static const struct {
        bool pages;
        bool busy; /* one rank computes while the others wait */
        enum ct_hang_reason reason;
    } cases[] = {
        {true, true, CT_HANG_BUSY},
        {true, false, CT_HANG_ALL},
        {false, false, CT_HANG_ALL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rig rig;
        begin(&rig, 5 * S, cases[i].pages);
        if (cases[i].pages) {
            live(&rig, 1);
        } else {
            burn(&rig, 2);
        }
        if (cases[i].busy) {
            stamp(&rig, 0, CT_PHASE_COMPUTE, 6);
        }
        assert_int_equal(tick(&rig), CT_HANG_NONE);
        set_states(&rig, 'T');
        assert_int_equal(wait_for(&rig, 100), CT_HANG_NONE);
        rig.samples[0].state = 'S'; /* the others follow within a sample */
        assert_int_equal(tick(&rig), CT_HANG_NONE);
        set_states(&rig, 'S');
        assert_int_equal(wait_for(&rig, 4), CT_HANG_NONE);
        assert_int_equal(wait_for(&rig, 3), cases[i].reason);
        end(&rig);
    }
}

/* The step that spanned a suspension was taken for a usual one, so that `auto` waited five times as
 * long for the rest of the generation. */
static void a_suspension_is_no_usual_step(void **state)
{
    static const struct {
        bool whole;  /* the machine sleeps; or else the workers are stopped */
        bool unseen; /* a step begins between the last sample and the suspension */
    } cases[] = {{false, false}, {true, false}, {true, true}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rig rig;
        begin(&rig, 0, true);
        live(&rig, 1);
        for (int r = 0; r < RANKS && cases[i].unseen; r++) {
            stamp(&rig, r, CT_PHASE_COMPUTE, 6);
        }
        if (cases[i].whole) {
            rig.now += 3600 * S;
        } else {
            set_states(&rig, 'T');
            assert_int_equal(wait_for(&rig, 3600), CT_HANG_NONE);
            set_states(&rig, 'S');
        }
        assert_int_equal(tick(&rig), CT_HANG_NONE);
        for (int r = 0; r < RANKS; r++) {
            stamp(&rig, r, CT_PHASE_COLLECTIVE, 7);
        }
        assert_int_equal(tick(&rig), CT_HANG_NONE);
        stamp(&rig, 3, CT_PHASE_DATA, 8);
        assert_int_equal(wait_for(&rig, 30), CT_HANG_BUSY);
        assert_in_range(rig.verdict.timeout_ns, 10 * S, 10 * S);
        end(&rig);
    }
}

static void a_job_whose_workers_all_wait_hangs(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, true);
    live(&rig, 1);
    assert_int_equal(wait_for(&rig, 10), CT_HANG_ALL);
    end(&rig);

    begin(&rig, 5 * S, true);
    live(&rig, 1);
    rig.hang.whole_job = false; /* then it is somebody elsewhere */
    assert_int_equal(wait_for(&rig, 10), CT_HANG_NONE);
    end(&rig);

    begin(&rig, 5 * S, true);
    live(&rig, 1);
    for (int i = 0; i < RANKS; i++) {
        stamp(&rig, i, CT_PHASE_COLLECTIVE, i == 1 ? 6 : 7);
    }
    assert_int_equal(wait_for(&rig, 10), CT_HANG_BEHIND);
    assert_int_equal(rig.verdict.local_rank, 1);
    end(&rig);

    begin(&rig, 5 * S, true);
    live(&rig, 1);
    rig.samples[2].state = 'D';
    assert_int_equal(wait_for(&rig, 10), CT_HANG_UNINTERRUPTIBLE);
    assert_int_equal(rig.verdict.local_rank, 2);
    end(&rig);
}

/* What this machine says to the others, and what they may find of it. */
static void one_of_many_machines_votes_and_is_accused(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, true);
    rig.hang.whole_job = false;
    live(&rig, 1);
    stamp(&rig, 1, CT_PHASE_COLLECTIVE, 4);
    assert_int_equal(wait_for(&rig, 4), CT_HANG_NONE);
    assert_int_equal(still(&rig).kind, CT_HANG_VOTE_NO);
    assert_int_equal(wait_for(&rig, 2), CT_HANG_BEHIND);
    struct ct_hang_vote said = still(&rig);
    assert_int_equal(said.kind, CT_HANG_VOTE_WAITING);
    assert_int_equal(said.rank, 1);
    assert_int_equal(said.step, 4);
    assert_true(said.alone && said.sure && said.still_ms >= 5000);
    struct ct_hang_verdict verdict;
    ct_hang_take_job_verdict(&rig.hang, 1, CT_HANG_VOTE_BEHIND, rig.now, &verdict);
    assert_int_equal(verdict.reason, CT_HANG_NONE); /* it stands already */

    for (int i = 0; i < RANKS; i++) {
        stamp(&rig, i, CT_PHASE_COLLECTIVE, 6);
    }
    assert_int_equal(wait_for(&rig, 8), CT_HANG_NONE);
    said = still(&rig);
    assert_int_equal(said.kind, CT_HANG_VOTE_WAITING);
    assert_false(said.alone);
    ct_hang_take_job_verdict(&rig.hang, 2, CT_HANG_VOTE_ALL, rig.now, &verdict);
    assert_int_equal(verdict.reason, CT_HANG_ALL);
    assert_int_equal(verdict.local_rank, 2);
    assert_true(verdict.still_ns >= 5 * S && verdict.timeout_ns == 5 * S);
    rig.samples[3].state = 'T';
    assert_int_equal(still(&rig).kind, CT_HANG_VOTE_STOPPED);
    rig.samples[3].state = 'S';
    stamp(&rig, 2, CT_PHASE_COMPUTE, 6);
    assert_int_equal(wait_for(&rig, 8), CT_HANG_BUSY);
    assert_int_equal(still(&rig).kind, CT_HANG_VOTE_BUSY);
    assert_int_equal(still(&rig).rank, 2);
    end(&rig);
}

/* The same of workers that tell nothing of themselves. */
static void among_machines_of_any_program(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, false);
    rig.hang.whole_job = false;
    burn(&rig, 3);
    assert_int_equal(wait_for(&rig, 10), CT_HANG_NONE);
    assert_int_equal(still(&rig).kind, CT_HANG_VOTE_QUIET);
    rig.samples[2].state = 'D';
    assert_int_equal(still(&rig).kind, CT_HANG_VOTE_STUCK);
    assert_int_equal(still(&rig).rank, 2);
    rig.samples[2].state = 'S';
    (void)snprintf(rig.samples[3].wchan, sizeof(rig.samples[3].wchan), "hrtimer_nanosleep");
    assert_int_equal(still(&rig).kind, CT_HANG_VOTE_NAPPING);
    assert_int_equal(still(&rig).rank, 3);
    end(&rig);
}

static void a_pause_of_the_launcher_counts_for_nothing(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, true);
    live(&rig, 1);
    stamp(&rig, 2, CT_PHASE_COMPUTE, 6);
    assert_int_equal(tick(&rig), CT_HANG_NONE);
    rig.now += 3600 * S;
    assert_int_equal(wait_for(&rig, 5), CT_HANG_NONE);
    assert_int_equal(wait_for(&rig, 3), CT_HANG_BUSY);
    end(&rig);
}

/* ---- asking the workers --------------------------------------------------------------------- */

static void asking_them_is_no_progress(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, false);
    burn(&rig, 3);
    (void)snprintf(rig.samples[1].wchan, sizeof(rig.samples[1].wchan), "nfs_wait");
    assert_int_equal(wait_for(&rig, 10), CT_HANG_SLEEPS_ELSEWHERE);
    rig.now += 4 * S; /* longer than the pause after which the time starts anew */
    for (int i = 0; i < RANKS; i++) {
        rig.samples[i].cpu_ns += 2 * S; /* their answers have cost that */
    }
    assert_true(ct_hang_resume(&rig.hang, rig.samples, rig.now));
    assert_int_equal(wait_for(&rig, 60), CT_HANG_NONE); /* the verdict still holds */
    end(&rig);
}

static void progress_meanwhile_is_noticed(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, true);
    live(&rig, 1);
    stamp(&rig, 2, CT_PHASE_COMPUTE, 6);
    assert_int_equal(wait_for(&rig, 10), CT_HANG_BUSY);
    rig.now += S;
    assert_true(ct_hang_resume(&rig.hang, rig.samples, rig.now));
    stamp(&rig, 2, CT_PHASE_COLLECTIVE, 6);
    assert_false(ct_hang_resume(&rig.hang, rig.samples, rig.now));
    end(&rig);
}

/* ---- programs without a page ---------------------------------------------------------------- */

/* Rank `busy` uses the CPU for so many seconds, and the others wait. */
static void work_alone(struct rig *rig, int busy, int seconds)
{
    for (int i = 0; i < seconds; i++) {
        rig->samples[busy].cpu_ns += S;
        assert_int_equal(tick(rig), CT_HANG_NONE);
    }
}

static void one_that_is_busy_alone_is_doubted_after_the_timeout(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, false);
    burn(&rig, 3);
    work_alone(&rig, 2, 4);
    assert_int_equal(ct_hang_busy_alone(&rig.hang, rig.samples, rig.now), -1);
    work_alone(&rig, 2, 3);
    assert_int_equal(ct_hang_busy_alone(&rig.hang, rig.samples, rig.now), 2);
    /* On other machines others may work, too. */
    rig.hang.whole_job = false;
    assert_int_equal(ct_hang_busy_alone(&rig.hang, rig.samples, rig.now), -1);
    rig.hang.whole_job = true;

    struct ct_hang_verdict verdict;
    ct_hang_take_loop(&rig.hang, rig.samples, 2, rig.now, &verdict);
    assert_int_equal(verdict.reason, CT_HANG_LOOPS);
    assert_int_equal(verdict.local_rank, 2);
    assert_true(verdict.timeout_ns == 5 * S);
    assert_in_range(verdict.still_ns, 5 * S, 8 * S);
    assert_int_equal(ct_hang_busy_alone(&rig.hang, rig.samples, rig.now), -1);
    assert_true(ct_hang_resume(&rig.hang, rig.samples, rig.now));
    end(&rig);
}

static void two_that_are_busy_are_not_doubted(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, false);
    burn(&rig, 3);
    for (int i = 0; i < 20; i++) {
        rig.samples[0].cpu_ns += S;
        work_alone(&rig, 2, 1);
        assert_int_equal(ct_hang_busy_alone(&rig.hang, rig.samples, rig.now), -1);
    }
    /* One that ends is no longer awaited. */
    rig.samples[0].alive = rig.samples[1].alive = rig.samples[3].alive = false;
    work_alone(&rig, 2, 20);
    assert_int_equal(ct_hang_busy_alone(&rig.hang, rig.samples, rig.now), -1);
    end(&rig);
}

static void a_program_with_a_page_is_not_doubted(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, true);
    live(&rig, 1);
    for (int i = 0; i < 20; i++) {
        stamp(&rig, 2, CT_PHASE_DATA, 6 + i);
        assert_int_equal(tick(&rig), CT_HANG_NONE);
        assert_int_equal(ct_hang_busy_alone(&rig.hang, rig.samples, rig.now), -1);
    }
    end(&rig);
}

static void of_sleepers_the_odd_one_is_named(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, false);
    burn(&rig, 3);
    (void)snprintf(rig.samples[1].wchan, sizeof(rig.samples[1].wchan), "nfs_wait");
    assert_int_equal(wait_for(&rig, 4), CT_HANG_NONE);
    assert_int_equal(wait_for(&rig, 3), CT_HANG_SLEEPS_ELSEWHERE);
    assert_int_equal(rig.verdict.local_rank, 1);
    end(&rig);

    begin(&rig, 5 * S, false);
    burn(&rig, 3);
    (void)snprintf(rig.samples[3].wchan, sizeof(rig.samples[3].wchan), "hrtimer_nanosleep");
    (void)snprintf(rig.samples[0].wchan, sizeof(rig.samples[0].wchan), "ep_poll");
    assert_int_equal(wait_for(&rig, 10), CT_HANG_SLEEPS_ELSEWHERE);
    assert_int_equal(rig.verdict.local_rank, 3);
    end(&rig);
}

static void a_trickle_is_no_progress_and_work_is(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, false);
    burn(&rig, 3);
    enum ct_hang_reason reason = CT_HANG_NONE;
    for (int i = 0; i < 10 && reason == CT_HANG_NONE; i++) { /* a watchdog thread: 1 % */
        rig.samples[0].cpu_ns += S / 100;
        reason = tick(&rig);
    }
    assert_int_equal(reason, CT_HANG_ALL);
    end(&rig);
    begin(&rig, 5 * S, false);
    burn(&rig, 3);
    for (int i = 0; i < 100; i++) { /* one works, the others wait for it: all is well */
        rig.samples[0].cpu_ns += S / 10;
        assert_int_equal(tick(&rig), CT_HANG_NONE);
    }
    end(&rig);
}

static void who_waits_for_a_cpu_does_not_stand_still(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, false);
    burn(&rig, 3);
    for (int i = 0; i < 100; i++) { /* on an overloaded machine one gets 1 % of a CPU */
        rig.samples[1].queued_ns += S / 2;
        rig.samples[1].cpu_ns += S / 100;
        assert_int_equal(tick(&rig), CT_HANG_NONE);
        if (i > 5) { /* its stack does not change, but that is no loop */
            assert_int_equal(ct_hang_busy_alone(&rig.hang, rig.samples, rig.now), -1);
        }
    }
    rig.samples[1].queued_ns = -1; /* the kernel does not tell */
    assert_int_equal(tick(&rig), CT_HANG_NONE);
    rig.samples[1].queued_ns = 1000 * S;
    assert_int_equal(wait_for(&rig, 10), CT_HANG_ALL);
    end(&rig);
}

static void who_wakes_up_often_waits_for_no_cpu(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, false);
    burn(&rig, 3);
    enum ct_hang_reason reason = CT_HANG_NONE;
    for (int i = 0; i < 10 && reason == CT_HANG_NONE; i++) {
        rig.samples[0].queued_ns += S / 20;
        rig.samples[1].queued_ns += S / 25;
        rig.samples[1].cpu_ns += S / 100;
        reason = tick(&rig);
    }
    assert_int_equal(reason, CT_HANG_ALL);
    end(&rig);
}

static void a_page_that_stands_still_for_want_of_a_cpu(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, true);
    live(&rig, 1);
    stamp(&rig, 2, CT_PHASE_COMPUTE, 6);
    for (int i = 0; i < 20; i++) {
        rig.samples[2].queued_ns += S;
        assert_int_equal(tick(&rig), CT_HANG_NONE);
    }
    assert_int_equal(wait_for(&rig, 10), CT_HANG_BUSY);
    assert_int_equal(rig.verdict.local_rank, 2);
    end(&rig);
}

static void who_spins_does_not_hide_who_is_stopped(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, false);
    burn(&rig, 3);
    rig.samples[2].state = 'T';
    enum ct_hang_reason reason = CT_HANG_NONE;
    for (int i = 0; i < 10 && reason == CT_HANG_NONE; i++) {
        for (int r = 0; r < RANKS; r++) {
            rig.samples[r].cpu_ns += r == 2 ? 0 : S;
        }
        reason = tick(&rig);
    }
    assert_int_equal(reason, CT_HANG_STOPPED);
    assert_int_equal(rig.verdict.local_rank, 2);
    end(&rig);
}

static bool is_over(const struct rig *rig, const struct ct_hang_verdict *verdict)
{
    return ct_hang_is_over(&rig->hang, rig->samples, verdict);
}

static void a_hang_is_over_when_a_step_was_made(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, true);
    live(&rig, 1);
    rig.samples[3].state = 'T';
    assert_int_equal(wait_for(&rig, 10), CT_HANG_STOPPED);
    const struct ct_hang_verdict verdict = rig.verdict;
    assert_false(is_over(&rig, &verdict));
    stamp(&rig, 0, CT_PHASE_COMPUTE, 8); /* it can be little else than an echo */
    (void)tick(&rig);
    assert_false(is_over(&rig, &verdict));
    rig.samples[3].state = 'S'; /* it may go on, and has not yet */
    (void)tick(&rig);
    assert_false(is_over(&rig, &verdict));
    stamp(&rig, 3, CT_PHASE_COMPUTE, 8);
    (void)tick(&rig);
    assert_true(is_over(&rig, &verdict));
    (void)tick(&rig);
    assert_false(is_over(&rig, &verdict)); /* the last sample counts */
    end(&rig);
}

static void that_the_time_starts_anew_ends_no_hang(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, true);
    live(&rig, 1);
    assert_int_equal(wait_for(&rig, 10), CT_HANG_ALL);
    const struct ct_hang_verdict verdict = rig.verdict;
    rig.now += 60 * S; /* nobody looked */
    (void)tick(&rig);
    assert_false(is_over(&rig, &verdict));
    rig.samples[1].state = 't'; /* a debugger is at it */
    (void)tick(&rig);
    assert_false(is_over(&rig, &verdict));
    stamp(&rig, 2, CT_PHASE_COMPUTE, 8);
    (void)tick(&rig);
    assert_true(is_over(&rig, &verdict));
    rig.samples[2].alive = false; /* what it wrote was seen before */
    (void)tick(&rig);
    assert_false(is_over(&rig, &verdict));
    end(&rig);
}

static void who_turns_in_a_loop_makes_no_progress(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, false);
    burn(&rig, 3);
    for (int i = 0; i < 6; i++) {
        rig.samples[2].cpu_ns += S;
        (void)tick(&rig);
    }
    struct ct_hang_verdict verdict;
    ct_hang_take_loop(&rig.hang, rig.samples, 2, rig.now, &verdict);
    rig.samples[2].cpu_ns += S;
    (void)tick(&rig);
    assert_false(is_over(&rig, &verdict));
    rig.samples[0].cpu_ns += S;
    (void)tick(&rig);
    assert_true(is_over(&rig, &verdict));
    end(&rig);
}

static void before_life_and_after_death(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, 5 * S, false); /* has used no CPU at all */
    assert_int_equal(wait_for(&rig, 100), CT_HANG_NONE);
    end(&rig);
    begin(&rig, 5 * S, true);
    live(&rig, 1);
    for (int i = 0; i < RANKS; i++) {
        rig.samples[i].alive = false;
    }
    assert_int_equal(wait_for(&rig, 100), CT_HANG_NONE);
    ct_hang_reset(&rig.hang);
    for (int i = 0; i < RANKS; i++) { /* a new generation, in its first step */
        rig.samples[i].alive = true;
        stamp(&rig, i, i == 0 ? CT_PHASE_COMPUTE : CT_PHASE_COLLECTIVE, 5);
        rig.samples[i].page.turns = 0;
    }
    assert_int_equal(wait_for(&rig, 100), CT_HANG_NONE);
    end(&rig);
}

/* ---- words ---------------------------------------------------------------------------------- */

static void a_hang_is_described_worker_by_worker(void **state)
{
    (void)state;
    struct rig rig;
    struct ct_buf out = CT_BUF_INIT;
    begin(&rig, 5 * S, true);
    live(&rig, 1);
    stamp(&rig, 2, CT_PHASE_COMPUTE, 6);
    assert_int_equal(wait_for(&rig, 10), CT_HANG_BUSY);
    assert_int_equal(ct_hang_describe(&rig.hang, &rig.verdict, rig.samples, 8, rig.now, "> ", &out),
                     0);
    assert_string_equal(
        ct_buf_cstr(&out),
        "> rank 10 hangs: it has stood still for 5.0 s (allowed are 5.0 s): in phase compute of "
        "step 6, while others wait for it\n"
        "> rank 10: process 102 is asleep in futex_wait; phase compute of step 6 for 6.0 s\n"
        "> rank 8: process 100 is asleep in futex_wait; phase collective of step 5 for 7.0 s\n"
        "> rank 9: process 101 is asleep in futex_wait; phase collective of step 5 for 7.0 s\n"
        "> rank 11: process 103 is asleep in futex_wait; phase collective of step 5 for 7.0 s\n");
    ct_buf_fini(&out);
    end(&rig);
}

static int init_and_fini(void *data)
{
    (void)data;
    struct ct_hang hang = {0};
    int rc = ct_hang_init(&hang, 3, true, 0);
    ct_hang_fini(&hang);
    return rc;
}

static void each_failed_allocation_is_told(void **state)
{
    (void)state;
    assert_int_equal(ct_fault_sweep(init_and_fini, NULL, 0), 1);
    ct_hang_fini(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_busy_one_is_named),
        cmocka_unit_test(who_is_only_slow_is_not),
        cmocka_unit_test(a_long_first_step_is_not),
        cmocka_unit_test(a_checkpoint_hangs_only_without_cpu_use),
        cmocka_unit_test(a_spinning_one_is_named),
        cmocka_unit_test(a_rank_alone_hangs_by_its_timeout_or_without_cpu),
        cmocka_unit_test(proc_is_read_only_when_it_can_matter),
        cmocka_unit_test(without_a_waiter_nothing_is_wrong),
        cmocka_unit_test(auto_takes_the_slowest_usual_step),
        cmocka_unit_test(the_stopped_one_is_named_first),
        cmocka_unit_test(the_time_begins_anew_when_a_suspended_job_goes_on),
        cmocka_unit_test(a_suspension_is_no_usual_step),
        cmocka_unit_test(a_job_whose_workers_all_wait_hangs),
        cmocka_unit_test(one_of_many_machines_votes_and_is_accused),
        cmocka_unit_test(among_machines_of_any_program),
        cmocka_unit_test(a_pause_of_the_launcher_counts_for_nothing),
        cmocka_unit_test(asking_them_is_no_progress),
        cmocka_unit_test(progress_meanwhile_is_noticed),
        cmocka_unit_test(one_that_is_busy_alone_is_doubted_after_the_timeout),
        cmocka_unit_test(two_that_are_busy_are_not_doubted),
        cmocka_unit_test(a_program_with_a_page_is_not_doubted),
        cmocka_unit_test(of_sleepers_the_odd_one_is_named),
        cmocka_unit_test(a_trickle_is_no_progress_and_work_is),
        cmocka_unit_test(who_waits_for_a_cpu_does_not_stand_still),
        cmocka_unit_test(who_wakes_up_often_waits_for_no_cpu),
        cmocka_unit_test(a_page_that_stands_still_for_want_of_a_cpu),
        cmocka_unit_test(who_spins_does_not_hide_who_is_stopped),
        cmocka_unit_test(before_life_and_after_death),
        cmocka_unit_test(a_hang_is_over_when_a_step_was_made),
        cmocka_unit_test(that_the_time_starts_anew_ends_no_hang),
        cmocka_unit_test(who_turns_in_a_loop_makes_no_progress),
        cmocka_unit_test(a_hang_is_described_worker_by_worker),
        cmocka_unit_test(each_failed_allocation_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
