/* SPDX-License-Identifier: Apache-2.0
 *
 * What agents and hosts of the model do. The decisions about votes and certainty are the product's:
 * ct_election and ct_office. The rest is a membership of the simplest kind: a world of a fixed
 * number of nodes, spares, restarts, an end.
 */
#include "tests/sim/election_sim.h"

#include <stdio.h>
#include <string.h>

#define BEAT (LEASE / 6)
#define FENCED (LEASE + LEASE / 16)
#define GATHER_MOST (20 * SEC)

static struct event plain(enum what what)
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
        struct event e = plain(S_JOIN);
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
        struct event e = plain(S_STOPPED);
        e.generation = l->seen_generation;
        el_stream(sim, l->conn, true, &e);
    }
    join_if_ready(sim, life);
}

static void forget_link(struct sim_el *sim, int life)
{
    struct life *l = &sim->lives[life];
    l->conn = -1;
    l->joined = false;
    stop_workers(sim, life);
}

static void probe(struct sim_el *sim, int life, uint64_t id)
{
    struct event e = plain(P_PROBE);
    e.id = id;
    if (id != 0) {
        el_packet(sim, life, sim->lives[id - 1].machine, &e);
    }
}

void el_agent_lost(struct sim_el *sim, int life)
{
    struct life *l = &sim->lives[life];
    forget_link(sim, life);
    ct_election_lost(&l->election, el_clock(sim, life));
    probe(sim, life, l->election.host.id);
}

static void dial(struct sim_el *sim, int life, const struct ct_voter *at)
{
    struct life *l = &sim->lives[life];
    if (l->dialing || l->conn >= 0 || l->ended) {
        return;
    }
    struct event e = plain(P_CONNECT);
    l->dialing = true;
    l->dialed = sim->now;
    e.id = at->id;
    el_packet(sim, life, el_machine_of(at->address), &e);
}

static void end_life(struct sim_el *sim, int life, int code)
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
            struct event e = plain(P_ASK);
            e.id = ids[i];
            e.ask = todo->question;
            e.ask.term = names_far_terms(sim, life) ? CT_TERM_MAX : e.ask.term;
            if (ids[i] != l->election.self.id) {
                el_packet(sim, life, sim->lives[ids[i] - 1].machine, &e);
            }
        }
    }
    if (todo->stop_hosting) {
        el_host_close(sim, life);
    }
    if (todo->host) {
        uint64_t term = l->election.host_term;
        sim->takeovers++;
        l->lost_daemon = todo->lost.id != 0 && !sim->lives[todo->lost.id - 1].agent;
        el_host_begin(sim, life, term, &l->election.record, l->election.fence_ns);
        if (todo->lost_is_dead) {
            el_host_dead(sim, life, todo->lost.id);
        }
    }
    if (todo->join) {
        dial(sim, life, &todo->at);
    }
    if (todo->give_up) {
        end_life(sim, life, todo->exit_code < 0 ? 121 : todo->exit_code);
    }
}

static void on_ask(struct sim_el *sim, int life, const struct event *e)
{
    struct life *l = &sim->lives[life];
    struct event reply = plain(P_ANSWER);
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
    el_packet(sim, life, sim->lives[e->from].machine, &reply);
}

static void on_answer(struct sim_el *sim, int life, const struct event *e)
{
    struct ct_vote_answer answer = e->answer;
    struct ct_election_todo todo;
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
    struct event up = plain(P_UP);
    up.conn = conn;
    up.host = l->election.self;
    up.ns = (int64_t)l->office.record.term;
    el_packet(sim, life, sim->lives[e->from].machine, &up);
}

static void go_up(struct sim_el *sim, int life, const struct ct_voter *host, uint64_t term,
                  int conn)
{
    struct life *l = &sim->lives[life];
    l->dialing = false;
    if (l->conn >= 0 || l->ended || sim->conns[conn].agent != life ||
        !ct_election_followed(&l->election, host, term, el_clock(sim, life))) {
        return;
    }
    l->conn = conn;
    l->followed = true;
    sim->conns[conn].agent_open = true;
    l->up_ns = el_clock(sim, life);
    l->beat_ns = 0;
    join_if_ready(sim, life);
}

