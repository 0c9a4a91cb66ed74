/* SPDX-License-Identifier: Apache-2.0
 *
 * What agents of the model do. Their decisions about votes are the product's (ct_election); workers
 * are imagined.
 */
#include "tests/sim/election_sim.h"

#include <stdio.h>
#include <string.h>

struct event el_plain(enum what what)
{
    return (struct event){.what = what, .record = -1, .conn = -1};
}

/* Is it an agent that names terms which nobody has reached? It has a vote and workers like any
 * other, so the job must neither break the rules nor end because of it. */
static bool names_far_terms(const struct sim_el *sim, int life)
{
    int last = sim->plan.nodes + sim->plan.daemon - 1;
    return sim->plan.far_terms && sim->lives[life].machine == last;
}

/* ---- agents --------------------------------------------------------------------------------- */

static void stop_workers(struct sim_el *sim, int life)
{
    struct life *l = &sim->lives[life];
    l->work++;
    if (l->running >= 0) {
        l->running = -1;
        l->stopping = true;
        struct event *e = el_event(sim, 0, STOPPED, life);
        e->at = sim->now + (int64_t)el_random(sim, 300) * MS;
        struct event copy = *e;
        copy.conn = -1;
        copy.order = sim->order++;
        el_push(sim, &copy);
    }
}

static void join_if_ready(struct sim_el *sim, int life)
{
    struct life *l = &sim->lives[life];
    if (l->conn >= 0 && !l->stopping && l->running < 0 && !l->joined) {
        l->joined = true;
        struct event e = el_plain(S_JOIN);
        bool knows = ct_job_record_generation(&l->election.record) >= 0;
        e.record = knows ? el_intern(sim, &l->election.record) : -1;
        el_stream(sim, l->conn, true, &e);
    }
}

void el_agent_stopped(struct sim_el *sim, int life)
{
    struct life *l = &sim->lives[life];
    l->stopping = false;
    if (l->joined && l->conn >= 0) {
        struct event e = el_plain(S_STOPPED);
        e.generation = l->seen_generation;
        el_stream(sim, l->conn, true, &e);
    }
    join_if_ready(sim, life);
}

void el_agent_forget_link(struct sim_el *sim, int life)
{
    struct life *l = &sim->lives[life];
    l->conn = -1;
    l->joined = false;
    stop_workers(sim, life);
}

void el_probe(struct sim_el *sim, int life, uint64_t id)
{
    struct event e = el_plain(P_PROBE);
    e.id = id;
    if (id != 0) {
        el_packet(sim, life, sim->lives[id - 1].machine, &e);
    }
}

/* A voter that has answered once proves its death by a later refusal. */
void el_reach(struct sim_el *sim, int life)
{
    const struct life *l = &sim->lives[life];
    uint64_t ids[CT_VOTERS_BOTH];
    int count = ct_job_record_voters(&l->election.record, ids);
    if (ct_job_record_find(&l->election.record, l->election.self.id) == NULL) {
        return;
    }
    for (int i = 0; i < count; i++) {
        struct event e = el_plain(P_ASK);
        e.id = ids[i];
        e.ask.id = l->election.self.id;
        e.reaches = true;
        if (ids[i] != l->election.self.id && !l->reached[ids[i] - 1]) {
            el_packet(sim, life, sim->lives[ids[i] - 1].machine, &e);
        }
    }
}

void el_agent_lost(struct sim_el *sim, int life)
{
    struct life *l = &sim->lives[life];
    const struct ct_voter *host = &l->election.host;
    el_agent_forget_link(sim, life);
    if (l->election.state == CT_ELECTION_FOLLOWING) {
        (void)ct_host_loss_note(&l->loss, ct_job_record_generation(&l->election.record), host,
                                !sim->lives[host->id - 1].agent);
    }
    ct_election_lost(&l->election, el_clock(sim, life));
    el_reach(sim, life);
    el_probe(sim, life, l->election.host.id);
}

