/* SPDX-License-Identifier: Apache-2.0
 *
 * What must hold whatever happens:
 *
 * - ranks are unique and dense in each generation, and all members of it are told the same;
 * - the generation only grows;
 * - when one member is told to stop, all of the generation are, once each; likewise the end;
 * - nobody waits without a word when a world is decided, and none goes on without its store;
 * - an agent tells a failure once, and nothing that the core refuses;
 * - it never runs workers of two generations, stops them all when it is told to, and leaves none;
 * - failures are counted and the budget is kept;
 * - the job ends, all agents end, and those who hear of its end agree how.
 */
#include "tests/lib/members_done.h"
#include "tests/sim/sim.h"

#include <stdio.h>
#include <string.h>

/* How long a node may wait without a word beside a world: newcomers are taken together. */
#define PATIENCE_NS (SIM_S / 4)

void sim_break(struct sim *sim, const char *rule, int channel)
{
    if (sim->broken[0] == '\0') {
        (void)snprintf(sim->broken, sizeof(sim->broken),
                       "at %.3f s, event %llu, channel %d (gpu-%d), generation %d: %s",
                       (double)sim->now / SIM_S, (unsigned long long)sim->events, channel,
                       channel >= 0 ? sim->channels[channel].host : -1, sim->newest, rule);
    }
}

static void check(struct sim *sim, bool holds, const char *rule, int channel)
{
    if (!holds) {
        sim_break(sim, rule, channel);
    }
}

/* The next world begins when nothing of the last one runs. */
static void check_all_stopped(struct sim *sim)
{
    for (int i = 0; i < sim->num_channels; i++) {
        const struct sim_channel *l = &sim->channels[i];
        check(sim,
              l->member == NULL || l->stopped_generation < 0 ||
                  l->has_stopped >= l->stopped_generation,
              "the next world begins before it has stopped", i);
    }
}

/* Counted apart from the core's own number, to which the loss of a node may add. */
static int failed_worlds(const struct sim *sim)
{
    int failed = 0;
    for (int i = 0; i <= sim->newest; i++) {
        failed += sim->rounds[i].failed;
    }
    return failed;
}

static void check_world(struct sim *sim, int channel, const struct ct_msg *msg)
{
    struct sim_channel *l = &sim->channels[channel];
    const struct ct_msg_world *w = &msg->world;
    check(sim, msg->generation >= sim->newest && msg->generation < SIM_GENERATIONS,
          "the generation shrinks, or there are very many", channel);
    check(sim, msg->generation > l->told_generation, "the same world is told twice", channel);
    check(sim, w->restarts >= sim->restarts && w->restarts <= sim->scenario.max_restarts,
          "the budget is not kept", channel);
    if (sim->broken[0] != '\0') {
        return;
    }
    struct sim_round *round = &sim->rounds[msg->generation];
    if (round->told == 0) {
        check(sim, w->serve && w->node_rank == 0, "rank 0 is not the first to know", channel);
        check_all_stopped(sim);
        check(sim, w->restarts >= failed_worlds(sim), "a restart is not counted", channel);
        round->server = channel;
        round->node_count = w->node_count;
        round->world_size = w->world_size;
    } else {
        check(sim, !w->serve && w->master_port == 29500 && w->master_addr[0] != '\0', "no master",
              channel);
        check(sim, round->told == 1 || strcmp(round->master, w->master_addr) == 0, "two masters",
              channel);
        (void)snprintf(round->master, sizeof(round->master), "%s", w->master_addr);
    }
    check(sim, round->stops == 0, "a world is told that was stopped", channel);
    check(sim, round->node_count == w->node_count && round->world_size == w->world_size,
          "sizes differ", channel);
    check(sim, w->node_count >= sim->scenario.min_nodes && w->node_count <= sim->scenario.max_nodes,
          "too few or too many nodes", channel);
    check(sim, w->node_rank >= 0 && w->node_rank < w->node_count, "node rank out of range",
          channel);
    unsigned char bit = (unsigned char)(1 << (w->node_rank & 7));
    if (w->node_rank >= 0 && w->node_rank < 8 * (int)sizeof(round->taken)) {
        check(sim, (round->taken[w->node_rank >> 3] & bit) == 0, "a node rank twice", channel);
        round->taken[w->node_rank >> 3] |= bit;
    }
    l->first_rank = w->first_rank;
    l->told_generation = msg->generation;
    l->spare = false;
    round->told++;
    round->workers_told += l->workers;
    sim->newest = msg->generation;
    sim->restarts = w->restarts;
    check(sim, w->first_rank >= 0 && w->first_rank + l->workers <= w->world_size,
          "ranks out of range", channel);
    check(sim, round->told < round->node_count || round->workers_told == round->world_size,
          "ranks are not dense", channel);
}

