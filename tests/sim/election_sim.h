/* SPDX-License-Identifier: Apache-2.0
 *
 * Many agents, each with the real election core, and one or more of them with the real office of a
 * host, in one process on virtual clocks. What a host does besides (who is in the next world, when
 * it ends) is a small model of the membership; the network and the workers are imagined. Everything
 * comes from one seed. The rules of check_*() are looked at when something happens that could break
 * them.
 */
#ifndef CT_TESTS_SIM_ELECTION_SIM_H
#define CT_TESTS_SIM_ELECTION_SIM_H

#include "rendezvous/election/arbiter.h"
#include "rendezvous/election/election.h"
#include "rendezvous/election/host_loss.h"
#include "rendezvous/election/office.h"

#include <stdbool.h>
#include <stdint.h>

#define MS INT64_C(1000000)
#define SEC INT64_C(1000000000)
#define LEASE (3 * SEC)
#define BEAT (LEASE / 6)
#define MACHINES 12
#define LIVES 64
#define CONNS 1024
#define TERMS 256

struct plan {
    uint64_t seed;
    int machines, nodes, spares, max_restarts, faults;
    bool daemon;            /* the first host is no agent */
    bool arbiter;           /* there is one, on the last machine; then nobody is the first host */
    bool lose_host;         /* one fault only: the host dies */
    bool cut_host;          /* or: the daemon cannot be reached for some seconds */
    bool far_terms;         /* agents of one machine name the last term of all */
    bool bursts;            /* faults come in groups of three */
    bool strikes;           /* hosts that were just elected are killed at once, ... */
    bool twice;             /* ... and nothing else happens after the death of the first host */
    bool silent_first;      /* of these two, the first host's machine is cut off instead, ... */
    bool silent_second;     /* ... or the second one's */
    bool cut_other;         /* or another machine is cut off at the same moment */
    bool same_port;         /* a later life on the first machine listens where the former one did */
    int wall_from, wall_to; /* a firewall refuses all connections between them; 0, 0 = there is none
                             */
    int64_t span, delay;
};

enum kind {
    TIMER,   /* of a life: its tick */
    WORK,    /* its workers end */
    STOPPED, /* they have stopped */
    COMES,   /* a new life begins on a machine */
    STRIKE,  /* it is killed, if it hosts */
    FAULT,
    HEALS,
    PACKET, /* a datagram */
    STREAM, /* a message of a connection */
};

enum what {
    P_ASK,
    P_ANSWER,
    P_PROBE,
    P_THERE, /* the port has taken the connection */
    P_DEAD,  /* or has refused it */
    P_CONNECT,
    P_UP,
    P_REFUSED,
    P_READ, /* to the arbiter's store, and its answer */
    P_WRITE,
    P_VALUE,
    S_JOIN,
    S_BEAT,
    S_LEASE,
    S_RECORD,
    S_PLEDGE,
    S_WORLD,
    S_STOP,
    S_STOPPED,
    S_FINISHED,
    S_FAILED,
    S_OVER,
    S_END,
};

struct event {
    int64_t at;
    uint64_t order;
    enum kind kind;
    enum what what;
    int to, from; /* lives; FAULT, HEALS: machines */
    int conn;
    uint64_t seq;                 /* STREAM: place in its direction */
    bool up;                      /* STREAM: from the agent to the host */
    int generation, code, record; /* record: number in the pool, -1 = none */
    int64_t ns, sent;
    uint64_t id;
    struct ct_vote_ask ask;
    struct ct_vote_answer answer;
    struct ct_voter host;
    int value; /* number in the pool of the arbiter's values */
    int64_t revision;
    bool written;
    bool reaches; /* of a question whose answer does not matter, and of the answer */
};

/* What an agent has asked the arbiter's store, one thing at a time. */
struct errand {
    enum { E_NONE, E_READ, E_WRITE } doing;
    bool serves; /* as host; else it asks for itself */
    bool looked; /* the value was read since it began */
    uint64_t number;
    int64_t sent, began; /* its clock; the world's */
    struct ct_arbiter_state next;
    struct ct_vote_answer answer;
};

struct conn {
    int agent, host; /* lives */
    bool agent_open, host_open;
    uint64_t sent[2], taken[2]; /* by direction: 0 down, 1 up */
    int64_t last[2];
};

enum host_state { H_NONE, H_GATHER, H_PROPOSING, H_RUN, H_STOPPING, H_OVER };

struct member {
    bool used;
    int conn;
    bool gone, dead, fresh, in_world, stopped, finished;
    int64_t heard; /* host's clock */
};

