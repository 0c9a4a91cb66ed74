/* SPDX-License-Identifier: Apache-2.0
 *
 * One machine: the real agent core, and what launcher/agent/agent_uv.c does for it, with workers
 * that are only bits and times.
 */
#include "tests/sim/sim.h"

#include <errno.h>
#include <signal.h>

#define STOP_NS SIM_S          /* how long workers take to end, at most */
#define KILL_NS (SIM_S / 100)  /* the same after SIGKILL */
#define SETTLE_NS (SIM_S / 10) /* and then their output */

static int64_t soon(struct sim *sim, int64_t most_ns)
{
    return sim->now + 1 + (int64_t)sim_random(sim, (uint64_t)most_ns);
}

/* ---- workers -------------------------------------------------------------------------------- */

static struct ct_agent_event start_worker(struct sim *sim, int channel, int local_rank)
{
    struct sim_channel *l = &sim->channels[channel];
    sim_check_spawn(sim, channel, local_rank);
    if (l->no_exec) {
        l->no_exec = false;
        return (struct ct_agent_event){.type = CT_AGENT_EV_NOT_STARTED,
                                       .local_rank = local_rank,
                                       .end = {.kind = CT_END_NOT_STARTED, .value = ENOENT}};
    }
    l->running |= 1U << local_rank;
    l->running_generation = l->agent.generation;
    sim_at(sim, soon(sim, sim->scenario.work_ns), SIM_EXIT, channel, l->epoch,
           &(struct sim_msg){.local_rank = local_rank});
    return (struct ct_agent_event){.type = CT_AGENT_EV_STARTED, .local_rank = local_rank};
}

/* Some end in order, some of the signal, as they like. */
static void stop(struct sim *sim, int channel, int signo, int64_t most_ns)
{
    struct sim_channel *l = &sim->channels[channel];
    bool orderly = signo != SIGKILL && sim_random(sim, 2) == 0;
    int64_t last = sim->now;
    l->epoch++;
    l->stopping = true;
    for (int i = 0; i < l->workers; i++) {
        if ((l->running >> i & 1) != 0) {
            int64_t at = soon(sim, most_ns);
            bool well = orderly || (signo != SIGKILL && sim_random(sim, 2) == 0);
            last = at > last ? at : last;
            sim_at(sim, at, SIM_EXIT, channel, l->epoch,
                   &(struct sim_msg){.local_rank = i, .signo = well ? 0 : signo});
        }
    }
    sim_at(sim, last + soon(sim, SETTLE_NS) - sim->now, SIM_STOP_DONE, channel, l->epoch, NULL);
}

/* ---- the agent ------------------------------------------------------------------------------ */

static void say(struct sim *sim, int channel, unsigned what)
{
    /* by bit of enum ct_agent_message */
    static const enum ct_msg_type types[] = {CT_MSG_JOIN,    CT_MSG_SERVING,  CT_MSG_STARTED,
                                             CT_MSG_FAILED,  CT_MSG_FINISHED, CT_MSG_STOPPED,
                                             CT_MSG_PREEMPT, CT_MSG_LEAVE};
    const struct ct_agent *agent = &sim->channels[channel].agent;
    const struct ct_agent_failure *failure = &agent->failure;
    for (int bit = 0; bit < 8; bit++) {
        struct sim_msg msg = {
            .type = types[bit], .generation = agent->generation, .signo = agent->signo};
        if (failure->known) {
            msg.failure = true;
            msg.local_rank = failure->local_rank;
            msg.code = ct_worker_end_exit_code(&failure->end);
            msg.permanent = !ct_worker_end_may_restart(&failure->end);
        }
        if ((what >> bit & 1) == 0) {
            continue;
        }
        if (msg.type == CT_MSG_JOIN) {
            sim_enter(sim, channel);
        } else {
            sim_say(sim, channel, msg);
        }
    }
}

static void carry_out(struct sim *sim, int channel, const struct ct_agent_update *update)
{
    struct sim_channel *l = &sim->channels[channel];
    say(sim, channel, update->say);
    if (update->stop_signal != 0) {
        stop(sim, channel, update->stop_signal, STOP_NS);
    }
    if (update->kill) {
        stop(sim, channel, SIGKILL, KILL_NS);
    }
    if (update->finish) {
        l->ended = true;
        l->exit_code = update->exit_code;
        sim_check_finish(sim, channel);
        sim_close(sim, channel);
    }
}

static void take(struct sim *sim, int channel, struct ct_agent_event event)
{
    struct sim_channel *l = &sim->channels[channel];
    struct ct_agent_update update;
    do {
        ct_agent_step(&l->agent, &event, sim->now, &update);
        carry_out(sim, channel, &update);
        if (update.serve) {
            event.type = l->no_store ? CT_AGENT_EV_NOT_SERVING : CT_AGENT_EV_SERVING;
            l->no_store = false;
        } else if (update.spawn >= 0) {
            event = start_worker(sim, channel, update.spawn);
        }
    } while ((update.serve || update.spawn >= 0) && sim->broken[0] == '\0');
}

/* ---- what happens to it --------------------------------------------------------------------- */

void sim_node_begin(struct sim *sim, int channel)
{
    take(sim, channel, (struct ct_agent_event){.type = CT_AGENT_EV_BEGIN});
    take(sim, channel, (struct ct_agent_event){.type = CT_AGENT_EV_UP});
}

void sim_node_hear(struct sim *sim, int channel, const struct sim_msg *msg)
{
    struct ct_agent_event event = {.generation = msg->generation,
                                   .exit_code = msg->code,
                                   .signo = msg->signo,
                                   .serve = msg->serve,
                                   .will_restart = msg->will_restart};
    if (msg->type == CT_MSG_WORLD) {
        event.type = CT_AGENT_EV_WORLD;
        sim->channels[channel].finished = false;
    } else if (msg->type == CT_MSG_STOP) {
        event.type = CT_AGENT_EV_STOP;
    } else if (msg->type == CT_MSG_PREEMPT) {
        event.type = CT_AGENT_EV_PREEMPT;
    } else if (msg->type == CT_MSG_OVER) {
        event.type = CT_AGENT_EV_OVER;
    } else if (msg->type == CT_MSG_REFUSED) {
        event.type = CT_AGENT_EV_LOST;
    } else {
        return; /* words for a person */
    }
    take(sim, channel, event);
    sim_check_obeyed(sim, channel, msg);
}

void sim_node_lost(struct sim *sim, int channel)
{
    take(sim, channel,
         (struct ct_agent_event){.type = CT_AGENT_EV_LOST, .exit_code = CT_EXIT_NODE_LOST});
    sim_check_obeyed(sim, channel, &(struct sim_msg){.type = CT_MSG_OVER});
}

void sim_node_exit(struct sim *sim, int channel, int local_rank, struct ct_worker_end end)
{
    struct sim_channel *l = &sim->channels[channel];
    if ((l->running >> local_rank & 1) != 0) { /* else it has ended otherwise before */
        l->running &= ~(1U << local_rank);
        take(sim, channel,
             (struct ct_agent_event){
                 .type = CT_AGENT_EV_EXITED, .local_rank = local_rank, .end = end});
    }
}

void sim_node_stopped(struct sim *sim, int channel)
{
    sim->channels[channel].stopping = false;
    take(sim, channel, (struct ct_agent_event){.type = CT_AGENT_EV_STOPPED});
}

void sim_node_signal(struct sim *sim, int channel, int signo)
{
    take(sim, channel, (struct ct_agent_event){.type = CT_AGENT_EV_SIGNAL, .signo = signo});
}
