/* SPDX-License-Identifier: Apache-2.0
 *
 * What hosts of the model do. Their decisions about what is certain are the product's (ct_office).
 * The rest is a membership of the simplest kind: a world of a fixed number of nodes, spares,
 * restarts, an end.
 */
#include "tests/sim/election_sim.h"

#include <string.h>

#define FENCED (LEASE + LEASE / 16)
#define GATHER_MOST (20 * SEC)

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

/* Was the newest generation ended by the loss of a daemon, which costs the job nothing? */
static bool lost_daemon(const struct life *l)
{
    int generation = ct_job_record_generation(&l->election.record);
    return ct_host_loss_ended(&l->loss, generation) && l->loss.daemon;
}

/* As members_budget_take(). */
static bool take_restart(const struct sim_el *sim, struct life *l)
{
    if (!l->charged && l->restarts < sim->plan.max_restarts) {
        l->restarts++;
        l->charged = true;
    }
    return l->charged;
}

void el_host_begin(struct sim_el *sim, int life, uint64_t lost, uint64_t term,
                   const struct ct_job_record *record, int64_t fence)
{
    struct life *l = &sim->lives[life];
    memset(l->members, 0, sizeof(l->members));
    memset(l->known_dead, 0, sizeof(l->known_dead));
    ct_office_begin(&l->office, l->agent ? l->election.self.id : 0, lost, sim->plan.arbiter, term,
                    record);
    l->arbiter_there = false;
    l->arbiter_heard = INT64_MIN;
    l->served_version = 0;
    l->state = H_GATHER;
    l->since = l->begun = el_clock(sim, life);
    l->served = false;
    l->fence = fence;
    l->ending = record->over;
    l->end_code = record->exit_code;
    l->restarts = record->restarts;
    l->charged = false;
    for (int i = 0; i < sim->num_terms; i++) {
        if (sim->terms[i] == term && l->agent) {
            el_break(sim, "two hosts in one term", life);
        }
    }
    if (sim->num_terms < TERMS) {
        sim->terms[sim->num_terms++] = term;
    }
    if (ct_job_record_generation(record) >= 0 && !l->ending && sim->plan.spares == 0 &&
        !lost_daemon(l) && !take_restart(sim, l)) {
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
        el_agent_up(sim, life, &l->election.self, term, conn % CONNS);
    }
}

void el_host_close(struct sim_el *sim, int life)
{
    struct life *l = &sim->lives[life];
    (void)ct_host_loss_note(&l->loss, ct_job_record_generation(&l->election.record), NULL, false);
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
    el_agent_forget_link(sim, life);
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
    if (l->arbiter_there) {
        who->there[who->num_there++] = CT_ARBITER_ID;
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
    struct event e = el_plain(S_RECORD);
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
            el_end_life(sim, life, l->end_code);
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
    if (ct_office_propose_world(&l->office, &world, l->restarts, &who) == 0) {
        l->charged = false;
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
    struct event e = el_plain(S_STOP);
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
    el_probe(sim, life, (uint64_t)who + 1);
    if (ct_office_left(&l->office, (uint64_t)who + 1)) {
        l->state = H_GATHER;
    }
    bool ends = l->state == H_RUN || l->state == H_STOPPING;
    if (ends && m->in_world && !l->ending && count_present(l) < sim->plan.nodes &&
        !take_restart(sim, l)) {
        end_job(sim, life, 121);
    }
    if (l->state == H_RUN && m->in_world) {
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
        if (sim->struck_at != 0 && sim->now - sim->struck_at > LEASE - SEC / 10) {
            el_break(sim, "the next world waits for nodes that are known to be dead", life);
        }
        sim->struck_at = 0;
        sim->restarted += sim->started >= 0;
        sim->started = generation;
        sim->restarts = record->restarts;
        l->state = H_RUN;
        l->served = true;
        int number = el_intern(sim, record);
        for (int i = 0; i < LIVES; i++) {
            if (present(&l->members[i])) {
                struct event e = el_plain(l->members[i].in_world ? S_WORLD : S_RECORD);
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
                struct event e = el_plain(S_OVER);
                e.code = record->exit_code;
                to_member(sim, &l->members[i], e);
            }
        }
    }
}

void el_host_served(struct sim_el *sim, int life, uint64_t term, uint64_t version)
{
    struct life *l = &sim->lives[life];
    decided(sim, life, ct_office_pledged(&l->office, CT_ARBITER_ID, term, version));
    try_to_decide(sim, life);
}

void el_host_unserved(struct sim_el *sim, int life)
{
    struct life *l = &sim->lives[life];
    l->arbiter_there = false;
    if (ct_office_left(&l->office, CT_ARBITER_ID)) {
        l->state = H_GATHER;
    }
    try_to_decide(sim, life);
}

uint64_t el_host_void(struct sim_el *sim, int life, uint64_t id)
{
    const struct life *l = &sim->lives[life];
    bool is_void =
        id != 0 && id <= LIVES && (present(&l->members[id - 1]) || l->known_dead[id - 1]);
    (void)sim;
    return is_void ? id : 0;
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
    int64_t heard[CT_BALLOTS_MAX];
    int count = ct_job_record_voters(&l->office.record, ids);
    struct ct_presence who = {0};
    if (l->arbiter_heard != INT64_MIN) {
        heard[who.num_there] = l->arbiter_heard;
        who.there[who.num_there++] = CT_ARBITER_ID;
    }
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
    struct event answer = el_plain(S_LEASE);
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
        struct event over = el_plain(S_OVER);
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
    el_probe(sim, life, (uint64_t)e->from + 1);
    if (ct_job_record_generation(&l->office.record) >= 0) { /* it must know what was decided */
        struct event record = el_plain(S_RECORD);
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
    } else if (e->what == S_FAILED && now && (l->state == H_RUN || l->state == H_STOPPING)) {
        if (!l->ending && !take_restart(sim, l)) {
            end_job(sim, life, 1);
        }
        if (l->state == H_RUN) {
            stop_world(sim, life);
        }
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
            el_end_life(sim, life, l->end_code);
        }
        return;
    }
    bool patient = !l->served && now - l->begun < 2 * LEASE; /* its voters are on their way */
    bool hopeless = l->state == H_GATHER && now - l->since > 2 * GATHER_MOST;
    if (hopeless || (l->agent && now >= lease_end(l) && !patient)) {
        el_host_close(sim, life);
        if (l->agent) {
            ct_election_deposed(&l->election, now);
            el_reach(sim, life);
        }
        return;
    }
    bool probes = now - l->probed_ns > SEC / 2;
    for (int i = 0; i < LIVES; i++) {
        bool lost = l->members[i].used
                        ? l->members[i].gone
                        : ct_job_record_find(&l->office.record, (uint64_t)i + 1) != NULL;
        if (present(&l->members[i]) && now >= l->members[i].heard + LEASE && i != life) {
            int conn = l->members[i].conn;
            sim->conns[conn].host_open = false;
            el_stream(sim, conn, false, &(struct event){.what = S_END, .record = -1});
            lose(sim, life, i);
        } else if (lost && !l->known_dead[i] && probes) {
            el_probe(sim, life, (uint64_t)i + 1);
        }
    }
    l->probed_ns = probes ? now : l->probed_ns;
    if (l->state == H_GATHER && !l->ending && now - l->since > GATHER_MOST) {
        end_job(sim, life, 121);
    }
    try_to_decide(sim, life);
}
