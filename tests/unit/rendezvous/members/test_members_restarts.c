/* SPDX-License-Identifier: Apache-2.0
 *
 * Membership: limits of restarts beside their number.
 */
#include "tests/lib/members_done.h"
#include "tests/lib/members_scene.h"

#include <limits.h>
#include <stdio.h>

/* A worker of node 1 fails after these steps; -1 = none. All stop. */
static void fails_at(struct scene *s, int generation, int64_t first, int64_t last)
{
    static struct ct_msg msg;
    memset(&msg, 0, sizeof(msg));
    msg.type = CT_MSG_FAILED;
    msg.generation = generation;
    msg.failure = (struct ct_failure){.exit_code = 7, .steps = {last >= 0, first, last}};
    say_msg(s, 1, &msg);
    say(s, 1, CT_MSG_STOPPED, generation);
}

static void test_generations_without_a_new_step_end_the_job(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 1, 1, 0, 100);
    s.job.limits.max_no_progress = 2;
    run(&s, 1);
    fails_at(&s, 0, 0, 150);
    say(&s, 1, CT_MSG_SERVING, 1);
    fails_at(&s, 1, 0, 150); /* the first without progress */
    say(&s, 1, CT_MSG_SERVING, 2);
    HEARS(&s, 1, "stop0,again world1:0/1,0/2,serve stop1,again world2:0/1,0/2,serve");
    fails_at(&s, 2, 0, -1); /* the second: it did not even complete a step */
    HEARS(&s, 1, "stop2 over=119");
    assert_non_null(strstr(s.nodes[1].last_text, "2 generations in a row"));
    assert_non_null(strstr(s.nodes[1].last_text, "step 150 (--max-no-progress 2)"));
    end(&s);
}

static void test_steps_of_another_node_are_progress(void **state)
{
    static struct ct_msg beat;
    struct scene s;
    (void)state;
    begin(&s, 1, 1, 0, 100);
    s.job.limits.max_no_progress = 1;
    run(&s, 1);
    fails_at(&s, 0, 0, 5);
    say(&s, 1, CT_MSG_SERVING, 1);
    memset(&beat, 0, sizeof(beat));
    give_rows(&beat, 2, 0, 1);
    beat.rows[1].step = 9;
    beat.rows[1].phase = 2;
    say_msg(&s, 1, &beat);
    forget(&s);
    fails_at(&s, 1, 0, -1);
    HEARS(&s, 1, "stop1,again world2:0/1,0/2,serve");
    end(&s);
}

static void test_later_failures_of_a_generation_are_not_judged_again(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 100);
    s.job.limits.max_no_progress = 2;
    run(&s, 2);
    fails_at(&s, 0, 0, 5);
    say(&s, 2, CT_MSG_STOPPED, 0);
    say(&s, 1, CT_MSG_SERVING, 1);
    forget(&s);
    fails(&s, 1, 1, 0, 3);
    fails(&s, 2, 1, 2, 4);
    say(&s, 1, CT_MSG_STOPPED, 1);
    say(&s, 2, CT_MSG_STOPPED, 1);
    HEARS(&s, 2, "stop1,again");
    HEARS(&s, 1, "stop1,again world2:0/2,0/4,serve");
    end(&s);
}

static void test_lost_nodes_are_judged_too(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 1, 2, 0, 0);
    s.job.limits.max_no_progress = 1;
    run(&s, 2);
    fails_at(&s, 0, 0, 5); /* no restart: none is left */
    say(&s, 2, CT_MSG_STOPPED, 0);
    HEARS(&s, 2, "stop0 over=7");
    end(&s);
    begin(&s, 1, 2, 0, 1);
    s.job.limits.max_no_progress = 1;
    run(&s, 2);
    fails_at(&s, 0, 0, 5);
    say(&s, 2, CT_MSG_STOPPED, 0);
    say(&s, 1, CT_MSG_SERVING, 1);
    forget(&s);
    gone(&s, 2);
    say(&s, 1, CT_MSG_STOPPED, 1);
    HEARS(&s, 1, "stop1 over=119");
    end(&s);
}

