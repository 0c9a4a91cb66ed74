/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples of ranks that work for a part of each second, and who of them is slow.
 */
#include "tests/lib/ct_test.h"

#include "common/clock.h"
#include "launcher/hang/slow.h"

#define RANKS 4
#define TICK_NS (CT_NS_PER_S / 10)
#define WINDOWS(n) ((int)((n)*CT_SLOW_WINDOW_NS / TICK_NS) + 1)

struct scene {
    struct ct_slow slow;
    struct ct_hang_sample samples[RANKS];
    int64_t now_ns;
    int ticks;
    int tenths[RANKS]; /* of each second in which the rank works */
    bool pages, steps;
    enum ct_phase work; /* what its page says then */
};

static void begin(struct scene *s, double factor)
{
    *s = (struct scene){.now_ns = CT_NS_PER_S, .tenths = {2, 2, 9, 2}, .work = CT_PHASE_COMPUTE};
    s->pages = s->steps = true;
    assert_int_equal(ct_slow_init(&s->slow, RANKS, factor), 0);
    for (int i = 0; i < RANKS; i++) {
        s->samples[i] = (struct ct_hang_sample){.alive = true, .state = 'S', .cpu_ns = 0};
    }
}

/* Goes on for so many samples. Gives the first verdict; -1 = there is none. */
static struct ct_slow_verdict go_on(struct scene *s, int ticks)
{
    struct ct_slow_verdict first = {.local_rank = -1}, verdict;
    for (int t = 0; t < ticks; t++, s->ticks++) {
        for (int i = 0; i < RANKS; i++) {
            struct ct_hang_sample *sample = &s->samples[i];
            bool works = s->ticks % 10 < s->tenths[i];
            sample->has_page = s->pages;
            sample->page.phase = works ? s->work : CT_PHASE_COLLECTIVE;
            sample->page.step += s->steps && s->ticks % 10 == 0;
            sample->cpu_ns = s->pages ? -1 : sample->cpu_ns + (works ? TICK_NS : 0);
        }
        s->now_ns += TICK_NS;
        ct_slow_step(&s->slow, s->samples, s->now_ns, &verdict);
        if (verdict.local_rank >= 0 && first.local_rank < 0) {
            first = verdict;
        }
    }
    return first;
}

static void test_a_rank_for_which_the_others_wait_is_told_once(void **state)
{
    (void)state;
    for (int pages = 0; pages < 2; pages++) {
        struct scene s;
        begin(&s, 3);
        s.pages = pages == 1;
        assert_int_equal(go_on(&s, WINDOWS(CT_SLOW_WINDOWS) - 1).local_rank, -1);
        struct ct_slow_verdict verdict = go_on(&s, 1);
        assert_int_equal(verdict.local_rank, 2);
        assert_int_equal(verdict.percent, 90);
        assert_int_equal(verdict.others_percent, 20);
        assert_int_equal(go_on(&s, WINDOWS(CT_SLOW_WINDOWS + 2)).local_rank, -1);
        ct_slow_reset(&s.slow);
        assert_int_equal(go_on(&s, WINDOWS(CT_SLOW_WINDOWS)).local_rank, 2);
        ct_slow_fini(&s.slow);
    }
}

