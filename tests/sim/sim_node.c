/* SPDX-License-Identifier: Apache-2.0
 *
 * A node's agent as the membership core sees it: what it says, in what order, after random delays.
 * And what goes wrong with nodes.
 */
#include "tests/sim/sim.h"

#include <signal.h>

enum phase { WAITING, SERVING, STARTING, WORKING, FAILING, STOPPING, OVER };

static int64_t soon(struct sim *sim, int64_t most_ns)
{
    return sim->now + 1 + (int64_t)sim_random(sim, (uint64_t)most_ns);
}

static void next(struct sim *sim, int line, enum phase phase, int64_t most_ns)
{
    struct sim_line *l = &sim->lines[line];
    l->phase = phase;
    sim_at(sim, soon(sim, most_ns), SIM_WORK, line, l->epoch, NULL);
}

static void say(struct sim *sim, int line, enum ct_msg_type type)
{
    sim_say(sim, line, (struct sim_msg){.type = type, .generation = sim->lines[line].generation});
}

static void fail(struct sim *sim, int line)
{
    struct sim_line *l = &sim->lines[line];
    l->epoch++;
    l->phase = FAILING; /* now STOP must come */
    sim_say(sim, line,
            (struct sim_msg){.type = CT_MSG_FAILED,
                             .generation = l->generation,
                             .rank = l->first_rank + (int)sim_random(sim, (uint64_t)l->workers),
                             .code = 1 + l->host});
}

void sim_node_work(struct sim *sim, int line)
{
    struct sim_line *l = &sim->lines[line];
    switch (l->phase) {
    case SERVING:
        say(sim, line, CT_MSG_SERVING);
        next(sim, line, STARTING, 100 * SIM_MS);
        break;
    case STARTING:
        say(sim, line, CT_MSG_STARTED);
        next(sim, line, WORKING, sim->plan.work_ns);
        break;
    case WORKING:
        l->finished = true;
        l->phase = WAITING;
        say(sim, line, CT_MSG_FINISHED);
        if (sim_random(sim, 2) == 0) {
            say(sim, line, CT_MSG_STOPPED); /* agents may clean up at once */
        }
        break;
    default:
        break;
    }
}

static void stop(struct sim *sim, int line)
{
    struct sim_line *l = &sim->lines[line];
    l->epoch++;
    l->phase = STOPPING;
    sim_at(sim, soon(sim, SIM_S), SIM_STOP_DONE, line, l->epoch, NULL);
}

void sim_node_stopped(struct sim *sim, int line)
{
    struct sim_line *l = &sim->lines[line];
    l->phase = WAITING;
    if (l->preempted && !l->finished && sim_random(sim, 2) == 0) {
        l->finished = true;
        say(sim, line, CT_MSG_FINISHED);
    }
    say(sim, line, CT_MSG_STOPPED);
}

void sim_node_hear(struct sim *sim, int line, const struct sim_msg *msg)
{
    struct sim_line *l = &sim->lines[line];
    if (msg->type == CT_MSG_WORLD) {
        l->generation = msg->generation;
        l->first_rank = msg->rank;
        l->finished = false;
        l->epoch++;
        next(sim, line, msg->serve ? SERVING : STARTING, 100 * SIM_MS);
    } else if (msg->type == CT_MSG_STOP && msg->generation == l->generation) {
        stop(sim, line);
    } else if (msg->type == CT_MSG_PREEMPT) {
        l->preempted = true;
        if (l->generation >= 0 && l->phase != STOPPING) {
            stop(sim, line);
        }
    } else if (msg->type == CT_MSG_OVER) {
        l->epoch++;
        l->phase = OVER;
        say(sim, line, CT_MSG_LEAVE);
        l->alive = false;
    } else if (msg->type == CT_MSG_REFUSED) {
        l->alive = false;
    }
}

/* ---- what goes wrong ------------------------------------------------------------------------ */

static void come(struct sim *sim, int host)
{
    sim_at(sim, soon(sim, 5 * SIM_S), SIM_JOIN, sim_new_line(sim, host), 0, NULL);
}

static void preempt(struct sim *sim, int line)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGTERM};
    sim_say(sim, line,
            (struct sim_msg){.type = CT_MSG_PREEMPT, .signo = signals[sim_random(sim, 3)]});
}

void sim_mischief(struct sim *sim)
{
    uint64_t what = sim->plan.lose_one ? 0 : sim_random(sim, 20);
    int line = (int)sim_random(sim, (uint64_t)sim->num_lines);
    while (sim->plan.lose_one && sim->lines[line].phase != WORKING) {
        line = (line + 1) % sim->num_lines; /* somebody works for 20 s, and it is the eighth */
    }
    struct sim_line *l = &sim->lines[line];
    bool works = l->phase == STARTING || l->phase == WORKING || l->phase == SERVING;
    int host = l->host;
    if (what < 3 || !l->alive || !l->joined) {
        come(sim, sim->hosts++); /* somebody new */
    }
    if (!l->alive || !l->joined) {
        return;
    }
    l = &sim->lines[line];
    if (what == 0 || (what >= 3 && what < 6)) {
        sim_close(sim, line); /* the agent dies */
    } else if (what < 9) {
        l->cut = true; /* the cable is pulled, and the agent ends of that */
        l->alive = false;
    } else if (what < 14 && works) {
        fail(sim, line);
    } else if (what < 16) {
        say(sim, line, CT_MSG_LEAVE);
        l->alive = false;
    } else if (what < 17) {
        preempt(sim, line);
    } else if (what < 19) {
        sim_close(sim, line); /* it dies and comes back */
        come(sim, host);
    }
}
