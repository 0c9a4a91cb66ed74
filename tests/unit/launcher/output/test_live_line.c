/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of the live line: what it says of a job, and what is left out of a narrow one.
 */
#include "tests/lib/ct_test.h"

#include "common/clock.h"
#include "launcher/output/live_line.h"

#include <math.h>

#define NOW (1000 * CT_NS_PER_S)
#define WIDE 200

static struct ct_progress page_at(int64_t step, enum ct_phase phase, int64_t age_s)
{
    return (struct ct_progress){
        .phase = phase,
        .step = step,
        .turns = 1,
        .stamp_ns = NOW - age_s * CT_NS_PER_S,
        .loss = (double)NAN,
        .rate = (double)NAN,
    };
}

static void assert_line(const struct ct_live_facts *facts, size_t columns, const char *expected)
{
    char out[CT_LIVE_LINE_MAX];
    ct_live_line(facts, columns, out);
    assert_string_equal(out, expected);
}

static void before_the_first_step_it_says_what_is_awaited(void **state)
{
    struct ct_live_facts facts = {
        .state = CT_LIVE_JOINING, .for_ns = 12 * CT_NS_PER_S, .awaited = "", .workers = 8};
    (void)state;
    assert_line(&facts, WIDE, "ctrun: waiting for the job to begin (12 s)");
    facts.awaited = "waiting for node 1 (gpu-\x1b[2J7)";
    assert_line(&facts, WIDE, "ctrun: waiting for node 1 (gpu-?[2J7) (12 s)");
    facts.state = CT_LIVE_STARTING;
    assert_line(&facts, WIDE, "ctrun: starting 8 workers (12 s)");
    facts.state = CT_LIVE_RUNNING;
    facts.alive = 8;
    facts.reporting = 8;
    assert_line(&facts, WIDE, "ctrun: 8 workers, waiting for the first step (12 s)");
    facts.state = CT_LIVE_STOPPING;
    facts.alive = 1;
    assert_line(&facts, WIDE, "ctrun: stopping 1 worker (12 s)");
}

static void a_program_that_tells_nothing_has_its_workers_counted(void **state)
{
    struct ct_progress pages[2] = {{0}};
    const bool valid[2] = {false, false};
    struct ct_live_facts facts = {.state = CT_LIVE_RUNNING,
                                  .for_ns = 150 * CT_NS_PER_S,
                                  .workers = 2,
                                  .alive = 2,
                                  .restarts = 1,
                                  .max_restarts = 3};
    (void)state;
    ct_live_line_progress(pages, valid, 2, NOW, &facts);
    assert_line(&facts, WIDE, "ctrun: 2 workers running for 2 min, restart 1 of 3");
    facts.alive = 1;
    facts.restarts = 0;
    assert_line(&facts, WIDE, "ctrun: 1 worker running for 2 min, 1 of 2 workers run");
}

static void it_shows_what_is_told_and_no_more(void **state)
{
    struct ct_progress pages[2] = {page_at(1204, CT_PHASE_COMPUTE, 0),
                                   page_at(1204, CT_PHASE_COMPUTE, 0)};
    const bool valid[2] = {true, true};
    struct ct_live_facts facts = {.state = CT_LIVE_RUNNING, .workers = 2, .alive = 2};
    (void)state;
    ct_live_line_progress(pages, valid, 2, NOW, &facts);
    assert_line(&facts, WIDE, "ctrun: step 1,204");

    pages[1].loss = 0.43121;
    pages[1].rate = 312400;
    ct_live_line_progress(pages, valid, 2, NOW, &facts);
    assert_line(&facts, WIDE, "ctrun: step 1,204, loss 0.4312, 312k samples/s");

    pages[1].rate = 9999.7;
    ct_live_line_progress(pages, valid, 2, NOW, &facts);
    assert_line(&facts, WIDE, "ctrun: step 1,204, loss 0.4312, 10k samples/s");
    pages[1].rate = 312400;

    /* 100 steps in 50 s, 1000 to go */
    pages[0].total = 2204;
    pages[0].turns = 101;
    pages[0].first_ns = NOW - 50 * CT_NS_PER_S;
    ct_live_line_progress(pages, valid, 2, NOW, &facts);
    assert_line(&facts, WIDE,
                "ctrun: step 1,204 of 2,204, loss 0.4312, 312k samples/s, 8 min left");
    /* The other one needs twice the time. */
    pages[1].total = 2204;
    pages[1].turns = 51;
    pages[1].first_ns = NOW - 50 * CT_NS_PER_S;
    ct_live_line_progress(pages, valid, 2, NOW, &facts);
    assert_line(&facts, WIDE,
                "ctrun: step 1,204 of 2,204, loss 0.4312, 312k samples/s, 17 min left");
    pages[1].total = 0;
    pages[0].total = 1000; /* nonsense: it is behind that already */
    ct_live_line_progress(pages, valid, 2, NOW, &facts);
    assert_line(&facts, WIDE, "ctrun: step 1,204, loss 0.4312, 312k samples/s, 0 s left");
}

