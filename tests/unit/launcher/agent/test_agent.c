/* SPDX-License-Identifier: Apache-2.0
 *
 * Every order of events that a small job can meet is played against the agent, with a model beside
 * it that says what must hold after each step.
 */
#include "tests/lib/ct_test.h"

#include "launcher/agent/agent.h"

#include <signal.h>

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

/* What the membership of a job with one member, and some failures elsewhere, would do. */
struct membership {
    bool running, stopped, will_restart, over;
    int generation, restarts, exit_code, preempted;
    bool world_due, stop_due, preempt_due, over_due; /* to be delivered, in this order */
};

struct world {
    struct ct_agent agent;
    struct membership members;
    int workers, max_restarts, signals_left, elsewhere_left, losses_left;
    bool up, serving; /* serving: asked for and not answered */
    bool alive[WORKERS_MAX], spawned[WORKERS_MAX];
    int spawning; /* rank asked for and not answered, or -1 */
    bool stopping, finished, lost, left, no_store;
    bool kept; /* workers live that belong to no generation */
    int first_signal;
    bool failed;   /* in this generation */
    bool overcome; /* another generation was to follow when the link was lost */
    int first_failed, first_code;
    int stopped_said; /* in this generation */
};

static struct {
    int runs, successes, failures, restarts, signals, kills, losses, elsewhere, kept, dismissed;
} seen;

static int living(const struct world *w)
{
    int count = w->spawning >= 0;
    for (int i = 0; i < w->workers; i++) {
        count += w->alive[i];
    }
    return count;
}

/* ---- what the membership does ---------------------------------------------------------------- */

static void members_end(struct membership *m, int code)
{
    m->over = true;
    m->over_due = true;
    m->exit_code = code;
}

static void members_next(struct membership *m)
{
    if (m->over || !m->stopped || m->running) {
        return;
    }
    if (m->preempted != 0) {
        members_end(m, 128 + m->preempted);
    } else if (m->will_restart) {
        m->world_due = true;
        m->generation++;
        m->stopped = false;
    } else {
        members_end(m, m->exit_code);
    }
}

static void members_fail(struct world *w, bool permanent, int code)
{
    struct membership *m = &w->members;
    if (!m->running) {
        m->will_restart = m->will_restart && !permanent;
        return;
    }
    m->running = false;
    m->stop_due = true;
    m->will_restart = !permanent && m->restarts < w->max_restarts;
    m->restarts += m->will_restart;
    m->exit_code = code;
}

static void members_hear(struct world *w, unsigned say)
{
    struct membership *m = &w->members;
    if (say & CT_AGENT_SAY_JOIN) {
        m->world_due = true;
    }
    if (say & CT_AGENT_SAY_FAILED) {
        assert_true(w->agent.failure.known);
        members_fail(w, w->agent.failure.end.kind == CT_END_NOT_STARTED, w->first_code);
    }
    if ((say & CT_AGENT_SAY_FINISHED) && m->running) {
        m->running = false;
        members_end(m, 0);
    }
    if (say & CT_AGENT_SAY_STOPPED) {
        assert_int_equal(++w->stopped_said, 1);
        m->stopped = !m->over; /* that it is over may be on its way */
    }
    if ((say & CT_AGENT_SAY_PREEMPT) && m->preempted == 0 && !m->over) {
        m->preempted = w->agent.signo;
        m->preempt_due = true;
        if (!m->running && m->world_due) { /* between two generations */
            m->world_due = false;
            members_end(m, 128 + m->preempted);
        }
        m->running = false;
    }
    if (say & CT_AGENT_SAY_LEAVE) {
        assert_false(w->left);
        w->left = true;
    }
    members_next(m);
}

/* ---- what must hold -------------------------------------------------------------------------- */

static void check_finish(struct world *w, const struct ct_agent_update *u)
{
    assert_false(w->finished);
    assert_int_equal(living(w), 0);
    assert_true(!w->stopping && !w->kept && (w->left || w->lost));
    w->finished = true;
    if (u->exit_code == 0) {
        assert_true(w->members.over && w->members.exit_code == 0);
        seen.successes++;
    } else if (w->agent.over) {
        assert_int_equal(u->exit_code, w->members.exit_code);
        seen.failures++;
    } else if (w->first_signal != 0) {
        assert_int_equal(u->exit_code, 128 + w->first_signal);
    } else if (w->no_store) {
        assert_int_equal(u->exit_code, 1);
    } else {
        assert_true(w->lost);
        assert_int_equal(u->exit_code, w->failed && !w->overcome ? w->first_code : 121);
    }
}

static void begin_world(struct world *w)
{
    assert_int_equal(living(w), 0);
    memset(w->spawned, 0, sizeof(w->spawned));
    w->failed = false;
    w->stopped_said = 0;
    w->kept = false; /* either they go on in it, or its stop ends them */
    w->members.running = true;
    seen.restarts += w->members.generation > 0;
}

