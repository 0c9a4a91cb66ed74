/* SPDX-License-Identifier: Apache-2.0
 *
 * Single rules of the agent; test_agent.c plays all orders of events.
 */
#include "tests/lib/ct_test.h"

#include "launcher/agent/agent.h"
#include "tests/lib/fault.h"

#include <signal.h>

#define DUE(kind, ...) ((struct ct_agent_event){.type = CT_AGENT_EV_##kind, __VA_ARGS__})

static struct ct_agent_update feed(struct ct_agent *agent, struct ct_agent_event event)
{
    struct ct_agent_update u;
    ct_agent_step(agent, &event, 0, &u);
    return u;
}

static void start_two(struct ct_agent *agent)
{
    assert_int_equal(ct_agent_init(agent, 2, NULL), 0);
    (void)feed(agent, DUE(BEGIN, .signo = 0));
    assert_int_equal(feed(agent, DUE(UP, .signo = 0)).say, CT_AGENT_SAY_JOIN);
    assert_int_equal(feed(agent, DUE(WORLD, .generation = 0)).spawn, 0);
    assert_int_equal(feed(agent, DUE(STARTED, .local_rank = 0)).spawn, 1);
    assert_int_equal(feed(agent, DUE(STARTED, .local_rank = 1)).say, CT_AGENT_SAY_STARTED);
}

static void the_received_signal_is_passed_on(void **state)
{
    struct ct_agent agent;
    (void)state;
    start_two(&agent);
    struct ct_agent_update u = feed(&agent, DUE(SIGNAL, .signo = SIGQUIT));
    assert_int_equal(u.stop_signal, SIGQUIT);
    assert_int_equal(u.say, CT_AGENT_SAY_PREEMPT);
    assert_true(u.preempt_notice && !u.headline);
    u = feed(&agent, DUE(SIGNAL, .signo = SIGTERM));
    assert_true(u.stop_signal == 0 && !u.kill);
    u = feed(&agent, DUE(SIGNAL, .signo = SIGINT));
    assert_true(u.kill);
    ct_agent_fini(&agent);
}

/* Whether all ended in order is known to the membership only if each node says so. */
static void order_is_told_before_the_end(void **state)
{
    struct ct_agent agent;
    (void)state;
    for (int code = 0; code < 2; code++) {
        start_two(&agent);
        (void)feed(&agent, DUE(PREEMPT, .signo = SIGTERM));
        (void)feed(&agent, DUE(EXITED, .local_rank = 0, .end = {CT_END_EXITED, 0, false, false}));
        (void)feed(&agent,
                   DUE(EXITED, .local_rank = 1, .end = {CT_END_EXITED, code, false, false}));
        struct ct_agent_update u = feed(&agent, DUE(STOPPED, .signo = 0));
        assert_int_equal(u.say, CT_AGENT_SAY_STOPPED | (code == 0 ? CT_AGENT_SAY_FINISHED : 0));
        assert_false(u.finish);
        u = feed(&agent, DUE(OVER, .exit_code = 123));
        assert_true(u.finish && u.exit_code == 123 && u.say == CT_AGENT_SAY_LEAVE);
        ct_agent_fini(&agent);
    }
}

/* A process may be stuck in the kernel, and a check of the machine may end before its worker has
 * begun: neither has saved anything. */
static void a_worker_that_has_not_ended_is_not_in_order(void **state)
{
    struct ct_agent agent;
    (void)state;
    start_two(&agent);
    (void)feed(&agent, DUE(SIGNAL, .signo = SIGTERM));
    (void)feed(&agent, DUE(EXITED, .local_rank = 0, .end = {CT_END_EXITED, 0, false, false}));
    assert_int_equal(feed(&agent, DUE(STOPPED, .signo = 0)).say, CT_AGENT_SAY_STOPPED);
    ct_agent_fini(&agent);

    assert_int_equal(ct_agent_init(&agent, 1, NULL), 0);
    (void)feed(&agent, DUE(BEGIN, .signo = 0));
    (void)feed(&agent, DUE(UP, .signo = 0));
    assert_int_equal(feed(&agent, DUE(WORLD, .generation = 0)).spawn, 0);
    (void)feed(&agent, DUE(SIGNAL, .signo = SIGTERM));
    assert_int_equal(feed(&agent, DUE(STOPPED, .signo = 0)).say, CT_AGENT_SAY_STOPPED);
    ct_agent_fini(&agent);
}

