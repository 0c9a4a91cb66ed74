/* SPDX-License-Identifier: Apache-2.0
 *
 * Membership: silence, the end by request, and members that break the protocol.
 */
#include "tests/lib/members_done.h"
#include "tests/lib/members_scene.h"

#include <signal.h>
#include <stdio.h>

/* ---- silence -------------------------------------------------------------------------------- */

static void test_a_silent_node_is_lost_after_the_heartbeat_time(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 0);
    run(&s, 2);
    pass(&s, 10 * S);
    HEARS(&s, 1, "");
    pass_without(&s, 2400 * MS, 2);
    HEARS(&s, 1, "");
    pass_without(&s, 700 * MS, 2);
    HEARS(&s, 1, "stop0");
    HEARS(&s, 2, "refused=121 dropped");
    assert_int_equal(s.nodes[1].last_failure.kind, CT_FAILURE_SILENT);
    assert_string_equal(s.nodes[1].last_failure.what,
                        "nothing was heard from it for 3.0 s (ranks 2-3)");
    end(&s);
}

/* A line that loses much holds messages up for longer than the budget. */
static void test_machine_that_answers_has_twice_the_time(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 3, 3, 0, 0);
    run(&s, 3);
    s.nodes[2].wire_ns = INT64_MAX;
    pass_without(&s, 5900 * MS, 2);
    HEARS(&s, 1, "");
    pass_without(&s, 200 * MS, 2);
    HEARS(&s, 1, "stop0");
    assert_string_equal(s.nodes[1].last_failure.what,
                        "nothing was heard from it for 6.0 s (ranks 2-3)");
    end(&s);

    begin(&s, 3, 3, 0, 0);
    run(&s, 3);
    s.nodes[2].wire_ns = s.now + S; /* then the cable is cut */
    pass_without(&s, 3900 * MS, 2);
    HEARS(&s, 1, "");
    pass_without(&s, 200 * MS, 2);
    HEARS(&s, 1, "stop0");
    end(&s);
}

/* Once an agent without a CPU gave up its own node, and with it a job that was well. */
static void test_a_member_of_this_process_is_never_silent(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 3, 3, 0, 0);
    run(&s, 3);
    s.nodes[2].wire_ns = -1;
    pass_without(&s, 60 * S, 2);
    HEARS(&s, 1, "");
    HEARS(&s, 2, "");
    end(&s);
}

/* One that gets more time does not get it for those who fell silent after it. */
static void test_an_excuse_is_nobody_elses(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 3, 3, 0, 0);
    run(&s, 3);
    s.nodes[2].wire_ns = INT64_MAX;
    for (int i = 0; i < 39; i++) { /* node 3 is silent from 1 s on */
        s.now += 100 * MS;
        say(&s, 1, CT_MSG_BEAT, 0);
        if (i < 10) {
            say(&s, 3, CT_MSG_BEAT, 0);
        }
        ct_members_tick(s.members, s.now);
    }
    HEARS(&s, 1, "");
    pass_without(&s, 200 * MS, 3);
    HEARS(&s, 1, "stop0");
    assert_int_equal(s.nodes[1].last_failure.node_rank, 2);
    end(&s);
}

/* A scheduler suspends the machines of a job, and lets them go on, one after the other. */
static void test_our_own_sleep_is_not_their_silence(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 0);
    run(&s, 2);
    s.now += 3600 * S; /* a stopped process */
    ct_members_tick(s.members, s.now);
    HEARS(&s, 1, "");
    assert_true(ct_members_next(s.members) > s.now);
    say(&s, 1, CT_MSG_BEAT, 0); /* was in the socket */
    pass_without(&s, 2900 * MS, 2);
    HEARS(&s, 1, ""); /* node 2 may go on later */
    pass(&s, 10 * S);
    HEARS(&s, 1, "");

    s.now += 3600 * S;
    ct_members_tick(s.members, s.now);
    pass_without(&s, 3100 * MS, 2);
    HEARS(&s, 1, "stop0"); /* it is silent in earnest */
    assert_string_equal(s.nodes[1].last_failure.what,
                        "nothing was heard from it for 3.0 s (ranks 2-3)");
    end(&s);
}

