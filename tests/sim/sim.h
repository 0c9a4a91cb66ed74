/* SPDX-License-Identifier: Apache-2.0
 *
 * A job of many nodes in one process: the real membership core, the real agent core of each node,
 * imagined workers below and an imagined network between them, on a virtual clock. One event per
 * step, everything from one seed, and the rules of sim_check.c are looked at after each step.
 */
#ifndef CT_TESTS_SIM_SIM_H
#define CT_TESTS_SIM_SIM_H

#include "launcher/agent/agent.h"
#include "rendezvous/members/members.h"

#include <stdbool.h>
#include <stdint.h>

#define SIM_MS INT64_C(1000000)
#define SIM_S INT64_C(1000000000)
#define SIM_GENERATIONS 256

/* What a simulated job is made of, and what may go wrong in it. */
struct sim_scenario {
    uint64_t seed;
    int nodes; /* that come at the beginning */
    int workers;
    int min_nodes, max_nodes, spares, max_restarts;
    struct ct_restart_limits limits;
    bool wishes;      /* nodes ask for their index as node rank */
    int faults;       /* things that go wrong, at most; the first ones of the seed */
    int64_t span_ns;  /* in which they do */
    int64_t delay_ns; /* of a message, at most */
    int64_t work_ns;  /* how long workers run, at most */
    bool lose_one;    /* instead of faults: a node dies, and another comes */
};

/* What of a message matters here; struct ct_msg is large. */
struct sim_msg {
    enum ct_msg_type type;
    int generation, code, signo;
    int local_rank; /* of the worker that failed, or that ends */
    bool failure;   /* there is one: local_rank, code, permanent */
    bool permanent, serve, will_restart;
};

enum sim_event_type {
    SIM_JOIN,      /* a node connects */
    SIM_TO_CORE,   /* a message arrives */
    SIM_TO_NODE,   /* the other way */
    SIM_CLOSED,    /* the core sees the end of a connection */
    SIM_LOST,      /* a node sees it */
    SIM_BEAT,      /* of a node */
    SIM_EXIT,      /* a worker ends; void if `epoch` is old */
    SIM_STOP_DONE, /* a node has stopped its workers; likewise */
    SIM_FAULT,
    SIM_TICK,
};

struct sim_event {
    int64_t at;
    uint64_t order; /* first come, first served at one time */
    enum sim_event_type type;
    int channel; /* which connection, or -1 */
    unsigned epoch;
    struct sim_msg msg;
};

/* One life of a node's agent with its connection and its workers. */
struct sim_channel {
    int host;
    struct ct_member *member;          /* NULL = not (any more) known to the core */
    bool joined, alive, cut;           /* alive: the agent runs; cut: nothing passes */
    int64_t joined_ns, up_ns, down_ns; /* last delivery of each direction: they stay in order */

    struct ct_agent agent;
    int workers, first_rank;
    unsigned running;       /* bit per local rank */
    int running_generation; /* of which they are */
    bool stopping;          /* they have been told to end */
    unsigned epoch;         /* of their ends; grows when a stop makes new ones */
    bool no_store, no_exec; /* the next store or worker cannot be started */
    bool ended;             /* the agent has said that it is finished */
    int exit_code;          /* with which */

    /* What it has told the core. */
    bool left;
    bool finished;         /* of the generation it is in */
    int failed_generation; /* -1 = none */

    /* What the core has told it, for sim_check.c. */
    int told_generation, stopped_generation; /* -1 = none */
    int has_stopped; /* the last generation of which it has told that; -1 = none */
    int overs, preempts;
    bool spare;
};

/* What is known of one generation. */
struct sim_round {
    int node_count, world_size, told, stops, workers_told;
    int server;                /* channel of node rank 0 */
    int64_t restart_ns;        /* when it was decided that it is charged for a restart */
    bool failed;               /* a worker of it has, and it was stopped for that */
    int64_t served_ns;         /* the core knows that rank 0 serves; 0 = it does not */
    unsigned char taken[1024]; /* bit per node rank, 8192 and more are only counted */
    char master[CT_HOST_MAX];
};

struct sim {
    struct sim_scenario scenario;
    struct ct_members *members;
    struct ct_msg_join join;
    struct ct_msg *msg; /* scratch for the core */
    uint64_t random;
    int64_t now, tick_ns;
    struct sim_event *heap;
    int heap_len, heap_room;
    uint64_t events, order, messages;
    int64_t core_ns; /* real time spent in the membership core, the network's left out */
    struct sim_channel *channels;
    int num_channels, room_lines, hosts;
    struct sim_round rounds[SIM_GENERATIONS];
    int newest; /* generation that was told last; -1 = none */
    int restarts, over_code;
    bool over, preempted;
    char broken[256]; /* the rule that was; "" = none */
};

/* Runs a schedule to its end; returns 0 or -1 with `broken` set. Fini afterwards. */
int sim_run(struct sim *sim, const struct sim_scenario *scenario);
void sim_fini(struct sim *sim);

/* ---- between its files ---- */
uint64_t sim_random(struct sim *sim, uint64_t below); /* 0 to below - 1; below > 0 */
void sim_at(struct sim *sim, int64_t at, enum sim_event_type type, int channel, unsigned epoch,
            const struct sim_msg *msg);
void sim_say(struct sim *sim, int channel, struct sim_msg msg); /* node to core */
int sim_new_line(struct sim *sim, int host);
void sim_close(struct sim *sim, int channel); /* loudly */

void sim_lose(struct sim *sim, int channel);  /* silently, for both */
void sim_enter(struct sim *sim, int channel); /* the agent's JOIN is at the core */

void sim_node_begin(struct sim *sim, int channel);
void sim_node_hear(struct sim *sim, int channel, const struct sim_msg *msg);
void sim_node_lost(struct sim *sim, int channel);
void sim_node_exit(struct sim *sim, int channel, int local_rank, struct ct_worker_end end);
void sim_node_stopped(struct sim *sim, int channel);
void sim_node_signal(struct sim *sim, int channel, int signo);
void sim_faults(struct sim *sim);

void sim_break(struct sim *sim, const char *rule, int channel);
void sim_check_said(struct sim *sim, int channel, const struct sim_msg *msg); /* by an agent */
void sim_check_spawn(struct sim *sim, int channel, int local_rank);
void sim_check_obeyed(struct sim *sim, int channel, const struct sim_msg *msg);
void sim_check_finish(struct sim *sim, int channel);
void sim_check_sent(struct sim *sim, int channel, const struct ct_msg *msg);
void sim_check_step(struct sim *sim);
void sim_check_end(struct sim *sim);

#endif