static void finished_is_told_once(void **state)
{
    struct ct_agent agent;
    (void)state;
    start_two(&agent);
    (void)feed(&agent, DUE(EXITED, .local_rank = 0, .end = {CT_END_EXITED, 0, false, false}));
    struct ct_agent_update u =
        feed(&agent, DUE(EXITED, .local_rank = 1, .end = {CT_END_EXITED, 0, false, false}));
    assert_int_equal(u.say, CT_AGENT_SAY_FINISHED);
    u = feed(&agent, DUE(PREEMPT, .signo = SIGTERM));
    assert_int_equal(u.stop_signal, SIGTERM);
    u = feed(&agent, DUE(STOPPED, .signo = 0));
    assert_int_equal(u.say, CT_AGENT_SAY_STOPPED);
    ct_agent_fini(&agent);
}

static void a_stop_of_another_generation_is_not_ours(void **state)
{
    struct ct_agent agent;
    (void)state;
    for (int other = -1; other <= 1; other += 2) {
        start_two(&agent);
        struct ct_agent_update u = feed(&agent, DUE(STOP, .generation = other));
        assert_true(u.stop_signal == 0 && !u.headline);
        u = feed(&agent, DUE(STOP, .generation = 0));
        assert_true(u.stop_signal == SIGTERM && u.headline);
        ct_agent_fini(&agent);
    }
}

/* The new host knows nothing of the stop, and must not be joined before it is complete. */
static void a_new_host_is_joined_when_all_has_stopped(void **state)
{
    struct ct_agent agent;
    (void)state;
    for (int early = 0; early < 2; early++) {
        start_two(&agent);
        struct ct_agent_update u = feed(&agent, DUE(ADRIFT, .signo = 0));
        assert_true(u.stop_signal == SIGTERM && u.headline && !u.finish);
        bool decided;
        assert_true(ct_agent_may_keep(&agent, &decided) && decided);
        if (early) {
            assert_int_equal(feed(&agent, DUE(UP, .signo = 0)).say, 0);
            u = feed(&agent, DUE(STOPPED, .signo = 0));
            assert_int_equal(u.say, CT_AGENT_SAY_JOIN);
        } else {
            u = feed(&agent, DUE(STOPPED, .signo = 0));
            assert_int_equal(u.say & CT_AGENT_SAY_JOIN, 0);
            assert_int_equal(feed(&agent, DUE(UP, .signo = 0)).say, CT_AGENT_SAY_JOIN);
        }
        assert_true(u.report);
        assert_int_equal(feed(&agent, DUE(WORLD, .generation = 1)).spawn, 0);
        ct_agent_fini(&agent);
    }
}

/* A link that came up and was lost again during the stop is not joined. */
static void the_host_may_be_lost_again_during_the_stop(void **state)
{
    struct ct_agent agent;
    (void)state;
    start_two(&agent);
    (void)feed(&agent, DUE(STOP, .generation = 0, .will_restart = false));
    struct ct_agent_update u = feed(&agent, DUE(ADRIFT, .signo = 0));
    assert_int_equal(u.stop_signal, SIGTERM); /* it may have to be quicker now */
    (void)feed(&agent, DUE(UP, .signo = 0));
    (void)feed(&agent, DUE(ADRIFT, .signo = 0));
    u = feed(&agent, DUE(STOPPED, .signo = 0));
    assert_int_equal(u.say & CT_AGENT_SAY_JOIN, 0);
    assert_true(!u.finish && u.report);
    ct_agent_fini(&agent);
}

/* There is nobody who could say that the job is over. */
static void a_signal_ends_it_while_no_host_is_found(void **state)
{
    struct ct_agent agent;
    (void)state;
    for (int early = 0; early < 2; early++) {
        start_two(&agent);
        (void)feed(&agent, DUE(ADRIFT, .signo = 0));
        struct ct_agent_update u;
        if (early) {
            u = feed(&agent, DUE(SIGNAL, .signo = SIGTERM));
            assert_true(!u.finish && u.say == 0);
            u = feed(&agent, DUE(STOPPED, .signo = 0));
        } else {
            (void)feed(&agent, DUE(STOPPED, .signo = 0));
            u = feed(&agent, DUE(SIGNAL, .signo = SIGTERM));
        }
        assert_true(u.finish && u.exit_code == 143 && u.say == 0);
        ct_agent_fini(&agent);
    }
    start_two(&agent); /* another host was found, but must not be told before JOIN */
    (void)feed(&agent, DUE(ADRIFT, .signo = 0));
    (void)feed(&agent, DUE(UP, .signo = 0));
    assert_int_equal(feed(&agent, DUE(SIGNAL, .signo = SIGTERM)).say, 0);
    assert_true(feed(&agent, DUE(STOPPED, .signo = 0)).finish);
    ct_agent_fini(&agent);

    start_two(&agent); /* now it is told */
    (void)feed(&agent, DUE(ADRIFT, .signo = 0));
    (void)feed(&agent, DUE(STOPPED, .signo = 0));
    (void)feed(&agent, DUE(UP, .signo = 0));
    struct ct_agent_update u = feed(&agent, DUE(SIGNAL, .signo = SIGTERM));
    assert_true(!u.finish && u.say == CT_AGENT_SAY_PREEMPT);
    ct_agent_fini(&agent);
}

