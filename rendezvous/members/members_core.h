/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of the membership core and of its members. For the files of the core alone; members.h
 * says what the core does.
 *
 *     members.c          life of the core, messages, silence, time
 *     members_join.c     may this node join? the first and the last moment of a member
 *     members_place.c    which node is expected at, wants, or has left which node rank
 *     members_rank.c     node ranks and ranks of a world (pure)
 *     members_round.c    the state machine: a world forms, runs and ends; the job ends
 *     members_history.c  failures and generations on record
 *     members_ban.c      which machines are left out
 *     members_budget.c   may another generation follow, and when?
 *     members_wait.c     which nodes the world waits for, in words, told to those who wait
 *     members_hang.c     does the whole job hang, and which rank holds it up
 *     members_status.c   the job in the status
 *     members_failover.c what is pledged, so that the job outlives its host
 */
#ifndef CT_RENDEZVOUS_MEMBERS_MEMBERS_CORE_H
#define CT_RENDEZVOUS_MEMBERS_MEMBERS_CORE_H

#include "common/clock.h"
#include "common/list.h"
#include "common/sm.h"
#include "rendezvous/members/members.h"
#include "rendezvous/members/members_place.h"
#include "rendezvous/store/budget.h"

/* Failures kept of one generation; later ones are consequences. Fewer than CT_FAILURE_HISTORY_KEPT,
 * so that the generation before is not forgotten. */
#define ROUND_FAILURES_KEPT 8
#define NEVER INT64_MAX

enum members_state {
    STATE_GATHERING,
    STATE_FORMING,
    STATE_RUNNING,
    STATE_STOPPING,
    STATE_OVER,
};

struct ct_member {
    struct ct_list link;    /* in ct_members.all, by time of joining */
    struct ct_list silence; /* in ct_members.silence, by alive_ns */
    void *conn;
    char *host, *role, *address; /* one block, at `host` */
    int64_t pid;
    int workers;
    int wish;                   /* node rank by flag or by ct_members_options.expected; -1 = any */
    bool wish_given;            /* by flag */
    uint64_t order;             /* of joining: the n-th that ever joined */
    struct ct_voter voter;      /* id 0 = it has no vote */
    int64_t said_ns;            /* when what was heard last was sent, as far as that is known */
    int64_t heard_ns;           /* when its last message came */
    int64_t alive_ns;           /* when its silence began, or was last excused */
    struct ct_hang_vote still;  /* what its last beat said: do its workers stand still? */
    struct ct_hang_report hang; /* of its last beat */
    struct ct_warm_facts warm;  /* of its last beat */
    bool can_stand;             /* its agent understands a verdict that asks */
    bool stood;                 /* it has answered the last one */
    char *stands;               /* its answer; NULL = none */
    int64_t clock_ns;  /* our clock minus its own, as of the fastest message; NEVER = unknown */
    int64_t mapped_ns; /* when that was looked at last */
    struct ct_worker_row *rows; /* of the last BEAT or STARTED that had any; may be NULL */
    int num_rows;               /* not more than `workers` */
    size_t charged;             /* to the budget, rows for all workers included */

    /* Of the present world or, while there is none, of the last; -1 = in neither. */
    int node_rank, first_rank, first_role_rank, role_size;
    int former_rank; /* node_rank before the last attempt to form a world */
    bool in_world;   /* it is in the world that is being formed, runs or stops */
    bool told;       /* it has been told of that world */
    bool started, finished, stopped;
    bool no_check;   /* the command of its check could not be run there */
    bool told_spare; /* it has been told that it is a spare */
    bool served;     /* it has been in a world, or knew of one when it joined */
    bool left_out;   /* no world takes it, unless there are not enough others */
};

/* Deadlines of the state machine; NEVER = none. */
struct members_deadlines {
    int64_t join_ns;      /* the world must have formed, then it must be pledged, and then rank 0
                             must serve, by then */
    int64_t settle_ns;    /* an elastic world that could form waits until then for more nodes */
    int64_t newcomers_ns; /* when the world is stopped to take in newcomers */
    int64_t say_ns;       /* when the waiting members are told which nodes are missing */
    int64_t fence_ns;     /* until then somebody else may run the last world (docs/FAILOVER.md) */
    int64_t pause_ns;     /* no world forms before this time, after generations that failed early */
};

struct ct_members {
    struct ct_members_options options;
    struct ct_sm sm;
    bool begun; /* `job` is decided */
    struct ct_msg_join job;

    struct ct_list all, silence;
    int count;                 /* members */
    int num_left_out;          /* of them, how many are left out */
    int64_t workers;           /* of all */
    uint64_t joined_ever;      /* ct_member.order */
    struct ct_member **sorted; /* scratch with room for all members */
    int room;                  /* in `sorted` */
    struct members_places places;
    size_t kept; /* bytes taken from the budget for the core itself */

