/* SPDX-License-Identifier: Apache-2.0
 *
 * The membership of one job: who is expected, who came, who is missing, which generation runs and
 * why the last one ended. One core on the machine that hosts the store; each node's ctrun (an
 * "agent") is a member. Pure: messages and the clock in, messages out; no socket, no timer.
 *
 *            enough members          rank 0 serves           failure, loss, newcomer
 *     GATHERING ------------> FORMING ------------> RUNNING -----------------------> STOPPING
 *         ^                      | a member is lost    | all finished                  |  | all
 *         |                      v                     v                               |  | stopped
 *         +-------------------- (stop) <---------------+-- OVER <---------------------+  |
 *         +-------------------------------------------------------------------------------+
 *
 * A world forms as soon as the expected nodes are there; with MIN:MAX, `settle_ms` after MIN are
 * (at once at MAX). One job-wide generation number stamps every world; it only grows. Messages of
 * an older generation are passed over.
 *
 * After a loss an elastic world waits `settle_ms` for others to come; when all of the last world
 * are there it forms at once. Newcomers to an elastic job below MAX are collected for 200 ms, then
 * the world is stopped for them, unless a node has finished already. Whoever finds the world full
 * is a spare: as many as the job's `spares` says. Nothing else tells a spare from a node: those who
 * come first are in the world.
 *
 * Trust: a member is believed what it says of itself and of its workers, and nothing else. What the
 * job is, and who may join it, is not its to say. Whoever is in no world may not end the job: its
 * PREEMPT breaks the protocol. A place is taken over from the same address alone, unless who comes
 * has proved the token.
 *
 * Ranks: an agent's wish, else natural order of host names. Survivors keep their order, and their
 * numbers when a lost node is replaced (by a spare or a newcomer: it gets the free node rank).
 * Global ranks are prefix sums of the nodes' workers, in order of node rank.
 *
 * The budget of restarts is the job's. A worker's failure uses one. So does a node's loss, unless
 * the job is elastic (MIN < MAX) or a spare is there: then membership changes are free, as joining
 * always is. One generation uses one at most. After the last one the job is OVER with the exit code
 * of the first failure. A node whose workers have all finished may go without harm, unless it is
 * node rank 0, which has the workers' store.
 *
 * Crash loops: a generation whose first failure was early (failure_history.h) is followed by the
 * next at once; from the second such in a row on the next one waits, 1 s, 2 s, 4 s ... 30 s, which
 * is told once. A generation that ran longer ends the row. The end of the job does not wait.
 *
 * First failure: the one that happened first by the server's clock. Each agent's clock is mapped to
 * it by the smallest difference seen (one-way delay is never negative), so a consequence that
 * arrives before its cause does not take the blame.
 *
 * Silence: a member that says nothing for heartbeat_ms is lost. Where its machine still answers on
 * the wire it has twice that, since a bad line holds messages up for seconds.
 *
 * Cost: each event sends O(1) messages to each member concerned and takes O(members) time at most;
 * beats and joins are O(1) or O(log members).
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

/* From second 5 on the waiting are told for whom, on each change and every 30 s. */
#define CT_WAITING_FIRST_MS 5000
#define CT_WAITING_AGAIN_MS 30000

struct ct_members_options {
    const struct ct_log *log; /* borrowed, may be NULL */
    /* What the job is: its run id, nodes, spares, restarts and times. All who join must say the
     * same. NULL = the first to join decides. Copied. */
    const struct ct_msg_join *job;
    bool proved; /* all who join have shown that they have the job's token */
    /* Names of the hosts by node rank where a scheduler or --hosts tells them; NULL = unknown.
     * Copied. */
    const char *const *expected;
    int num_expected;
    /* Takes what members make us keep; NULL = nobody counts. Borrowed. */
    struct ct_budget *budget;
    /* Counts members that break the protocol, of which a line tells at a limited rate; NULL = of
     * each. Borrowed. */
    struct ct_refusal_log *faults;
    int64_t
        epoch_ms; /* Unix time at which the clock of `now_ns` was 0: stamps the failure history */
    /* Sends to a member; must not call back into the core. `msg` is borrowed and the same for many
     * members in a row when all are told one thing. */
    void (*send)(void *data, struct ct_member *member, const struct ct_msg *msg);
    /* How long ago its machine was heard of on the wire, by whatever; NULL = nobody knows. */
    int64_t (*quiet_ns)(void *data, const struct ct_member *member);
    /* Ends the connection of a member when what was sent to it is out. The same rule. */
    void (*drop)(void *data, struct ct_member *member);
    void *data;
};

/* Gives *out. CT_ENOMEM. */
CT_MUST_CHECK int ct_members_new(const struct ct_members_options *options, struct ct_members **out);

/* NULL is allowed. Says nothing to anybody. */
void ct_members_free(struct ct_members *members);

/* Takes a JOIN. `address`: as the server sees the agent, "" for the one in the same process.
 * `conn` is the caller's and given back by ct_member_conn(). Gives *out, valid until drop() or
 * ct_members_gone(). Does not fit (job options differ, rank taken, job over, full, too many): sends
 * nothing and returns CT_EINVAL, CT_EBUSY or CT_ELIMIT (also: over the
 * budget) with a line for a person; CT_ENOMEM. */
CT_MUST_CHECK int ct_members_join(struct ct_members *members, const struct ct_msg_join *join,
                                  const char *address, void *conn, int64_t now_ns,
                                  struct ct_member **out, struct ct_err *err);

/* An agent of another machine has come to the store by this address of the store's machine. The
 * first such address is told with every world. */
void ct_members_reached(struct ct_members *members, const char *address);

void *ct_member_conn(const struct ct_member *member);

/* Takes any other message. May drop the member (a protocol violation, or after LEAVE). */
void ct_members_message(struct ct_members *members, struct ct_member *member, struct ct_msg *msg,
                        int64_t now_ns);

/* The connection is gone; `why` in words, such as "connection reset by peer". Frees the member.
 * Not for members that were dropped. */
void ct_members_gone(struct ct_members *members, struct ct_member *member, const char *why,
                     int64_t now_ns);

/* Time has come to ct_members_next(). */
void ct_members_tick(struct ct_members *members, int64_t now_ns);

/* When to tick at the latest; INT64_MAX = never. O(log members) or better. */
int64_t ct_members_next(const struct ct_members *members);

/* Adds `job` to `root` as man/ctstatus.5 has it: run_id, state, generation, world size, nodes
 * (index, host, address, state, workers, last_seen_s), missing_nodes, workers (of the members'
 * beats, as `rows` wants them), failures; and to `problems` a line for each thing that is not as it
 * should be. CT_ENOMEM.
 */
CT_MUST_CHECK int ct_members_status(const struct ct_members *members, int64_t now_ns,
                                    struct ct_status_rows *rows, struct cJSON *root,
                                    struct cJSON *problems);

#endif
