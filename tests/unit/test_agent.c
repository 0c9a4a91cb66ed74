/* SPDX-License-Identifier: Apache-2.0
 *
 * Every order of events that a small job can meet is played against the agent, with a model beside
 * it that says what must hold after each step.
 */
#include "tests/lib/ct_test.h"

#include "launcher/agent.h"

#include <signal.h>
#include <stdio.h>

#define WORKERS_MAX 3
#define STEPS_MAX 64

/* ---- all sequences of choices ---------------------------------------------------------------- */

static struct {
    int taken[STEPS_MAX], width[STEPS_MAX];
    int depth, known;
} choices;

/* One of 0..width-1; over all runs, each of them. */
static int choose(int width)
{
    assert_true(choices.depth < STEPS_MAX);
    if (choices.depth == choices.known) {
        choices.taken[choices.known++] = 0;
    }
    choices.width[choices.depth] = width;
    return choices.taken[choices.depth++];
}

/* Prepares the next run; false when all have been. */
static bool next_run(void)
{
    while (choices.known > 0) {
        int last = choices.known - 1;
        if (++choices.taken[last] < choices.width[last]) {
            choices.depth = 0;
            return true;
        }
        choices.known--;
    }
    return false;
}

/* ---- the model ------------------------------------------------------------------------------- */

struct world {
    struct ct_agent agent;
    int workers, max_restarts, signals_left;
    bool alive[WORKERS_MAX], spawned[WORKERS_MAX];
    int spawning; /* rank asked for and not answered, or -1 */
    bool stopping, finished;
    int generation;
    int first_signal;
    bool failed; /* in this generation */
    int first_failed, first_code;
    bool executable; /* no worker of this generation was impossible to start */
};

static struct {
    int runs, successes, failures, restarts, signals, kills;
} seen;

static int living(const struct world *w)
{
    int count = w->spawning >= 0;
    for (int i = 0; i < w->workers; i++) {
        count += w->alive[i];
    }
    return count;
}

static void check_finish(struct world *w, const struct ct_agent_update *u)
{
    bool all_ran = true;
    for (int i = 0; i < w->workers; i++) {
        all_ran = all_ran && w->spawned[i];
    }
    assert_false(w->finished);
    assert_int_equal(living(w), 0);
    w->finished = true;
    if (w->failed && w->first_signal == 0) {
        assert_int_equal(u->exit_code, w->first_code);
        seen.failures++;
    } else if (u->exit_code == 0) {
        assert_true(all_ran && !w->failed);
        seen.successes++;
    } else {
        assert_int_not_equal(w->first_signal, 0);
        assert_int_equal(u->exit_code, 128 + w->first_signal);
    }
}

static void step(struct world *w, struct ct_agent_event event)
{
    struct ct_agent_update u;
    bool was_stopping = w->stopping, was_failed = w->failed, was_finished = w->finished;
    bool bad = (event.type == CT_AGENT_EV_EXITED || event.type == CT_AGENT_EV_NOT_STARTED) &&
               !ct_end_is_success(&event.end);

    if (event.type == CT_AGENT_EV_STOPPED) {
        w->stopping = false;
    }
    if (bad && !was_stopping && !was_failed) {
        w->failed = true;
        w->first_failed = event.local_rank;
        w->first_code = ct_end_exit_code(&event.end);
        w->executable = event.end.kind != CT_END_NOT_STARTED;
    }
    ct_agent_step(&w->agent, &event, 0, &u);

    /* The first failure of a generation is reported, at once and only once. */
    assert_int_equal(u.report, w->failed && !was_failed);
    if (u.report) {
        assert_int_equal(w->agent.failure.local_rank, w->first_failed);
        assert_true(u.stop_signal != 0);
    }
    if (u.stop_signal != 0) {
        w->stopping = true;
    }
    if (u.kill) {
        assert_true(was_stopping && event.signo == SIGINT);
        seen.kills++;
    }
    if (u.restart) {
        assert_int_equal(event.type, CT_AGENT_EV_STOPPED);
        assert_int_equal(w->first_signal, 0);
        assert_true(w->failed && w->executable);
        assert_int_equal(living(w), 0);
        w->failed = false;
        w->generation++;
        assert_true(w->generation <= w->max_restarts);
        memset(w->spawned, 0, sizeof(w->spawned));
        seen.restarts++;
    }
    assert_int_equal(w->agent.generation, w->generation);
    if (u.spawn >= 0) {
        assert_true(!w->stopping && !w->finished && w->spawning < 0 && !w->spawned[u.spawn]);
        w->spawning = u.spawn;
        w->spawned[u.spawn] = true;
    }
    if (u.finish) {
        check_finish(w, &u);
    }
    if (was_finished) {
        assert_true(!u.stop_signal && !u.kill && !u.finish && u.spawn < 0);
    }
}

