/* SPDX-License-Identifier: Apache-2.0
 *
 * The arbiter of a job: a voter that is no machine of the job, but one value in a store outside
 * (etcd), which is only ever replaced by compare-and-swap. So it decides nothing by itself. Each
 * agent reads the value, makes the arbiter's answer to its own question, and writes what follows
 * from it. If somebody else has written meanwhile, it begins again. Pure: no clock, no socket.
 *
 *     candidate:  ct_arbiter_ask(), write the vote            -> the arbiter has voted for it
 *     host:       ct_arbiter_serve(), write the record        -> the arbiter has pledged it
 *
 * A host writes at every beat, so the value of a host that is lost does not change any more. An
 * agent that has seen no change for a lease (and a sixteenth more, for clocks that differ in speed)
 * counts that host as silent. The store's own clock and leases are not used.
 */
#ifndef CT_RENDEZVOUS_ELECTION_ARBITER_H
#define CT_RENDEZVOUS_ELECTION_ARBITER_H

#include "rendezvous/election/election.h"

/* The value. */
struct ct_arbiter_state {
    uint64_t promised, promised_to; /* the term of its latest vote, and who got it; 0 = it has not
                                       voted */
    struct ct_voter host; /* who has written last as host; id 0 = nobody since that vote */
    uint64_t host_term;
    struct ct_job_record record; /* the newest that it has pledged */
};

/* What one agent knows of it. Read-only for others. */
struct ct_arbiter {
    struct ct_arbiter_state state;
    int64_t revision;   /* the store's number of this value; 0 = there is none yet, -1 = unknown */
    int64_t changed_ns; /* since when it has had this revision at least */
};

/* It has pledged this version of a host's record, by a request that was sent at `sent_ns`. */
struct ct_arbiter_pledge {
    uint64_t term, version;
    int64_t sent_ns;
};

/* The agent knows nothing of the value yet. */
void ct_arbiter_init(struct ct_arbiter *arbiter);

/* The value was read or written by a request whose answer came at `now_ns`: it may have been
 * written after the request was sent. `state` is NULL when there is no value; `revision` then is 0.
 */
void ct_arbiter_learned(struct ct_arbiter *arbiter, const struct ct_arbiter_state *state,
                        int64_t revision, int64_t now_ns);

/* Answers the question of this agent's own election. `dead_id` is the host whose process is known
 * to be dead; 0 = none is. Returns true if *next is to be written first: *answer, which grants the
 * vote, holds only if that succeeds. If not, *answer holds only if the value was just read. *answer
 * borrows from the arbiter. */
bool ct_arbiter_ask(const struct ct_arbiter *arbiter, const struct ct_vote_ask *ask,
                    uint64_t dead_id, int64_t lease_ms, int64_t now_ns,
                    struct ct_vote_answer *answer, struct ct_arbiter_state *next);

/* Gives the value that the host `self` writes at each beat, and when it asks for a pledge of
 * `record`, whose term is its own. `void_id` is a candidate that is known to stand no more, since
 * it follows this host or is dead; 0 = none. Returns false if the arbiter belongs to a later host
 * or candidate; a question of the election then finds out to whom. */
bool ct_arbiter_serve(const struct ct_arbiter *arbiter, const struct ct_voter *self,
                      const struct ct_job_record *record, uint64_t void_id,
                      struct ct_arbiter_state *next);

#endif
