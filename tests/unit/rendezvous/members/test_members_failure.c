/* SPDX-License-Identifier: Apache-2.0
 *
 * Membership: what follows when workers fail, nodes are lost or come.
 */
#include "tests/lib/members_done.h"
#include "tests/lib/members_scene.h"

#include <stdio.h>

/* ---- a worker fails ------------------------------------------------------------------------- */

static void test_all_are_stopped_and_start_again(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 1);
    run(&s, 2);
    fails(&s, 2, 0, 3, 7);
    HEARS(&s, 1, "stop0,again");
    HEARS(&s, 2, "stop0,again");
    assert_string_equal(s.nodes[1].last_text, "rank 3 on gpu-2 at 10.0.0.2: exited with code 7");
    assert_int_equal(s.nodes[1].last_failure.rank, 3);
    say(&s, 1, CT_MSG_STOPPED, 0);
    HEARS(&s, 1, "");
    say(&s, 2, CT_MSG_STOPPED, 0);
    HEARS(&s, 1, "world1:0/2,0/4,serve");
    assert_int_equal(s.nodes[1].last_world.restarts, 1);
    say(&s, 1, CT_MSG_FINISHED, 0); /* of the last generation: passed over */
    say(&s, 1, CT_MSG_SERVING, 1);
    HEARS(&s, 2, "world1:1/2,2/4@10.0.0.1");
    /* The budget is used up. */
    fails(&s, 1, 1, 0, 9);
    HEARS(&s, 2, "stop1");
    say(&s, 1, CT_MSG_STOPPED, 1);
    say(&s, 2, CT_MSG_STOPPED, 1);
    HEARS(&s, 2, "over=9");
    assert_string_equal(s.nodes[2].last_text, "no restarts are left (--max-restarts 1)");
    assert_int_equal(s.nodes[2].last_failure.rank, 0);
    end(&s);
}

static void test_no_restart_when_it_would_fail_again(void **state)
{
    static struct ct_msg msg = {.type = CT_MSG_FAILED, .failure = {.exit_code = 127}};
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 5);
    run(&s, 2);
    msg.failure.permanent = true;
    say_msg(&s, 1, &msg);
    HEARS(&s, 2, "stop0");
    end(&s);
}

static void test_the_cause_comes_before_its_consequence(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 0);
    run(&s, 2);
    say(&s, 1, CT_MSG_BEAT, 0); /* maps the clocks */
    say(&s, 2, CT_MSG_BEAT, 0);
    s.now += S;
    fail_ago(&s, 1, 0, 1, 5, 100); /* arrives first ... */
    fail_ago(&s, 2, 0, 2, 6, 400); /* ... but this was before */
    HEARS(&s, 2, "stop0");
    say(&s, 1, CT_MSG_STOPPED, 0);
    say(&s, 2, CT_MSG_STOPPED, 0);
    HEARS(&s, 2, "over=6");
    assert_int_equal(s.nodes[1].last_failure.rank, 2);
    assert_int_equal(s.nodes[1].last_failure.time_ms, 5000 + 101000 - 400);
    end(&s);
}

static void test_clocks_are_mapped(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 0);
    run(&s, 2);
    /* Node 2's clock is 50 s behind, and its beats take some time. */
    static struct ct_msg beat = {.type = CT_MSG_BEAT};
    beat.clock_ms = s.now / MS - 50000 - 30;
    say_msg(&s, 2, &beat);
    beat.clock_ms = s.now / MS - 50000 - 10;
    say_msg(&s, 2, &beat);
    s.now += S;
    fails(&s, 1, 0, 1, 5);
    fail_ago(&s, 2, 0, 2, 6, 50000 + 200);
    say(&s, 1, CT_MSG_STOPPED, 0);
    say(&s, 2, CT_MSG_STOPPED, 0);
    HEARS(&s, 2, "stop0 over=6");
    assert_int_equal(s.nodes[2].last_failure.time_ms, 5000 + 101000 - 190);
    end(&s);
}