void el_agent_packet(struct sim_el *sim, int life, const struct event *e)
{
    if (e->what == P_ASK) {
        on_ask(sim, life, e);
    } else if (e->what == P_ANSWER && sim->lives[life].agent) {
        on_answer(sim, life, e);
    } else if (e->what == P_CONNECT) {
        on_connect(sim, life, e);
    } else if (e->what == P_UP) {
        go_up(sim, life, &e->host, (uint64_t)e->ns, e->conn);
    } else if (e->what == P_DEAD) {
        ct_election_dead(&sim->lives[life].election, e->id, el_clock(sim, life));
        if (sim->lives[life].state != H_NONE) {
            el_host_dead(sim, life, e->id);
        }
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
    struct event news = plain(e->code == 0 ? S_FINISHED : S_FAILED);
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
            struct event pledge = plain(S_PLEDGE);
            l->pledged_ns = el_clock(sim, life);
            pledge.id = l->election.self.id;
            pledge.ns = (int64_t)record->term;
            pledge.generation = (int)record->version;
            el_stream(sim, l->conn, true, &pledge);
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
            struct event beat = plain(S_BEAT);
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
    if (!l->followed && sim->now - l->looked_ns >= SEC / 2) {
        struct event look = plain(P_ASK);
        l->born_ns = l->looked_ns == 0 ? sim->now : l->born_ns;
        l->looked_ns = sim->now;
        for (int i = 0; i < sim->plan.machines; i++) {
            el_packet(sim, life, i, &look);
        }
        if (sim->now - l->born_ns > 60 * SEC) {
            end_life(sim, life, 120);
            return;
        }
    }
    ct_election_tick(&l->election, now, &todo);
    el_todo(sim, life, &todo);
}

/* ---- hosts ---------------------------------------------------------------------------------- */

static bool present(const struct member *m)
{
    return m->used && !m->gone;
}

static int count_present(const struct life *l)
{
    int count = 0;
    for (int i = 0; i < LIVES; i++) {
        count += present(&l->members[i]);
    }
    return count;
}

void el_host_begin(struct sim_el *sim, int life, uint64_t term, const struct ct_job_record *record,
                   int64_t fence)
{
    struct life *l = &sim->lives[life];
    memset(l->members, 0, sizeof(l->members));
    memset(l->known_dead, 0, sizeof(l->known_dead));
    ct_office_begin(&l->office, l->agent ? l->election.self.id : 0, term, record);
    l->state = H_GATHER;
    l->since = l->begun = el_clock(sim, life);
    l->served = false;
    l->fence = fence;
    l->ending = record->over;
    l->end_code = record->exit_code;
    for (int i = 0; i < sim->num_terms; i++) {
        if (sim->terms[i] == term && l->agent) {
            el_break(sim, "two hosts in one term", life);
        }
    }
    if (sim->num_terms < TERMS) {
        sim->terms[sim->num_terms++] = term;
    }
    if (ct_job_record_generation(record) >= 0 && !l->ending && sim->plan.spares == 0 &&
        !l->lost_daemon && !ct_office_charge(&l->office, sim->plan.max_restarts)) {
        l->ending = true;
        l->end_code = 121;
    }
    if (l->agent) {
        if (term == CT_TERM_FIRST) {
            ct_election_begin_hosting(&l->election);
        }
        int conn = sim->num_conns++;
        sim->conns[conn % CONNS] =
            (struct conn){.agent = life, .host = life, .host_open = true, .agent_open = true};
        go_up(sim, life, &l->election.self, term, conn % CONNS);
    }
}

void el_host_close(struct sim_el *sim, int life)
{
    struct life *l = &sim->lives[life];
    l->state = H_NONE;
    for (int i = 0; i < sim->num_conns; i++) {
        struct conn *c = &sim->conns[i];
        if (c->host == life && c->host_open) {
            c->host_open = false;
            if (c->agent == life) {
                c->agent_open = false;
            } else {
                el_stream(sim, i, false, &(struct event){.what = S_END, .record = -1});
            }
        }
    }
    forget_link(sim, life);
}

static void to_member(struct sim_el *sim, const struct member *m, struct event event)
{
    el_stream(sim, m->conn, false, &event);
}

static void voters(const struct life *l, struct ct_presence *who)
{
    uint64_t ids[CT_VOTERS_BOTH];
    int count = ct_job_record_voters(&l->office.record, ids);
    *who = (struct ct_presence){0};
    for (int i = 0; i < count; i++) {
        const struct member *m = &l->members[ids[i] - 1];
        if (present(m)) {
            who->there[who->num_there++] = ids[i];
        } else if (m->used && m->fresh) {
            who->dead[who->num_dead++] = ids[i];
        }
    }
}

/* Everybody who is not there and may run workers must have stopped by now. */
static bool all_fenced(struct sim_el *sim, int life)
{
    const struct life *l = &sim->lives[life];
    uint64_t ids[CT_VOTERS_BOTH];
    int count = ct_job_record_voters(&l->office.record, ids);
    int64_t now = el_clock(sim, life);
    for (int i = 0; i < count; i++) {
        const struct member *m = &l->members[ids[i] - 1];
        if (!present(m) && !l->known_dead[ids[i] - 1] &&
            (now < l->fence || (m->used && now < m->heard + FENCED))) {
            return false;
        }
    }
    return true;
}

static void send_record(struct sim_el *sim, int life)
{
    struct life *l = &sim->lives[life];
    struct event e = plain(S_RECORD);
    e.record = el_intern(sim, &l->office.record);
    l->state = H_PROPOSING;
    for (int i = 0; i < LIVES; i++) {
        if (present(&l->members[i])) {
            to_member(sim, &l->members[i], e);
        }
    }
}

static void try_to_decide(struct sim_el *sim, int life)
{
    struct life *l = &sim->lives[life];
    struct ct_presence who;
    voters(l, &who);
    if (l->state != H_GATHER || !all_fenced(sim, life) || (l->forgot && !l->ending)) {
        return;
    }
    if (l->ending && ct_job_record_generation(&l->office.record) < 0) {
        el_host_close(sim, life); /* there was no world, so nobody needs to pledge */
        if (l->agent) {
            end_life(sim, life, l->end_code);
        }
        return;
    }
    if (l->ending) {
        if (ct_office_propose_end(&l->office, l->end_code, &who) == 0) {
            send_record(sim, life);
        }
        return;
    }
    if (count_present(l) < sim->plan.nodes) {
        return;
    }
    if (ct_office_must_take_over(&l->office)) {
        if (ct_office_take_over(&l->office, &who) == 0) {
            send_record(sim, life);
        }
        return;
    }
    struct ct_world_voters world = {.generation = ct_job_record_generation(&l->office.record) + 1};
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < LIVES && world.count < sim->plan.nodes; i++) {
            bool old = ct_world_voters_find(&l->office.record.formed, (uint64_t)i + 1) != NULL;
            if (present(&l->members[i]) && old == (pass == 0)) {
                world.list[world.count++] = sim->lives[i].election.self;
            }
        }
    }
    if (ct_office_propose_world(&l->office, &world, l->office.record.restarts, &who) == 0) {
        for (int i = 0; i < LIVES; i++) {
            struct member *m = &l->members[i];
            m->in_world = ct_world_voters_find(&world, (uint64_t)i + 1) != NULL;
            m->stopped = m->finished = false;
        }
        send_record(sim, life);
    }
}