static void dial(struct sim_el *sim, int life, const struct ct_voter *at)
{
    struct life *l = &sim->lives[life];
    if (l->dialing || l->conn >= 0 || l->ended) {
        return;
    }
    struct event e = el_plain(P_CONNECT);
    l->dialing = true;
    l->dialed = sim->now;
    e.id = l->dialed_id = at->id;
    el_packet(sim, life, el_machine_of(at->address), &e);
}

void el_end_life(struct sim_el *sim, int life, int code)
{
    sim->lives[life].ended = true;
    sim->lives[life].exit_code = code;
    el_kill(sim, life);
}

void el_todo(struct sim_el *sim, int life, const struct ct_election_todo *todo)
{
    struct life *l = &sim->lives[life];
    if (todo->ask) {
        uint64_t ids[CT_VOTERS_BOTH];
        int count = ct_job_record_voters(&l->election.record, ids);
        for (int i = 0; i < count; i++) {
            struct event e = el_plain(P_ASK);
            e.id = ids[i];
            e.ask = todo->question;
            e.ask.term = names_far_terms(sim, life) ? CT_TERM_MAX : e.ask.term;
            if (ids[i] != l->election.self.id) {
                el_packet(sim, life, sim->lives[ids[i] - 1].machine, &e);
            }
        }
        if (sim->plan.arbiter) {
            el_arbiter_ask(sim, life, &todo->question);
        }
    }
    if (todo->stop_hosting) {
        el_host_close(sim, life);
    }
    if (todo->host) {
        uint64_t term = l->election.host_term;
        sim->takeovers++;
        el_host_begin(sim, life, todo->lost_in_time ? todo->lost.id : 0, term, &l->election.record,
                      l->election.fence_ns);
        if (sim->plan.arbiter && todo->lost_in_time) {
            struct member *lost = &l->members[todo->lost.id - 1];
            *lost = (struct member){.used = true, .gone = true, .fresh = true, .conn = -1};
            l->known_dead[todo->lost.id - 1] = true;
        }
        for (int i = 0; i < l->election.num_dead && l->state != H_NONE; i++) {
            el_host_dead(sim, life, l->election.dead[i]);
        }
        if ((sim->plan.strikes || sim->plan.twice) && sim->started >= 0) {
            struct event strike = *el_event(sim, 0, STRIKE, life);
            strike.at = sim->now + (int64_t)el_random(sim, 60) * MS;
            strike.order = sim->order++;
            el_push(sim, &strike);
        }
        int generation = ct_job_record_generation(&l->election.record);
        uint64_t ended_by = ct_host_loss_ended(&l->loss, generation) ? l->loss.host.id : 0;
        if (ended_by != todo->lost.id) {
            el_probe(sim, life, ended_by);
        }
    }
    if (todo->join) {
        dial(sim, life, &todo->at);
    }
    if (todo->give_up) {
        el_end_life(sim, life, todo->exit_code < 0 ? 121 : todo->exit_code);
    }
}

static void on_ask(struct sim_el *sim, int life, const struct event *e)
{
    struct life *l = &sim->lives[life];
    struct event reply = el_plain(P_ANSWER);
    ct_election_asked(&l->election, &e->ask, el_clock(sim, life), &reply.answer);
    if (names_far_terms(sim, life)) {
        reply.answer.seen = CT_TERM_MAX;
    }
    if (reply.answer.record != NULL) {
        reply.record = el_intern(sim, reply.answer.record);
    }
    if (reply.answer.host != NULL) {
        reply.host = *reply.answer.host;
    }
    if (l->state != H_NONE && !l->agent) { /* a daemon has no election, but it is a host */
        reply.host = l->election.self;
        reply.answer.host_term = 1;
    }
    reply.id = e->id;
    reply.reaches = e->reaches;
    el_packet(sim, life, sim->lives[e->from].machine, &reply);
}

