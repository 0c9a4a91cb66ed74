/* SPDX-License-Identifier: Apache-2.0
 *
 * What goes wrong with nodes, their workers and their channels.
 */
#include "tests/sim/sim.h"

#include <signal.h>

static void come(struct sim *sim, int host)
{
    int64_t at = sim->now + 1 + (int64_t)sim_random(sim, (uint64_t)(5 * SIM_S));
    sim_at(sim, at, SIM_JOIN, sim_new_line(sim, host), 0, NULL);
}

/* The guard process ends its workers. */
static void kill_agent(struct sim *sim, int channel)
{
    sim->channels[channel].running = 0;
    sim_close(sim, channel);
}

static void fail(struct sim *sim, int channel)
{
    struct sim_channel *l = &sim->channels[channel];
    struct ct_worker_end end = {.kind = CT_END_EXITED, .value = 1 + l->host};
    if (sim_random(sim, 4) == 0) {
        end = (struct ct_worker_end){.kind = CT_END_SIGNALED, .value = SIGSEGV};
    }
    sim_node_exit(sim, channel, (int)sim_random(sim, (uint64_t)l->workers), end);
}

static void ask_to_end(struct sim *sim, int channel)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGTERM};
    int signo = signals[sim_random(sim, 3)];
    sim_node_signal(sim, channel, signo);
    if (signo == SIGINT && sim->channels[channel].alive && sim_random(sim, 4) == 0) {
        sim_node_signal(sim, channel, SIGINT); /* in a hurry */
    }
}

void sim_faults(struct sim *sim)
{
    uint64_t what = sim->scenario.lose_one ? 0 : sim_random(sim, 24);
    int channel = (int)sim_random(sim, (uint64_t)sim->num_channels);
    while (sim->scenario.lose_one && sim->channels[channel].agent.sm.state != CT_AGENT_RUNNING) {
        channel =
            (channel + 1) % sim->num_channels; /* somebody works for 20 s, and it is the eighth */
    }
    struct sim_channel *l = &sim->channels[channel];
    int host = l->host;
    bool there = l->alive && l->joined;
    if (what < 3 || !there) {
        come(sim, sim->hosts++); /* somebody new */
    }
    l = &sim->channels[channel];
    if (!there) {
        return;
    }
    if (what == 0 || (what >= 3 && what < 6)) {
        kill_agent(sim, channel);
    } else if (what < 9) {
        sim_lose(sim, channel); /* the cable is pulled */
    } else if (what < 14) {
        fail(sim, channel);
    } else if (what < 15) {
        sim_say(sim, channel, (struct sim_msg){.type = CT_MSG_LEAVE});
        kill_agent(sim, channel);
    } else if (what < 17) {
        ask_to_end(sim, channel);
    } else if (what < 19) {
        kill_agent(sim, channel); /* it dies and comes back */
        come(sim, host);
    } else if (what < 20) {
        l->no_exec = true;
    } else if (what < 21) {
        l->no_store = true;
    } else if (what < 22) {
        sim_node_signal(sim, channel, SIGINT);
    }
}