/* A message that was faster than all beats before it shows that they took longer. */
static void test_a_fast_failure_maps_the_clock_too(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 0);
    run(&s, 2);
    static struct ct_msg beat = {.type = CT_MSG_BEAT};
    beat.clock_ms = s.now / MS - 50000 - 30;
    say_msg(&s, 2, &beat);
    s.now += S;
    fail_ago(&s, 2, 0, 2, 6, 50000 + 10);
    say(&s, 1, CT_MSG_STOPPED, 0);
    say(&s, 2, CT_MSG_STOPPED, 0);
    HEARS(&s, 2, "stop0 over=6");
    assert_int_equal(s.nodes[2].last_failure.time_ms, 5000 + 101000);
    end(&s);
}

/* In nanoseconds this clock has no room in 64 bits, and no machine runs for so long. */
static void test_a_clock_that_cannot_be_is_not_mapped(void **state)
{
    struct scene s;
    static struct ct_msg msg = {.type = CT_MSG_BEAT};
    (void)state;
    begin(&s, 2, 2, 0, 0);
    run(&s, 2);
    msg.clock_ms = s.now / MS;
    say_msg(&s, 2, &msg);
    msg = (struct ct_msg){.type = CT_MSG_FAILED,
                          .clock_ms = INT64_C(14000000000000),
                          .failure = {.rank = 2, .exit_code = 6}};
    say_msg(&s, 2, &msg);
    say(&s, 1, CT_MSG_STOPPED, 0);
    say(&s, 2, CT_MSG_STOPPED, 0);
    HEARS(&s, 2, "stop0 over=6");
    assert_int_equal(s.nodes[2].last_failure.time_ms, 5000 + 100000);
    end(&s);
}

static void test_texts_follow_when_stopped(void **state)
{
    static struct ct_msg msg = {.type = CT_MSG_STOPPED, .has_failure = true};
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 0);
    run(&s, 2);
    fails(&s, 2, 0, 3, 7);
    msg.failure.rank = 3;
    msg.failure.local_rank = 1;
    msg.failure.tail = scene_text("last words\n");
    (void)snprintf(msg.failure.what, sizeof(msg.failure.what), "exited with code 7, at last");
    say_msg(&s, 2, &msg);
    say(&s, 1, CT_MSG_STOPPED, 0);
    HEARS(&s, 1, "stop0 over=7");
    assert_string_equal(s.nodes[1].last_tail, "last words\n");
    assert_string_equal(s.nodes[1].last_failure.what, "exited with code 7, at last");
    end(&s);
}

static void test_the_first_of_many_failures_is_found(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 12, 12, 0, 0);
    run(&s, 12);
    for (int i = 1; i <= 12; i++) {
        say(&s, i, CT_MSG_BEAT, 0);
    }
    s.now += S;
    for (int i = 12; i >= 1; i--) {
        /* The first of all comes late, and the last but one before some that came earlier. */
        fail_ago(&s, i, 0, 2 * (i - 1), 10 + i, i == 3 ? 500 : i == 2 ? 13 : 2 * i);
    }
    assert_int_equal(s.members->history.failures[7].rank, 2);
    for (int i = 1; i <= 12; i++) {
        say(&s, i, CT_MSG_STOPPED, 0);
    }
    HEARS(&s, 5, "stop0 over=13");
    assert_string_equal(s.members->history.rounds[0].why,
                        "rank 4 on gpu-3 at 10.0.0.3: exited with code 13");
    end(&s);
}

/* ---- finishing ------------------------------------------------------------------------------ */

static void test_a_job_is_over_when_all_nodes_have_finished(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 0);
    run(&s, 2);
    say(&s, 1, CT_MSG_FINISHED, 0);
    say(&s, 1, CT_MSG_STOPPED, 0);
    HEARS(&s, 1, "");
    say(&s, 2, CT_MSG_FINISHED, 0);
    HEARS(&s, 1, "over=0");
    say(&s, 2, CT_MSG_STOPPED, 0);
    say(&s, 1, CT_MSG_LEAVE, 0);
    say(&s, 2, CT_MSG_LEAVE, 0);
    HEARS(&s, 2, "over=0 dropped");
    assert_true(members_done(s.members));
    assert_int_equal(s.members->history.num_failures, 0); /* who leaves then is not lost */
    end(&s);
}