static void on_answer(struct sim_el *sim, int life, const struct event *e)
{
    struct ct_vote_answer answer = e->answer;
    struct ct_election_todo todo;
    if (e->id != 0 && e->id != answer.id) {
        return; /* a later life, at the port of the one that was asked */
    }
    sim->lives[life].reached[answer.id - 1] = true;
    if (e->reaches) {
        return;
    }
    answer.record = e->record >= 0 ? &sim->records[e->record] : NULL;
    answer.host = e->host.id != 0 ? &e->host : NULL;
    ct_election_answered(&sim->lives[life].election, &answer, el_clock(sim, life), &todo);
    el_todo(sim, life, &todo);
}

static void on_connect(struct sim_el *sim, int life, const struct event *e)
{
    struct life *l = &sim->lives[life];
    if (l->state == H_NONE || sim->num_conns == CONNS) {
        return;
    }
    int conn = sim->num_conns++;
    sim->conns[conn] = (struct conn){.agent = e->from, .host = life, .host_open = true};
    struct event up = el_plain(P_UP);
    up.conn = conn;
    up.host = l->election.self;
    up.ns = (int64_t)l->office.record.term;
    el_packet(sim, life, sim->lives[e->from].machine, &up);
}

void el_agent_up(struct sim_el *sim, int life, const struct ct_voter *host, uint64_t term, int conn)
{
    struct life *l = &sim->lives[life];
    l->dialing = false;
    if (l->conn >= 0 || l->ended || sim->conns[conn].agent != life ||
        !ct_election_followed(&l->election, host, term, el_clock(sim, life))) {
        return;
    }
    l->conn = conn;
    l->followed = true;
    l->reached[host->id - 1] = true;
    sim->conns[conn].agent_open = true;
    l->up_ns = el_clock(sim, life);
    l->beat_ns = 0;
    join_if_ready(sim, life);
}

static void on_refused(struct sim_el *sim, int life, uint64_t id)
{
    struct life *l = &sim->lives[life];
    l->dialing = l->dialing && l->dialed_id != id;
    if (!l->reached[id - 1]) {
        return; /* a firewall may have refused it */
    }
    ct_election_dead(&l->election, id, el_clock(sim, life));
    if (l->state != H_NONE) {
        el_host_dead(sim, life, id);
    }
}

void el_agent_packet(struct sim_el *sim, int life, const struct event *e)
{
    if (e->what == P_READ || e->what == P_WRITE) {
        el_arbiter_store(sim, life, e);
    } else if (e->what == P_VALUE) {
        el_arbiter_value(sim, life, e);
    } else if (e->what == P_ASK) {
        on_ask(sim, life, e);
    } else if (e->what == P_ANSWER && sim->lives[life].agent) {
        on_answer(sim, life, e);
    } else if (e->what == P_CONNECT) {
        on_connect(sim, life, e);
    } else if (e->what == P_UP) {
        el_agent_up(sim, life, &e->host, (uint64_t)e->ns, e->conn);
    } else if (e->what == P_PROBE) {
        struct event there = el_plain(P_THERE);
        there.id = e->id;
        el_packet(sim, life, sim->lives[e->from].machine, &there);
    } else if (e->what == P_THERE) {
        sim->lives[life].reached[e->id - 1] = true;
    } else if (e->what == P_DEAD) {
        on_refused(sim, life, e->id);
    }
}

static void on_world(struct sim_el *sim, int life, const struct event *e)
{
    struct life *l = &sim->lives[life];
    if (l->running >= 0 || l->stopping) {
        el_break(sim, "a world is told to an agent that has not stopped", life);
        return;
    }
    if (e->generation <= l->seen_generation) {
        el_break(sim, "an agent is told a generation that is not new", life);
    }
    l->seen_generation = l->running = e->generation;
    struct event *work = el_event(sim, 0, WORK, life);
    work->at = sim->now + 50 * MS + (int64_t)el_random(sim, 8000) * MS;
    work->ns = (int64_t)++l->work;
    work->code = !sim->plan.lose_host && el_random(sim, 12) == 0 ? 1 : 0;
    struct event copy = *work;
    copy.order = sim->order++;
    el_push(sim, &copy);
}