static void gather(struct sim_el *sim, int life)
{
    sim->lives[life].state = H_GATHER;
    sim->lives[life].since = el_clock(sim, life);
    try_to_decide(sim, life);
}

static void check_stopped(struct sim_el *sim, int life)
{
    const struct life *l = &sim->lives[life];
    for (int i = 0; i < LIVES; i++) {
        const struct member *m = &l->members[i];
        if (present(m) && m->in_world && !m->stopped) {
            return;
        }
    }
    if (l->state == H_STOPPING) {
        gather(sim, life);
    }
}

static void stop_world(struct sim_el *sim, int life)
{
    struct life *l = &sim->lives[life];
    struct event e = plain(S_STOP);
    e.generation = l->office.record.formed.generation;
    l->state = H_STOPPING;
    for (int i = 0; i < LIVES; i++) {
        if (present(&l->members[i]) && l->members[i].in_world) {
            to_member(sim, &l->members[i], e);
        }
    }
    check_stopped(sim, life);
}

static void end_job(struct sim_el *sim, int life, int code)
{
    sim->lives[life].ending = true;
    sim->lives[life].end_code = code;
}

static void lose(struct sim_el *sim, int life, int who)
{
    struct life *l = &sim->lives[life];
    struct member *m = &l->members[who];
    if (!present(m)) {
        return;
    }
    m->gone = true;
    probe(sim, life, (uint64_t)who + 1);
    if (ct_office_left(&l->office, (uint64_t)who + 1)) {
        l->state = H_GATHER;
    }
    if (l->state == H_RUN && m->in_world) {
        if (count_present(l) < sim->plan.nodes &&
            !ct_office_charge(&l->office, sim->plan.max_restarts)) {
            end_job(sim, life, 121);
        }
        stop_world(sim, life);
    }
    check_stopped(sim, life);
    if (!l->agent && count_present(l) == 0 && l->state != H_OVER && l->state != H_NONE) {
        el_daemon_forgets(sim, life);
    }
}

