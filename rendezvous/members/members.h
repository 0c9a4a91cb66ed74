/* SPDX-License-Identifier: Apache-2.0
 *
 * The membership of one job: which nodes are expected, which have come, which are missing, which
 * generation runs and why the last one ended. The machine that hosts the store has the only core.
 * Each node's ctrun (an "agent") is a member. Pure: messages and the clock go in, messages come
 * out; no socket, no timer.
 *
 *            enough members          rank 0 serves           failure, loss, newcomer
 *     GATHERING ------------> FORMING ------------> RUNNING -----------------------> STOPPING
 *         ^                      | a member is lost    | all finished                  |  | all
 *         |                      v                     v                               |  | stopped
 *         +-------------------- (stop) <---------------+-- OVER <---------------------+  |
 *         +-------------------------------------------------------------------------------+
 *
 * A world forms as soon as the expected nodes are there. With MIN:MAX it forms `settle_ms` after
 * MIN nodes are there, and at once when MAX are. One job-wide generation number stamps every world;
 * it only grows. Messages of an older generation are ignored.
 *
 * After a loss an elastic world waits `settle_ms` for other nodes to join; when all nodes of the
 * last world are there it forms at once. Newcomers to an elastic job below MAX are collected for
 * 200 ms, then the world is stopped for them, unless a node has finished already. A node that finds
 * the world full is a spare; the job's `spares` says how many there may be. Spares do not differ
 * from other nodes: those that join first are in the world.
 *
 * Trust: the core believes what a member says about itself and its workers, and nothing else. A
 * member does not decide the parameters of the job, nor who may join it. A member that has never
 * been in a world may not end the job: its PREEMPT breaks the protocol. The place of a member is
 * given only to a node of the same address, or to one that has proved the token.
 *
 * Ranks: a node gets the node rank that its agent wants, else one in the natural order of host
 * names. Survivors keep their order. When a lost node is replaced, they also keep their numbers,
 * and the new node gets the free node rank. Global ranks are prefix sums of the nodes' workers, in
 * the order of node ranks.
 *
 * Restarts: the budget is that of the whole job. A worker's failure uses one restart. So does the
 * loss of a node, unless the job is elastic (MIN < MAX) or a spare is there. A node that joins uses
 * none. One generation uses one at most. When none is left, the job is OVER with the exit code of
 * the first failure. If all workers of a node have finished, its loss does no harm, unless it is
 * node rank 0, which has the workers' store.
 *
 * Crash loops: an early failure is one within a second of the worker's start (failure_history.h).
 * A machine that fails its check and is not replaced counts as one.
 * After the first generation that ends by one, the next starts at once. After the second in a row
 * it starts 1 s later, then 2 s, 4 s ... 30 s; the members are told of that once. A generation that
 * ran longer ends the series. The end of the job is never delayed.
 *
 * First failure: the one that happened first on the server's clock. Each agent's clock is mapped to
 * it by the smallest difference seen, because a delay is never negative. So a consequence that
 * arrives before its cause does not get the blame. The loss of a node that does no harm is on
 * record, but is never the first failure.
 *
 * Silence: a member that sends nothing for heartbeat_ms is lost. If its machine still sends
 * acknowledgements, it has twice that time, because a bad network may delay messages for seconds. A
 * member of this process is never silent: when it gets no CPU, the core gets none either.
 *
 * Cost: each event sends O(1) messages to each member concerned and takes O(members) time at most;
 * beats and joins take O(1) or O(log members).
 */
#ifndef CT_RENDEZVOUS_MEMBERS_MEMBERS_H
#define CT_RENDEZVOUS_MEMBERS_MEMBERS_H

#include "common/err.h"
#include "common/log.h"
#include "rendezvous/control/control.h"

#include <stdbool.h>
#include <stdint.h>

struct cJSON;
struct ct_budget;
struct ct_refusal_log;
struct ct_members;
struct ct_member;

/* Waiting members are told who is missing: after 5 s, then on each change and every 30 s. */
#define CT_WAITING_FIRST_MS 5000
#define CT_WAITING_AGAIN_MS 30000