/* A machine that answers at the level of TCP has twice the time after it, too. */
static void test_our_own_sleep_takes_no_excuse(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 3, 3, 0, 0);
    run(&s, 3);
    s.nodes[2].wire_ns = INT64_MAX;
    s.now += 3600 * S;
    ct_members_tick(s.members, s.now);
    pass_without(&s, 5900 * MS, 2);
    HEARS(&s, 1, "");
    pass_without(&s, 200 * MS, 2);
    HEARS(&s, 1, "stop0");
    end(&s);
}

/* ---- the end by request --------------------------------------------------------------------- */

static void test_a_preempted_job_takes_no_more_nodes(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 1, 5);
    run(&s, 2);
    join(&s, 3);
    preempt(&s, 2, SIGTERM);
    preempt(&s, 1, SIGTERM); /* once */
    HEARS(&s, 1, "preempt");
    assert_string_equal(s.nodes[1].last_text,
                        "gpu-2 at 10.0.0.2 received SIGTERM: the job is to end");
    assert_int_equal(try_join(&s, 4, -1), CT_EBUSY);
    assert_string_equal(
        s.err.text, "the job r is ending (gpu-2 at 10.0.0.2 received SIGTERM: the job is to end)");
    for (int i = 1; i <= 2; i++) {
        HEARS(&s, 3, i == 1 ? "spare preempt" : "");
        say(&s, i, CT_MSG_FINISHED, 0);
        say(&s, i, CT_MSG_STOPPED, 0);
    }
    HEARS(&s, 1, "over=123");
    HEARS(&s, 3, "over=123");
    end(&s);
}

static void preempted(int signo, bool finish, int exit_code)
{
    struct scene s;
    char want[32];
    (void)snprintf(want, sizeof(want), "preempt over=%d", exit_code);
    begin(&s, 2, 2, 0, 5);
    run(&s, 2);
    preempt(&s, 2, signo);
    if (finish) {
        say(&s, 1, CT_MSG_FINISHED, 0);
    }
    say(&s, 1, CT_MSG_STOPPED, 0);
    say(&s, 2, CT_MSG_FINISHED, 0);
    say(&s, 2, CT_MSG_LEAVE, 0);
    HEARS(&s, 1, want);
    end(&s);
}

static void test_the_exit_code_of_a_preemption_depends_on_signal_and_end(void **state)
{
    struct scene s;
    (void)state;
    preempted(SIGTERM, true, 123);
    preempted(SIGTERM, false, 143);
    preempted(SIGINT, true, 130);

    begin(&s, 2, 2, 0, 5);
    run(&s, 2);
    gone(&s, 2);
    say(&s, 1, CT_MSG_STOPPED, 0);
    preempt(&s, 1, SIGTERM); /* nothing runs */
    HEARS(&s, 1, "stop0,again preempt over=123");
    end(&s);

    begin(&s, 2, 2, 0, 5);
    run(&s, 2);
    fails(&s, 1, 0, 0, 3);
    preempt(&s, 1, SIGTERM);
    say(&s, 1, CT_MSG_STOPPED, 0);
    say(&s, 2, CT_MSG_STOPPED, 0);
    HEARS(&s, 2, "stop0,again preempt over=143");
    end(&s);
}