static void the_slowest_rank_is_named_if_it_stands_out(void **state)
{
    struct ct_progress pages[3] = {page_at(10, CT_PHASE_COLLECTIVE, 0),
                                   page_at(9, CT_PHASE_COMPUTE, 1),
                                   page_at(10, CT_PHASE_COLLECTIVE, 0)};
    const bool valid[3] = {true, true, true};
    struct ct_live_facts facts = {
        .state = CT_LIVE_RUNNING, .workers = 3, .alive = 3, .first_rank = 8};
    (void)state;
    ct_live_line_progress(pages, valid, 3, NOW, &facts);
    assert_line(&facts, WIDE, "ctrun: step 10"); /* one step behind is usual */

    pages[1] = page_at(10, CT_PHASE_COMPUTE, 5);
    ct_live_line_progress(pages, valid, 3, NOW, &facts);
    assert_line(&facts, WIDE, "ctrun: step 10, the others wait for rank 9 for 5 s");

    pages[2] = page_at(10, CT_PHASE_DATA, 5); /* two of them: nobody stands out */
    ct_live_line_progress(pages, valid, 3, NOW, &facts);
    assert_line(&facts, WIDE, "ctrun: step 10");

    pages[2] = page_at(7, CT_PHASE_COLLECTIVE, 0);
    ct_live_line_progress(pages, valid, 3, NOW, &facts);
    assert_line(&facts, WIDE, "ctrun: step 10, rank 10 is 3 steps behind");
}

/* On 80 columns the speed and the time left were shown, which are of another time, and not who is
 * waited for. */
static void while_all_wait_for_a_rank_that_comes_first(void **state)
{
    const struct ct_live_facts facts = {.state = CT_LIVE_RUNNING,
                                        .workers = 2,
                                        .alive = 2,
                                        .restarts = 1,
                                        .max_restarts = 2,
                                        .stepped = true,
                                        .step = 1699,
                                        .total = 94000,
                                        .loss = 0.0005368,
                                        .rate = 23000,
                                        .eta_s = 1380,
                                        .slowest = 1,
                                        .slowest_for_ns = 14 * CT_NS_PER_S};
    (void)state;
    assert_line(&facts, 80,
                "ctrun: step 1,699 of 94,000, the others wait for rank 1 for 14 s, restart 1 of 2");
    assert_line(&facts, WIDE,
                "ctrun: step 1,699 of 94,000, the others wait for rank 1 for 14 s, restart 1 of 2, "
                "loss 0.0005368");
}

static void a_narrow_terminal_gets_the_first_parts(void **state)
{
    struct ct_progress page = page_at(1204, CT_PHASE_COMPUTE, 0);
    const bool valid = true;
    struct ct_live_facts facts = {
        .state = CT_LIVE_RUNNING, .workers = 1, .alive = 1, .restarts = 1, .max_restarts = 3};
    char out[CT_LIVE_LINE_MAX];
    (void)state;
    page.loss = 0.5;
    page.rate = 1e7;
    ct_live_line_progress(&page, &valid, 1, NOW, &facts);
    assert_line(&facts, WIDE, "ctrun: step 1,204, loss 0.5, 10M samples/s, restart 1 of 3");
    assert_line(&facts, 30, "ctrun: step 1,204, loss 0.5");
    assert_line(&facts, 10, "ctrun: ste");
    for (size_t columns = 0; columns < 80; columns++) {
        ct_live_line(&facts, columns, out);
        assert_true(strlen(out) <= columns);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(before_the_first_step_it_says_what_is_awaited),
        cmocka_unit_test(a_program_that_tells_nothing_has_its_workers_counted),
        cmocka_unit_test(it_shows_what_is_told_and_no_more),
        cmocka_unit_test(the_slowest_rank_is_named_if_it_stands_out),
        cmocka_unit_test(while_all_wait_for_a_rank_that_comes_first),
        cmocka_unit_test(a_narrow_terminal_gets_the_first_parts),
    };
    return cmocka_run_group_tests_name("live_line", tests, NULL, NULL);
}
