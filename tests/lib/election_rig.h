/* SPDX-License-Identifier: Apache-2.0
 *
 * Agents that lose their host and ask for votes, for the tests of rendezvous/election/.
 */
#ifndef CT_TESTS_LIB_ELECTION_RIG_H
#define CT_TESTS_LIB_ELECTION_RIG_H

#include "common/clock.h"
#include "rendezvous/election/election.h"

#define MS CT_NS_PER_MS
#define LEASE_MS 3000
#define GIVE_UP_MS 15000

struct ct_voter rig_voter(uint64_t id);

/* The record of world 0 of voters 1 to `count`, by the first host. */
struct ct_job_record rig_record(int count);

/* Agent `id` follows voter 1, has heard the record, and its lease began at 0. */
struct ct_election rig_follower_in(uint64_t id, int count, bool arbiter);

/* The same without an arbiter. */
struct ct_election rig_follower(uint64_t id, int count);

/* Lets the agent ask at *now_ns, which is set; returns its question. */
struct ct_vote_ask rig_stand(struct ct_election *e, int64_t *now_ns, struct ct_election_todo *todo);

/* Agent `id` grants its vote in this term. */
void rig_grant(struct ct_election *e, uint64_t id, uint64_t term, int64_t alone_ms, int64_t now_ns,
               struct ct_election_todo *todo);

#endif