static void a_signal_ends_the_restarts(void **state)
{
    struct ct_agent agent;
    (void)state;
    start_two(&agent);
    struct ct_agent_event died =
        DUE(EXITED, .local_rank = 1, .end = {CT_END_SIGNALED, SIGKILL, false, false});
    struct ct_agent_update u = feed(&agent, died);
    assert_true(u.headline && u.say == CT_AGENT_SAY_FAILED);
    assert_int_equal(u.stop_signal, SIGTERM);
    (void)feed(&agent, DUE(STOP, .generation = 0, .will_restart = true));
    assert_true(agent.will_restart);
    /* The first Ctrl-C during a stop is a wish to end, not yet impatience. */
    u = feed(&agent, DUE(SIGNAL, .signo = SIGINT));
    assert_true(!u.kill && u.say == CT_AGENT_SAY_PREEMPT && !agent.will_restart);
    died.local_rank = 0;
    (void)feed(&agent, died);
    u = feed(&agent, DUE(STOPPED, .signo = 0));
    assert_true(!u.finish && u.spawn < 0);
    u = feed(&agent, DUE(OVER, .exit_code = 130));
    assert_true(u.finish && u.exit_code == 130);
    ct_agent_fini(&agent);
}

static void before_the_world_a_signal_just_ends(void **state)
{
    struct ct_agent agent;
    (void)state;
    assert_int_equal(ct_agent_init(&agent, 2, NULL), 0);
    (void)feed(&agent, DUE(BEGIN, .signo = 0));
    (void)feed(&agent, DUE(UP, .signo = 0));
    struct ct_agent_update u = feed(&agent, DUE(SIGNAL, .signo = SIGTERM));
    assert_true(u.finish && u.exit_code == 143 && u.say == CT_AGENT_SAY_LEAVE);
    ct_agent_fini(&agent);
}

/* The membership has formed the next world before our wish to end reached it. It counts on us there
 * and says only once that the job shall end. */
static void a_world_after_the_signal_is_stopped(void **state)
{
    struct ct_agent agent;
    (void)state;
    start_two(&agent);
    (void)feed(&agent, DUE(STOP, .generation = 0, .will_restart = true));
    (void)feed(&agent, DUE(STOPPED, .signo = 0));
    assert_int_equal(feed(&agent, DUE(SIGNAL, .signo = SIGTERM)).say, CT_AGENT_SAY_PREEMPT);
    struct ct_agent_update u = feed(&agent, DUE(WORLD, .generation = 1, .serve = true));
    assert_true(!u.serve && u.spawn < 0 && u.stop_signal == SIGTERM);
    (void)feed(&agent, DUE(PREEMPT, .signo = SIGTERM));
    assert_int_equal(feed(&agent, DUE(STOPPED, .signo = 0)).say, CT_AGENT_SAY_STOPPED);
    assert_true(feed(&agent, DUE(OVER, .exit_code = 143)).finish);
    ct_agent_fini(&agent);
}

/* A generation that is over, with what is to come known and rank 1 parked. */
static void keep_one(struct ct_agent *agent)
{
    bool decided;
    start_two(agent);
    assert_false(ct_agent_may_keep(agent, &decided));
    (void)feed(agent,
               DUE(EXITED, .local_rank = 0, .end = {CT_END_SIGNALED, SIGKILL, false, false}));
    assert_true(ct_agent_may_keep(agent, &decided) && !decided);
    (void)feed(agent, DUE(STOP, .generation = 0, .will_restart = true));
    assert_true(ct_agent_may_keep(agent, &decided) && decided);
    struct ct_agent_update u = feed(agent, DUE(STOPPED, .kept = true));
    assert_true(u.say == CT_AGENT_SAY_STOPPED && u.report && !u.finish);
}

static void kept_workers_begin_the_next_generation(void **state)
{
    struct ct_agent agent;
    (void)state;
    keep_one(&agent);
    assert_int_equal(feed(&agent, DUE(WORLD, .generation = 1)).spawn, 0);
    assert_int_equal(feed(&agent, DUE(STARTED, .local_rank = 0)).spawn, 1);
    assert_int_equal(feed(&agent, DUE(STARTED, .local_rank = 1)).say, CT_AGENT_SAY_STARTED);
    assert_false(agent.kept);
    ct_agent_fini(&agent);
}