static void test_a_rank_that_works_little_more_is_not_slow(void **state)
{
    (void)state;
    static const struct {
        double factor;
        int tenths[RANKS], slow;
    } cases[] = {
        {3, {3, 3, 9, 3}, 2},  {3.1, {3, 3, 9, 3}, -1}, {3, {9, 9, 9, 9}, -1},
        {3, {0, 0, 4, 0}, -1}, {25, {0, 0, 5, 0}, 2},   {26, {0, 0, 5, 0}, -1},
        {3, {9, 3, 9, 3}, 0},  {3, {9, 9, 10, 3}, -1},  {0, {0, 0, 9, 0}, -1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene s;
        begin(&s, cases[i].factor);
        for (int r = 0; r < RANKS; r++) {
            s.tenths[r] = cases[i].tenths[r];
        }
        int found = go_on(&s, WINDOWS(CT_SLOW_WINDOWS + 1)).local_rank;
        if (found != cases[i].slow) {
            fail_msg("case %zu: rank %d", i, found);
        }
        ct_slow_fini(&s.slow);
    }
}

static void test_another_rank_in_each_window_is_not_slow(void **state)
{
    (void)state;
    struct scene s;
    begin(&s, 3);
    for (int i = 0; i < 3 * CT_SLOW_WINDOWS; i++) {
        s.tenths[2] = i % 2 == 0 ? 9 : 2;
        s.tenths[1] = i % 2 == 0 ? 2 : 9;
        assert_int_equal(go_on(&s, WINDOWS(1) - 1).local_rank, -1);
    }
    ct_slow_fini(&s.slow);
}

/* As of a job whose steps are uneven. */
static void test_a_rank_that_keeps_the_others_waiting_for_some_windows_is_not_slow(void **state)
{
    (void)state;
    struct scene s;
    begin(&s, 3);
    for (int i = 0; i < 3; i++) {
        s.tenths[2] = 9;
        assert_int_equal(go_on(&s, WINDOWS(CT_SLOW_WINDOWS - 1) - 1).local_rank, -1);
        s.tenths[2] = 2;
        assert_int_equal(go_on(&s, WINDOWS(1) - 1).local_rank, -1);
    }
    ct_slow_fini(&s.slow);
}

static void test_a_checkpoint_and_a_hang_are_no_slowness(void **state)
{
    (void)state;
    struct scene s;
    begin(&s, 3);
    s.work = CT_PHASE_CHECKPOINT;
    assert_int_equal(go_on(&s, WINDOWS(CT_SLOW_WINDOWS + 1)).local_rank, -1);
    s.work = CT_PHASE_COMPUTE;
    s.steps = false;
    assert_int_equal(go_on(&s, WINDOWS(CT_SLOW_WINDOWS + 1)).local_rank, -1);
    s.steps = true;
    assert_int_equal(go_on(&s, WINDOWS(CT_SLOW_WINDOWS + 2)).local_rank, 2);
    ct_slow_fini(&s.slow);
}

static void test_a_change_of_the_ranks_begins_anew(void **state)
{
    (void)state;
    struct scene s;
    begin(&s, 3);
    assert_int_equal(go_on(&s, WINDOWS(CT_SLOW_WINDOWS) - 2).local_rank, -1);
    s.samples[0].alive = false; /* one has ended */
    assert_int_equal(go_on(&s, WINDOWS(CT_SLOW_WINDOWS) - 1).local_rank, -1);
    assert_int_equal(go_on(&s, 1).local_rank, 2);
    ct_slow_reset(&s.slow);
    assert_int_equal(go_on(&s, WINDOWS(CT_SLOW_WINDOWS) - 2).local_rank, -1);
    s.now_ns += 10 * CT_NS_PER_S; /* a suspend */
    assert_int_equal(go_on(&s, WINDOWS(CT_SLOW_WINDOWS) - 1).local_rank, -1);
    assert_int_equal(go_on(&s, 1).local_rank, 2);
    ct_slow_fini(&s.slow);
}

static void test_a_cpu_time_that_is_not_known_or_shrinks_is_no_work(void **state)
{
    (void)state;
    struct scene s;
    begin(&s, 3);
    s.pages = false;
    assert_int_equal(go_on(&s, WINDOWS(1)).local_rank, -1);
    s.samples[2].cpu_ns = 0; /* a child has ended */
    assert_int_equal(go_on(&s, WINDOWS(CT_SLOW_WINDOWS - 1)).local_rank, 2);
    ct_slow_reset(&s.slow);
    s.samples[1].cpu_ns = -TICK_NS * 1000;
    assert_int_equal(go_on(&s, WINDOWS(CT_SLOW_WINDOWS + 1)).local_rank, -1);
    ct_slow_fini(&s.slow);
}

static void test_a_rank_alone_is_not_slow(void **state)
{
    (void)state;
    struct scene s;
    begin(&s, 3);
    for (int i = 0; i < RANKS; i++) {
        s.samples[i].alive = i == 2;
    }
    assert_int_equal(go_on(&s, WINDOWS(CT_SLOW_WINDOWS + 1)).local_rank, -1);
    s.samples[2].alive = false;
    assert_int_equal(go_on(&s, WINDOWS(CT_SLOW_WINDOWS + 1)).local_rank, -1);
    ct_slow_fini(&s.slow);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_rank_for_which_the_others_wait_is_told_once),
        cmocka_unit_test(test_a_rank_that_works_little_more_is_not_slow),
        cmocka_unit_test(test_another_rank_in_each_window_is_not_slow),
        cmocka_unit_test(test_a_rank_that_keeps_the_others_waiting_for_some_windows_is_not_slow),
        cmocka_unit_test(test_a_checkpoint_and_a_hang_are_no_slowness),
        cmocka_unit_test(test_a_change_of_the_ranks_begins_anew),
        cmocka_unit_test(test_a_cpu_time_that_is_not_known_or_shrinks_is_no_work),
        cmocka_unit_test(test_a_rank_alone_is_not_slow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
