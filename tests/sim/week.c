/* SPDX-License-Identifier: Apache-2.0
 *
 * A job that runs for days on many machines, of which one fails every few minutes: which share of
 * the time is it useful? The real membership core, with its restart policy, decides about worlds,
 * restarts, pauses, spares and machines that are left out. Machines, their failures, checkpoints
 * and the time that a start takes are imagined, on a virtual clock.
 *
 *     sim_week KEY=VALUE ...      see `settings` below; prints one line of JSON
 *
 * Beats are left out: 10,000 machines send 6 billion of them in a week. The loss of a machine that
 * is silent comes to the core when its beats would have told it.
 */
#include "rendezvous/members/members.h"

#include "common/exit_code.h"
#include "common/num.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define S INT64_C(1000000000)
#define SILENCE_NS (3 * S)
#define RESET_NS (S / 10)
#define DELAY_NS (S / 1000)
/* A lemon fails so soon after its start. */
#define LEMON_NS (S / 2)

static const char *const names[] = {
    "nodes",     "spares",      "seed",           "hours",     "failure_s",      "start_s",
    "stop_s",    "step_s",      "checkpoint_s",   "write_s",   "lemons_per_day", "repair_h",
    "ban_after", "no_progress", "budget_per_day", "min_share", "expect_code",
};
enum setting {
    NODES,
    SPARES,
    SEED,
    HOURS,
    FAILURE_S,      /* mean time between failures of the whole job */
    START_S,        /* from the world to the first step: imports, data, NCCL */
    STOP_S,         /* until the last worker has ended */
    STEP_S,         /* one step */
    CHECKPOINT_S,   /* between checkpoints */
    WRITE_S,        /* that a checkpoint holds up the steps */
    LEMONS_PER_DAY, /* machines that begin to fail at each start */
    REPAIR_H,       /* until a lost machine is back, or one that is left out is replaced */
    BAN_AFTER,
    NO_PROGRESS,
    BUDGET_PER_DAY, /* restarts; 0 = no limit */
    MIN_SHARE,      /* for tests: less is a failure */
    EXPECT_CODE,    /* for tests: how the job has to end; -1 = it has to last */
    SETTINGS,
};
_Static_assert(sizeof(names) / sizeof(names[0]) == SETTINGS, "one name for each");

static double settings[SETTINGS] = {
    [NODES] = 10000,      [SPARES] = 64,  [SEED] = 1,      [HOURS] = 168,        [FAILURE_S] = 300,
    [START_S] = 60,       [STOP_S] = 3,   [STEP_S] = 1,    [CHECKPOINT_S] = 600, [WRITE_S] = 5,
    [LEMONS_PER_DAY] = 1, [REPAIR_H] = 4, [BAN_AFTER] = 3, [EXPECT_CODE] = -1,
};

enum event_type {
    JOIN,
    GONE,
    SERVING,
    STARTED,
    FAILED,
    STOPPED,
    NEXT_FAILURE,
    NEXT_LEMON,
    REPLACED,
    TICK
};

struct event {
    int64_t at;
    uint64_t order;
    enum event_type type;
    int machine, generation;
};

struct machine {
    struct ct_member *member; /* NULL = lost */
    int generation;           /* of the world it is in; -1 = none */
    int life;                 /* how often it was replaced by another one */
    bool lemon;
};

static struct week {
    struct ct_members *members;
    struct ct_msg_join join;
    struct ct_msg msg;
    struct machine *machines;
    int num_machines;
    struct event *heap;
    size_t heap_len, heap_room;
    uint64_t order, random;
    int64_t now, tick_ns, end_ns;
    /* the present generation */
    int generation, told, started, over_code;
    bool over, running, stopped;
    int64_t told_ns, running_ns, stopped_ns;
    double kept_s; /* work that a checkpoint or the end has made safe */
    /* what happened */
    int worlds, failures, banned;
    uint64_t messages;
    double useful_s, lost_s, writing_s, starting_s, stopping_s, waiting_s;
} week;

