/* SPDX-License-Identifier: Apache-2.0
 *
 * What goes wrong in the model: processes are killed, machines are cut off or stand still,
 * firewalls reset connections.
 */
#include "tests/sim/election_sim.h"

#include <string.h>

static void block(struct sim_el *sim, int a, int b, bool both)
{
    sim->blocked[a][b] = true;
    sim->blocked[b][a] = sim->blocked[b][a] || both;
}

static int some_host(const struct sim_el *sim)
{
    for (int i = sim->num_lives - 1; i >= 0; i--) {
        if (sim->lives[i].alive && sim->lives[i].state != H_NONE) {
            return i;
        }
    }
    return -1;
}

void el_silence(struct sim_el *sim, int machine)
{
    for (int i = 0; i < sim->plan.machines; i++) {
        if (i != machine) {
            block(sim, machine, i, true);
        }
    }
}

/* Both ways or one. */
static void cut_off(struct sim_el *sim, int machine)
{
    bool out = el_random(sim, 3) > 0, in = !out || el_random(sim, 2) == 0;
    for (int i = 0; i < sim->plan.machines; i++) {
        sim->blocked[machine][i] = sim->blocked[machine][i] || (out && i != machine);
        sim->blocked[i][machine] = sim->blocked[i][machine] || (in && i != machine);
    }
}

void el_fault(struct sim_el *sim)
{
    int machine = (int)el_random(sim, (uint64_t)sim->plan.machines);
    int host = some_host(sim);
    if ((el_random(sim, 2) == 0 || sim->plan.lose_host) && host >= 0) {
        machine = sim->lives[host].machine;
    }
    if (sim->plan.lose_host && (sim->started < 0 || host < 0)) {
        el_schedule(sim, *el_event(sim, 0, FAULT, 0), sim->now + 100 * MS);
        return;
    }
    if (sim->plan.arbiter && !sim->plan.lose_host && el_random(sim, 4) == 0) {
        machine = sim->plan.machines - 1;
    }
    bool arbiter = sim->plan.arbiter && machine == sim->plan.machines - 1;
    int life = arbiter ? -1 : sim->on_machine[machine]; /* it is cut off, but it does not forget */
    uint64_t what = sim->plan.lose_host ? 0 : el_random(sim, 14);
    int64_t later = sim->now + (int64_t)el_random(sim, 8000) * MS;
    if (sim->plan.silent_first) {
        el_silence(sim, machine);
    } else if (sim->plan.cut_host) {
        el_silence(sim, 0);
        el_schedule(sim, *el_event(sim, 0, HEALS, 0), later);
    } else if (what < 4 && life >= 0) { /* killed; mostly it is started again, without its memory */
        el_kill(sim, life);
        if (sim->plan.cut_other) {
            cut_off(sim, (machine + 1 + (int)el_random(sim, (uint64_t)sim->plan.nodes - 1)) %
                             sim->plan.nodes);
            el_schedule(sim, *el_event(sim, 0, HEALS, 0), later);
        }
        if (what < 3 && !sim->plan.twice) { /* a newcomer has reached nobody, and could host */
            el_schedule(sim, *el_event(sim, 0, COMES, machine), later);
        }
    } else if (what < 6) {
        cut_off(sim, machine);
    } else if (what < 8) { /* two parts */
        uint64_t part = el_random(sim, UINT64_C(1) << sim->plan.machines);
        bool both = el_random(sim, 2) == 0;
        for (int a = 0; a < sim->plan.machines; a++) {
            for (int b = 0; b < sim->plan.machines; b++) {
                if ((part >> a & 1) == 1 && (part >> b & 1) == 0) {
                    block(sim, a, b, both);
                }
            }
        }
    } else if (what < 9) { /* one way between two machines */
        block(sim, machine, (int)el_random(sim, (uint64_t)sim->plan.machines), false);
    } else if (what < 11 && life >= 0) { /* the machine stands still, its workers too */
        int64_t until = sim->lives[life].paused_until;
        sim->lives[life].paused_until = later > until ? later : until;
    } else if (what < 12) { /* a firewall resets a connection */
        for (int i = 0; i < sim->num_conns; i++) {
            struct conn *c = &sim->conns[i];
            if (c->agent == life && c->agent_open && c->host_open && c->agent != c->host) {
                el_stream(sim, i, true, &(struct event){.what = S_END, .record = -1});
                el_stream(sim, i, false, &(struct event){.what = S_END, .record = -1});
            }
        }
    } else {
        memset(sim->blocked, 0, sizeof(sim->blocked)); /* all is well again */
    }
    if (what >= 4 && what < 9 && el_random(sim, 2) == 0) {
        el_schedule(sim, *el_event(sim, 0, HEALS, 0), later);
    }
}
