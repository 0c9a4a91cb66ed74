/* SPDX-License-Identifier: Apache-2.0
 *
 * Each event has a function that changes the state and fills in the update. The agent asks for one
 * worker at a time, and the answer is an event like any other. So only this file decides what
 * follows when a worker fails while others are still to be started.
 */
#include "launcher/agent/agent.h"

#include "common/alloc.h"

#include <signal.h>
#include <string.h>

#define STOPPING_OR_DONE (CT_SM_BIT(CT_AGENT_STOPPING) | CT_SM_BIT(CT_AGENT_DONE))
#define DISMISSING_OR_DONE (CT_SM_BIT(CT_AGENT_DISMISSING) | CT_SM_BIT(CT_AGENT_DONE))

static const struct ct_sm_state states[] = {
    [CT_AGENT_IDLE] = {"idle", CT_SM_BIT(CT_AGENT_JOINING) | CT_SM_BIT(CT_AGENT_DONE)},
    [CT_AGENT_JOINING] = {"joining", CT_SM_BIT(CT_AGENT_STARTING) | DISMISSING_OR_DONE},
    [CT_AGENT_STARTING] = {"starting", CT_SM_BIT(CT_AGENT_RUNNING) | STOPPING_OR_DONE |
                                           CT_SM_BIT(CT_AGENT_DISMISSING)},
    [CT_AGENT_RUNNING] = {"running", CT_SM_BIT(CT_AGENT_FINISHED) | STOPPING_OR_DONE},
    [CT_AGENT_FINISHED] = {"finished", STOPPING_OR_DONE},
    [CT_AGENT_STOPPING] = {"stopping", CT_SM_BIT(CT_AGENT_JOINING) | DISMISSING_OR_DONE},
    [CT_AGENT_DISMISSING] = {"dismissing", CT_SM_BIT(CT_AGENT_DONE)},
    [CT_AGENT_DONE] = {"done", 0},
};