static void broken(const char *why)
{
    (void)fprintf(stderr, "broken at %.1f s, generation %d: %s\n", (double)week.now / S,
                  week.generation, why);
    exit(1);
}

/* splitmix64 (Vigna, public domain) */
static uint64_t draw(void)
{
    uint64_t z = (week.random += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static double fraction(void)
{
    return (double)(draw() >> 11) / (double)(UINT64_C(1) << 53);
}

static int64_t ns_of(double seconds)
{
    return (int64_t)(seconds * (double)S);
}

/* The time to the next of events that are independent of each other. */
static int64_t wait_ns(double mean_s)
{
    return ns_of(-mean_s * log(1 - fraction())) + 1;
}

/* ---- the queue ------------------------------------------------------------------------------ */

static bool earlier(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void at(int64_t when, enum event_type type, int machine, int generation)
{
    if (week.heap_len == week.heap_room) {
        week.heap_room = week.heap_room > 0 ? 2 * week.heap_room : 1024;
        week.heap = realloc(week.heap, week.heap_room * sizeof(*week.heap));
        if (week.heap == NULL) {
            abort();
        }
    }
    size_t i = week.heap_len++;
    const struct event event = {when, week.order++, type, machine, generation};
    for (; i > 0 && earlier(&event, &week.heap[(i - 1) / 2]); i = (i - 1) / 2) {
        week.heap[i] = week.heap[(i - 1) / 2];
    }
    week.heap[i] = event;
}

static struct event take(void)
{
    struct event first = week.heap[0], last = week.heap[--week.heap_len];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child + 1 < week.heap_len && earlier(&week.heap[child + 1], &week.heap[child])) {
            child++;
        }
        if (child >= week.heap_len || !earlier(&week.heap[child], &last)) {
            break;
        }
        week.heap[i] = week.heap[child];
        i = child;
    }
    week.heap[i] = last;
    return first;
}

/* ---- work ----------------------------------------------------------------------------------- */

/* Steps and checkpoints that have been done since all workers run. */
static void work_until(int64_t until_ns, double *done_s, double *writing_s, double *safe_s)
{
    double ran_s = (double)(until_ns - week.running_ns) / (double)S;
    double cycle_s = settings[CHECKPOINT_S] + settings[WRITE_S];
    double cycles = floor(ran_s / cycle_s), rest_s = ran_s - cycles * cycle_s;
    double more_s = rest_s < settings[CHECKPOINT_S] ? rest_s : settings[CHECKPOINT_S];
    *safe_s = cycles * settings[CHECKPOINT_S];
    *done_s = *safe_s + more_s;
    *writing_s = ran_s - *done_s;
}

static void end_running(bool lost)
{
    double done_s, writing_s, safe_s;
    if (!week.running) {
        return;
    }
    work_until(week.now, &done_s, &writing_s, &safe_s);
    week.running = false;
    week.useful_s += lost ? safe_s : done_s;
    week.lost_s += lost ? done_s - safe_s : 0;
    week.writing_s += writing_s;
    week.kept_s += lost ? safe_s : done_s;
}

/* Something has failed: from here to the end of the generation nothing is useful. */
static void interrupt(void)
{
    if (!week.stopped) {
        if (!week.running && week.told_ns > 0) {
            week.starting_s += (double)(week.now - week.told_ns) / (double)S;
        }
        end_running(true);
        week.stopped = true;
        week.stopped_ns = week.now;
    }
}

/* ---- the core ------------------------------------------------------------------------------- */

static void hear_world(int i, const struct ct_msg *msg)
{
    struct machine *machine = &week.machines[i];
    if (msg->world.serve) {
        if (msg->generation != week.generation + 1) {
            broken("generations do not grow by one");
        }
        if (week.stopped) { /* the world before has been stopped, and this one has formed */
            week.waiting_s += (double)(week.now - week.stopped_ns) / (double)S;
        }
        week.generation = msg->generation;
        week.told = week.started = 0;
        week.stopped = false;
        week.told_ns = week.now;
        week.worlds++;
        at(week.now + DELAY_NS, SERVING, i, week.generation);
    }
    if (msg->generation != week.generation || machine->generation == week.generation) {
        broken("a machine is told of another generation, or twice");
    }
    machine->generation = week.generation;
    week.told++;
    double start_s = settings[START_S] * (0.9 + 0.1 * fraction());
    at(week.now + ns_of(start_s), STARTED, i, week.generation);
    if (machine->lemon) {
        at(week.now + ns_of(start_s) + LEMON_NS, FAILED, i, week.generation);
    }
}

static void on_send(void *data, struct ct_member *member, const struct ct_msg *msg)
{
    int i = (int)(intptr_t)ct_member_conn(member);
    (void)data;
    week.messages++;
    if (msg->type == CT_MSG_WORLD) {
        hear_world(i, msg);
    } else if (msg->type == CT_MSG_STOP && week.machines[i].generation == msg->generation) {
        interrupt();
        week.machines[i].generation = -1;
        at(week.now + ns_of(settings[STOP_S] * fraction()) + 1, STOPPED, i, msg->generation);
    } else if (msg->type == CT_MSG_OVER) {
        week.over = true;
        week.over_code = msg->exit_code;
    } else if (msg->type == CT_MSG_SPARE && strstr(msg->text, "left out") != NULL) {
        week.banned++;
        at(week.now + ns_of(settings[REPAIR_H] * 3600), REPLACED, i, 0);
    }
}

static void on_drop(void *data, struct ct_member *member)
{
    (void)data;
    week.machines[(intptr_t)ct_member_conn(member)].member = NULL;
    broken("the core has dropped a member");
}

static void tell(int i, enum ct_msg_type type, int generation)
{
    struct ct_msg *msg = &week.msg;
    double done_s = 0, writing_s, safe_s;
    if (week.machines[i].member == NULL) {
        return;
    }
    memset(&msg->failure, 0, sizeof(msg->failure));
    msg->type = type;
    msg->generation = generation;
    msg->clock_ms = week.now / (S / 1000) + i;
    msg->port = 29500;
    msg->has_failure = type == CT_MSG_FAILED;
    if (type == CT_MSG_FAILED) {
        bool stepped = week.running;
        if (stepped) {
            work_until(week.now, &done_s, &writing_s, &safe_s);
        }
        int64_t first = (int64_t)(week.kept_s / settings[STEP_S]);
        int64_t last = (int64_t)((week.kept_s + done_s) / settings[STEP_S]);
        msg->failure.rank = msg->failure.local_rank = -1;
        msg->failure.exit_code = 1;
        msg->failure.early = week.machines[i].lemon;
        msg->failure.steps = (struct ct_steps){stepped && last > first, first, last};
    }
    ct_members_message(week.members, week.machines[i].member, msg, week.now);
    ct_failure_fini(&msg->failure);
}

static void join(int i)
{
    char address[32];
    struct ct_err err = {0};
    int life = week.machines[i].life;
    (void)snprintf(week.join.host, sizeof(week.join.host), "gpu-%d-%d", i, life);
    (void)snprintf(address, sizeof(address), "%d.%d.%d.%d", 10 + life % 100, i >> 16, i >> 8 & 255,
                   i & 255);
    week.machines[i].generation = -1;
    week.machines[i].lemon = false;
    if (ct_members_join(week.members, &week.join, address, (void *)(intptr_t)i, week.now,
                        &week.machines[i].member, &err) != 0) {
        week.machines[i].member = NULL;
        at(week.now + 60 * S, JOIN, i, 0); /* there is no room now */
    }
}

/* ---- what happens --------------------------------------------------------------------------- */

/* Returns a machine that works, or -1. */
static int some_machine(void)
{
    for (int tries = 0; tries < 1000; tries++) {
        int i = (int)(draw() % (uint64_t)week.num_machines);
        if (week.machines[i].member != NULL && week.machines[i].generation == week.generation &&
            week.generation >= 0) {
            return i;
        }
    }
    return -1;
}

/* Of ten failures, six are of a worker, two of a machine that ends, two of one that falls silent.
 */
static void fail(void)
{
    int i = some_machine();
    uint64_t kind = draw() % 10;
    if (i < 0 || week.stopped) {
        return;
    }
    week.failures++;
    if (kind < 6) {
        at(week.now, FAILED, i, week.generation);
    } else {
        interrupt(); /* the others wait for the machine in their next collective */
        at(week.now + (kind < 8 ? RESET_NS : SILENCE_NS), GONE, i, week.generation);
    }
}

/* Puts another machine in the place of one that is left out. */
static void replace(int i)
{
    struct ct_member *member = week.machines[i].member;
    if (member != NULL && week.machines[i].generation < 0) {
        week.machines[i].member = NULL;
        ct_members_gone(week.members, member, "connection reset by peer", week.now);
        week.machines[i].life++;
        join(i);
    }
}

static void lose(int i)
{
    struct ct_member *member = week.machines[i].member;
    if (member != NULL) {
        week.machines[i].member = NULL;
        week.machines[i].generation = -1;
        ct_members_gone(week.members, member, "connection reset by peer", week.now);
        at(week.now + ns_of(settings[REPAIR_H] * 3600), JOIN, i, 0);
    }
}

static void on_started(int i, int generation)
{
    if (week.machines[i].generation != generation || generation != week.generation) {
        return;
    }
    tell(i, CT_MSG_STARTED, generation);
    if (++week.started == (int)settings[NODES] && !week.stopped) {
        week.starting_s += (double)(week.now - week.told_ns) / (double)S;
        week.running = true;
        week.running_ns = week.now;
    }
}

static void step(const struct event *event)
{
    struct machine *machine = event->machine >= 0 ? &week.machines[event->machine] : NULL;
    switch (event->type) {
    case JOIN:
        join(event->machine);
        break;
    case GONE:
        lose(event->machine);
        break;
    case SERVING:
        tell(event->machine, CT_MSG_SERVING, event->generation);
        break;
    case STARTED:
        on_started(event->machine, event->generation);
        break;
    case FAILED:
        if (machine->generation == event->generation) {
            tell(event->machine, CT_MSG_FAILED, event->generation);
        }
        break;
    case STOPPED:
        tell(event->machine, CT_MSG_STOPPED, event->generation);
        break;
    case NEXT_FAILURE:
        fail();
        at(week.now + wait_ns(settings[FAILURE_S]), NEXT_FAILURE, -1, 0);
        break;
    case NEXT_LEMON:
        if (some_machine() >= 0) {
            int i = some_machine();
            week.machines[i].lemon = true;
            at(week.now, FAILED, i, week.generation);
        }
        at(week.now + wait_ns(86400 / settings[LEMONS_PER_DAY]), NEXT_LEMON, -1, 0);
        break;
    case REPLACED:
        replace(event->machine);
        break;
    case TICK:
        week.tick_ns = INT64_MAX;
        ct_members_tick(week.members, week.now);
        break;
    }
}

static void set_timer(void)
{
    int64_t next = ct_members_next(week.members);
    if (next < week.tick_ns) {
        week.tick_ns = next > week.now ? next : week.now;
        at(week.tick_ns, TICK, -1, 0);
    }
}

static void begin(void)
{
    const struct ct_members_options options = {.send = on_send, .drop = on_drop};
    int nodes = (int)settings[NODES], spares = (int)settings[SPARES];
    week.random = (uint64_t)settings[SEED];
    week.now = S;
    week.tick_ns = INT64_MAX;
    week.end_ns = week.now + ns_of(settings[HOURS] * 3600);
    week.generation = -1;
    week.num_machines = nodes + spares;
    week.machines = calloc((size_t)week.num_machines, sizeof(*week.machines));
    if (week.machines == NULL || ct_members_new(&options, &week.members) != 0) {
        abort();
    }
    week.join = (struct ct_msg_join){
        .run_id = "week",
        .role = "default",
        .node_rank = -1,
        .workers = 8,
        .min_nodes = nodes,
        .max_nodes = nodes,
        .spares = spares,
        .max_restarts = INT_MAX,
        .limits = {.max_no_progress = (int)settings[NO_PROGRESS],
                   .window_restarts = (int)settings[BUDGET_PER_DAY],
                   .window_ms = settings[BUDGET_PER_DAY] > 0 ? INT64_C(86400000) : 0,
                   .ban_after = (int)settings[BAN_AFTER]},
        .join_ms = CT_CONTROL_MAX_MS,
        .heartbeat_ms = CT_CONTROL_MAX_MS,
    };
    week.stopped = true;
    week.stopped_ns = week.now;
    for (int i = 0; i < week.num_machines; i++) {
        at(week.now + ns_of(10 * fraction()), JOIN, i, 0);
    }
    at(week.now + wait_ns(settings[FAILURE_S]), NEXT_FAILURE, -1, 0);
    if (settings[LEMONS_PER_DAY] > 0) {
        at(week.now + wait_ns(86400 / settings[LEMONS_PER_DAY]), NEXT_LEMON, -1, 0);
    }
}

static void read_settings(char **words)
{
    for (; *words != NULL; words++) {
        char *equals = strchr(*words, '=');
        size_t len = equals != NULL ? (size_t)(equals - *words) : 0, i = 0;
        while (i < SETTINGS && (strlen(names[i]) != len || strncmp(names[i], *words, len) != 0)) {
            i++;
        }
        if (i == SETTINGS || ct_parse_double(equals + 1, -1, 1e9, &settings[i]) != 0) {
            (void)fprintf(stderr, "sim_week: '%s' is not a setting with a number\n", *words);
            exit(2);
        }
    }
}

/* Every second of the week has to be counted once. */
static double finish(void)
{
    double all_s = (double)(week.now - S) / (double)S;
    if (!week.stopped && !week.running && week.told_ns > 0) {
        week.starting_s += (double)(week.now - week.told_ns) / (double)S;
    } else if (week.stopped) {
        week.waiting_s += (double)(week.now - week.stopped_ns) / (double)S;
    }
    end_running(false);
    double sum_s = week.useful_s + week.lost_s + week.writing_s + week.starting_s + week.waiting_s;
    if (fabs(sum_s - all_s) > 1e-6 * all_s) {
        broken("the parts of the time do not add up");
    }
    return all_s;
}

int main(int argc, char **argv)
{
    (void)argc;
    read_settings(argv + 1);
    begin();
    while (week.heap_len > 0 && !week.over) {
        struct event event = take();
        if (event.at > week.end_ns) {
            week.now = week.end_ns;
            break;
        }
        week.now = event.at;
        step(&event);
        set_timer();
    }
    double all_s = finish(), share = week.useful_s / all_s;
    (void)printf("{\"share\": %.4f, \"lost\": %.4f, \"writing\": %.4f, \"starting\": %.4f, "
                 "\"waiting\": %.4f, \"hours\": %.1f, \"worlds\": %d, \"failures\": %d, "
                 "\"left_out\": %d, \"messages\": %" PRIu64 ", \"exit_code\": %d}\n",
                 share, week.lost_s / all_s, week.writing_s / all_s, week.starting_s / all_s,
                 week.waiting_s / all_s, all_s / 3600, week.worlds, week.failures, week.banned,
                 week.messages, week.over ? week.over_code : -1);
    int code = week.over ? week.over_code : -1;
    ct_members_free(week.members);
    free(week.machines);
    free(week.heap);
    return share < settings[MIN_SHARE] || code != (int)settings[EXPECT_CODE];
}