static void test_a_window_bounds_restarts(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 1, 1, 0, 100);
    s.job.limits.window_restarts = 2;
    s.job.limits.window_ms = 60000;
    run(&s, 1);
    fails_at(&s, 0, 0, 1);
    say(&s, 1, CT_MSG_SERVING, 1);
    fails_at(&s, 1, 0, 1);
    say(&s, 1, CT_MSG_SERVING, 2);
    pass(&s, 61 * S); /* both are outside of the window */
    fails_at(&s, 2, 0, 1);
    say(&s, 1, CT_MSG_SERVING, 3);
    fails_at(&s, 3, 0, 1);
    say(&s, 1, CT_MSG_SERVING, 4);
    pass(&s, 59 * S);
    forget(&s);
    fails_at(&s, 4, 0, 1);
    HEARS(&s, 1, "stop4 over=7");
    assert_non_null(strstr(s.nodes[1].last_text, "--restart-budget 2/1m"));
    end(&s);
}

static void test_a_pause_is_on_record(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 1, 1, 0, 3);
    run(&s, 1);
    for (int generation = 0; generation < 3; generation++) {
        fails_early(&s, 1, generation);
        assert_int_equal(s.nodes[1].last_round.paused_ms, generation < 2 ? 0 : 1000);
        say(&s, 1, CT_MSG_STOPPED, generation);
        pass(&s, 3 * S);
        say(&s, 1, CT_MSG_SERVING, generation + 1);
    }
    pass(&s, 2 * S);
    fails(&s, 1, 3, 0, 7); /* not early, but the pause was before it */
    assert_int_equal(s.nodes[1].last_round.paused_ms, 2000);
    end(&s);
}

static void test_a_machine_that_fails_again_is_left_out_for_a_spare(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 1, 10);
    s.job.limits.ban_after = 2;
    run(&s, 2);
    join(&s, 3);
    fails(&s, 2, 0, 2, 7);
    say(&s, 1, CT_MSG_STOPPED, 0);
    say(&s, 2, CT_MSG_STOPPED, 0);
    say(&s, 1, CT_MSG_SERVING, 1);
    HEARS(&s, 3, "spare");
    forget(&s);
    fails(&s, 2, 1, 2, 7);
    say(&s, 2, CT_MSG_STOPPED, 1);
    say(&s, 1, CT_MSG_STOPPED, 1);
    HEARS(&s, 2, "stop1,again waiting spare");
    HEARS(&s, 1, "stop1,again waiting world2:0/2,0/4,serve");
    assert_string_equal(
        s.nodes[3].last_text,
        "machine gpu-2 at 10.0.0.2 is left out: 2 generations in a row failed first "
        "on it (--ban-after 2)");
    say(&s, 1, CT_MSG_SERVING, 2);
    HEARS(&s, 3, "waiting world2:1/2,2/4@10.0.0.1");
    /* It is not taken when it comes back either, unless nobody else is there. */
    gone(&s, 2);
    join(&s, 2);
    HEARS(&s, 2, "spare");
    gone(&s, 3);
    say(&s, 1, CT_MSG_STOPPED, 2);
    say(&s, 1, CT_MSG_SERVING, 3);
    HEARS(&s, 2, "world3:1/2,2/4@10.0.0.1");
    end(&s);
}

static void test_a_smaller_world_goes_on_without_it(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 1, 2, 0, 10);
    s.job.limits.ban_after = 1;
    run(&s, 2);
    fails(&s, 1, 0, 0, 7); /* the machine of node rank 0 */
    say(&s, 1, CT_MSG_STOPPED, 0);
    say(&s, 2, CT_MSG_STOPPED, 0);
    HEARS(&s, 1, "stop0,again waiting spare");
    HEARS(&s, 2, "stop0,again waiting");
    pass(&s, 4 * S);
    HEARS(&s, 2, "world1:0/1,0/2,serve");
    say(&s, 2, CT_MSG_SERVING, 1);
    pass(&s, 10 * S); /* it is no newcomer */
    HEARS(&s, 2, "");
    end(&s);
}