static void test_who_has_finished_takes_part_again(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 1);
    run(&s, 2);
    say(&s, 1, CT_MSG_FINISHED, 0);
    say(&s, 1, CT_MSG_STOPPED, 0);
    fails(&s, 2, 0, 2, 1);
    say(&s, 2, CT_MSG_STOPPED, 0);
    HEARS(&s, 1, "stop0,again world1:0/2,0/4,serve");
    end(&s);
}

static void test_loss_of_a_finished_node(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 3, 3, 0, 0);
    run(&s, 3);
    say(&s, 2, CT_MSG_FINISHED, 0);
    gone(&s, 2);
    HEARS(&s, 1, "");
    say(&s, 1, CT_MSG_FINISHED, 0);
    say(&s, 3, CT_MSG_FINISHED, 0);
    HEARS(&s, 1, "over=0");
    end(&s);

    /* It is not to blame for what follows, but is on record. */
    begin(&s, 2, 2, 0, 0);
    run(&s, 2);
    say(&s, 2, CT_MSG_FINISHED, 0);
    gone(&s, 2);
    s.now += S;
    fails(&s, 1, 0, 0, 3);
    say(&s, 1, CT_MSG_STOPPED, 0);
    HEARS(&s, 1, "stop0 over=3");
    assert_int_equal(s.nodes[1].last_failure.rank, 0);
    assert_int_equal(s.members->history.num_failures, 2);
    assert_int_equal(s.members->history.failures[1].node_rank, 1);
    assert_int_equal(s.members->history.failures[1].time_ms, 5000 + 100000);
    end(&s);

    /* Node rank 0 has the workers' store. */
    begin(&s, 3, 3, 0, 0);
    run(&s, 3);
    say(&s, 1, CT_MSG_FINISHED, 0);
    gone(&s, 1);
    HEARS(&s, 2, "stop0");
    end(&s);
}

/* ---- losing nodes --------------------------------------------------------------------------- */

static void test_agent_dies_without_a_budget(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 3, 3, 0, 0);
    run(&s, 3);
    gone(&s, 2);
    HEARS(&s, 1, "stop0");
    say(&s, 1, CT_MSG_STOPPED, 0);
    say(&s, 3, CT_MSG_STOPPED, 0);
    HEARS(&s, 3, "stop0 over=121");
    assert_string_equal(s.nodes[3].last_failure.host, "gpu-2");
    assert_int_equal(s.nodes[3].last_failure.kind, CT_FAILURE_AGENT);
    assert_string_equal(s.nodes[3].last_failure.what,
                        "its ctrun is gone: connection reset by peer (ranks 2-3)");
    end(&s);
}

static void test_replacement_gets_the_same_rank(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 3, 3, 0, 1);
    run(&s, 3);
    gone(&s, 1);
    say(&s, 2, CT_MSG_STOPPED, 0);
    say(&s, 3, CT_MSG_STOPPED, 0);
    HEARS(&s, 2, "stop0,again");
    pass(&s, 6 * S);
    assert_string_equal(
        s.nodes[2].last_text,
        "waiting for 1 of 3 nodes: node rank 0 (gpu-1) connected from 10.0.0.1 and left "
        "5 s ago; present: gpu-[2-3]");
    forget(&s);
    join(&s, 9);
    HEARS(&s, 9, "world1:0/3,0/6,serve");
    say(&s, 9, CT_MSG_SERVING, 1);
    HEARS(&s, 2, "world1:1/3,2/6@10.0.0.9");
    HEARS(&s, 3, "world1:2/3,4/6@10.0.0.9");
    end(&s);
}

static void test_host_comes_back_to_its_place(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 4, 4, 0, 1);
    run(&s, 4);
    gone(&s, 2);
    gone(&s, 4);
    say(&s, 1, CT_MSG_STOPPED, 0);
    say(&s, 3, CT_MSG_STOPPED, 0);
    join(&s, 4);
    pass(&s, 6 * S);
    assert_string_equal(
        s.nodes[1].last_text,
        "waiting for 1 of 4 nodes: node rank 1 (gpu-2) connected from 10.0.0.2 and left "
        "5 s ago; present: gpu-[1,3-4]");
    forget(&s);
    join(&s, 0);
    say(&s, 1, CT_MSG_SERVING, 1);
    HEARS(&s, 0, "world1:1/4,2/8@10.0.0.1");
    HEARS(&s, 4, "world1:3/4,6/8@10.0.0.1");
    end(&s);
}