/* The events that may happen now; plays one of them. False when nothing may. */
static bool play(struct world *w)
{
    struct ct_agent_event events[4 * WORKERS_MAX + 8];
    int count = 0;
    if (w->spawning >= 0) {
        events[count++] = (struct ct_agent_event){CT_AGENT_EV_STARTED, w->spawning, {0}, 0};
        events[count++] = (struct ct_agent_event){
            CT_AGENT_EV_NOT_STARTED, w->spawning, {CT_END_NOT_STARTED, 2, false}, 0};
    }
    for (int i = 0; i < w->workers; i++) {
        if (w->alive[i]) {
            events[count++] =
                (struct ct_agent_event){CT_AGENT_EV_EXITED, i, {CT_END_EXITED, 0, false}, 0};
            events[count++] =
                (struct ct_agent_event){CT_AGENT_EV_EXITED, i, {CT_END_EXITED, 3 + i, false}, 0};
        }
    }
    if (w->stopping && living(w) == 0) {
        events[count++] = (struct ct_agent_event){.type = CT_AGENT_EV_STOPPED};
    }
    if (count == 0) {
        return false;
    }
    if (w->signals_left > 0) {
        events[count++] = (struct ct_agent_event){.type = CT_AGENT_EV_SIGNAL, .signo = SIGTERM};
        events[count++] = (struct ct_agent_event){.type = CT_AGENT_EV_SIGNAL, .signo = SIGINT};
    }
    struct ct_agent_event event = events[choose(count)];
    switch (event.type) {
    case CT_AGENT_EV_STARTED:
        w->alive[event.local_rank] = true;
        w->spawning = -1;
        break;
    case CT_AGENT_EV_NOT_STARTED:
        w->spawning = -1;
        break;
    case CT_AGENT_EV_EXITED:
        w->alive[event.local_rank] = false;
        break;
    case CT_AGENT_EV_SIGNAL:
        w->signals_left--;
        w->first_signal = w->first_signal != 0 ? w->first_signal : event.signo;
        seen.signals++;
        break;
    case CT_AGENT_EV_BEGIN:
    case CT_AGENT_EV_STOPPED:
        break;
    }
    step(w, event);
    return true;
}

static void play_all(int workers, int max_restarts, int signals)
{
    choices.known = 0;
    do {
        struct world w = {.workers = workers,
                          .max_restarts = max_restarts,
                          .signals_left = signals,
                          .spawning = -1,
                          .executable = true};
        choices.depth = 0;
        assert_int_equal(ct_agent_init(&w.agent, workers, max_restarts, NULL), 0);
        step(&w, (struct ct_agent_event){.type = CT_AGENT_EV_BEGIN});
        while (play(&w)) {
        }
        if (!w.finished) {
            fail_msg("%d workers, run %d: nothing can happen and it is not finished", workers,
                     seen.runs);
        }
        step(&w, (struct ct_agent_event){.type = CT_AGENT_EV_SIGNAL, .signo = SIGTERM});
        ct_agent_fini(&w.agent);
        seen.runs++;
    } while (next_run());
}

