/* SPDX-License-Identifier: Apache-2.0
 *
 * The arbiter's store, and how an agent uses it: as the product does, with a read before each
 * question, a compare-and-swap, and one errand at a time. The store never forgets, but it may not
 * be reached, and its answers are lost like others.
 */
#include "tests/sim/election_sim.h"

#include <stdlib.h>
#include <string.h>

#define PATIENCE SEC

/* ---- the store ------------------------------------------------------------------------------- */

static int keep(struct sim_el *sim, const struct ct_arbiter_state *state)
{
    if (sim->num_values == sim->value_room) {
        sim->value_room = sim->value_room > 0 ? 2 * sim->value_room : 64;
        sim->values = realloc(sim->values, (size_t)sim->value_room * sizeof(*state));
        if (sim->values == NULL) {
            abort();
        }
    }
    sim->values[sim->num_values] = *state;
    return sim->num_values++;
}

void el_arbiter_store(struct sim_el *sim, int life, const struct event *e)
{
    struct event reply = {.what = P_VALUE, .record = -1, .conn = -1, .id = e->id};
    if (e->what == P_WRITE && e->revision == sim->revision) {
        sim->stored = e->value;
        sim->revision++;
        reply.written = true;
    }
    reply.value = sim->stored;
    reply.revision = sim->revision;
    el_packet(sim, life, sim->lives[e->from].machine, &reply);
}

/* ---- an agent -------------------------------------------------------------------------------- */

static void send(struct sim_el *sim, int life, enum what what)
{
    struct life *l = &sim->lives[life];
    struct event e = {.what = what, .record = -1, .conn = -1};
    l->errand.doing = what == P_READ ? E_READ : E_WRITE;
    l->errand.number++;
    l->errand.sent = el_clock(sim, life);
    l->errand.began = sim->now;
    e.id = l->errand.number;
    e.revision = l->arbiter.revision;
    e.value = what == P_WRITE ? keep(sim, &l->errand.next) : 0;
    el_packet(sim, life, sim->plan.machines - 1, &e);
}

void el_arbiter_ask(struct sim_el *sim, int life, const struct ct_vote_ask *ask)
{
    sim->lives[life].question = *ask;
    el_arbiter_tick(sim, life);
}

static void answer(struct sim_el *sim, int life, const struct ct_vote_answer *answer)
{
    struct ct_election_todo todo;
    sim->lives[life].question.id = 0;
    ct_election_answered(&sim->lives[life].election, answer, el_clock(sim, life), &todo);
    el_todo(sim, life, &todo);
}

/* The value is known. */
static void go_on(struct sim_el *sim, int life)
{
    struct life *l = &sim->lives[life];
    struct errand *errand = &l->errand;
    errand->doing = E_NONE;
    if (errand->serves && l->state != H_NONE) {
        uint64_t void_id = el_host_void(sim, life, l->arbiter.state.promised_to);
        if (ct_arbiter_serve(&l->arbiter, &l->election.self, &l->office.record, void_id,
                             &errand->next)) {
            send(sim, life, P_WRITE);
        } else if (!errand->looked) {
            send(sim, life, P_READ);
        } else {
            el_host_unserved(sim, life);
            ct_election_doubted(&l->election, el_clock(sim, life));
        }
    } else if (!errand->serves && l->question.id != 0) {
        uint64_t host_id = l->arbiter.state.host.id;
        uint64_t dead = ct_election_is_dead(&l->election, host_id) ? host_id : 0;
        if (ct_arbiter_ask(&l->arbiter, &l->question, dead, LEASE / MS, el_clock(sim, life),
                           &errand->answer, &errand->next)) {
            send(sim, life, P_WRITE);
        } else if (!errand->looked) {
            send(sim, life, P_READ);
        } else {
            answer(sim, life, &errand->answer);
        }
    }
}

void el_arbiter_value(struct sim_el *sim, int life, const struct event *e)
{
    struct life *l = &sim->lives[life];
    struct errand *errand = &l->errand;
    if (errand->doing == E_NONE || e->id != errand->number) {
        return;
    }
    bool wrote = errand->doing == E_WRITE && e->written;
    int64_t sent = errand->sent;
    ct_arbiter_learned(&l->arbiter, e->revision > 0 ? &sim->values[e->value] : NULL, e->revision,
                       el_clock(sim, life));
    errand->doing = E_NONE;
    errand->looked = true;
    if (!wrote) {
        go_on(sim, life);
    } else if (!errand->serves) {
        answer(sim, life, &errand->answer);
    } else if (l->state != H_NONE) {
        l->arbiter_there = true;
        l->arbiter_heard = sent;
        l->served_version = errand->next.record.version;
        el_host_served(sim, life, errand->next.record.term, errand->next.record.version);
    }
}

void el_arbiter_tick(struct sim_el *sim, int life)
{
    struct life *l = &sim->lives[life];
    struct errand *errand = &l->errand;
    if (!sim->plan.arbiter || !l->agent) {
        return;
    }
    if (errand->doing != E_NONE && sim->now - errand->began < PATIENCE) {
        return;
    }
    if (errand->doing != E_NONE) {
        errand->doing = E_NONE;
        if (errand->serves && l->state != H_NONE) {
            el_host_unserved(sim, life);
        }
    }
    int64_t now = el_clock(sim, life);
    bool due = l->state != H_NONE &&
               (l->served_version != l->office.record.version || now - l->serve_ns >= BEAT);
    bool serves = due && (!errand->serves || l->question.id == 0);
    if (!serves && l->question.id == 0) {
        return;
    }
    errand->serves = serves;
    errand->looked = false;
    l->serve_ns = serves ? now : l->serve_ns;
    if (l->arbiter.revision >= 0) {
        go_on(sim, life);
    } else {
        send(sim, life, P_READ);
    }
}