struct life {
    int machine;
    bool alive, agent;
    int64_t paused_until;
    int64_t rate, offset; /* its clock: time * rate / 1000 + offset */
    struct ct_election election;
    struct ct_arbiter arbiter;
    struct errand errand;
    struct ct_vote_ask question; /* that it has for the arbiter; id 0 = none */
    bool arbiter_there;          /* as host: it has answered the last time */
    int64_t arbiter_heard;       /* its clock; INT64_MIN = never */
    int64_t serve_ns;
    uint64_t served_version;
    int conn;     /* to its host; -1 = none */
    bool dialing; /* a connection is being made */
    int64_t dialed;
    uint64_t dialed_id;
    int64_t up_ns; /* when the connection came up */
    bool joined;
    int64_t pledged_ns, beat_ns, looked_ns, born_ns;
    bool followed;       /* it has had a host */
    bool reached[LIVES]; /* whose port has taken a connection from here */
    int running;         /* generation; -1 = no workers run */
    bool stopping;
    int seen_generation; /* of the last world */
    uint64_t work;       /* number of the present work; older ends are void */
    bool ended;
    int exit_code;
    /* as host */
    enum host_state state;
    struct ct_office office;
    struct member members[LIVES];
    bool known_dead[LIVES];
    bool ending;
    int end_code;
    int restarts; /* of the budget that are used */
    bool charged; /* the newest generation has used one */
    bool served;  /* a world has begun in its term */
    bool forgot;  /* it is a daemon that has forgotten the job, or a later life of one */
    struct ct_host_loss loss; /* that has ended the newest generation */
    int64_t since, begun, fence, over_ns, probed_ns;
};

struct sim_el {
    struct plan plan;
    uint64_t random, order, events;
    int64_t now;
    struct event *heap;
    int heap_len, heap_room;
    struct life lives[LIVES];
    int num_lives;
    int on_machine[MACHINES]; /* life; -1 = none */
    bool blocked[MACHINES][MACHINES];
    struct conn conns[CONNS];
    int num_conns;
    struct ct_job_record *records; /* that were sent; messages have their numbers */
    int num_records, record_room;
    struct ct_arbiter_state *values; /* that were to be written to the arbiter's store */
    int num_values, value_room;
    int stored;            /* number of the one that is there */
    int64_t revision;      /* 0 = none is */
    uint64_t terms[TERMS]; /* that had a host */
    int num_terms;
    int started;  /* newest generation whose world has begun; -1 */
    int restarts; /* that its record had */
    bool over;
    int over_code;
    int takeovers, restarted, struck;
    int64_t struck_at; /* plan.twice: when the second host was killed */
    bool calm;         /* no more faults: everything must come to an end */
    char broken[256];
};

int el_run(struct sim_el *sim, const struct plan *plan);
void el_fini(struct sim_el *sim);

/* ---- network ---- */
uint64_t el_random(struct sim_el *sim, uint64_t below);
void el_break(struct sim_el *sim, const char *rule, int life);
struct event *el_event(struct sim_el *sim, int64_t at, enum kind kind, int to);
int64_t el_clock(const struct sim_el *sim, int life);
int64_t el_when(const struct sim_el *sim, int life, int64_t clock);
void el_push(struct sim_el *sim, const struct event *event);
void el_schedule(struct sim_el *sim, struct event event, int64_t at);
void el_packet(struct sim_el *sim, int from, int machine, const struct event *event);
void el_stream(struct sim_el *sim, int conn, bool up, const struct event *event);
int el_intern(struct sim_el *sim, const struct ct_job_record *record);
void el_kill(struct sim_el *sim, int life);
void el_daemon_forgets(struct sim_el *sim, int life);
int el_new_life(struct sim_el *sim, int machine, bool agent);

struct event el_plain(enum what what);
void el_probe(struct sim_el *sim, int life, uint64_t id);
void el_reach(struct sim_el *sim, int life);
void el_end_life(struct sim_el *sim, int life, int code);

/* ---- faults ---- */
void el_fault(struct sim_el *sim);
/* Nobody hears this machine any more. */
void el_silence(struct sim_el *sim, int machine);

/* ---- agents ---- */
void el_agent_up(struct sim_el *sim, int life, const struct ct_voter *host, uint64_t term,
                 int conn);
void el_agent_forget_link(struct sim_el *sim, int life);
void el_agent_tick(struct sim_el *sim, int life);
void el_agent_packet(struct sim_el *sim, int life, const struct event *event);
void el_agent_hear(struct sim_el *sim, int life, const struct event *event);
void el_agent_lost(struct sim_el *sim, int life);
void el_agent_stopped(struct sim_el *sim, int life);
void el_agent_work(struct sim_el *sim, int life, const struct event *event);
void el_todo(struct sim_el *sim, int life, const struct ct_election_todo *todo);
int el_machine_of(const char *address);

/* ---- arbiter ---- */
void el_arbiter_ask(struct sim_el *sim, int life, const struct ct_vote_ask *ask);
void el_arbiter_tick(struct sim_el *sim, int life);
void el_arbiter_store(struct sim_el *sim, int life, const struct event *event);
void el_arbiter_value(struct sim_el *sim, int life, const struct event *event);
/* The arbiter has pledged, or is there or not any more. */
void el_host_served(struct sim_el *sim, int life, uint64_t term, uint64_t version);
void el_host_unserved(struct sim_el *sim, int life);
uint64_t el_host_void(struct sim_el *sim, int life, uint64_t id);

/* ---- hosts ---- */
void el_host_begin(struct sim_el *sim, int life, uint64_t lost, uint64_t term,
                   const struct ct_job_record *record, int64_t fence);
void el_host_tick(struct sim_el *sim, int life);
void el_host_hear(struct sim_el *sim, int life, const struct event *event);
void el_host_closed(struct sim_el *sim, int life, int conn);
void el_host_dead(struct sim_el *sim, int life, uint64_t id);
void el_host_close(struct sim_el *sim, int life);

#endif