static void step(struct world *w, struct ct_agent_event event)
{
    struct ct_agent_update u;
    w->overcome = w->overcome || (event.type == CT_AGENT_EV_LOST && !w->agent.over &&
                                  w->agent.decided && w->agent.will_restart);
    bool was_stopping = w->stopping, was_failed = w->failed, was_finished = w->finished;
    bool bad = (event.type == CT_AGENT_EV_EXITED || event.type == CT_AGENT_EV_NOT_STARTED) &&
               !ct_worker_end_is_success(&event.end);

    if (event.type == CT_AGENT_EV_STOPPED) {
        w->stopping = false;
        seen.kept += event.kept;
        seen.dismissed += w->kept;
        w->kept = event.kept;
        if (event.kept) {
            memset(w->alive, 0, sizeof(w->alive));
        }
    }
    if (bad && !was_stopping && !was_failed) {
        w->failed = true;
        w->first_failed = event.local_rank;
        w->first_code = ct_worker_end_exit_code(&event.end);
    }
    ct_agent_step(&w->agent, &event, 0, &u);

    /* The first failure of a generation is told, at once and only once. */
    assert_int_equal((u.say & CT_AGENT_SAY_FAILED) != 0, w->failed && !was_failed);
    if (u.say & CT_AGENT_SAY_FAILED) {
        assert_int_equal(w->agent.failure.local_rank, w->first_failed);
        assert_true(u.headline && u.stop_signal != 0);
    }
    assert_true(!u.headline || u.stop_signal != 0);
    assert_true(!u.preempt_notice || u.stop_signal == w->agent.signo);
    if (u.stop_signal != 0) {
        w->stopping = true;
    }
    if (u.kill) {
        assert_true((was_stopping || u.stop_signal != 0) && event.signo == SIGINT);
        seen.kills++;
    }
    if (u.serve) {
        assert_int_equal(event.type, CT_AGENT_EV_WORLD);
        w->serving = true;
    }
    assert_int_equal((u.say & CT_AGENT_SAY_SERVING) != 0, event.type == CT_AGENT_EV_SERVING);
    if (u.spawn >= 0) {
        assert_true(!w->stopping && !w->finished && w->spawning < 0 && !w->spawned[u.spawn]);
        assert_false(w->serving);
        w->spawning = u.spawn;
        w->spawned[u.spawn] = true;
    }
    members_hear(w, u.say);
    if (u.finish) {
        check_finish(w, &u);
    }
    if (was_finished) {
        assert_true(!u.stop_signal && !u.kill && !u.finish && u.spawn < 0 && u.say == 0);
    }
}

/* ---- playing --------------------------------------------------------------------------------- */

#define DUE(kind, ...) ((struct ct_agent_event){.type = CT_AGENT_EV_##kind, __VA_ARGS__})

/* The membership's messages come in order: only the first that is due may. */
static int offer_message(const struct world *w, struct ct_agent_event *out)
{
    const struct membership *m = &w->members;
    if (w->lost || w->left) {
        return 0;
    }
    if (m->stop_due) {
        *out = DUE(STOP, .generation = m->generation - (m->world_due && m->generation > 0),
                   .will_restart = m->will_restart);
    } else if (m->preempt_due) {
        *out = DUE(PREEMPT, .signo = m->preempted);
    } else if (m->world_due) {
        *out = DUE(WORLD, .generation = m->generation, .serve = m->generation % 2 == 0);
    } else if (m->over_due) {
        *out = DUE(OVER, .exit_code = m->exit_code);
    } else {
        return 0;
    }
    return 1;
}

static void deliver(struct world *w, enum ct_agent_event_type type)
{
    struct membership *m = &w->members;
    if (type == CT_AGENT_EV_STOP) {
        m->stop_due = false;
    } else if (type == CT_AGENT_EV_PREEMPT) {
        m->preempt_due = false;
    } else if (type == CT_AGENT_EV_OVER) {
        m->over_due = false;
    } else if (type == CT_AGENT_EV_WORLD) {
        m->world_due = false;
        begin_world(w);
    }
}