int ct_agent_init(struct ct_agent *agent, int workers, const struct ct_log *log)
{
    CT_ASSERT(workers > 0);
    uint8_t *table = ct_calloc((size_t)workers, sizeof(*table));
    if (table == NULL) {
        return CT_ENOMEM;
    }
    *agent = (struct ct_agent){.workers = workers, .generation = -1, .states = table};
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

/* ---- the end --------------------------------------------------------------------------------- */

/* Returns the membership's exit code. If there is none, decides by what is known here. */
static int exit_code(const struct ct_agent *agent)
{
    if (agent->over) {
        return agent->last_code;
    }
    if (agent->signo != 0) {
        return CT_EXIT_SIGNAL_BASE + agent->signo;
    }
    /* A failure after which the job would have gone on is not why it ends. */
    return agent->failure.known && !agent->overcome ? ct_worker_end_exit_code(&agent->failure.end)
                                                    : agent->last_code;
}

static void finish(const struct step *step, const char *why)
{
    struct ct_agent *agent = step->agent;
    if (agent->kept) {
        step->update->stop_signal = agent->signo != 0 ? agent->signo : SIGTERM;
        step->update->kill = agent->impatient;
        move(step, CT_AGENT_DISMISSING, why);
        return;
    }
    if (!agent->lost) {
        step->update->say |= CT_AGENT_SAY_LEAVE;
    }
    step->update->finish = true;
    step->update->exit_code = exit_code(agent);
    move(step, CT_AGENT_DONE, why);
}

/* Also called when no worker is alive, because workers may have left processes behind. */
static void stop_all(const struct step *step, int signo, const char *why)
{
    step->agent->all_stopped = false;
    step->update->stop_signal = signo;
    move(step, CT_AGENT_STOPPING, why);
}

static void join(const struct step *step)
{
    step->agent->adrift = false;
    step->update->say |= CT_AGENT_SAY_JOIN;
}

/* Leaves the state STOPPING when everything is stopped and it is known what follows. */
static void conclude(const struct step *step)
{
    struct ct_agent *agent = step->agent;
    bool alone = agent->over || agent->lost || agent->impatient;
    if (!agent->all_stopped || !(agent->decided || alone)) {
        return;
    }
    step->update->report = true;
    if (alone) {
        finish(step, agent->over ? "over" : agent->lost ? "link lost" : "in a hurry");
    } else {
        move(step, CT_AGENT_JOINING, "stopped");
        if (agent->up) {
            join(step);
        }
        agent->up = false;
    }
}

bool ct_agent_may_keep(const struct ct_agent *agent, bool *decided)
{
    *decided = agent->decided && agent->will_restart;
    return agent->sm.state == CT_AGENT_STOPPING && agent->signo == 0 && !agent->over &&
           !agent->lost && (*decided || !agent->decided);
}

static bool has_workers(const struct ct_agent *agent)
{
    return agent->sm.state == CT_AGENT_STARTING || agent->sm.state == CT_AGENT_RUNNING ||
           agent->sm.state == CT_AGENT_FINISHED;
}

/* ---- workers --------------------------------------------------------------------------------- */

static void spawn_next(const struct step *step)
{
    struct ct_agent *agent = step->agent;
    int rank = agent->spawned++;
    agent->states[rank] = CT_WORKER_SPAWNING;
    agent->alive++;
    step->update->spawn = rank;
}

static void check_finished(const struct step *step)
{
    if (step->agent->sm.state == CT_AGENT_RUNNING && step->agent->alive == 0) {
        step->agent->finished = true;
        step->update->say |= CT_AGENT_SAY_FINISHED;
        move(step, CT_AGENT_FINISHED, "all exited with 0");
    }
}

static void on_started(const struct step *step, const struct ct_agent_event *event)
{
    struct ct_agent *agent = step->agent;
    CT_ASSERT(agent->states[event->local_rank] == CT_WORKER_SPAWNING);
    agent->states[event->local_rank] = CT_WORKER_ALIVE;
    if (agent->sm.state == CT_AGENT_STOPPING) {
        /* The worker was not there when the stop began, so the stop begins again for it. */
        step->update->stop_signal = agent->signo != 0 ? agent->signo : SIGTERM;
    } else if (agent->spawned < agent->workers) {
        spawn_next(step);
    } else {
        step->update->say |= CT_AGENT_SAY_STARTED;
        move(step, CT_AGENT_RUNNING, "all started");
        check_finished(step);
    }
}

/* A worker has ended, or could not be started. */
static void on_gone(const struct step *step, const struct ct_agent_event *event)
{
    struct ct_agent *agent = step->agent;
    CT_ASSERT(agent->states[event->local_rank] ==
              (event->type == CT_AGENT_EV_EXITED ? CT_WORKER_ALIVE : CT_WORKER_SPAWNING));
    agent->states[event->local_rank] = CT_WORKER_GONE;
    agent->alive--;
    bool good = ct_worker_end_is_success(&event->end);
    /* While stopping, workers end because they were told to, or because a peer is gone. */
    if (agent->sm.state == CT_AGENT_STOPPING) {
        agent->orderly = agent->orderly && good;
    } else if (good) {
        check_finished(step);
    } else {
        agent->failure = (struct ct_agent_failure){true, event->local_rank, event->end};
        step->update->headline = true;
        step->update->say |= CT_AGENT_SAY_FAILED;
        stop_all(step, SIGTERM, "failure");
    }
}

static void on_stopped(const struct step *step, const struct ct_agent_event *event)
{
    struct ct_agent *agent = step->agent;
    agent->kept = event->kept;
    if (agent->sm.state == CT_AGENT_DISMISSING) {
        CT_ASSERT(!agent->kept);
        finish(step, "dismissed");
        return;
    }
    CT_ASSERT(agent->sm.state == CT_AGENT_STOPPING && !agent->all_stopped);
    agent->all_stopped = true;
    if (!agent->over && !agent->lost && !agent->up) { /* a new host knows nothing of this stop */
        /* A worker may be left that could not be killed, or had not begun. */
        bool finished = agent->signo != 0 && agent->orderly && !agent->finished &&
                        agent->spawned == agent->workers && agent->alive == 0;
        step->update->say |= CT_AGENT_SAY_STOPPED | (finished ? CT_AGENT_SAY_FINISHED : 0);
    }
    conclude(step);
}

/* ---- the membership -------------------------------------------------------------------------- */

static void on_world(const struct step *step, const struct ct_agent_event *event)
{
    struct ct_agent *agent = step->agent;
    if (agent->sm.state != CT_AGENT_JOINING) {
        return;
    }
    agent->generation = event->generation;
    agent->kept = agent->kept && event->serve; /* without a store, they will have to be ended */
    agent->spawned = 0;
    agent->alive = 0;
    agent->decided = false;
    agent->will_restart = false;
    agent->finished = false;
    agent->failure = (struct ct_agent_failure){0};
    memset(agent->states, CT_WORKER_ABSENT, (size_t)agent->workers);
    move(step, CT_AGENT_STARTING, "world");
    if (agent->signo != 0) {
        /* The world was on its way when ctrun asked for the end of the job. The membership counts
         * this node in, so it must hear that the workers here are stopped. */
        stop_all(step, agent->signo, "signal");
    } else if (event->serve) {
        step->update->serve = true;
    } else {
        spawn_next(step);
    }
}

static void on_serving(const struct step *step)
{
    if (step->agent->sm.state == CT_AGENT_STARTING) {
        step->agent->kept = false;
        step->update->say |= CT_AGENT_SAY_SERVING;
        spawn_next(step);
    }
}

static void on_not_serving(const struct step *step)
{
    step->agent->lost = true;
    step->agent->last_code = CT_EXIT_SETUP;
    step->update->say |= CT_AGENT_SAY_LEAVE;
    finish(step, "no store");
}

static void on_stop(const struct step *step, const struct ct_agent_event *event)
{
    struct ct_agent *agent = step->agent;
    if (event->generation != agent->generation) {
        return;
    }
    if (has_workers(agent)) {
        step->update->headline = true;
        stop_all(step, SIGTERM, "told to stop");
    }
    if (agent->sm.state == CT_AGENT_STOPPING) {
        agent->decided = true;
        agent->will_restart = event->will_restart && agent->signo == 0;
        conclude(step);
    }
}

static void on_over(const struct step *step, const struct ct_agent_event *event)
{
    struct ct_agent *agent = step->agent;
    agent->over = true;
    agent->last_code = event->exit_code;
    agent->will_restart = false;
    if (has_workers(agent)) {
        stop_all(step, SIGTERM, "over");
    } else if (agent->sm.state == CT_AGENT_STOPPING) {
        conclude(step);
    } else if (agent->sm.state != CT_AGENT_DISMISSING && agent->sm.state != CT_AGENT_DONE) {
        finish(step, "over");
    }
}

/* The host is lost, and the election looks for another one. The workers are stopped as if the
 * membership had said so. */
static void on_adrift(const struct step *step)
{
    struct ct_agent *agent = step->agent;
    agent->adrift = true;
    agent->up = false;
    if (has_workers(agent)) {
        step->update->headline = true;
        stop_all(step, SIGTERM, "host lost");
    } else if (agent->sm.state == CT_AGENT_STOPPING && !agent->all_stopped) {
        step->update->stop_signal = SIGTERM; /* it may have to be quicker now */
    }
    if (agent->sm.state == CT_AGENT_STOPPING) {
        agent->decided = true;
        agent->will_restart = true;
        conclude(step);
    }
}

static void on_up(const struct step *step)
{
    struct ct_agent *agent = step->agent;
    if (agent->sm.state == CT_AGENT_JOINING) {
        join(step);
    } else if (agent->sm.state == CT_AGENT_STOPPING) {
        agent->up = true;
    }
}

static void on_lost(const struct step *step, const struct ct_agent_event *event)
{
    struct ct_agent *agent = step->agent;
    if (agent->over || agent->lost || agent->sm.state == CT_AGENT_DONE) {
        return;
    }
    agent->lost = true;
    agent->last_code = event->exit_code;
    agent->overcome = agent->decided && agent->will_restart;
    agent->will_restart = false;
    if (has_workers(agent)) {
        step->update->headline = true;
        stop_all(step, SIGTERM, "link lost");
    } else if (agent->sm.state == CT_AGENT_STOPPING) {
        conclude(step);
    } else if (agent->sm.state != CT_AGENT_DISMISSING) {
        finish(step, "link lost");
    }
}

/* ---- signals --------------------------------------------------------------------------------- */

static void begin_preemption(const struct step *step, int signo)
{
    struct ct_agent *agent = step->agent;
    agent->signo = signo;
    agent->orderly = !agent->failure.known;
    agent->will_restart = false;
    if (has_workers(agent)) {
        step->update->preempt_notice = signo != SIGINT;
        stop_all(step, signo, "signal");
    }
}

static void on_preempt(const struct step *step, int signo)
{
    if (step->agent->signo == 0 && step->agent->sm.state != CT_AGENT_DONE) {
        begin_preemption(step, signo);
    }
}

/* After a second Ctrl-C ctrun kills the workers and waits for no other node. */
static void stop_waiting(const struct step *step)
{
    struct ct_agent *agent = step->agent;
    agent->impatient = true;
    if (agent->sm.state == CT_AGENT_STOPPING) {
        step->update->kill = !agent->all_stopped;
        conclude(step);
    } else if (agent->sm.state == CT_AGENT_DISMISSING) {
        step->update->kill = true;
    } else if (agent->sm.state == CT_AGENT_JOINING) {
        finish(step, "in a hurry");
    }
}

static void on_signal(const struct step *step, int signo)
{
    struct ct_agent *agent = step->agent;
    bool again = agent->signo != 0;
    if (agent->sm.state == CT_AGENT_DONE) {
        return;
    }
    if (again) {
        if (signo == SIGINT) {
            stop_waiting(step);
        }
        return;
    }
    if (agent->generation < 0) {
        /* This node was in no world, so its leaving harms nobody. */
        agent->signo = signo;
        finish(step, "signal");
        return;
    }
    if (agent->adrift) {
        agent->lost = true; /* no host can be told, and none will say that the job is over */
    }
    if (!agent->over && !agent->lost) {
        step->update->say |= CT_AGENT_SAY_PREEMPT;
    }
    begin_preemption(step, signo);
    if (agent->adrift && agent->sm.state == CT_AGENT_JOINING) {
        finish(step, "signal");
    }
}

void ct_agent_step(struct ct_agent *agent, const struct ct_agent_event *event, int64_t now_ns,
                   struct ct_agent_update *update)
{
    const struct step step = {agent, update, now_ns};
    *update = (struct ct_agent_update){.spawn = -1};
    switch (event->type) {
    case CT_AGENT_EV_BEGIN:
        /* A signal may have come first. */
        if (agent->sm.state == CT_AGENT_IDLE) {
            move(&step, CT_AGENT_JOINING, "begin");
        }
        break;
    case CT_AGENT_EV_UP:
        on_up(&step);
        break;
    case CT_AGENT_EV_ADRIFT:
        on_adrift(&step);
        break;
    case CT_AGENT_EV_WORLD:
        on_world(&step, event);
        break;
    case CT_AGENT_EV_STOP:
        on_stop(&step, event);
        break;
    case CT_AGENT_EV_OVER:
        on_over(&step, event);
        break;
    case CT_AGENT_EV_PREEMPT:
        on_preempt(&step, event->signo);
        break;
    case CT_AGENT_EV_LOST:
        on_lost(&step, event);
        break;
    case CT_AGENT_EV_SERVING:
        on_serving(&step);
        break;
    case CT_AGENT_EV_NOT_SERVING:
        on_not_serving(&step);
        break;
    case CT_AGENT_EV_STARTED:
        on_started(&step, event);
        break;
    case CT_AGENT_EV_NOT_STARTED:
    case CT_AGENT_EV_EXITED:
        on_gone(&step, event);
        break;
    case CT_AGENT_EV_STOPPED:
        on_stopped(&step, event);
        break;
    case CT_AGENT_EV_SIGNAL:
        on_signal(&step, event->signo);
        break;
    }
}