void el_host_closed(struct sim_el *sim, int life, int conn)
{
    for (int i = 0; i < LIVES; i++) {
        if (sim->lives[life].members[i].used && sim->lives[life].members[i].conn == conn) {
            lose(sim, life, i);
        }
    }
}

void el_host_dead(struct sim_el *sim, int life, uint64_t id)
{
    struct life *l = &sim->lives[life];
    struct member *m = &l->members[id - 1];
    if (m->used && !l->known_dead[id - 1]) {
        m->fresh = el_clock(sim, life) < m->heard + LEASE;
    }
    l->known_dead[id - 1] = true;
    lose(sim, life, (int)id - 1);
    try_to_decide(sim, life);
}

static void decided(struct sim_el *sim, int life, enum ct_proposal what)
{
    struct life *l = &sim->lives[life];
    const struct ct_job_record *record = &l->office.record;
    if (what == CT_PROPOSAL_TAKE_OVER) {
        gather(sim, life);
    } else if (what == CT_PROPOSAL_WORLD) {
        int generation = record->formed.generation;
        if (sim->over) {
            el_break(sim, "a finished job goes on", life);
        }
        if (generation <= sim->started) {
            el_break(sim, "the generation does not grow", life);
        }
        if (record->restarts < sim->restarts ||
            record->restarts - sim->restarts > generation - sim->started ||
            record->restarts > sim->plan.max_restarts) {
            el_break(sim, "the budget of restarts is not kept", life);
        }
        sim->restarted += sim->started >= 0;
        sim->started = generation;
        sim->restarts = record->restarts;
        l->state = H_RUN;
        l->served = true;
        int number = el_intern(sim, record);
        for (int i = 0; i < LIVES; i++) {
            if (present(&l->members[i])) {
                struct event e = plain(l->members[i].in_world ? S_WORLD : S_RECORD);
                e.record = number;
                e.generation = generation;
                to_member(sim, &l->members[i], e);
            }
        }
    } else if (what == CT_PROPOSAL_END) {
        if (sim->over && sim->over_code != record->exit_code) {
            el_break(sim, "the job ends twice, with two codes", life);
        }
        sim->over = true;
        sim->over_code = record->exit_code;
        l->state = H_OVER;
        l->over_ns = el_clock(sim, life);
        for (int i = 0; i < LIVES; i++) {
            if (present(&l->members[i])) {
                struct event e = plain(S_OVER);
                e.code = record->exit_code;
                to_member(sim, &l->members[i], e);
            }
        }
    }
}

static void take_heard(struct sim_el *sim, int life, struct member *m, int64_t sent)
{
    const struct life *l = &sim->lives[life];
    int64_t at = sent / 1000 * l->rate + l->offset;
    m->heard = at > m->heard ? at : m->heard;
}

static int64_t lease_end(const struct life *l)
{
    uint64_t ids[CT_VOTERS_BOTH];
    int64_t heard[CT_VOTERS_BOTH];
    int count = ct_job_record_voters(&l->office.record, ids);
    struct ct_presence who = {0};
    for (int i = 0; i < count; i++) {
        const struct member *m = &l->members[ids[i] - 1];
        if (m->used && m->fresh) {
            who.dead[who.num_dead++] = ids[i];
        } else if (m->used) {
            heard[who.num_there] = m->heard;
            who.there[who.num_there++] = ids[i];
        }
    }
    return ct_office_lease(&l->office, &who, heard, LEASE);
}

