/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the membership core share; rendezvous/members/members.h says what it does.
 *
 *     members.c         life of the core, messages, silence, time
 *     members_join.c    who may join, and who has left which place
 *     members_rank.c    node ranks and ranks of a world (pure)
 *     members_form.c    from the first member to a world that runs
 *     members_round.c   the end of a world and of the job
 *     members_story.c   who is to blame
 *     members_wait.c    for whom the world waits, in words
 *     members_hang.c    who holds all others up
 *     members_status.c  the job in the status
 */
#ifndef CT_RENDEZVOUS_MEMBERS_MEMBERS_IMPL_H
#define CT_RENDEZVOUS_MEMBERS_MEMBERS_IMPL_H

#include "common/clock.h"
#include "common/list.h"
#include "common/sm.h"
#include "rendezvous/members/members.h"
#include "rendezvous/store/budget.h"

/* Newcomers to a running elastic job within this time are taken in by one restart: long enough for
 * the machines of one allocation, short against the start of any worker. */
#define NEWCOMERS_NS (200 * CT_NS_PER_MS)
/* Waiting members are told at most this often, so that the arrival of n nodes costs n messages per
 * second and not n for each. */
#define WAITING_LEAST_NS CT_NS_PER_S
/* Failures kept of one generation: what follows the first few are consequences. Below
 * CT_STORY_KEPT, so that the generation before is not forgotten. */
#define ROUND_FAILURES_KEPT 8
/* After how many early failures in a row the next start is held back, and how long. */
#define EARLY_FREE 1
#define EARLY_FIRST_MS 1000
#define EARLY_LAST_MS 30000
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
    int wish;        /* node rank by flag or by ct_members_options.expected; -1 = any */
    bool wish_given; /* by flag */
    uint64_t order;  /* of joining */
    int64_t heard_ns;
    int64_t alive_ns;          /* when its silence began, or was excused last */
    struct ct_hang_vote still; /* what it said of itself last */
    int64_t clock_ns;          /* server's clock less its own, the smallest seen; NEVER = unknown */
    struct ct_worker_row *rows; /* of the last BEAT or STARTED that had any; may be NULL */
    int num_rows;               /* not more than `workers` */
    size_t charged;             /* to the budget, rows for all workers included */

    /* Of the present world or, while there is none, of the last; -1 = in neither. */
    int node_rank, first_rank, first_role_rank, role_size;
    bool in_world; /* of the generation that is being formed, runs or stops */
    bool told;     /* of that world */
    bool started, finished, stopped;
    bool says_spare; /* was told so */
};

/* Who had a node rank and is not there any more. */
struct gone {
    int64_t left_ns;
    char *host, *address; /* one block, with this struct */
};

/* One per node rank that a member may wish for. */
struct place {
    struct ct_member *wisher;
    struct gone *gone;
};

struct ct_members {
    struct ct_members_options options;
    char **expected;
    int *expected_order; /* indices by name, for a binary search */
    struct ct_sm sm;
    bool begun; /* `job` is decided */
    struct ct_msg_join job;

    struct ct_list all, silence;
    int count;                 /* members */
    int64_t workers;           /* of all */
    uint64_t joined_ever;      /* ct_member.order */
    struct ct_member **sorted; /* scratch with room for all members */
    int room;                  /* in `sorted` */
    struct place *places;
    int num_places;
    size_t kept;  /* bytes taken from the budget for what is not a member's */
    int num_gone; /* places that remember somebody */

    int generation; /* of the present or last world; -1 before the first */
    int node_count, world_size, last_node_count;
    int restarts;              /* of the budget that are used */
    int to_stop;               /* told members of the world that have not stopped */
    int unstarted, unfinished; /* members of the world */
    bool any_finished;
    bool charged; /* this generation has used one of the budget */
    bool will_restart;
    struct ct_member *server; /* node rank 0 of the world, while it is there */
    char master_addr[CT_HOST_MAX];
    uint16_t master_port;
    char store_addr[CT_HOST_MAX]; /* by which other machines come to the store; "" = none has */

    int preempted; /* signal, 0 = no */
    bool unclean;  /* some workers did not end with 0 in the preemption */
    char preempt_why[CT_STORY_WHAT_MAX];
    int64_t preempt_deadline_ms;

    int64_t gather_ns;                                /* when the wait for the world begins */
    int64_t join_ns, settle_ns, newcomers_ns, say_ns; /* deadlines or NEVER */
    int64_t pause_ns;                                 /* no world forms before; NEVER = no pause */
    int early_row;                                    /* generations that failed early */
    int64_t said_ns;  /* last WAITING; INT64_MIN = none in this wait */
    int64_t judge_ns; /* silence is not judged before */

    bool hang_told;         /* nobody has moved since */
    int64_t hang_looked_ns; /* whether all stand still */