static void test_spare_takes_over(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 3, 3, 1, 0);
    run(&s, 3);
    join(&s, 4);
    HEARS(&s, 4, "spare");
    gone(&s, 2);
    HEARS(&s, 4, ""); /* it was not in the world */
    say(&s, 1, CT_MSG_STOPPED, 0);
    say(&s, 3, CT_MSG_STOPPED, 0);
    say(&s, 1, CT_MSG_SERVING, 1);
    HEARS(&s, 1, "stop0,again world1:0/3,0/6,serve");
    HEARS(&s, 4, "world1:1/3,2/6@10.0.0.1");
    HEARS(&s, 3, "stop0,again world1:2/3,4/6@10.0.0.1");
    assert_int_equal(s.nodes[3].last_world.restarts, 0); /* it was free */
    /* There is no second one. */
    gone(&s, 4);
    HEARS(&s, 1, "stop1");
    end(&s);
}

static void test_a_second_loss_while_stopping_ends_the_job(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 3, 3, 1, 0);
    run(&s, 3);
    join(&s, 4);
    gone(&s, 2); /* the spare will do */
    gone(&s, 3); /* but not for two */
    HEARS(&s, 1, "stop0,again");
    say(&s, 1, CT_MSG_STOPPED, 0);
    HEARS(&s, 1, "over=121");
    HEARS(&s, 4, "spare over=121");
    assert_string_equal(s.nodes[1].last_failure.host, "gpu-2");
    end(&s);
}

static void test_loss_of_one_that_has_stopped(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 3, 3, 1, 1);
    run(&s, 3);
    join(&s, 4);
    fails(&s, 1, 0, 0, 1);
    say(&s, 2, CT_MSG_STOPPED, 0);
    gone(&s, 2);
    say(&s, 3, CT_MSG_STOPPED, 0);
    HEARS(&s, 1, "stop0,again"); /* not before it has stopped itself */
    say(&s, 1, CT_MSG_STOPPED, 0);
    HEARS(&s, 1, "world1:0/3,0/6,serve");
    end(&s);
}

static void test_elastic_world_restarts_at_once(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 4, 0, 1);
    run(&s, 2);
    fails(&s, 1, 0, 0, 1);
    say(&s, 1, CT_MSG_STOPPED, 0);
    say(&s, 2, CT_MSG_STOPPED, 0);
    HEARS(&s, 1, "stop0,again world1:0/2,0/4,serve");
    end(&s);
}

static void test_elastic_world_shrinks(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 4, 0, 0);
    run(&s, 4);
    gone(&s, 2);
    for (int i = 1; i <= 4; i++) {
        if (i != 2) {
            say(&s, i, CT_MSG_STOPPED, 0);
        }
    }
    HEARS(&s, 1, "stop0,again");
    pass(&s, 3 * S + MS); /* for others to come */
    HEARS(&s, 1, "world1:0/3,0/6,serve");
    say(&s, 1, CT_MSG_SERVING, 1);
    HEARS(&s, 3, "stop0,again world1:1/3,2/6@10.0.0.1"); /* moved up, in order */
    HEARS(&s, 4, "stop0,again world1:2/3,4/6@10.0.0.1");
    end(&s);
}

static void test_elastic_world_takes_newcomers(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 4, 0, 0);
    run(&s, 2);
    join(&s, 4);
    pass(&s, 100 * MS);
    HEARS(&s, 1, "");
    join(&s, 3); /* both together */
    pass(&s, 101 * MS);
    HEARS(&s, 1, "stop0,again");
    assert_string_equal(s.nodes[1].last_text, "2 nodes joined, gpu-4 at 10.0.0.4 first");
    say(&s, 1, CT_MSG_STOPPED, 0);
    say(&s, 2, CT_MSG_STOPPED, 0);
    HEARS(&s, 1, "world1:0/4,0/8,serve");
    say(&s, 1, CT_MSG_SERVING, 1);
    HEARS(&s, 2, "stop0,again world1:1/4,2/8@10.0.0.1");
    HEARS(&s, 3, "world1:2/4,4/8@10.0.0.1");
    HEARS(&s, 4, "world1:3/4,6/8@10.0.0.1");
    end(&s);
}

