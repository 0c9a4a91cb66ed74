/* SPDX-License-Identifier: Apache-2.0
 *
 * The program that runs elections of a host in a simulator of their own:
 *
 *     sim_election SCHEDULES [FIRST_SEED]
 *
 * CT_ELECTION_SCHEDULES in the environment replaces SCHEDULES. Prints what breaks the rules.
 *
 * The imagined network: datagrams (questions and answers of an election, each on a connection of
 * its own in the product) are lost, doubled and delayed; a stream keeps its order, and what was
 * sent while its way was blocked arrives when the way is free again, as with TCP. A machine answers
 * for a process that is dead, and only then is its death known.
 *
 * A daemon forgets a job when its last agent is gone, and when it is started again, at the same
 * port. Such a one begins no world here: newcomers alone could form one beside the job, until they
 * are told where it is (docs/FAILOVER.md, limits).
 */
#include "tests/sim/election_sim.h"

#include "common/num.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST (400 * SEC)

/* With a slow arbiter. The first candidacy mostly learns of a newer record, and the second one
 * should win. */
#define SLOW_SCHEDULES 100
#define SLOW_CANDIDACIES 3

/* Hosts that are killed just after their election, in one schedule. */
#define STRIKES_MOST 2
/* Schedules in which one is, and nothing else happens. */
#define TWICE_SCHEDULES 200
/* Schedules in which the host dies, and another machine is cut off. */
#define CUT_SCHEDULES 200