/* How a job outlives this host (docs/FAILOVER.md). All agents of the job must have a vote. */
struct ct_members_failover {
    struct ct_voter self;               /* this host */
    bool is_daemon;                     /* it is a ctrdzvd: no agent, and no node of any world */
    bool arbiter;                       /* the job has one (rendezvous/election/arbiter.h), ... */
    bool arbiter_there;                 /* ... it serves this host, and ... */
    int64_t arbiter_said_ns;            /* ... has done so last by a request that was sent then */
    uint64_t term;                      /* CT_TERM_FIRST, or the one in which it was elected */
    const struct ct_job_record *record; /* with which it was elected; NULL = it is the first host */
    int64_t fence_ns;                   /* then: see rendezvous/election/election.h */
    struct ct_voter lost;          /* then: the host that this one followed last; id 0 = unknown */
    bool lost_is_dead;             /* its process is known to be dead, ... */
    bool lost_in_time;             /* ... since before the lease that it gave this host had ended */
    uint64_t dead[CT_VOTERS_BOTH]; /* then: other voters whose processes are known to be dead */
    int num_dead;
    /* Then: voters that have taken a connection of this agent there, for ct_control_host(), which
     * finds out whether they are dead; borrowed for that call. */
    const struct ct_voter *reached;
    int num_reached;
    /* Then also: the host whose loss has ended the newest generation (election/host_loss.h; id 0 =
     * unknown), and what its loss is called in the history of failures. The texts and the history
     * are borrowed until the core is made. */
    struct ct_voter ended_by;
    bool ended_by_silence, ended_by_daemon;
    const char *ended_by_name, *ended_why;
    const struct ct_failure_history *history; /* so far; NULL = unknown */
    struct ct_history_round round;            /* the newest generation, as far as is known */
};

struct ct_members_options {
    const struct ct_log *log; /* borrowed, may be NULL */
    /* The parameters of the job: its run id, nodes, spares, restarts and times. All that join must
     * have the same. NULL = those of the first one that joins. Copied. */
    const struct ct_msg_join *job;
    bool proved; /* every agent that joins has proved that it has the job's token */
    /* Host names by node rank, of a scheduler or --hosts; NULL = unknown. Copied. */
    const char *const *expected;
    int num_expected;
    /* Counts the memory that members make the core use; NULL = no limit. Borrowed. */
    struct ct_budget *budget;
    /* Limits log lines about members that break the protocol; NULL = no limit. Borrowed. */
    struct ct_refusal_log *faults;
    int64_t epoch_ms; /* Unix time at which the clock of `now_ns` was 0; for the failure history */
    /* Sends to a member; must not call back into the core. `msg` is borrowed. A message to all
     * members is passed many times in a row. */
    void (*send)(void *data, struct ct_member *member, const struct ct_msg *msg);
    /* How long ago the member's machine sent anything, even an ACK; -1 = the member is of this
     * process; NULL = not known. */
    int64_t (*quiet_ns)(void *data, const struct ct_member *member);
    /* NULL = the job ends with this host. Copied. */
    const struct ct_members_failover *failover;
    /* The arbiter is to pledge this record; ct_members_arbiter_pledged() tells that it has.
     * Borrowed for the call, which must not call back into the core. Only called if there is an
     * arbiter. */
    void (*arbitrate)(void *data, const struct ct_job_record *record);
    /* This host has lost its quorum, so another one may be elected. It must stop its own workers,
     * drop all members and free the core, but not inside this call. May be NULL. */
    void (*deposed)(void *data);
    /* Ends the connection when all was sent; must not call back into the core. */
    void (*drop)(void *data, struct ct_member *member);
    void *data;
};

/* Gives *out. CT_ENOMEM. */
CT_MUST_CHECK int ct_members_new(const struct ct_members_options *options, struct ct_members **out);

/* NULL is allowed. Sends nothing. */
void ct_members_free(struct ct_members *members);