static void every_order_of_events_keeps_the_rules(void **state)
{
    (void)state;
    memset(&seen, 0, sizeof(seen));
    play_all(1, 0, 2);
    play_all(1, 3, 1);
    play_all(2, 0, 2);

    play_all(2, 1, 2);
    play_all(3, 0, 2);
    play_all(3, 1, 1);
    print_message("# %d runs: %d successes, %d failures, %d restarts, %d signals, %d kills\n",
                  seen.runs, seen.successes, seen.failures, seen.restarts, seen.signals,
                  seen.kills);
    assert_true(seen.runs > 10000);
    assert_true(seen.successes > 100 && seen.failures > 100 && seen.restarts > 100);
    assert_true(seen.signals > 100 && seen.kills > 10);
}

/* ---- single rules ---------------------------------------------------------------------------- */

static struct ct_agent_update feed(struct ct_agent *agent, struct ct_agent_event event)
{
    struct ct_agent_update u;
    ct_agent_step(agent, &event, 0, &u);
    return u;
}

static void start_two(struct ct_agent *agent, int max_restarts)
{
    assert_int_equal(ct_agent_init(agent, 2, max_restarts, NULL), 0);
    assert_int_equal(feed(agent, (struct ct_agent_event){.type = CT_AGENT_EV_BEGIN}).spawn, 0);
    assert_int_equal(
        feed(agent, (struct ct_agent_event){.type = CT_AGENT_EV_STARTED, .local_rank = 0}).spawn,
        1);
    assert_int_equal(
        feed(agent, (struct ct_agent_event){.type = CT_AGENT_EV_STARTED, .local_rank = 1}).spawn,
        -1);
}

static void the_received_signal_is_passed_on(void **state)
{
    struct ct_agent agent;
    (void)state;
    start_two(&agent, 5);
    struct ct_agent_update u =
        feed(&agent, (struct ct_agent_event){.type = CT_AGENT_EV_SIGNAL, .signo = SIGQUIT});
    assert_int_equal(u.stop_signal, SIGQUIT);
    assert_false(u.report);
    u = feed(&agent, (struct ct_agent_event){.type = CT_AGENT_EV_SIGNAL, .signo = SIGTERM});
    assert_true(u.stop_signal == 0 && !u.kill);
    u = feed(&agent, (struct ct_agent_event){.type = CT_AGENT_EV_SIGNAL, .signo = SIGINT});
    assert_true(u.kill);
    ct_agent_fini(&agent);
}

static void a_signal_ends_the_restarts(void **state)
{
    struct ct_agent agent;
    (void)state;
    start_two(&agent, 5);
    struct ct_agent_event died = {CT_AGENT_EV_EXITED, 1, {CT_END_SIGNALED, SIGKILL, false}, 0};
    struct ct_agent_update u = feed(&agent, died);
    assert_true(u.report && agent.failure.will_restart);
    assert_int_equal(u.stop_signal, SIGTERM);
    /* The first Ctrl-C during a stop is a wish to end, not yet impatience. */
    u = feed(&agent, (struct ct_agent_event){.type = CT_AGENT_EV_SIGNAL, .signo = SIGINT});
    assert_false(u.kill);
    died.local_rank = 0;
    (void)feed(&agent, died);
    u = feed(&agent, (struct ct_agent_event){.type = CT_AGENT_EV_STOPPED});
    assert_true(u.finish && !u.restart);
    assert_int_equal(u.exit_code, 128 + SIGINT);
    ct_agent_fini(&agent);
}

static int sweep_body(void *data)
{
    struct ct_agent agent = {0};
    int rc = ct_agent_init(&agent, 4, 0, NULL);
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
        cmocka_unit_test(every_order_of_events_keeps_the_rules),
        cmocka_unit_test(the_received_signal_is_passed_on),
        cmocka_unit_test(a_signal_ends_the_restarts),
        cmocka_unit_test(survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