/* ---- what agents do ------------------------------------------------------------------------- */

void sim_check_said(struct sim *sim, int channel, const struct sim_msg *msg)
{
    struct sim_channel *l = &sim->channels[channel];
    if (msg->type == CT_MSG_FAILED) {
        check(sim, l->failed_generation < msg->generation, "a failure is told twice", channel);
        l->failed_generation = msg->generation;
    } else if (msg->type == CT_MSG_STOPPED) {
        check(sim, l->running == 0, "it says that it has stopped, and workers run", channel);
    } else if (msg->type == CT_MSG_FINISHED) {
        check(sim, l->running == 0 && !l->finished, "it says too early or twice: finished",
              channel);
        l->finished = true;
    } else if (msg->type == CT_MSG_LEAVE) {
        l->left = true;
    }
}

void sim_check_spawn(struct sim *sim, int channel, int local_rank)
{
    const struct sim_channel *l = &sim->channels[channel];
    check(sim, local_rank < l->workers && (l->running >> local_rank & 1) == 0,
          "a worker is started twice", channel);
    check(sim, l->running == 0 || l->running_generation == l->agent.generation,
          "workers of two generations run", channel);
    check(sim, !l->stopping, "a worker is started during a stop", channel);
}

void sim_check_obeyed(struct sim *sim, int channel, const struct sim_msg *msg)
{
    const struct sim_channel *l = &sim->channels[channel];
    bool ends = msg->type == CT_MSG_OVER || msg->type == CT_MSG_PREEMPT ||
                (msg->type == CT_MSG_STOP && msg->generation == l->agent.generation);
    check(sim, !ends || l->running == 0 || l->stopping, "workers run on after the stop", channel);
}

void sim_check_finish(struct sim *sim, int channel)
{
    const struct sim_channel *l = &sim->channels[channel];
    check(sim, l->running == 0, "the agent ends before its workers", channel);
    check(sim, !l->agent.over || l->exit_code == sim->over_code, "exit codes differ", channel);
    check(sim, l->left || l->agent.lost, "it goes without a word", channel);
}

/* In no window of time are there more restarts after failures than the limit allows. */
static void check_window(struct sim *sim, int channel, const struct ct_msg *msg)
{
    const struct ct_restart_limits *limits = &sim->scenario.limits;
    struct sim_round *round = &sim->rounds[sim->newest >= 0 ? sim->newest : 0];
    int within = 0;
    if (limits->window_restarts == 0 || !msg->will_restart || !round->failed ||
        round->restart_ns != 0) {
        return;
    }
    round->restart_ns = sim->now;
    for (int i = 0; i <= sim->newest; i++) {
        int64_t at = sim->rounds[i].restart_ns;
        within += at != 0 && sim->now - at < limits->window_ms * SIM_MS;
    }
    check(sim, within <= limits->window_restarts, "too many restarts in a window of time", channel);
}

/* ---- what the core says --------------------------------------------------------------------- */