uint64_t el_random(struct sim_el *sim, uint64_t below)
{
    uint64_t z = (sim->random += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

void el_break(struct sim_el *sim, const char *rule, int life)
{
    if (sim->broken[0] == '\0') {
        (void)snprintf(sim->broken, sizeof(sim->broken), "at %.4f s, life %d on machine %d: %s",
                       (double)sim->now / SEC, life, life >= 0 ? sim->lives[life].machine : -1,
                       rule);
    }
}

/* ---- events --------------------------------------------------------------------------------- */

static bool earlier(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

void el_push(struct sim_el *sim, const struct event *event)
{
    if (sim->heap_len == sim->heap_room) {
        sim->heap_room = sim->heap_room > 0 ? 2 * sim->heap_room : 256;
        sim->heap = realloc(sim->heap, (size_t)sim->heap_room * sizeof(sim->heap[0]));
        if (sim->heap == NULL) {
            abort();
        }
    }
    int i = sim->heap_len++;
    sim->heap[i] = *event;
    for (; i > 0 && earlier(&sim->heap[i], &sim->heap[(i - 1) / 2]); i = (i - 1) / 2) {
        struct event kept = sim->heap[i];
        sim->heap[i] = sim->heap[(i - 1) / 2];
        sim->heap[(i - 1) / 2] = kept;
    }
}

void el_schedule(struct sim_el *sim, struct event event, int64_t at)
{
    event.at = at > sim->now ? at : sim->now;
    event.order = sim->order++;
    el_push(sim, &event);
}

static struct event take(struct sim_el *sim)
{
    struct event first = sim->heap[0], last = sim->heap[--sim->heap_len];
    int i = 0;
    for (;;) {
        int child = 2 * i + 1;
        if (child + 1 < sim->heap_len && earlier(&sim->heap[child + 1], &sim->heap[child])) {
            child++;
        }
        if (child >= sim->heap_len || earlier(&last, &sim->heap[child])) {
            break;
        }
        sim->heap[i] = sim->heap[child];
        i = child;
    }
    sim->heap[i] = last;
    return first;
}

struct event *el_event(struct sim_el *sim, int64_t at, enum kind kind, int to)
{
    static struct event event;
    event = (struct event){.kind = kind, .to = to, .record = -1, .conn = -1};
    (void)sim;
    event.at = at;
    return &event;
}

/* ---- clocks --------------------------------------------------------------------------------- */

int64_t el_clock(const struct sim_el *sim, int life)
{
    const struct life *l = &sim->lives[life];
    return sim->now / 1000 * l->rate + l->offset;
}

/* The time at which its clock shows this. */
int64_t el_when(const struct sim_el *sim, int life, int64_t clock)
{
    const struct life *l = &sim->lives[life];
    return (clock - l->offset) / l->rate * 1000 + 1000;
}

/* ---- network -------------------------------------------------------------------------------- */

static int64_t delay(struct sim_el *sim)
{
    return 20000 + (int64_t)el_random(sim, (uint64_t)sim->plan.delay);
}

void el_packet(struct sim_el *sim, int from, int machine, const struct event *event)
{
    int copies = el_random(sim, 10) == 0 ? 2 : 1;
    bool lost = !sim->calm && el_random(sim, 12) == 0;
    for (int i = 0; i < copies && !lost; i++) {
        struct event copy = *event;
        copy.kind = PACKET;
        copy.from = from;
        copy.to = machine;
        el_schedule(sim, copy, sim->now + delay(sim));
    }
}

void el_stream(struct sim_el *sim, int conn, bool up, const struct event *event)
{
    struct conn *c = &sim->conns[conn];
    struct event copy = *event;
    bool own = c->agent == c->host;
    copy.kind = STREAM;
    copy.conn = conn;
    copy.up = up;
    copy.to = up ? c->host : c->agent;
    copy.from = up ? c->agent : c->host;
    copy.seq = c->sent[up]++;
    copy.sent = sim->now;
    int64_t at = sim->now + (own ? 1000 : delay(sim));
    c->last[up] = at > c->last[up] ? at : c->last[up];
    el_schedule(sim, copy, c->last[up]);
}

int el_intern(struct sim_el *sim, const struct ct_job_record *record)
{
    for (int i = sim->num_records - 1; i >= 0 && i >= sim->num_records - 16; i--) {
        if (memcmp(&sim->records[i], record, sizeof(*record)) == 0) {
            return i;
        }
    }
    if (sim->num_records == sim->record_room) {
        sim->record_room = sim->record_room > 0 ? 2 * sim->record_room : 64;
        sim->records = realloc(sim->records, (size_t)sim->record_room * sizeof(*record));
        if (sim->records == NULL) {
            abort();
        }
    }
    sim->records[sim->num_records] = *record;
    return sim->num_records++;
}

static bool is_blocked(const struct sim_el *sim, int from, int to)
{
    return from != to && sim->blocked[from][to];
}

int el_machine_of(const char *address)
{
    return atoi(address);
}

/* ---- lives ---------------------------------------------------------------------------------- */

int el_new_life(struct sim_el *sim, int machine, bool agent)
{
    if (sim->num_lives == LIVES) {
        return -1;
    }
    int life = sim->num_lives++;
    struct life *l = &sim->lives[life];
    *l = (struct life){.machine = machine,
                       .alive = true,
                       .agent = agent,
                       .conn = -1,
                       .running = -1,
                       .seen_generation = -1,
                       .exit_code = -1};
    l->rate = 990 + (int64_t)el_random(sim, 21);
    l->offset = (int64_t)el_random(sim, 1000) * SEC;
    struct ct_voter self = {.id = (uint64_t)life + 1, .port = 1};
    (void)snprintf(self.address, sizeof(self.address), "%d", machine);
    ct_election_init(&l->election, &self, sim->plan.arbiter, LEASE / MS, 15000);
    l->election.random = el_random(sim, UINT64_MAX);
    ct_arbiter_init(&l->arbiter);
    l->arbiter_heard = INT64_MIN;
    if (sim->plan.arbiter && agent) {
        ct_election_seek(&l->election, 60000, el_clock(sim, life));
    }
    sim->on_machine[machine] = life;
    el_schedule(sim, *el_event(sim, 0, TIMER, life), sim->now);
    return life;
}

void el_kill(struct sim_el *sim, int life)
{
    struct life *l = &sim->lives[life];
    l->alive = false;
    l->running = -1; /* the guard process ends its workers */
    sim->on_machine[l->machine] = -1;
    for (int i = 0; i < sim->num_conns; i++) {
        struct conn *c = &sim->conns[i];
        /* Its kernel ends its connections. */
        if (c->agent == life && c->agent_open) {
            c->agent_open = false;
            el_stream(sim, i, true, &(struct event){.what = S_END, .record = -1});
        }
        if (c->host == life && c->host_open) {
            c->host_open = false;
            if (c->agent != c->host) {
                el_stream(sim, i, false, &(struct event){.what = S_END, .record = -1});
            }
        }
    }
}

void el_daemon_forgets(struct sim_el *sim, int life)
{
    struct ct_job_record fresh;
    ct_job_record_init(&fresh);
    el_host_begin(sim, life, 0, CT_TERM_FIRST, &fresh, INT64_MIN);
    sim->lives[life].forgot = true;
}

/* ---- delivery ------------------------------------------------------------------------------- */

static void on_packet(struct sim_el *sim, const struct event *e)
{
    int machine = e->to, from_machine = sim->lives[e->from].machine;
    if (is_blocked(sim, from_machine, machine)) {
        return;
    }
    int life = sim->on_machine[machine];
    if (life >= 0 && sim->now < sim->lives[life].paused_until) {
        el_schedule(sim, *e, sim->lives[life].paused_until + 1000);
        return;
    }
    const struct plan *plan = &sim->plan;
    bool wanted = e->what == P_ASK || e->what == P_PROBE || e->what == P_CONNECT;
    bool daemon = life >= 0 && !sim->lives[life].agent && e->what == P_CONNECT;
    bool same_port = daemon || (plan->same_port && machine == 0);
    bool refused = plan->wall_from != plan->wall_to && plan->wall_from == from_machine &&
                   plan->wall_to == machine;
    if (wanted && (life < 0 || refused ||
                   (e->id != 0 && !same_port && sim->lives[life].election.self.id != e->id))) {
        struct event dead = {.what = P_DEAD, .record = -1, .conn = -1, .id = e->id};
        /* The kernel of that machine answers; the answer takes the same way as any other. */
        dead.kind = PACKET;
        dead.from = e->from;
        dead.to = from_machine;
        if (!is_blocked(sim, machine, from_machine) && e->id != 0) {
            el_schedule(sim, dead, sim->now + delay(sim));
        }
        return;
    }
    if (life >= 0) {
        el_agent_packet(sim, life, e);
    }
}

static void on_stream(struct sim_el *sim, const struct event *e)
{
    struct conn *c = &sim->conns[e->conn];
    struct life *to = &sim->lives[e->to];
    if (is_blocked(sim, sim->lives[e->from].machine, to->machine)) {
        el_schedule(sim, *e, sim->now + 200 * MS);
        return;
    }
    if (to->alive && sim->now < to->paused_until) {
        el_schedule(sim, *e, to->paused_until + 1000);
        return;
    }
    if (e->seq != c->taken[e->up]) {
        el_schedule(sim, *e, sim->now + 10 * MS);
        return;
    }
    c->taken[e->up]++;
    bool *open = e->up ? &c->host_open : &c->agent_open;
    if (!*open || !to->alive) {
        if (e->what != S_END && (e->up ? c->agent_open : c->host_open)) {
            el_stream(sim, e->conn, !e->up, &(struct event){.what = S_END, .record = -1});
        }
        return;
    }
    if (e->what == S_END) {
        *open = false;
        if (e->up) {
            el_host_closed(sim, e->to, e->conn);
        } else if (to->conn == e->conn) {
            el_agent_lost(sim, e->to);
        }
    } else if (e->up) {
        el_host_hear(sim, e->to, e);
    } else if (to->conn == e->conn) {
        el_agent_hear(sim, e->to, e);
    }
}

/* ---- a schedule ----------------------------------------------------------------------------- */

/* Never two generations at once. A machine that stands still does not run its workers; when it goes
 * on, its agent stops them before anything else. */
static void check_running(struct sim_el *sim)
{
    int generation = -1;
    for (int i = 0; i < sim->num_lives; i++) {
        const struct life *l = &sim->lives[i];
        if (l->alive && l->running >= 0 && sim->now > l->paused_until) {
            if (generation >= 0 && generation != l->running) {
                el_break(sim, "two generations run at once", i);
            }
            generation = l->running;
        }
    }
}

/* It would wait there for a world that none who remember the job would pledge. */
static void check_forgotten(struct sim_el *sim)
{
    for (int i = 0; i < sim->num_lives; i++) {
        const struct life *host = &sim->lives[i];
        for (int k = 0; k < sim->num_lives && host->alive && host->forgot; k++) {
            const struct life *l = &sim->lives[k];
            const struct member *member = &host->members[k];
            if (member->used && !member->gone && l->alive && l->conn == member->conn &&
                ct_job_record_generation(&l->election.record) >= 0) {
                el_break(sim, "an agent waits with a host that has forgotten its job", k);
            }
        }
    }
}

static void check_end(struct sim_el *sim)
{
    for (int i = 0; i < sim->num_lives; i++) {
        const struct life *l = &sim->lives[i];
        if (l->alive && l->agent) {
            el_break(sim, "an agent waits for ever", i);
        }
    }
    if (sim->plan.lose_host && (!sim->over || sim->over_code != 0)) {
        el_break(sim, "the job is lost with its host", -1);
    }
}

static void step(struct sim_el *sim, const struct event *e)
{
    struct life *l = &sim->lives[e->to];
    switch (e->kind) {
    case TIMER:
        if (l->alive) {
            bool paused = sim->now < l->paused_until;
            if (!paused) {
                el_agent_tick(sim, e->to);
            }
            bool looks = l->election.state == CT_ELECTION_LOOKING && l->followed;
            el_schedule(sim, *e, paused ? l->paused_until : sim->now + (looks ? 4 : 40) * MS);
        }
        break;
    case WORK:
        if (l->alive && sim->now < l->paused_until) {
            el_schedule(sim, *e, l->paused_until + 2000);
        } else if (l->alive) {
            el_agent_work(sim, e->to, e);
        }
        break;
    case STOPPED:
        if (l->alive && sim->now < l->paused_until) {
            el_schedule(sim, *e, l->paused_until + 2000);
        } else if (l->alive) {
            el_agent_stopped(sim, e->to);
        }
        break;
    case COMES:
        if (sim->on_machine[e->to] < 0 && !sim->over) {
            bool daemon = sim->plan.daemon && e->to == 0;
            int life = el_new_life(sim, e->to, !daemon);
            if (daemon && life >= 0) {
                el_daemon_forgets(sim, life);
            }
        }
        break;
    case STRIKE:
        if (l->alive && l->state != H_NONE && !sim->over &&
            sim->struck < (sim->plan.twice ? 1 : STRIKES_MOST)) {
            bool silent = sim->plan.silent_first || sim->plan.silent_second;
            sim->struck++;
            sim->struck_at = sim->plan.twice && !silent ? sim->now : 0;
            if (sim->plan.silent_second) {
                el_silence(sim, l->machine);
            } else {
                el_kill(sim, e->to);
            }
        }
        break;
    case FAULT:
        el_fault(sim);
        break;
    case HEALS:
        memset(sim->blocked, 0, sizeof(sim->blocked));
        break;
    case PACKET:
        on_packet(sim, e);
        break;
    case STREAM:
        on_stream(sim, e);
        break;
    }
}

static bool anybody(const struct sim_el *sim)
{
    for (int i = 0; i < sim->num_lives; i++) {
        if (sim->lives[i].alive && sim->lives[i].agent) {
            return true;
        }
    }
    return false;
}

int el_run(struct sim_el *sim, const struct plan *plan)
{
    memset(sim, 0, sizeof(*sim));
    sim->plan = *plan;
    sim->random = plan->seed;
    sim->started = -1;
    memset(sim->on_machine, 0xff, sizeof(sim->on_machine));
    struct ct_job_record fresh;
    ct_job_record_init(&fresh);
    int first = el_new_life(sim, 0, !plan->daemon);
    if (plan->arbiter) {
        (void)el_new_life(sim, plan->machines - 1, false);
    } else {
        el_host_begin(sim, first, 0, CT_TERM_FIRST, &fresh, INT64_MIN);
    }
    for (int i = 1; i < plan->nodes + plan->spares + plan->daemon; i++) {
        (void)el_new_life(sim, i, true);
    }
    int64_t fault = 0;
    for (int i = 0; i < plan->faults; i++) {
        bool again = plan->bursts && i % 3 != 0;
        fault = again ? fault + (int64_t)el_random(sim, 300) * MS
                      : 100 * MS + (int64_t)el_random(sim, (uint64_t)plan->span);
        el_schedule(sim, *el_event(sim, 0, FAULT, 0), fault);
    }
    if (plan->faults > 0) {
        el_schedule(sim, *el_event(sim, 0, HEALS, 0), plan->span + 9 * SEC);
    }
    while (sim->heap_len > 0 && sim->broken[0] == '\0' && sim->now < LONGEST && anybody(sim)) {
        struct event e = take(sim);
        sim->now = e.at;
        sim->calm = plan->lose_host || sim->now > plan->span + 9 * SEC;
        sim->events++;
        step(sim, &e);
        check_running(sim);
        check_forgotten(sim);
    }
    if (sim->broken[0] == '\0') {
        check_end(sim);
    }
    return sim->broken[0] == '\0' ? 0 : -1;
}

void el_fini(struct sim_el *sim)
{
    free(sim->heap);
    free(sim->records);
    free(sim->values);
    sim->heap = NULL;
    sim->records = NULL;
    sim->values = NULL;
}

static struct plan random_plan(uint64_t seed)
{
    struct sim_el *sim = calloc(1, sizeof(*sim));
    if (sim == NULL) {
        abort();
    }
    sim->random = seed * 7919 + 1;
    struct plan plan = {
        .seed = seed,
        .nodes = 2 + (int)el_random(sim, 6),
        .spares = (int)el_random(sim, 3),
        .max_restarts = (int)el_random(sim, 4),
        .faults = 1 + (int)el_random(sim, 10),
        .daemon = el_random(sim, 5) == 0,
        .span = 1 + (int64_t)el_random(sim, 30) * SEC,
        .delay = 1000 + (int64_t)el_random(sim, 2) * (int64_t)el_random(sim, (uint64_t)(400 * MS)),
    };
    plan.lose_host = el_random(sim, 10) == 0;
    if (plan.lose_host) {
        plan.faults = 1;
        plan.spares = 1;
        plan.max_restarts = 3;
        plan.delay = MS;
    }
    plan.arbiter = !plan.daemon && el_random(sim, 3) == 0;
    plan.nodes = plan.arbiter && plan.nodes > 4 ? plan.nodes - 3 : plan.nodes;
    plan.machines = plan.nodes + plan.spares + 1 + plan.arbiter;
    plan.far_terms = el_random(sim, 3) == 0;
    plan.cut_host = plan.lose_host && plan.daemon && el_random(sim, 2) == 0;
    plan.strikes = !plan.lose_host && el_random(sim, 3) == 0;
    plan.bursts = el_random(sim, 2) == 0;
    plan.same_port = el_random(sim, 2) == 0;
    if (!plan.lose_host && el_random(sim, 3) == 0) {
        plan.wall_from = (int)el_random(sim, (uint64_t)plan.machines);
        plan.wall_to = 1 + (int)el_random(sim, (uint64_t)plan.machines - 1);
    }
    free(sim);
    return plan;
}

/* Two nodes whose host dies, and an arbiter that is far away: an answer takes 0.45 s, up to 0.9 s.
 */
static struct plan slow_plan(uint64_t seed)
{
    return (struct plan){
        .seed = seed,
        .machines = 5,
        .nodes = 2,
        .spares = 1,
        .max_restarts = 3,
        .faults = 1,
        .arbiter = true,
        .lose_host = true,
        .span = 10 * SEC,
        .delay = 450 * MS,
    };
}

/* Plays a schedule, and says which rule it has broken. */
static int run_and_tell(struct sim_el *sim, const struct plan *plan, const char *what)
{
    int rc = el_run(sim, plan);
    if (rc != 0) {
        (void)printf("seed %llu, %s%s: %s\n", (unsigned long long)plan->seed, what,
                     plan->arbiter ? ", an arbiter" : "", sim->broken);
    }
    return rc;
}

/* Returns how many candidacies the election of another host takes on average, or -1 if a rule is
 * broken. The first election does not count: nobody knows yet how slow the arbiter is. */
static double play_slow(struct sim_el *sim, int64_t count, int64_t first)
{
    uint64_t candidacies = 0, elections = 0;
    for (int64_t i = 0; i < count; i++) {
        struct plan plan = slow_plan((uint64_t)(first + i));
        int rc = run_and_tell(sim, &plan, "slow answers");
        for (int k = 1; k < sim->num_terms; k++) {
            candidacies += ct_term_number(sim->terms[k]) - ct_term_number(sim->terms[k - 1]);
            elections++;
        }
        el_fini(sim);
        if (rc != 0) {
            return -1;
        }
    }
    return (double)candidacies / (double)elections;
}

/* The host is killed or cut off, and so is the one that is elected then, before many have followed
 * it. The others go on if they are enough. If they have proofs of both deaths, their next world
 * does not wait. Returns -1 if a rule is broken. */
static int play_twice(struct sim_el *sim, int64_t first)
{
    int struck = 0;
    for (int64_t i = 0; i < TWICE_SCHEDULES; i++) {
        struct plan plan = {
            .seed = (uint64_t)(first + i),
            .machines = 9,
            .nodes = 3 + (int)(i / 8 % 4),
            .spares = 2,
            .max_restarts = 3,
            .faults = 1,
            .arbiter = i % 2 == 1,
            .lose_host = true,
            .twice = true,
            .silent_first = i / 2 % 2 == 1,
            .silent_second = i / 4 % 2 == 1,
            .span = 10 * SEC,
            .delay = MS,
        };
        if (!plan.arbiter && plan.nodes < 5) { /* half of four is enough after two deaths only */
            plan.nodes = 4;
            plan.silent_first = plan.silent_second = false;
        }
        int rc = run_and_tell(sim, &plan, "two hosts in a row are lost");
        struck += sim->struck;
        el_fini(sim);
        if (rc != 0) {
            return -1;
        }
    }
    (void)printf("two hosts in a row are lost: %d times just after an election\n", struck);
    return struck > TWICE_SCHEDULES / 2 ? 0 : -1;
}

/* The host is killed, and another machine is cut off at that moment. Its workers run on until its
 * lease ends, so it must not count as dead, although there are enough others for the next world. */
static int play_cut(struct sim_el *sim, int64_t first)
{
    for (int64_t i = 0; i < CUT_SCHEDULES; i++) {
        const struct plan plan = {
            .seed = (uint64_t)(first + i),
            .machines = 8,
            .nodes = 5,
            .spares = 2,
            .max_restarts = 3,
            .faults = 1,
            .lose_host = true,
            .cut_other = true,
            .span = 10 * SEC,
            .delay = MS,
        };
        int rc = run_and_tell(sim, &plan, "the host dies and another one is cut off");
        el_fini(sim);
        if (rc != 0) {
            return -1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    int64_t count = 0, first = 1;
    uint64_t events = 0, overs = 0, takeovers = 0, lost = 0, restarted = 0;
    const char *more = getenv("CT_ELECTION_SCHEDULES");
    struct sim_el *sim = calloc(1, sizeof(*sim));
    if (sim == NULL || argc < 2 || argc > 3 ||
        ct_parse_i64(more != NULL ? more : argv[1], 1, 1000000000, &count) != 0 ||
        (argc == 3 && ct_parse_i64(argv[2], 0, INT64_MAX / 8000, &first) != 0)) {
        (void)fprintf(stderr, "usage: sim_election SCHEDULES [FIRST_SEED]\n");
        free(sim);
        return EXIT_FAILURE;
    }
    int rc = 0;
    for (int64_t i = 0; i < count && rc == 0; i++) {
        struct plan plan = random_plan((uint64_t)(first + i));
        rc = el_run(sim, &plan);
        events += sim->events;
        overs += sim->over;
        takeovers += (uint64_t)sim->takeovers;
        restarted += (uint64_t)sim->restarted;
        lost += sim->over && sim->over_code == 121;
        for (int fewer = 0; rc != 0 && fewer <= plan.faults; fewer++) {
            struct plan again = plan;
            again.faults = fewer;
            el_fini(sim);
            if (el_run(sim, &again) != 0 || fewer == plan.faults) {
                (void)printf("seed %llu, %d of %d faults, %d nodes, %d spares%s%s%s%s: %s\n",
                             (unsigned long long)plan.seed, fewer, plan.faults, plan.nodes,
                             plan.spares, plan.daemon ? ", a daemon" : "",
                             plan.arbiter ? ", an arbiter" : "", plan.cut_host ? ", cut off" : "",
                             plan.far_terms ? ", far terms" : "", sim->broken);
                break;
            }
        }
        el_fini(sim);
    }
    (void)printf("%lld schedules from seed %lld, %llu events: %llu take-overs, %llu restarts, "
                 "%llu jobs ended by a decision, %llu of them with 121\n",
                 (long long)count, (long long)first, (unsigned long long)events,
                 (unsigned long long)takeovers, (unsigned long long)restarted,
                 (unsigned long long)overs, (unsigned long long)lost);
    double each = rc == 0 ? play_slow(sim, SLOW_SCHEDULES, first) : -1;
    rc = each >= 0 && each < SLOW_CANDIDACIES ? rc : -1;
    rc = rc == 0 ? play_twice(sim, first) : rc;
    rc = rc == 0 ? play_cut(sim, first) : rc;
    (void)printf("a slow arbiter: %.2f candidacies for each other host\n", each);
    /* Schedules in which nothing happens would prove little. */
    bool varied = takeovers > (uint64_t)count / 4 && overs > (uint64_t)count / 2;
    free(sim);
    return rc == 0 && (count < 500 || varied) ? EXIT_SUCCESS : EXIT_FAILURE;
}
