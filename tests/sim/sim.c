/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulator's engine: takes the earliest event of a queue, sets the virtual clock to its time,
 * and gives it to the membership core or to a node. Messages arrive after random times, in their
 * order on each channel. What a node does is in sim_node.c, what must hold after each event in
 * sim_check.c.
 */
#include "tests/sim/sim.h"
#include "tests/lib/members_done.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* No schedule takes longer: several failed worlds that each wait for their join timeout. */
#define LONGEST_NS (3600 * SIM_S)
#define HEARTBEAT_MS 3000

static void *grow(void *old, int *room, size_t size)
{
    *room = *room > 0 ? 2 * *room : 64;
    void *grown = realloc(old, (size_t)*room * size);
    if (grown == NULL) {
        abort();
    }
    return grown;
}

/* Of this process alone: others may be busy on the machine. Only for the world whose cost is told:
 * it would be most of the time that small schedules take. */
static int64_t cpu_ns(const struct sim *sim)
{
    struct timespec now;
    if (!sim->scenario.lose_one) {
        return 0;
    }
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * SIM_S + now.tv_nsec;
}

/* splitmix64 (Vigna, public domain): one word of state, any seed will do. */
uint64_t sim_random(struct sim *sim, uint64_t below)
{
    uint64_t z = (sim->random += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

/* ---- the queue of events -------------------------------------------------------------------- */

static bool earlier(const struct sim_event *a, const struct sim_event *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void swap(struct sim_event *a, struct sim_event *b)
{
    struct sim_event kept = *a;
    *a = *b;
    *b = kept;
}

void sim_at(struct sim *sim, int64_t at, enum sim_event_type type, int channel, unsigned epoch,
            const struct sim_msg *msg)
{
    if (sim->heap_len == sim->heap_room) {
        sim->heap = grow(sim->heap, &sim->heap_room, sizeof(sim->heap[0]));
    }
    int i = sim->heap_len++;
    sim->heap[i] = (struct sim_event){at, sim->order++, type, channel, epoch, {0}};
    if (msg != NULL) {
        sim->heap[i].msg = *msg;
    }
    for (; i > 0 && earlier(&sim->heap[i], &sim->heap[(i - 1) / 2]); i = (i - 1) / 2) {
        swap(&sim->heap[i], &sim->heap[(i - 1) / 2]);
    }
}

static struct sim_event take(struct sim *sim)
{
    struct sim_event first = sim->heap[0];
    sim->heap[0] = sim->heap[--sim->heap_len];
    for (int i = 0;;) {
        int least = i;
        for (int child = 2 * i + 1; child <= 2 * i + 2; child++) {
            if (child < sim->heap_len && earlier(&sim->heap[child], &sim->heap[least])) {
                least = child;
            }
        }
        if (least == i) {
            return first;
        }
        swap(&sim->heap[i], &sim->heap[least]);
        i = least;
    }
}

/* ---- the network ---------------------------------------------------------------------------- */

/* When what is sent now arrives, behind what was sent before. */
static int64_t arrival(struct sim *sim, int64_t *last)
{
    int64_t at = sim->now + 1 + (int64_t)sim_random(sim, (uint64_t)sim->scenario.delay_ns);
    *last = at > *last ? at : *last;
    return *last;
}

void sim_say(struct sim *sim, int channel, struct sim_msg msg)
{
    struct sim_channel *l = &sim->channels[channel];
    sim->messages++;
    sim_check_said(sim, channel, &msg);
    if (!l->cut) {
        sim_at(sim, arrival(sim, &l->up_ns), SIM_TO_CORE, channel, 0, &msg);
    }
}

void sim_close(struct sim *sim, int channel)
{
    struct sim_channel *l = &sim->channels[channel];
    l->alive = false;
    if (!l->cut) {
        sim_at(sim, arrival(sim, &l->up_ns), SIM_CLOSED, channel, 0, NULL);
    }
}

/* The agent has its own timer for that; the core's is in the core. */
void sim_lose(struct sim *sim, int channel)
{
    int64_t at = sim->now + HEARTBEAT_MS * SIM_MS * (100 + (int64_t)sim_random(sim, 50)) / 100;
    sim->channels[channel].cut = true;
    sim_at(sim, at, SIM_LOST, channel, 0, NULL);
}

static void on_send(void *data, struct ct_member *member, const struct ct_msg *msg)
{
    struct sim *sim = data;
    int channel = (int)(intptr_t)ct_member_conn(member);
    struct sim_channel *l = &sim->channels[channel];
    int64_t from = cpu_ns(sim);
    struct sim_msg brief = {
        .type = msg->type,
        .generation = msg->generation,
        .code = msg->exit_code,
        .signo = msg->signo,
        .serve = msg->world.serve,
        .will_restart = msg->will_restart,
    };
    sim->messages++;
    sim_check_sent(sim, channel, msg);
    if (!l->cut) {
        sim_at(sim, arrival(sim, &l->down_ns), SIM_TO_NODE, channel, 0, &brief);
    }
    sim->core_ns -= cpu_ns(sim) - from;
}

static void on_drop(void *data, struct ct_member *member)
{
    struct sim *sim = data;
    int channel = (int)(intptr_t)ct_member_conn(member);
    struct sim_channel *l = &sim->channels[channel];
    l->member = NULL;
    if (!l->cut) {
        sim_at(sim, arrival(sim, &l->down_ns), SIM_LOST, channel, 0, NULL);
    }
}

/* ---- what the core gets --------------------------------------------------------------------- */

int sim_new_line(struct sim *sim, int host)
{
    if (sim->num_channels == sim->room_lines) {
        sim->channels = grow(sim->channels, &sim->room_lines, sizeof(sim->channels[0]));
    }
    sim->channels[sim->num_channels] = (struct sim_channel){
        .host = host,
        .alive = true,
        .running_generation = -1,
        .failed_generation = -1,
        .told_generation = -1,
        .stopped_generation = -1,
        .has_stopped = -1,
        .workers = sim->scenario.workers + host % 2 * (sim->scenario.faults > 0),
    };
    struct sim_channel *l = &sim->channels[sim->num_channels];
    if (ct_agent_init(&l->agent, l->workers, NULL) != 0) {
        abort();
    }
    return sim->num_channels++;
}

void sim_enter(struct sim *sim, int channel)
{
    struct sim_channel *l = &sim->channels[channel];
    struct ct_err err;
    char address[32];
    (void)snprintf(sim->join.host, sizeof(sim->join.host), "gpu-%d", l->host);
    (void)snprintf(address, sizeof(address), "10.%d.%d.%d", l->host >> 16, l->host >> 8 & 255,
                   l->host & 255);
    bool wishes = sim->scenario.wishes && l->host < sim->scenario.max_nodes + sim->scenario.spares;
    sim->join.node_rank = wishes ? l->host : -1;
    sim->join.workers = l->workers;
    struct ct_member *member = NULL;
    l->joined = true;
    l->joined_ns = sim->now;
    int64_t from = cpu_ns(sim);
    int rc = ct_members_join(sim->members, &sim->join, address, (void *)(intptr_t)channel, sim->now,
                             &member, &err);
    sim->core_ns += cpu_ns(sim) - from;
    if (rc != 0) {
        sim_at(sim, arrival(sim, &l->down_ns), SIM_LOST, channel, 0, NULL); /* it is refused */
        return;
    }
    l->member = member;
    sim_at(sim, sim->now + HEARTBEAT_MS * SIM_MS / 3, SIM_BEAT, channel, 0, NULL);
}

static void deliver(struct sim *sim, int channel, const struct sim_msg *brief)
{
    struct ct_msg *msg = sim->msg;
    const struct sim_channel *l = &sim->channels[channel];
    if (l->member == NULL) {
        return;
    }
    msg->type = brief->type;
    msg->generation = brief->generation;
    msg->clock_ms = sim->now / SIM_MS + l->host;
    msg->port = 29500;
    msg->signo = brief->signo;
    msg->text[0] = '\0';
    msg->has_failure = brief->failure;
    msg->failure = (struct ct_failure){
        .rank = l->first_rank + brief->local_rank,
        .local_rank = brief->local_rank,
        .exit_code = brief->code,
        .permanent = brief->permanent,
    };
    if (brief->type == CT_MSG_SERVING && brief->generation == sim->newest &&
        sim->rounds[sim->newest].stops == 0 && !sim->preempted) {
        sim->rounds[sim->newest].served_ns = sim->now;
    }
    if (brief->type == CT_MSG_FAILED && brief->generation == sim->newest && !sim->preempted) {
        struct sim_round *round = &sim->rounds[sim->newest];
        round->failed = round->failed || round->stops == 0;
    }
    if (brief->type == CT_MSG_STOPPED) {
        sim->channels[channel].has_stopped = brief->generation;
    }
    int64_t from = cpu_ns(sim);
    ct_members_message(sim->members, l->member, msg, sim->now);
    sim->core_ns += cpu_ns(sim) - from;
    ct_failure_fini(&msg->failure);
}

static void step(struct sim *sim, const struct sim_event *event)
{
    struct sim_channel *l = event->channel >= 0 ? &sim->channels[event->channel] : NULL;
    switch (event->type) {
    case SIM_JOIN:
        sim_node_begin(sim, event->channel);
        break;
    case SIM_TO_CORE:
        deliver(sim, event->channel, &event->msg);
        break;
    case SIM_TO_NODE:
        if (l->alive && !l->cut) {
            sim_node_hear(sim, event->channel, &event->msg);
        }
        break;
    case SIM_CLOSED:
        if (l->member != NULL) {
            struct ct_member *member = l->member;
            l->member = NULL;
            sim->core_ns -= cpu_ns(sim);
            ct_members_gone(sim->members, member, "connection reset by peer", sim->now);
            sim->core_ns += cpu_ns(sim);
        }
        break;
    case SIM_LOST:
        if (l->alive) {
            l->cut = true;
            sim_node_lost(sim, event->channel);
        }
        break;
    case SIM_BEAT:
        if (l->alive && l->member != NULL) {
            sim_say(sim, event->channel, (struct sim_msg){.type = CT_MSG_BEAT});
            sim_at(sim, sim->now + HEARTBEAT_MS * SIM_MS / 3, SIM_BEAT, event->channel, 0, NULL);
        }
        break;
    case SIM_EXIT:
        if (l->alive && l->epoch == event->epoch) {
            struct ct_worker_end end = {.kind = CT_END_EXITED};
            if (event->msg.signo != 0) {
                end = (struct ct_worker_end){.kind = CT_END_SIGNALED, .value = event->msg.signo};
            }
            sim_node_exit(sim, event->channel, event->msg.local_rank, end);
        }
        break;
    case SIM_STOP_DONE:
        if (l->alive && l->epoch == event->epoch) {
            sim_node_stopped(sim, event->channel);
        }
        break;
    case SIM_FAULT:
        if (!members_done(sim->members)) {
            sim_faults(sim);
        }
        break;
    case SIM_TICK:
        sim->tick_ns = INT64_MAX;
        sim->core_ns -= cpu_ns(sim);
        ct_members_tick(sim->members, sim->now);
        sim->core_ns += cpu_ns(sim);
        break;
    }
}

/* The timer of whoever runs the core. An old, later one does no harm. */
static void set_timer(struct sim *sim)
{
    int64_t next = ct_members_next(sim->members);
    if (next < sim->tick_ns) {
        sim->tick_ns = next > sim->now ? next : sim->now;
        sim_at(sim, sim->tick_ns, SIM_TICK, -1, 0, NULL);
    }
}

static void begin(struct sim *sim)
{
    const struct sim_scenario *scenario = &sim->scenario;
    sim->join = (struct ct_msg_join){
        .run_id = "sim",
        .role = "default",
        .min_nodes = scenario->min_nodes,
        .max_nodes = scenario->max_nodes,
        .spares = scenario->spares,
        .max_restarts = scenario->max_restarts,
        .limits = scenario->limits,
        .settle_ms = 1000,
        .join_ms = 20000,
        .heartbeat_ms = HEARTBEAT_MS,
    };
    for (; sim->hosts < scenario->nodes; sim->hosts++) {
        int64_t at = sim->now + (int64_t)sim_random(sim, (uint64_t)SIM_S);
        sim_at(sim, at, SIM_JOIN, sim_new_line(sim, sim->hosts), 0, NULL);
    }
    for (int i = 0; i < scenario->faults + scenario->lose_one; i++) {
        /* All from the one generator at the beginning: fewer of them leave the first ones alone. */
        int64_t at = (int64_t)sim_random(sim, (uint64_t)scenario->span_ns);
        at = scenario->lose_one ? scenario->span_ns : at;
        sim_at(sim, sim->now + at, SIM_FAULT, -1, 0, NULL);
    }
}

int sim_run(struct sim *sim, const struct sim_scenario *scenario)
{
    const struct ct_members_options options = {.send = on_send, .drop = on_drop, .data = sim};
    memset(sim, 0, sizeof(*sim));
    sim->scenario = *scenario;
    sim->random = scenario->seed;
    sim->now = SIM_S;
    sim->tick_ns = INT64_MAX;
    sim->newest = -1;
    sim->msg = calloc(1, sizeof(*sim->msg));
    if (sim->msg == NULL || ct_members_new(&options, &sim->members) != 0) {
        abort();
    }
    begin(sim);
    /* Also when the core is done: agents that have lost it must end as well. */
    while (sim->heap_len > 0 && sim->broken[0] == '\0') {
        struct sim_event event = take(sim);
        sim->now = event.at;
        sim->events++;
        step(sim, &event);
        set_timer(sim);
        sim_check_step(sim);
        if (sim->now > LONGEST_NS) {
            sim_break(sim, "the job does not end", -1);
        }
    }
    sim_check_end(sim);
    return sim->broken[0] == '\0' ? 0 : -1;
}

void sim_fini(struct sim *sim)
{
    ct_members_free(sim->members);
    free(sim->msg);
    free(sim->heap);
    for (int i = 0; i < sim->num_channels; i++) {
        ct_agent_fini(&sim->channels[i].agent);
    }
    free(sim->channels);
    memset(sim, 0, sizeof(*sim));
}