static void test_a_machine_that_is_needed_stays_and_is_named(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 10);
    s.job.limits.ban_after = 1;
    run(&s, 2);
    fails(&s, 2, 0, 2, 7);
    say(&s, 1, CT_MSG_STOPPED, 0);
    say(&s, 2, CT_MSG_STOPPED, 0);
    HEARS(&s, 2, "stop0,again waiting");
    assert_non_null(strstr(s.nodes[2].last_text, "warning: machine gpu-2 at 10.0.0.2 should"));
    HEARS(&s, 1, "stop0,again waiting world1:0/2,0/4,serve");
    end(&s);
}

static void test_failures_elsewhere_begin_another_row(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 1, 10);
    s.job.limits.ban_after = 2;
    run(&s, 2);
    join(&s, 3);
    for (int generation = 0; generation < 4; generation++) {
        int node = 1 + generation % 2;
        fails(&s, node, generation, 2 * (node - 1), 7);
        say(&s, 1, CT_MSG_STOPPED, generation);
        say(&s, 2, CT_MSG_STOPPED, generation);
        say(&s, 1, CT_MSG_SERVING, generation + 1);
    }
    HEARS(&s, 3, "spare");
    end(&s);
}

/* A machine that fails a check costs no restart where another one can take its place. */
static void test_an_unfit_machine_is_left_out_at_once(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 1, 0);
    run(&s, 2);
    join(&s, 3);
    forget(&s);
    is_unfit(&s, 2, 0, 118);
    say(&s, 1, CT_MSG_STOPPED, 0);
    say(&s, 2, CT_MSG_STOPPED, 0);
    HEARS(&s, 2, "stop0,again waiting spare");
    HEARS(&s, 1, "stop0,again waiting world1:0/2,0/4,serve");
    say(&s, 1, CT_MSG_SERVING, 1);
    HEARS(&s, 3, "waiting world1:1/2,2/4@10.0.0.1");
    assert_int_equal(s.nodes[3].last_world.restarts, 0);
    /* Another one would be one too many. */
    is_unfit(&s, 3, 1, 118);
    say(&s, 1, CT_MSG_STOPPED, 1);
    say(&s, 3, CT_MSG_STOPPED, 1);
    HEARS(&s, 1, "stop1 over=118");
    end(&s);
}

/* A job of --nnodes 1:2 with one machine was told of others that are not enough, and to use
 * --nnodes MIN:MAX. */
static void test_why_a_machine_cannot_be_left_out(void **state)
{
    static const struct {
        int nodes, min, max, spares;
        const char *why;
    } cases[] = {
        {1, 1, 2, 0, "but no other machine has joined the job"},
        {1, 1, 1, 1, "but no other machine has joined the job"},
        {2, 2, 3, 0, "but the others are not enough"},
        {2, 2, 2, 0, "but the others are not enough; --spares or --nnodes MIN:MAX would allow it"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene s;
        begin(&s, cases[i].min, cases[i].max, cases[i].spares, 10);
        run(&s, cases[i].nodes);
        is_unfit(&s, 1, 0, 118);
        for (int node = 1; node <= cases[i].nodes; node++) {
            say(&s, node, CT_MSG_STOPPED, 0);
        }
        const char *but = strstr(s.nodes[1].last_warning, ", but ");
        assert_non_null(but);
        assert_string_equal(but + 2, cases[i].why);
        end(&s);
    }
}

/* On one machine it may be missing. On all of them, it is a mistake, which no restart mends. */
static void test_a_check_that_cannot_be_run_anywhere_ends_the_job(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 10);
    run(&s, 2);
    forget(&s);
    is_unfit(&s, 2, 0, 127);
    say(&s, 1, CT_MSG_STOPPED, 0);
    say(&s, 2, CT_MSG_STOPPED, 0);
    HEARS(&s, 1, "stop0,again waiting world1:0/2,0/4,serve");
    say(&s, 1, CT_MSG_SERVING, 1);
    forget(&s);
    is_unfit(&s, 1, 1, 127); /* that of the other one was cut short by the end of its generation */
    say(&s, 1, CT_MSG_STOPPED, 1);
    say(&s, 2, CT_MSG_STOPPED, 1);
    HEARS(&s, 2, "stop1 over=127");
    end(&s);
}