/* Takes a JOIN. `address` is that of the agent as the server sees it, "" for one in this process.
 * `conn` is the caller's; ct_member_conn() gives it back. Gives *out, valid until drop() or
 * ct_members_gone(). A node that does not fit gets no message: CT_EINVAL (its options differ from
 * the job's), CT_EBUSY (the rank is taken, the job is over), CT_ELIMIT (too many nodes or workers,
 * over the budget), each with a line for a person; CT_ENOMEM. CT_MEMBERS_E_BEHIND: the node has a
 * newer record than this host, a ctrdzvd that has forgotten the job; its connection is to be ended
 * without a word, so that it looks for a host that knows the job. */
#define CT_MEMBERS_E_BEHIND 1
CT_MUST_CHECK int ct_members_join(struct ct_members *members, const struct ct_msg_join *join,
                                  const char *address, void *conn, int64_t now_ns,
                                  struct ct_member **out, struct ct_err *err);

/* ct_members_join() has refused a node with CT_EBUSY or CT_ELIMIT. Should the caller keep this from
 * the node, and soon try the same join again? True if a member on the same machine has the place
 * that the node could have, and may be gone without our knowing: nothing has come from it that was
 * sent after `since_ns`, the time at which the node came. False as soon as that member is lost or
 * sends a beat, and after CT_MEMBERS_HOLD_MS. */
#define CT_MEMBERS_HOLD_MS 30000
bool ct_members_holds(const struct ct_members *members, const struct ct_msg_join *join,
                      const char *address, int64_t since_ns, int64_t now_ns);

/* A node was refused. Returns the exit code of the job if the job is over and the node was a voter
 * in it when this host was elected: it has missed the end and is to be told. -1 otherwise. */
int ct_members_missed_end(const struct ct_members *members, const struct ct_voter *voter);

/* Does the job wait for its first world, after which it could outlive its host? */
bool ct_members_waits_first(const struct ct_members *members);

/* The process that was the voter `id` is dead: nobody listens at its port any more. */
void ct_members_dead(struct ct_members *members, uint64_t id, int64_t now_ns);

/* The arbiter has pledged this version of the record, by a request that was sent at `sent_ns`. */
void ct_members_arbiter_pledged(struct ct_members *members, uint64_t term, uint64_t version,
                                int64_t sent_ns, int64_t now_ns);

/* The arbiter cannot be asked, or belongs to somebody else. */
void ct_members_arbiter_lost(struct ct_members *members, int64_t now_ns);

/* Does this agent stand in no election any more, since it follows this host or is dead? */
bool ct_members_stands_no_more(const struct ct_members *members, uint64_t id);

/* How long agents may go on without another word of this host, from the time at which they have
 * sent the beat that is answered; -1 = the job ends with its host. */
int64_t ct_members_lease_ms(const struct ct_members *members, int64_t now_ns);

/* To be called when an agent has connected to this address of the store's machine. Every world gets
 * the first one to which an agent `from_elsewhere`, of another machine, has connected. */
void ct_members_reached(struct ct_members *members, const char *address, bool from_elsewhere);

void *ct_member_conn(const struct ct_member *member);

/* Returns the member that has this rank in the present world and gives the generation; NULL if none
 * has. */
struct ct_member *ct_members_of_rank(const struct ct_members *members, int rank, int *generation);

/* Takes any other message. May drop the member (a protocol violation, or after LEAVE). */
void ct_members_message(struct ct_members *members, struct ct_member *member, struct ct_msg *msg,
                        int64_t now_ns);

/* To be called when the connection of a member is gone, unless the member was dropped. `why` is a
 * text such as "connection reset by peer". Frees the member. */
void ct_members_gone(struct ct_members *members, struct ct_member *member, const char *why,
                     int64_t now_ns);

/* Does what is due. To be called when the time of ct_members_next() has come. */
void ct_members_tick(struct ct_members *members, int64_t now_ns);

/* The time of the next ct_members_tick(); INT64_MAX = none is needed. */
int64_t ct_members_next(const struct ct_members *members);

/* Adds `job` to `root` as man/ctstatus.5 describes it, and a line to `problems` for each thing that
 * is wrong. `rows` says what happens with the rows of the workers. CT_ENOMEM. */
CT_MUST_CHECK int ct_members_status(const struct ct_members *members, int64_t now_ns,
                                    struct ct_status_rows *rows, struct cJSON *root,
                                    struct cJSON *problems);

#endif