static void on_beat(struct sim_el *sim, int life, struct member *m, const struct event *e)
{
    const struct life *l = &sim->lives[life];
    int64_t now = el_clock(sim, life), end = lease_end(l);
    int64_t left = end == INT64_MAX || !l->served ? LEASE : end - now;
    struct event answer = plain(S_LEASE);
    answer.ns = e->ns;
    answer.code = left <= 0 ? 0 : (int)((left < LEASE ? left : LEASE) / MS);
    to_member(sim, m, answer);
}

static void on_join(struct sim_el *sim, int life, const struct event *e)
{
    struct life *l = &sim->lives[life];
    struct member *m = &l->members[e->from];
    lose(sim, life, e->from);
    if (l->state == H_OVER) {
        struct event over = plain(S_OVER);
        over.code = l->end_code;
        el_stream(sim, e->conn, false, &over);
        return;
    }
    if (e->record >= 0 && ct_job_record_compare(&sim->records[e->record], &l->office.record) > 0) {
        sim->conns[e->conn].host_open = false; /* this host has forgotten the job */
        el_stream(sim, e->conn, false, &(struct event){.what = S_END, .record = -1});
        return;
    }
    *m = (struct member){.used = true, .conn = e->conn, .heard = INT64_MIN};
    take_heard(sim, life, m, e->sent);
    if (l->office.record.version > 1) { /* it must know what was decided without it */
        struct event record = plain(S_RECORD);
        record.record = el_intern(sim, &l->office.record);
        to_member(sim, m, record);
    }
    try_to_decide(sim, life);
}

void el_host_hear(struct sim_el *sim, int life, const struct event *e)
{
    struct life *l = &sim->lives[life];
    struct member *m = &l->members[e->from];
    if (l->state == H_NONE) {
        return;
    }
    if (e->what == S_JOIN) {
        on_join(sim, life, e);
        return;
    }
    if (!present(m) || m->conn != e->conn) {
        return;
    }
    take_heard(sim, life, m, e->sent);
    bool now = e->generation == l->office.record.formed.generation && m->in_world;
    if (e->what == S_BEAT) {
        on_beat(sim, life, m, e);
    } else if (e->what == S_PLEDGE) {
        decided(sim, life,
                ct_office_pledged(&l->office, e->id, (uint64_t)e->ns, (uint64_t)e->generation));
    } else if (e->what == S_STOPPED && now) {
        m->stopped = true;
        check_stopped(sim, life);
    } else if (e->what == S_FAILED && now && l->state == H_RUN) {
        if (!ct_office_charge(&l->office, sim->plan.max_restarts)) {
            end_job(sim, life, 1);
        }
        stop_world(sim, life);
    } else if (e->what == S_FINISHED && now && l->state == H_RUN) {
        m->finished = true;
        for (int i = 0; i < LIVES; i++) {
            if (l->members[i].in_world && !l->members[i].finished) {
                return;
            }
        }
        end_job(sim, life, 0);
        gather(sim, life);
    }
}

void el_host_tick(struct sim_el *sim, int life)
{
    struct life *l = &sim->lives[life];
    int64_t now = el_clock(sim, life);
    if (l->state == H_OVER) {
        if (l->agent && (count_present(l) <= 1 || now - l->over_ns > 5 * SEC)) {
            end_life(sim, life, l->end_code);
        }
        return;
    }
    bool patient = !l->served && now - l->begun < 2 * LEASE; /* its voters are on their way */
    bool hopeless = l->state == H_GATHER && now - l->since > 2 * GATHER_MOST;
    if (hopeless || (l->agent && now >= lease_end(l) && !patient)) {
        el_host_close(sim, life);
        if (l->agent) {
            ct_election_deposed(&l->election, now);
        }
        return;
    }
    for (int i = 0; i < LIVES; i++) {
        if (present(&l->members[i]) && now >= l->members[i].heard + LEASE && i != life) {
            int conn = l->members[i].conn;
            sim->conns[conn].host_open = false;
            el_stream(sim, conn, false, &(struct event){.what = S_END, .record = -1});
            lose(sim, life, i);
        } else if (l->members[i].used && l->members[i].gone && !l->known_dead[i] &&
                   now - l->probed_ns > SEC / 2) {
            probe(sim, life, (uint64_t)i + 1);
        }
    }
    l->probed_ns = now - l->probed_ns > SEC / 2 ? now : l->probed_ns;
    if (l->state == H_GATHER && !l->ending && now - l->since > GATHER_MOST) {
        end_job(sim, life, 121);
    }
    try_to_decide(sim, life);
}
