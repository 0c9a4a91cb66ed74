/* SPDX-License-Identifier: Apache-2.0
 *
 * What the host of the membership may decide: which world comes next, and that the job is over. A
 * decision is certain when voters have pledged it, that is, have replaced their records by the one
 * that holds it. Pure: no clock, no socket.
 *
 *            propose                       all have pledged
 *     IDLE ----------> open proposal --------------------------> IDLE, the decision is certain
 *                           | a voter that was asked is gone
 *                           +--> IDLE; it may be proposed again
 *
 * A proposal is sent to all voters that are there, and all of them must pledge. That alone is no
 * quorum: those that are there must be one, of the last world and of the one planned by a former
 * host, since that world may have begun.
 *
 * A quorum is more than half of a world. Half is enough for a host that belongs to it, or that
 * belongs to no world (a ctrdzvd), or whose election counted half of it. A candidate may do that
 * only after the death of a host that belonged to that world (election.h), and the dead host is in
 * no other half that could decide. So two halves never decide differently. If all others are
 * dead, the host goes on alone: a dead voter may have voted for another host, but that one would
 * have to be alive.
 *
 * With an arbiter (world_voters.h), halves do not count. The arbiter is asked like a voter if it is
 * there, and the first world needs it.
 */
#ifndef CT_RENDEZVOUS_ELECTION_OFFICE_H
#define CT_RENDEZVOUS_ELECTION_OFFICE_H

#include "common/err.h"
#include "rendezvous/election/job_record.h"

/* Who has to pledge: all voters on record, the arbiter, and the voters of the next world. */
#define CT_OFFICE_ASKED_MAX (CT_BALLOTS_MAX + CT_VOTERS_MAX)

struct ct_presence {
    uint64_t there[CT_BALLOTS_MAX]; /* CT_ARBITER_ID is the arbiter, in a job that has one */
    int num_there;
    /* Voters whose death was known before a lease after they were last heard was over. So they have
     * begun no world without this host; but they may have voted for another one. */
    uint64_t dead[CT_VOTERS_BOTH];
    int num_dead;
};

enum ct_proposal {
    CT_PROPOSAL_NONE,
    CT_PROPOSAL_TAKE_OVER, /* the world that a former host planned counts as the last one */
    CT_PROPOSAL_WORLD,     /* record.planned is the next world */
    CT_PROPOSAL_END,       /* the job is over with record.exit_code */
};

struct ct_office {
    uint64_t self; /* this host's id; 0 = it is no voter */
    uint64_t lost; /* the host before it, whose death let the candidate count half; 0 = none */
    bool arbiter;  /* the job has one */
    struct ct_job_record
        record; /* to be sent to members: with the open proposal, if there is one */
    enum ct_proposal open;
    bool inherited; /* record.planned, if any, is a former host's */
    uint64_t asked[CT_OFFICE_ASKED_MAX];
    bool pledged[CT_OFFICE_ASKED_MAX];
    int num_asked;
};

/* Begins the term of office. `lost` is the host that the winner followed before, if it died before
 * the lease was over that it had given; 0 = there was none, or it did not. `record` is what the
 * winner knew, or a fresh one. */
void ct_office_begin(struct ct_office *office, uint64_t self, uint64_t lost, bool arbiter,
                     uint64_t term, const struct ct_job_record *record);

/* Could a decision be taken with these voters? */
bool ct_office_has_quorum(const struct ct_office *office, const struct ct_presence *who);

/* How long do voters support this host that were heard at these times, one for each of who->there,
 * if each does so for `lease_ns`? Returns the time at which what is left of them is no quorum any
 * more; INT64_MAX: nobody is needed; INT64_MIN: they never were one. */
int64_t ct_office_lease(const struct ct_office *office, const struct ct_presence *who,
                        const int64_t *heard_ns, int64_t lease_ns);

/* Must a former host's plan be taken over before anything else is proposed? */
bool ct_office_must_take_over(const struct ct_office *office);

/* Each of these two opens a proposal, while none is open. The caller then sends office->record to
 * all who->there. CT_EBUSY: those are no quorum. */
CT_MUST_CHECK int ct_office_take_over(struct ct_office *office, const struct ct_presence *who);
CT_MUST_CHECK int ct_office_propose_end(struct ct_office *office, int exit_code,
                                        const struct ct_presence *who);

/* The same for a world, whose voters are all there and are asked as well. A voter on record that is
 * left out of it is asked, too: if the host dies, half of the last world is enough for that one, so
 * it must know what was decided. The world's generation is newer than any on record. */
CT_MUST_CHECK int ct_office_propose_world(struct ct_office *office,
                                          const struct ct_world_voters *world, int restarts,
                                          const struct ct_presence *who);

/* A voter has replaced its record by the one of this term and version. Returns what became certain
 * by that: office->record then is the record that says so, to be sent with the news. */
enum ct_proposal ct_office_pledged(struct ct_office *office, uint64_t id, uint64_t term,
                                   uint64_t version);

/* Takes an open proposal back. */
void ct_office_withdraw(struct ct_office *office);

/* A voter is gone. Returns true if that ends the open proposal. */
bool ct_office_left(struct ct_office *office, uint64_t id);

#endif