static void test_a_check_that_could_be_run_since_is_no_mistake(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 10);
    run(&s, 2);
    is_unfit(&s, 2, 0, 127);
    say(&s, 1, CT_MSG_STOPPED, 0);
    say(&s, 2, CT_MSG_STOPPED, 0);
    say(&s, 1, CT_MSG_SERVING, 1);
    say(&s, 2, CT_MSG_STARTED, 1);
    forget(&s);
    is_unfit(&s, 1, 1, 127);
    say(&s, 1, CT_MSG_STOPPED, 1);
    say(&s, 2, CT_MSG_STOPPED, 1);
    HEARS(&s, 1, "stop1,again waiting waiting");
    pass(&s, S); /* the second generation in a row that failed at its start */
    HEARS(&s, 1, "world2:0/2,0/4,serve");
    end(&s);
}

static void test_all_nodes_have_the_same_limits(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 1);
    join(&s, 1);
    s.job.limits.max_no_progress = 3;
    assert_int_equal(try_join(&s, 2, -1), CT_EINVAL);
    assert_non_null(strstr(s.err.text, "--max-no-progress"));
    s.job.limits = (struct ct_restart_limits){.window_restarts = 1, .window_ms = 5};
    assert_int_equal(try_join(&s, 2, -1), CT_EINVAL);
    assert_non_null(strstr(s.err.text, "--restart-budget"));
    s.job.max_restarts = INT_MAX; /* as it is without --max-restarts */
    assert_int_equal(try_join(&s, 2, -1), CT_EINVAL);
    assert_non_null(strstr(s.err.text, "another --restart-budget than"));
    s.job.limits = (struct ct_restart_limits){0};
    assert_int_equal(try_join(&s, 2, -1), CT_EINVAL);
    assert_non_null(
        strstr(s.err.text, "says no --max-restarts, the job was begun with --max-restarts 1"));
    s.job.max_restarts = 1;
    s.job.limits = (struct ct_restart_limits){.window_restarts = 1, .window_ms = 5};
    s.job.limits.window_restarts = 0;
    assert_int_equal(try_join(&s, 2, -1), CT_EINVAL);
    assert_non_null(strstr(s.err.text, "out of range"));
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_generations_without_a_new_step_end_the_job),
        cmocka_unit_test(test_steps_of_another_node_are_progress),
        cmocka_unit_test(test_later_failures_of_a_generation_are_not_judged_again),
        cmocka_unit_test(test_lost_nodes_are_judged_too),
        cmocka_unit_test(test_a_window_bounds_restarts),
        cmocka_unit_test(test_a_pause_is_on_record),
        cmocka_unit_test(test_a_machine_that_fails_again_is_left_out_for_a_spare),
        cmocka_unit_test(test_a_smaller_world_goes_on_without_it),
        cmocka_unit_test(test_a_machine_that_is_needed_stays_and_is_named),
        cmocka_unit_test(test_failures_elsewhere_begin_another_row),
        cmocka_unit_test(test_an_unfit_machine_is_left_out_at_once),
        cmocka_unit_test(test_why_a_machine_cannot_be_left_out),
        cmocka_unit_test(test_a_check_that_cannot_be_run_anywhere_ends_the_job),
        cmocka_unit_test(test_a_check_that_could_be_run_since_is_no_mistake),
        cmocka_unit_test(test_all_nodes_have_the_same_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