static void test_newcomer_to_a_job_that_ends(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 4, 0, 0);
    run(&s, 2);
    say(&s, 1, CT_MSG_FINISHED, 0);
    join(&s, 3);
    HEARS(&s, 3, "spare");
    pass(&s, S);
    HEARS(&s, 2, "");
    say(&s, 2, CT_MSG_FINISHED, 0);
    HEARS(&s, 3, "over=0");
    end(&s);

    /* All finish while they are being stopped for a newcomer. */
    begin(&s, 2, 4, 0, 0);
    run(&s, 2);
    join(&s, 3);
    pass(&s, 201 * MS);
    for (int i = 1; i <= 2; i++) {
        say(&s, i, CT_MSG_FINISHED, 0);
        say(&s, i, CT_MSG_STOPPED, 0);
    }
    HEARS(&s, 1, "stop0,again over=0");
    end(&s);

    /* The loss of one of them, of whichever rank, does not make the job run again. */
    for (int lost = 1; lost <= 2; lost++) {
        begin(&s, 2, 4, 0, 0);
        run(&s, 2);
        join(&s, 3);
        pass(&s, 201 * MS);
        say(&s, 1, CT_MSG_FINISHED, 0);
        say(&s, 2, CT_MSG_FINISHED, 0);
        say(&s, 3 - lost, CT_MSG_STOPPED, 0);
        gone(&s, lost);
        HEARS(&s, 3 - lost, "stop0,again over=0");
        end(&s);
    }
}

/* ---- early failures ------------------------------------------------------------------------- */

/* The generation fails early; how long the next one waits is `pause_ms`. */
static void expect_pause(struct scene *s, int generation, int pause_ms, const char *hears)
{
    char world[64];
    (void)snprintf(world, sizeof(world), "world%d:0/1,0/2,serve", generation + 1);
    fails_early(s, 1, generation);
    say(s, 1, CT_MSG_STOPPED, generation);
    if (strstr(hears, "waiting") != NULL) {
        assert_string_equal(
            s->nodes[1].last_text,
            "2 generations in a row failed within a second of their start: the next one starts in "
            "1 s, and the pause doubles with each that follows, up to 30 s");
    }
    if (pause_ms > 0) {
        HEARS(s, 1, hears);
        pass(s, pause_ms * MS - 1);
        HEARS(s, 1, "");
        pass(s, 1);
        HEARS(s, 1, world);
    } else {
        assert_non_null(strstr(s->nodes[1].log, world));
    }
    say(s, 1, CT_MSG_SERVING, generation + 1);
    say(s, 1, CT_MSG_STARTED, generation + 1);
    forget(s);
}

static void test_early_failures_are_followed_by_pauses_that_grow(void **state)
{
    static const int pauses_ms[] = {0, 1000, 2000, 4000, 8000, 16000, 30000, 30000};
    struct scene s;
    char stop[32];
    (void)state;
    begin(&s, 1, 1, 0, 100);
    run(&s, 1);
    for (int i = 0; i < 8; i++) {
        (void)snprintf(stop, sizeof(stop), "stop%d,again%s", i, i == 1 ? " waiting" : "");
        expect_pause(&s, i, pauses_ms[i], stop);
    }
    end(&s);
}

/* It stays in the job, and would use up all restarts within milliseconds. */
static void test_a_machine_that_stays_unfit_is_checked_again_after_pauses(void **state)
{
    static const int pauses_ms[] = {0, 1000, 2000};
    struct scene s;
    (void)state;
    begin(&s, 1, 1, 0, 100);
    run(&s, 1);
    for (int i = 0; i < 3; i++) {
        is_unfit(&s, 1, i, 118);
        forget(&s);
        say(&s, 1, CT_MSG_STOPPED, i);
        if (i == 1) {
            assert_string_equal(s.nodes[1].last_text,
                                "2 generations in a row failed at their start, the last one by a "
                                "check: the next one starts in 1 s, and the pause doubles with "
                                "each that follows, up to 30 s");
        }
        if (pauses_ms[i] > 0) {
            pass(&s, pauses_ms[i] * MS - 1);
            assert_null(strstr(s.nodes[1].log, "world"));
            pass(&s, 1);
        }
        assert_non_null(strstr(s.nodes[1].log, "world"));
        say(&s, 1, CT_MSG_SERVING, i + 1);
    }
    end(&s);
}