void sim_check_sent(struct sim *sim, int channel, const struct ct_msg *msg)
{
    struct sim_channel *l = &sim->channels[channel];
    check(sim, l->overs == 0 || msg->type == CT_MSG_REFUSED, "a word after the end", channel);
    if (msg->type == CT_MSG_WORLD) {
        check_world(sim, channel, msg);
    } else if (msg->type == CT_MSG_STOP) {
        check(sim, msg->generation == l->told_generation, "stopped without a world", channel);
        check(sim, l->stopped_generation < msg->generation, "stopped twice", channel);
        l->stopped_generation = msg->generation;
        check_window(sim, channel, msg);
        sim->rounds[sim->newest >= 0 ? sim->newest : 0].stops++;
    } else if (msg->type == CT_MSG_OVER) {
        check(sim, !sim->over || sim->over_code == msg->exit_code, "two ends", channel);
        l->overs++;
        sim->over = true;
        sim->over_code = msg->exit_code;
    } else if (msg->type == CT_MSG_PREEMPT) {
        check(sim, l->preempts++ == 0, "preempted twice", channel);
        sim->preempted = true;
    } else if (msg->type == CT_MSG_SPARE) {
        l->spare = true;
    } else if (msg->type == CT_MSG_REFUSED) {
        /* Whoever is reached neither broke the protocol nor was silent. */
        check(sim, l->cut || !l->alive, "an agent in good order is given up", channel);
    }
}

/* Ranges might overlap and leave gaps although the number of workers is right. */
static void check_ranges(struct sim *sim)
{
    int sum = 0, squares = 0;
    for (int i = 0; i < sim->num_channels; i++) {
        const struct sim_channel *l = &sim->channels[i];
        if (l->told_generation == sim->newest) {
            for (int k = 0; k < l->workers; k++) {
                sum += l->first_rank + k;
                squares += (l->first_rank + k) * (l->first_rank + k);
            }
        }
    }
    int n = sim->rounds[sim->newest].world_size;
    check(sim, sum == n * (n - 1) / 2 && squares == n * (n - 1) * (2 * n - 1) / 6,
          "ranks are not 0 to n - 1", -1);
}

void sim_check_step(struct sim *sim)
{
    const struct sim_round *round = sim->newest >= 0 ? &sim->rounds[sim->newest] : NULL;
    bool decided = round != NULL && round->served_ns > 0 && round->stops == 0;
    check(sim, !decided || sim->over || round->told == round->node_count, "not all were told", -1);
    if (sim->scenario.lose_one && sim->events % 4096 != 0) {
        return; /* a large world: what costs a look at each member only now and then */
    }
    bool anybody = false; /* left of the world; if not, it ends without a word */
    for (int i = 0; i < sim->num_channels; i++) {
        anybody = anybody || (sim->channels[i].member != NULL &&
                              sim->channels[i].told_generation == sim->newest);
    }
    check(sim,
          !decided || !anybody || sim->over || sim->preempted ||
              sim->channels[round->server].member != NULL,
          "the world goes on without its store", -1);
    for (int i = 0; i < sim->num_channels; i++) {
        const struct sim_channel *l = &sim->channels[i];
        if (l->member == NULL) {
            continue;
        }
        check(sim, !sim->over || l->overs == 1, "the end is not told once", i);
        check(sim,
              round == NULL || round->stops == 0 || l->told_generation != sim->newest ||
                  l->stopped_generation == sim->newest,
              "others were stopped and it was not", i);
        int64_t since =
            l->joined_ns > (round != NULL ? round->served_ns : 0) ? l->joined_ns : round->served_ns;
        check(sim,
              !decided || !anybody || sim->over || l->preempts > 0 || l->spare ||
                  l->told_generation == sim->newest || sim->now - since < PATIENCE_NS,
              "waits without a word", i);
    }
    if (decided && sim->num_channels < 64 && sim->now == round->served_ns) {
        check_ranges(sim);
    }
}

void sim_check_end(struct sim *sim)
{
    bool any = false;
    for (int i = 0; i < sim->num_channels; i++) {
        any = any || sim->channels[i].joined;
        check(sim, !sim->channels[i].alive, "the agent does not end", i);
    }
    check(sim, !any || members_done(sim->members), "the job did not end", -1);
    if (sim->over && sim->over_code == 0) {
        for (int i = 0; i < sim->num_channels; i++) {
            const struct sim_channel *l = &sim->channels[i];
            check(sim,
                  l->overs == 0 || l->told_generation != sim->newest || l->finished || l->cut ||
                      !l->ended,
                  "success although a node has not finished", i);
        }
    }
}