void el_agent_work(struct sim_el *sim, int life, const struct event *e)
{
    struct life *l = &sim->lives[life];
    if ((uint64_t)e->ns != l->work || l->running < 0 || l->conn < 0) {
        return;
    }
    struct event news = el_plain(e->code == 0 ? S_FINISHED : S_FAILED);
    news.generation = l->running;
    el_stream(sim, l->conn, true, &news);
}

void el_agent_hear(struct sim_el *sim, int life, const struct event *e)
{
    struct life *l = &sim->lives[life];
    if (e->what == S_LEASE) {
        ct_election_leased(&l->election, e->ns, e->code);
    } else if (e->what == S_RECORD || e->what == S_WORLD) {
        const struct ct_job_record *record = &sim->records[e->record];
        if (ct_election_recorded(&l->election, record) && e->what == S_RECORD) {
            struct event pledge = el_plain(S_PLEDGE);
            l->pledged_ns = el_clock(sim, life);
            pledge.id = l->election.self.id;
            pledge.ns = (int64_t)record->term;
            pledge.generation = (int)record->version;
            el_stream(sim, l->conn, true, &pledge);
            if (record->planned.generation < 0) {
                el_reach(sim, life);
            }
        }
        if (e->what == S_WORLD) { /* the host has heard the pledge */
            ct_election_leased(&l->election, l->pledged_ns, LEASE / MS);
            on_world(sim, life, e);
        }
    } else if (e->what == S_STOP && e->generation == l->running) {
        stop_workers(sim, life);
    } else if (e->what == S_OVER) {
        if (!sim->over || sim->over_code != e->code) {
            el_break(sim, "an agent hears of another end than the job's", life);
        }
        l->work++;
        l->running = -1;
        l->ended = true;
        l->exit_code = e->code;
        if (l->state == H_NONE) {
            el_kill(sim, life);
        }
    }
}

void el_agent_tick(struct sim_el *sim, int life)
{
    struct life *l = &sim->lives[life];
    int64_t now = el_clock(sim, life);
    struct ct_election_todo todo;
    if (l->conn >= 0) {
        struct conn *c = &sim->conns[l->conn];
        int64_t until =
            l->up_ns + LEASE > l->election.lease_ns ? l->up_ns + LEASE : l->election.lease_ns;
        if (now >= until && c->host != life) {
            c->agent_open = false;
            el_stream(sim, l->conn, true, &(struct event){.what = S_END, .record = -1});
            el_agent_lost(sim, life);
        } else if (now - l->beat_ns >= BEAT) {
            struct event beat = el_plain(S_BEAT);
            beat.ns = l->beat_ns = now;
            el_stream(sim, l->conn, true, &beat);
        }
    }
    if (l->dialing && sim->now - l->dialed > SEC) {
        l->dialing = false;
    }
    if (l->state != H_NONE) {
        el_host_tick(sim, life);
    }
    if (!l->alive || !l->agent) {
        return;
    }
    el_arbiter_tick(sim, life);
    if (sim->plan.arbiter && sim->over && !l->followed) {
        el_end_life(sim, life, 120); /* it would begin another job of that name */
    }
    if (!l->alive) {
        return;
    }
    if (!sim->plan.arbiter && !l->followed && sim->now - l->looked_ns >= SEC / 2) {
        struct event look = el_plain(P_ASK);
        l->born_ns = l->looked_ns == 0 ? sim->now : l->born_ns;
        l->looked_ns = sim->now;
        for (int i = 0; i < sim->plan.machines; i++) {
            el_packet(sim, life, i, &look);
        }
        if (sim->now - l->born_ns > 60 * SEC) {
            el_end_life(sim, life, 120);
            return;
        }
    }
    ct_election_tick(&l->election, now, &todo);
    el_todo(sim, life, &todo);
}
