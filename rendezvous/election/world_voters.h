/* SPDX-License-Identifier: Apache-2.0
 *
 * The nodes of a world that vote for a new host, and how many of them are enough. Pure data.
 *
 * A voter is one life of one agent. It has a random number that it has chosen when it started. So
 * an agent that was started again has no vote in the world of its former life.
 *
 * A job may have an arbiter outside its machines (arbiter.h). It has one vote less than a world has
 * agents. So it and any one agent are more than half of all votes, and so are all agents without
 * it.
 */
#ifndef CT_RENDEZVOUS_ELECTION_WORLD_VOTERS_H
#define CT_RENDEZVOUS_ELECTION_WORLD_VOTERS_H

#include <stdbool.h>
#include <stdint.h>

/* Nodes of a world that vote: the first ones by node rank. More would make every record longer, and
 * a job of thousands of nodes sends thousands of records. The loss of 15 of them at once is
 * survived. */
#define CT_VOTERS_MAX 31
/* Bytes of a numeric address with its NUL. */
#define CT_VOTER_ADDRESS_MAX 64

/* The id of the arbiter among those of voters. No agent has it, since theirs fit in the numbers of
 * JSON. */
#define CT_ARBITER_ID UINT64_MAX

struct ct_voter {
    uint64_t id; /* random, not 0 */
    char address[CT_VOTER_ADDRESS_MAX];
    uint16_t port; /* where its agent listens */
};

struct ct_world_voters {
    int generation; /* -1 = there is no such world */
    int count;
    struct ct_voter list[CT_VOTERS_MAX];
};

/* Returns the voter with this id, or NULL. */
const struct ct_voter *ct_world_voters_find(const struct ct_world_voters *world, uint64_t id);

/* Are the voters `ids` more than half of the world, or, with `half`, exactly half? A world without
 * voters needs none. */
bool ct_world_voters_enough(const struct ct_world_voters *world, const uint64_t *ids, int count,
                            bool half);

/* The same in a job with an arbiter, whose id may be among `ids`. A world without voters needs the
 * arbiter. */
bool ct_world_voters_enough_with_arbiter(const struct ct_world_voters *world, const uint64_t *ids,
                                         int count);

#endif