static int offer(const struct world *w, struct ct_agent_event *events)
{
    int count = 0;
    if (!w->up && !w->lost && !w->left) {
        events[count++] = DUE(UP, .signo = 0);
    }
    if (w->serving) {
        events[count++] = DUE(SERVING, .signo = 0);
        events[count++] = DUE(NOT_SERVING, .signo = 0);
        return count; /* answered in the same call */
    }
    count += offer_message(w, &events[count]);
    if (w->spawning >= 0) {
        events[count++] = DUE(STARTED, .local_rank = w->spawning);
        events[count++] = DUE(NOT_STARTED, .local_rank = w->spawning,
                              .end = {CT_END_NOT_STARTED, 2, false, false});
    }
    for (int i = 0; i < w->workers; i++) {
        if (w->alive[i]) {
            events[count++] = DUE(EXITED, .local_rank = i, .end = {CT_END_EXITED, 0, false, false});
            events[count++] =
                DUE(EXITED, .local_rank = i, .end = {CT_END_EXITED, 3 + i, false, false});
        }
    }
    if (w->stopping && living(w) == 0) {
        events[count++] = DUE(STOPPED, .signo = 0);
    }
    bool decided;
    if (w->stopping && living(w) > 0 && w->spawning < 0 && ct_agent_may_keep(&w->agent, &decided) &&
        decided) {
        events[count++] = DUE(STOPPED, .kept = true);
    }
    return count;
}

static bool play(struct world *w)
{
    struct ct_agent_event events[4 * WORKERS_MAX + 12];
    int count = offer(w, events);
    int elsewhere = -1;
    if (count == 0 || w->finished) {
        return false;
    }
    if (w->signals_left > 0 && !w->serving) {
        events[count++] = DUE(SIGNAL, .signo = SIGTERM);
        events[count++] = DUE(SIGNAL, .signo = SIGINT);
    }
    if (w->losses_left > 0 && !w->lost && !w->left && !w->serving) {
        events[count++] = DUE(LOST, .exit_code = 121);
    }
    if (w->elsewhere_left > 0 && w->members.running && !w->serving) {
        elsewhere = count;
        events[count++] = DUE(STOP, .generation = w->members.generation);
    }
    int chosen = choose(count);
    struct ct_agent_event event = events[chosen];
    if (chosen == elsewhere) {
        w->elsewhere_left--;
        seen.elsewhere++;
        members_fail(w, false, 77);
        event.will_restart = w->members.will_restart;
        w->members.stop_due = false;
    } else {
        deliver(w, event.type);
    }
    switch (event.type) {
    case CT_AGENT_EV_UP:
        w->up = true;
        break;
    case CT_AGENT_EV_SERVING:
        w->serving = false;
        break;
    case CT_AGENT_EV_NOT_SERVING:
        w->serving = false;
        w->no_store = true;
        break;
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
    case CT_AGENT_EV_LOST:
        w->losses_left--;
        w->lost = true;
        seen.losses++;
        break;
    case CT_AGENT_EV_BEGIN:
    case CT_AGENT_EV_WORLD:
    case CT_AGENT_EV_STOP:
    case CT_AGENT_EV_OVER:
    case CT_AGENT_EV_PREEMPT:
    case CT_AGENT_EV_STOPPED:
    case CT_AGENT_EV_ADRIFT: /* test_agent_rules.c */
        break;
    }
    step(w, event);
    return true;
}

static void play_all(int workers, int max_restarts, int signals, int elsewhere, int losses)
{
    choices.known = 0;
    do {
        struct world w = {.workers = workers,
                          .max_restarts = max_restarts,
                          .signals_left = signals,
                          .elsewhere_left = elsewhere,
                          .losses_left = losses,
                          .spawning = -1};
        choices.depth = 0;
        assert_int_equal(ct_agent_init(&w.agent, workers, NULL), 0);
        step(&w, DUE(BEGIN, .signo = 0));
        while (play(&w)) {
        }
        if (!w.finished) {
            fail_msg("%d workers, run %d: nothing can happen and it is not finished", workers,
                     seen.runs);
        }
        step(&w, DUE(SIGNAL, .signo = SIGTERM));
        step(&w, DUE(OVER, .exit_code = 5));
        step(&w, DUE(LOST, .exit_code = 5));
        ct_agent_fini(&w.agent);
        seen.runs++;
    } while (next_run());
}

static void every_order_of_events_keeps_the_rules(void **state)
{
    (void)state;
    memset(&seen, 0, sizeof(seen));
    play_all(1, 0, 2, 0, 0);
    play_all(1, 2, 1, 0, 1);
    play_all(1, 1, 1, 1, 1);
    play_all(2, 0, 1, 1, 0);
    play_all(2, 0, 0, 0, 1);
    play_all(2, 1, 1, 0, 0);
    print_message("# %d runs: %d successes, %d failures, %d restarts, %d signals, %d kills, "
                  "%d losses, %d failures elsewhere, %d times workers kept, %d dismissed\n",
                  seen.runs, seen.successes, seen.failures, seen.restarts, seen.signals, seen.kills,
                  seen.losses, seen.elsewhere, seen.kept, seen.dismissed);
    assert_true(seen.runs > 10000);
    assert_true(seen.successes > 100 && seen.failures > 100 && seen.restarts > 100);
    assert_true(seen.signals > 100 && seen.kills > 10);
    assert_true(seen.losses > 100 && seen.elsewhere > 100);
    assert_true(seen.kept > 100 && seen.dismissed > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_order_of_events_keeps_the_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