    int generation; /* of the present or last world; -1 before the first */
    int node_count, world_size, last_node_count;
    int restarts;              /* of the budget that are used */
    int to_stop;               /* told members of the world that have not stopped */
    int unstarted, unfinished; /* members of the world */
    bool any_finished;
    bool charged; /* this generation has used one of the budget */
    bool judged;  /* it has been counted whether this generation made progress */
    bool will_restart;
    struct ct_restarts counts; /* what is counted against the job's limits */
    /* Why no restart follows although some are left, and the exit code then; "" and 0 = they are
     * used up, or the failure says so itself. */
    char no_restart[CT_FAILURE_WHAT_MAX];
    int no_restart_code;
    struct ct_member *server; /* node rank 0 of the world, while it is there */
    char master_addr[CT_HOST_MAX];
    uint16_t master_port;
    char ports[CT_CONTROL_PORTS_MAX]; /* that the server has reserved for programs */
    char store_addr[CT_HOST_MAX]; /* the address by which other machines reach the store; "" = none
                                     has */
    char here_addr[CT_HOST_MAX];  /* the one by which agents of this machine do */

    struct members_failover *failover; /* NULL = the job ends with this host */
    bool settled;  /* GATHERING: the wait for more nodes is over, and only the fence is left */
    bool pledging; /* FORMING: the world is not certain yet; OVER: the end is not */

    int preempted; /* the signal by which the job is asked to end; 0 = it is not */
    bool unclean;  /* some workers did not end with 0 after the preemption */
    char preempt_why[CT_FAILURE_WHAT_MAX];

    struct members_deadlines due;
    int64_t gather_ns; /* when the wait for the world began, or will begin after a pause */
    int64_t said_ns;   /* when waiting members were last told; INT64_MIN = not in this wait */
    int64_t awake_ns;  /* when this process last went on after it had not run for a while;
                          INT64_MIN = it has always run */
    int64_t paused_ms; /* before the world that forms */
    int early_row;     /* generations in a row that failed early */

    bool hang_told;           /* all know which rank holds the job up; no worker has moved since */
    int64_t hang_looked_ns;   /* when the core last added up the votes */
    int64_t stands_due_ns;    /* when the answers to `hang` are judged at the latest;
                                 NEVER = none are awaited */
    struct ct_hang_vote hang; /* the newest verdict that asks */
    int hang_asked;           /* verdicts that asked in the generation of `hang` */
    int64_t hang_ask_ns;      /* none asks before this time, if one has asked in this generation */

    struct ct_failure_history history;
    uint64_t round_failures_from; /* number of the generation's first failure there */
    /* When each of its failures happened; NEVER = it is a loss that did no harm. */
    int64_t order_ns[ROUND_FAILURES_KEPT];
    int exit_code; /* when OVER */
    char over_why[CT_FAILURE_WHAT_MAX];
    struct ct_msg msg;   /* scratch for what is sent; borrows all it holds */
    struct ct_buf frame; /* what msg.frame points to */
};

/* "gpu-7 at 10.0.0.6" */
#define MEMBER_NAME_MAX 192

#define MEMBER_OF(ptr, link) CT_CONTAINER_OF(ptr, struct ct_member, link)
#define EACH_MEMBER(m, pos) \
    for (struct ct_list *pos = (m)->all.next; pos != &(m)->all; pos = pos->next)

static inline int members_state(const struct ct_members *m)
{
    return (int)m->sm.state;
}

static inline bool members_elastic(const struct ct_members *m)
{
    return m->job.min_nodes < m->job.max_nodes;
}

/* Unix time. */
static inline int64_t members_ms(const struct ct_members *m, int64_t now_ns)
{
    return m->options.epoch_ms + now_ns / CT_NS_PER_MS;
}

/* Takes from the budget of memory, if there is one. */
static inline bool members_take(struct ct_members *m, size_t bytes)
{
    return m->options.budget == NULL || ct_budget_take(m->options.budget, bytes);
}

static inline void members_give(struct ct_members *m, size_t bytes)
{
    if (m->options.budget != NULL) {
        ct_budget_give(m->options.budget, bytes);
    }
}

/* ---- members.c ------------------------------------------------------------------------------ */

/* Empties the scratch message and returns it, for members_send(). */
struct ct_msg *members_msg(struct ct_members *m, enum ct_msg_type type);

/* Between the two, the scratch message is sent to several members as it is, so that it is encoded
 * only once. Without memory each send encodes it. */
void members_same_begin(struct ct_members *m);
void members_same_end(struct ct_members *m);

/* Sends the scratch message to one member, to all, or to all of the world. */
void members_send(struct ct_members *m, struct ct_member *member);
void members_send_all(struct ct_members *m);
void members_send_world(struct ct_members *m);

/* The member's address as the server sees it; "" for one on this machine. */
const char *members_address(const struct ct_member *member);

/* The name that the member gives itself, and its address. */
void members_name(const struct ct_member *member, char out[MEMBER_NAME_MAX]);

#endif