/* Who is in no world does not end it, and nobody puts words into our mouth. */
static void test_a_spare_does_not_end_the_job(void **state)
{
    static struct ct_msg msg = {.type = CT_MSG_PREEMPT, .signo = SIGINT, .text = "all is lost"};
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 1, 0);
    run(&s, 2);
    join(&s, 3);
    say_msg(&s, 3, &msg);
    HEARS(&s, 1, "");
    HEARS(&s, 3, "spare refused=121 dropped");
    assert_string_equal(s.nodes[3].last_text,
                        "this node was given up: it broke the protocol with \"preempt\"");
    msg = (struct ct_msg){.type = CT_MSG_PREEMPT, .signo = SIGINT, .text = "all is lost"};
    say_msg(&s, 2, &msg);
    HEARS(&s, 1, "preempt");
    assert_string_equal(s.nodes[1].last_text,
                        "gpu-2 at 10.0.0.2 received SIGINT: the job is to end");
    end(&s);
}

static void test_a_node_that_leaves_stops_the_world(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 0);
    run(&s, 2);
    say(&s, 2, CT_MSG_LEAVE, 0);
    HEARS(&s, 2, "dropped");
    HEARS(&s, 1, "stop0");
    assert_int_equal(s.nodes[1].last_failure.kind, CT_FAILURE_LEFT);
    gone(&s, 1);
    assert_true(members_done(s.members));
    end(&s);
}

/* Ten thousand members took as many times to print the same JSON, while the loop did nothing else.
 */
static void test_what_all_hear_is_encoded_once(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 3, 3, 0, 0);
    run(&s, 3);
    assert_null(s.nodes[1].frame); /* each has a world of its own */
    fails(&s, 2, 0, 2, 7);
    for (int i = 1; i <= 3; i++) {
        assert_non_null(s.nodes[i].frame);
        assert_non_null(strstr(s.nodes[i].frame_text, "\"type\":\"stop\""));
    }
    for (int i = 1; i <= 3; i++) {
        say(&s, i, CT_MSG_STOPPED, 0);
    }
    for (int i = 1; i <= 3; i++) {
        assert_non_null(s.nodes[i].frame);
        assert_ptr_equal(s.nodes[i].frame, s.nodes[1].frame);
        assert_non_null(strstr(s.nodes[i].frame_text, "\"type\":\"over\""));
        assert_non_null(strstr(s.nodes[i].frame_text, "\"exit_code\":7"));
    }
    end(&s);
}

static void test_protocol_is_kept(void **state)
{
    static const struct {
        enum ct_msg_type type;
        int generation;
    } wrong[] = {
        {CT_MSG_JOIN, 0},    {CT_MSG_WORLD, 0},   {CT_MSG_STARTED, 1},
        {CT_MSG_SERVING, 0}, {CT_MSG_STOPPED, 0}, {CT_MSG_OVER, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct scene s;
        begin(&s, 2, 2, 0, 0);
        run(&s, 2);
        say(&s, 2, wrong[i].type, wrong[i].generation);
        HEARS(&s, 2, "refused=121 dropped");
        HEARS(&s, 1, "stop0");
        end(&s);
    }
    struct scene s;
    begin(&s, 2, 2, 0, 0);
    run(&s, 2);
    fails(&s, 2, 0, 1, 1); /* a rank of another node */
    HEARS(&s, 2, "refused=121 dropped");
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_silent_node_is_lost_after_the_heartbeat_time),
        cmocka_unit_test(test_machine_that_answers_has_twice_the_time),
        cmocka_unit_test(test_a_member_of_this_process_is_never_silent),
        cmocka_unit_test(test_an_excuse_is_nobody_elses),
        cmocka_unit_test(test_our_own_sleep_is_not_their_silence),
        cmocka_unit_test(test_our_own_sleep_takes_no_excuse),
        cmocka_unit_test(test_a_preempted_job_takes_no_more_nodes),
        cmocka_unit_test(test_the_exit_code_of_a_preemption_depends_on_signal_and_end),
        cmocka_unit_test(test_a_spare_does_not_end_the_job),
        cmocka_unit_test(test_a_node_that_leaves_stops_the_world),
        cmocka_unit_test(test_what_all_hear_is_encoded_once),
        cmocka_unit_test(test_protocol_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
