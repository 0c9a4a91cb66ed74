/* SPDX-License-Identifier: Apache-2.0
 *
 * Workers are asked for one at a time, and the answer is an event like any other: the caller needs
 * no loop of its own with a second opinion on what a failure in the middle of it means.
 */
#include "launcher/agent.h"

#include "common/alloc.h"

#include <signal.h>
#include <string.h>

static const struct ct_sm_state states[] = {
    [CT_AGENT_IDLE] = {"idle", CT_SM_BIT(CT_AGENT_STARTING) | CT_SM_BIT(CT_AGENT_DONE)},
    [CT_AGENT_STARTING] = {"starting", CT_SM_BIT(CT_AGENT_RUNNING) | CT_SM_BIT(CT_AGENT_STOPPING)},
    [CT_AGENT_RUNNING] = {"running", CT_SM_BIT(CT_AGENT_STOPPING)},
    [CT_AGENT_STOPPING] = {"stopping", CT_SM_BIT(CT_AGENT_STARTING) | CT_SM_BIT(CT_AGENT_DONE)},
    [CT_AGENT_DONE] = {"done", 0},
};

int ct_agent_init(struct ct_agent *agent, int workers, int max_restarts, const struct ct_log *log)
{
    CT_ASSERT(workers > 0);
    uint8_t *table = ct_calloc((size_t)workers, sizeof(*table));
    if (table == NULL) {
        return CT_ENOMEM;
    }
    *agent = (struct ct_agent){.workers = workers, .max_restarts = max_restarts, .states = table};
    ct_sm_init(&agent->sm, "agent", states, CT_AGENT_IDLE, 0, log);
    return 0;
}

void ct_agent_fini(struct ct_agent *agent)
{
    if (agent != NULL) {
        ct_free(agent->states);
        agent->states = NULL;
    }
}

/* One step in progress. */
struct step {
    struct ct_agent *agent;
    struct ct_agent_update *update;
    int64_t now_ns;
};

static void move(const struct step *step, enum ct_agent_state to, const char *why)
{
    ct_sm_move(&step->agent->sm, to, why, step->now_ns);
}

static void spawn_next(const struct step *step)
{
    struct ct_agent *agent = step->agent;
    int rank = agent->spawned++;
    agent->states[rank] = CT_WORKER_SPAWNING;
    agent->alive++;
    step->update->spawn = rank;
}

static void start_generation(const struct step *step, const char *why)
{
    struct ct_agent *agent = step->agent;
    memset(agent->states, CT_WORKER_ABSENT, (size_t)agent->workers);
    agent->spawned = 0;
    agent->alive = 0;
    agent->failure = (struct ct_agent_failure){0};
    move(step, CT_AGENT_STARTING, why);
    spawn_next(step);
}

static void finish(const struct step *step, int exit_code, const char *why)
{
    step->update->finish = true;
    step->update->exit_code = exit_code;
    move(step, CT_AGENT_DONE, why);
}

/* Also when nobody lives any more: a stop ends what workers have left behind, and waits for it. */
static void stop_all(const struct step *step, int signo, const char *why)
{
    step->update->stop_signal = signo;
    move(step, CT_AGENT_STOPPING, why);
}

static void check_success(const struct step *step)
{
    struct ct_agent *agent = step->agent;
    if (agent->sm.state == CT_AGENT_RUNNING && agent->alive == 0) {
        agent->succeeded = true;
        stop_all(step, SIGTERM, "success");
    }
}

static void on_begin(const struct step *step)
{
    /* A signal may have come first. */
    if (step->agent->sm.state == CT_AGENT_IDLE) {
        start_generation(step, "begin");
    }
}

static void on_started(const struct step *step, const struct ct_agent_event *event)
{
    struct ct_agent *agent = step->agent;
    CT_ASSERT(agent->states[event->local_rank] == CT_WORKER_SPAWNING);
    agent->states[event->local_rank] = CT_WORKER_ALIVE;
    if (agent->sm.state == CT_AGENT_STOPPING) {
        /* It missed the call. */
        step->update->stop_signal = agent->signo != 0 ? agent->signo : SIGTERM;
    } else if (agent->spawned < agent->workers) {
        spawn_next(step);
    } else {
        move(step, CT_AGENT_RUNNING, "all started");
        check_success(step);
    }
}

static void on_failure(const struct step *step, const struct ct_agent_event *event)
{
    struct ct_agent *agent = step->agent;
    agent->failure = (struct ct_agent_failure){
        .known = true,
        .local_rank = event->local_rank,
        .end = event->end,
        .will_restart = agent->generation < agent->max_restarts && ct_end_may_restart(&event->end),
    };
    step->update->report = true;
    stop_all(step, SIGTERM, "failure");
}

/* A worker that ran, or was to run, is gone. */
static void on_gone(const struct step *step, const struct ct_agent_event *event)
{
    struct ct_agent *agent = step->agent;
    CT_ASSERT(agent->states[event->local_rank] ==
              (event->type == CT_AGENT_EV_EXITED ? CT_WORKER_ALIVE : CT_WORKER_SPAWNING));
    agent->states[event->local_rank] = CT_WORKER_GONE;
    agent->alive--;
    /* While stopping, workers die because they were told to, or because a peer is gone. */
    if (agent->sm.state == CT_AGENT_STOPPING) {
        return;
    }
    if (!ct_end_is_success(&event->end)) {
        on_failure(step, event);
    } else {
        check_success(step);
    }
}

static void on_stopped(const struct step *step)
{
    struct ct_agent *agent = step->agent;
    CT_ASSERT(agent->sm.state == CT_AGENT_STOPPING);
    /* A signal that comes when all work is done does not make a failure of it. */
    if (agent->succeeded) {
        finish(step, CT_EXIT_OK, "success");
    } else if (agent->signo != 0) {
        finish(step, CT_EXIT_SIGNAL_BASE + agent->signo, "signal");
    } else if (!agent->failure.will_restart) {
        finish(step, ct_end_exit_code(&agent->failure.end), "failure");
    } else {
        agent->generation++;
        step->update->restart = true;
        start_generation(step, "restart");
    }
}

static void on_signal(const struct step *step, int signo)
{
    struct ct_agent *agent = step->agent;
    bool again = agent->signo != 0;
    if (!again) {
        agent->signo = signo;
    }
    switch ((enum ct_agent_state)agent->sm.state) {
    case CT_AGENT_IDLE:
        finish(step, CT_EXIT_SIGNAL_BASE + signo, "signal");
        break;
    case CT_AGENT_STARTING:
    case CT_AGENT_RUNNING:
        stop_all(step, signo, "signal");
        break;
    case CT_AGENT_STOPPING:
        /* A person who presses Ctrl-C again has waited long enough. */
        step->update->kill = again && signo == SIGINT;
        break;
    case CT_AGENT_DONE:
        break;
    }
}

void ct_agent_step(struct ct_agent *agent, const struct ct_agent_event *event, int64_t now_ns,
                   struct ct_agent_update *update)
{
    const struct step step = {agent, update, now_ns};
    *update = (struct ct_agent_update){.spawn = -1};
    switch (event->type) {
    case CT_AGENT_EV_BEGIN:
        on_begin(&step);
        break;
    case CT_AGENT_EV_STARTED:
        on_started(&step, event);
        break;
    case CT_AGENT_EV_NOT_STARTED:
    case CT_AGENT_EV_EXITED:
        on_gone(&step, event);
        break;
    case CT_AGENT_EV_STOPPED:
        on_stopped(&step);
        break;
    case CT_AGENT_EV_SIGNAL:
        on_signal(&step, event->signo);
        break;
    }
}