static void kept_workers_are_ended_before_the_end(void **state)
{
    struct ct_agent agent;
    (void)state;
    for (int how = 0; how < 3; how++) {
        keep_one(&agent);
        struct ct_agent_update u;
        if (how == 0) {
            u = feed(&agent, DUE(OVER, .exit_code = 7));
        } else if (how == 1) {
            u = feed(&agent, DUE(LOST, .exit_code = 121));
        } else {
            assert_int_equal(feed(&agent, DUE(SIGNAL, .signo = SIGINT)).stop_signal, 0);
            u = feed(&agent, DUE(SIGNAL, .signo = SIGINT)); /* in a hurry */
        }
        assert_true(!u.finish && u.stop_signal == (how == 2 ? SIGINT : SIGTERM));
        assert_int_equal(u.kill, how == 2);
        bool decided;
        assert_false(ct_agent_may_keep(&agent, &decided));
        (void)feed(&agent, DUE(SIGNAL, .signo = SIGINT));
        assert_true(feed(&agent, DUE(SIGNAL, .signo = SIGINT)).kill);
        u = feed(&agent, DUE(STOPPED, .signo = 0));
        assert_true(u.finish && !u.report);
        assert_int_equal(u.exit_code, how == 0 ? 7 : how == 1 ? 130 : 130);
        ct_agent_fini(&agent);
    }
}

/* ctrun aborted: the workers that were kept lived on when everything was closed. */
static void kept_workers_are_ended_if_there_is_no_store(void **state)
{
    struct ct_agent agent;
    (void)state;
    keep_one(&agent);
    assert_true(feed(&agent, DUE(WORLD, .generation = 1, .serve = true)).serve);
    struct ct_agent_update u = feed(&agent, DUE(NOT_SERVING, .signo = 0));
    assert_true(!u.finish && u.stop_signal == SIGTERM);
    u = feed(&agent, DUE(STOPPED, .signo = 0));
    assert_true(u.finish);
    assert_int_equal(u.exit_code, 1);
    ct_agent_fini(&agent);
}

static void nobody_is_kept_for_a_generation_that_does_not_come(void **state)
{
    struct ct_agent agent;
    bool decided;
    (void)state;
    for (int how = 0; how < 4; how++) {
        start_two(&agent);
        (void)feed(&agent, DUE(EXITED, .local_rank = 0, .end = {CT_END_EXITED, 3, false, false}));
        (void)feed(&agent, how == 0   ? DUE(STOP, .generation = 0, .will_restart = false)
                           : how == 1 ? DUE(OVER, .exit_code = 3)
                           : how == 2 ? DUE(LOST, .exit_code = 121)
                                      : DUE(PREEMPT, .signo = SIGTERM));
        assert_false(ct_agent_may_keep(&agent, &decided));
        ct_agent_fini(&agent);
    }
}

static int sweep_body(void *data)
{
    struct ct_agent agent = {0};
    int rc = ct_agent_init(&agent, 4, NULL);
    (void)data;
    ct_agent_fini(&agent);
    ct_agent_fini(&agent);
    ct_agent_fini(NULL);
    return rc;
}

static void survives_lack_of_memory(void **state)
{
    (void)state;
    assert_int_equal(ct_fault_sweep(sweep_body, NULL, 0), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_received_signal_is_passed_on),
        cmocka_unit_test(order_is_told_before_the_end),
        cmocka_unit_test(a_worker_that_has_not_ended_is_not_in_order),
        cmocka_unit_test(finished_is_told_once),
        cmocka_unit_test(a_new_host_is_joined_when_all_has_stopped),
        cmocka_unit_test(the_host_may_be_lost_again_during_the_stop),
        cmocka_unit_test(a_signal_ends_it_while_no_host_is_found),
        cmocka_unit_test(a_signal_ends_the_restarts),
        cmocka_unit_test(before_the_world_a_signal_just_ends),
        cmocka_unit_test(a_world_after_the_signal_is_stopped),
        cmocka_unit_test(a_stop_of_another_generation_is_not_ours),
        cmocka_unit_test(kept_workers_begin_the_next_generation),
        cmocka_unit_test(kept_workers_are_ended_before_the_end),
        cmocka_unit_test(kept_workers_are_ended_if_there_is_no_store),
        cmocka_unit_test(nobody_is_kept_for_a_generation_that_does_not_come),
        cmocka_unit_test(survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