    struct ct_story story;
    uint64_t round_failures_from;             /* first failure of the generation in the story */
    int64_t happened_ns[ROUND_FAILURES_KEPT]; /* of each since then */
    int exit_code;                            /* when OVER */
    char over_why[CT_STORY_WHAT_MAX];
    struct ct_msg msg; /* scratch for what is sent; borrows all it holds */
};

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

/* The budget's, if somebody counts. */
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

/* ---- members_join.c ---- */
/* Decides what the job is. CT_ENOMEM, CT_ELIMIT (over the budget). */
CT_MUST_CHECK int members_begin(struct ct_members *m, const struct ct_msg_join *job,
                                struct ct_err *err);
/* Copies. CT_ENOMEM leaves what ct_members_free() frees. */
CT_MUST_CHECK int members_expect(struct ct_members *m, const char *const *names, int count);
/* Takes the member out of every list and frees it; remembers who it was if `remember`. */
void members_remove(struct ct_members *m, struct ct_member *member, bool remember, int64_t now_ns);
void members_forget_gone(struct ct_members *m);

/* ---- members_rank.c ---- */
/* Numbers `nodes` from 0 to n - 1; reads wish, node_rank, host, order, sets node_rank and sorts the
 * array by it. */
void members_number(struct ct_member **nodes, int n);
/* Sets first_rank, first_role_rank and role_size of the sorted array; returns the world size.
 * Leaves the array sorted by node rank. */
int members_rank(struct ct_member **nodes, int n);

/* ---- members_form.c ---- */
/* The world is to be formed (again), after a pause: sets the time limits. */
void members_gather(struct ct_members *m, int64_t pause_ms, int64_t now_ns);
/* The pause is over. */
void members_resume(struct ct_members *m, int64_t now_ns);
/* Somebody came or went while the world is not complete: is it now? */
void members_consider(struct ct_members *m, int64_t now_ns);
void members_form(struct ct_members *m, int64_t now_ns);
void members_serving(struct ct_members *m, const struct ct_msg *msg, int64_t now_ns);
/* Members that are not in the running world: into the next one soon, or spares. */
void members_place_waiting(struct ct_members *m, int64_t now_ns);
void members_say_waiting(struct ct_members *m, int64_t now_ns);

/* ---- members_round.c ---- */
void members_no_timers(struct ct_members *m);
extern const struct ct_sm_state members_states[];
/* Empties and gives the scratch message, then sends it. */
struct ct_msg *members_msg(struct ct_members *m, enum ct_msg_type type);
void members_send(struct ct_members *m, struct ct_member *member);
void members_arrived(struct ct_members *m, int64_t now_ns);
/* Frees the member. `connected`: it has to be dropped. */
void members_left(struct ct_members *m, struct ct_member *member, enum ct_failure_kind kind,
                  const char *why, bool connected, int64_t now_ns);
void members_failed(struct ct_members *m, struct ct_member *member, struct ct_failure *failure,
                    int64_t happened_ns, int64_t now_ns);
void members_finished(struct ct_members *m, struct ct_member *member, int64_t now_ns);
void members_stopped(struct ct_members *m, struct ct_member *member, int64_t now_ns);
void members_preempt(struct ct_members *m, const struct ct_member *member, const struct ct_msg *msg,
                     int64_t now_ns);
void members_timers(struct ct_members *m, int64_t now_ns);

/* ---- members_story.c ---- */
/* Takes the texts of *failure; sets its generation and time. Returns whether it is now the first of
 * its generation. */
bool members_record(struct ct_members *m, struct ct_failure *failure, int64_t happened_ns);
/* STOPPED tells again, with the texts. */
void members_complete(struct ct_members *m, struct ct_failure *failure);
/* The loss of a node as a failure. */
void members_loss(const struct ct_member *member, enum ct_failure_kind kind, const char *why,
                  struct ct_failure *out);
/* Where it really is; "" for one on this machine. */
const char *members_address(const struct ct_member *member);
/* "gpu-7 at 10.0.0.6": the name that it gives itself, and that. */
#define MEMBER_NAME_MAX 192
void members_name(const struct ct_member *member, char out[MEMBER_NAME_MAX]);
void members_describe(const struct ct_failure *failure, char *out, size_t size);
struct ct_story_round *members_round(struct ct_members *m); /* the last; there must be one */

/* ---- members_hang.c ---- */
/* What a beat says of the workers of a member. */
void members_stand_still(struct ct_members *m, struct ct_member *member,
                         const struct ct_hang_vote *still, int64_t now_ns);

/* ---- members_wait.c ---- */
/* Calls fn with a line on each place that is missing. */
typedef void (*members_missing_fn)(void *data, const char *text);
void members_missing(const struct ct_members *m, int64_t now_ns, members_missing_fn fn, void *data);
/* All of it in one line, long lists shortened. */
void members_waiting_text(const struct ct_members *m, int64_t now_ns, char *out, size_t size);

#endif