static void test_a_longer_life_ends_the_row(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 1, 1, 0, 100);
    run(&s, 1);
    expect_pause(&s, 0, 0, "");
    expect_pause(&s, 1, 1000, "stop1,again waiting");
    fails(&s, 1, 2, 0, 1); /* it had made a step, or lived longer */
    say(&s, 1, CT_MSG_STOPPED, 2);
    HEARS(&s, 1, "stop2,again world3:0/1,0/2,serve");
    say(&s, 1, CT_MSG_SERVING, 3);
    expect_pause(&s, 3, 0, "");
    expect_pause(&s, 4, 1000, "stop4,again waiting");
    end(&s);
}

static void test_newcomers_do_not_end_the_row(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 1, 3, 0, 100);
    run(&s, 1);
    fails_early(&s, 1, 0);
    say(&s, 1, CT_MSG_STOPPED, 0);
    say(&s, 1, CT_MSG_SERVING, 1);
    say(&s, 1, CT_MSG_STARTED, 1);
    join(&s, 2);
    pass(&s, 201 * MS);
    say(&s, 1, CT_MSG_STOPPED, 1);
    pass(&s, 3 * S);
    say(&s, 1, CT_MSG_SERVING, 2);
    forget(&s);
    fails_early(&s, 1, 2);
    say(&s, 1, CT_MSG_STOPPED, 2);
    say(&s, 2, CT_MSG_STOPPED, 2);
    HEARS(&s, 2, "stop2,again waiting");
    end(&s);
}

static void test_nothing_waits_for_the_end_of_a_pause_but_a_start(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 1, 1, 0, 2);
    run(&s, 1);
    expect_pause(&s, 0, 0, "");
    fails_early(&s, 1, 1);
    say(&s, 1, CT_MSG_STOPPED, 1);
    preempt(&s, 1, 15);
    HEARS(&s, 1, "stop1,again waiting preempt over=123");
    end(&s);
    begin(&s, 1, 1, 0, 1);
    run(&s, 1);
    expect_pause(&s, 0, 0, "");
    fails_early(&s, 1, 1); /* no restart is left */
    say(&s, 1, CT_MSG_STOPPED, 1);
    HEARS(&s, 1, "stop1 over=1");
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_are_stopped_and_start_again),
        cmocka_unit_test(test_no_restart_when_it_would_fail_again),
        cmocka_unit_test(test_the_cause_comes_before_its_consequence),
        cmocka_unit_test(test_clocks_are_mapped),
        cmocka_unit_test(test_a_fast_failure_maps_the_clock_too),
        cmocka_unit_test(test_a_clock_that_cannot_be_is_not_mapped),
        cmocka_unit_test(test_texts_follow_when_stopped),
        cmocka_unit_test(test_the_first_of_many_failures_is_found),
        cmocka_unit_test(test_a_job_is_over_when_all_nodes_have_finished),
        cmocka_unit_test(test_who_has_finished_takes_part_again),
        cmocka_unit_test(test_loss_of_a_finished_node),
        cmocka_unit_test(test_agent_dies_without_a_budget),
        cmocka_unit_test(test_replacement_gets_the_same_rank),
        cmocka_unit_test(test_host_comes_back_to_its_place),
        cmocka_unit_test(test_spare_takes_over),
        cmocka_unit_test(test_a_second_loss_while_stopping_ends_the_job),
        cmocka_unit_test(test_loss_of_one_that_has_stopped),
        cmocka_unit_test(test_elastic_world_restarts_at_once),
        cmocka_unit_test(test_elastic_world_shrinks),
        cmocka_unit_test(test_elastic_world_takes_newcomers),
        cmocka_unit_test(test_newcomer_to_a_job_that_ends),
        cmocka_unit_test(test_early_failures_are_followed_by_pauses_that_grow),
        cmocka_unit_test(test_a_machine_that_stays_unfit_is_checked_again_after_pauses),
        cmocka_unit_test(test_a_longer_life_ends_the_row),
        cmocka_unit_test(test_newcomers_do_not_end_the_row),
        cmocka_unit_test(test_nothing_waits_for_the_end_of_a_pause_but_a_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
