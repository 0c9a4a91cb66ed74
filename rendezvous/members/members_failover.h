/* SPDX-License-Identifier: Apache-2.0
 *
 * What the core does so that the job outlives its host (docs/FAILOVER.md): it has the next world
 * and the end of the job pledged, and begins no world while somebody else may run the last one. For
 * the files of the core alone. In a job that ends with its host, these functions do nothing.
 */
#ifndef CT_RENDEZVOUS_MEMBERS_MEMBERS_FAILOVER_H
#define CT_RENDEZVOUS_MEMBERS_MEMBERS_FAILOVER_H

#include "rendezvous/election/office.h"
#include "rendezvous/members/members_core.h"

/* A node that was a member of this host and is not any more. */
struct members_lost {
    uint64_t id;
    int64_t said_ns; /* when what was heard of it last was sent */
    bool dead;       /* its process is known to be dead */
    bool in_time;    /* that was known before a lease from said_ns had ended */
    bool ran;        /* its workers had not stopped */
};

/* A voter on record. */
struct members_seat {
    uint64_t id;
    struct ct_member *member; /* NULL = it is not there */
};

struct members_failover {
    struct ct_members_failover options;
    struct ct_job_record found; /* what this host began with */
    bool elected;               /* it is not the first host */
    struct ct_failure loss;     /* of the former host; node_rank -1 = it was in no world */
    struct ct_office office;
    bool owes;           /* the loss of the former host is not accounted for yet */
    bool served;         /* a world has begun under this host */
    bool deposed;        /* the caller has been told that this host has lost its quorum */
    int64_t begun_ns;    /* when the first member joined; INT64_MIN = not yet */
    int64_t proposed_ns; /* when the open proposal was sent */
    struct members_lost lost[CT_VOTERS_BOTH]; /* the latest ones; a ring */
    unsigned num_lost;
    int64_t forgotten_ns; /* when the workers of those that `lost` has no place for have stopped */
    /* The voters of office.record in the version `seated`; 0 = they have to be found again. Each
     * message asks for them, and a job may have thousands of members. */
    struct members_seat seats[CT_VOTERS_BOTH];
    int num_seats;
    uint64_t seated;
    bool arbiter_there;      /* the last request to it has succeeded */
    int64_t arbiter_said_ns; /* when that was sent; INT64_MIN = none has yet */
    int64_t quorum_ns;       /* until when there is a quorum, if that is known */
    bool quorum_known;
};

/* CT_ENOMEM. Called once, after the options are copied. */
CT_MUST_CHECK int members_failover_init(struct ct_members *m);

/* Bytes that members_failover_init() has taken. */
size_t members_failover_cost(const struct ct_members *m);

/* Has the node that wants to join a newer record than this host? */
bool members_failover_is_behind(const struct ct_members *m, const struct ct_msg_join *join);

/* Does this job outlive its host? Known when the first member has joined. */
bool members_failover_on(const struct ct_members *m);

/* Is everything done that must come before a world is proposed? If not, form_if_complete() is to be
 * called again when a pledge comes or m->due.fence_ns is over. `ends` gets the exit code with which
 * the job is to end instead; -1 = it is not. */
bool members_failover_is_ready(struct ct_members *m, int64_t now_ns, int *ends);

/* Proposes the world of m->sorted[0..n-1] with the next generation. CT_EBUSY: these are no quorum.
 */
CT_MUST_CHECK int members_failover_propose(struct ct_members *m, int n, int64_t now_ns);

/* The world that was proposed will not begin, whatever is pledged. */
void members_failover_withdraw(struct ct_members *m);

/* The end of the job: 0, it is proposed; CT_EBUSY, this host may not decide it; CT_ENOENT, nobody
 * needs to pledge it. */
CT_MUST_CHECK int members_failover_end(struct ct_members *m, int exit_code, int64_t now_ns);

/* The answer to the record. Returns what has become certain; all members have been told then. */
enum ct_proposal members_failover_pledged(struct ct_members *m, struct ct_member *member,
                                          const struct ct_msg *msg, int64_t now_ns);

/* The member's said_ns has changed. */
void members_failover_heard(struct ct_members *m, const struct ct_member *member);

/* The answer of the arbiter to the record, as members_failover_pledged(). */
enum ct_proposal members_failover_arbiter_pledged(struct ct_members *m, uint64_t term,
                                                  uint64_t version, int64_t sent_ns);

/* The arbiter is not there. Returns true if that ends the open proposal. */
bool members_failover_arbiter_left(struct ct_members *m);

/* The member that is the voter with this id on record; NULL = it is not there. */
struct ct_member *members_failover_voter(const struct ct_members *m, uint64_t id);

/* Tells a new member what is on record. */
void members_failover_joined(struct ct_members *m, struct ct_member *member, int64_t now_ns);

/* A member is about to be removed. `kind` says how it was lost. Returns true if that ends the open
 * proposal. */
bool members_failover_left(struct ct_members *m, const struct ct_member *member,
                           enum ct_failure_kind kind);

/* Has this host, which has a quorum, still to account for what a former host has left behind?
 * `plan`: for a plan or an end that was proposed, so it must wait until
 * members_failover_is_ready(). */
bool members_failover_owes(const struct ct_members *m, bool *plan);

/* Notes the loss of the former host in the history of failures, once. Returns false if that was
 * done, or if there was none. */
bool members_failover_take_loss(struct ct_members *m, int64_t now_ns);

/* Was the former host no node of the job? */
bool members_failover_lost_daemon(const struct ct_members *m);

/* Why a complete world does not form; "" = nothing of the failover is in its way. */
const char *members_failover_wait(const struct ct_members *m, int64_t now_ns);

/* Had this node rank the former host, and no world has begun since? */
bool members_failover_was_host(const struct ct_members *m, int place);

/* Does an arbiter tell those who come where the host is? */
bool members_failover_has_arbiter(const struct ct_members *m);

/* Where a node meets the job, as "10.0.0.2:4711" for --rdzv-endpoint, if the host is not the first
 * one, whose place all know; else "". */
void members_failover_where(const struct ct_members *m, char *out, size_t size);

/* Says, once, that this host has lost its quorum while a world of it could run. */
void members_failover_tick(struct ct_members *m, int64_t now_ns);
int64_t members_failover_next(const struct ct_members *m);

#endif
