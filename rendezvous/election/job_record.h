/* SPDX-License-Identifier: Apache-2.0
 *
 * What every agent of a job knows about the membership, so that any of them can go on with it when
 * its host is lost: the last world, the next one if it is being formed, the restarts that are used,
 * and whether the job is over. docs/FAILOVER.md says how agents and hosts use it. Pure data.
 */
#ifndef CT_RENDEZVOUS_ELECTION_JOB_RECORD_H
#define CT_RENDEZVOUS_ELECTION_JOB_RECORD_H

#include "rendezvous/election/world_voters.h"

#include <stdbool.h>
#include <stdint.h>

/* Voters of both worlds of a record, and all that may vote: these and the arbiter. */
#define CT_VOTERS_BOTH (2 * CT_VOTERS_MAX)
#define CT_BALLOTS_MAX (CT_VOTERS_BOTH + 1)

/* A term is one candidacy: its number, and in the lower half a part of the candidate's id, so that
 * no two candidates ever have the same term. The first host, which nobody has elected, has term 1.
 * All fit in the numbers of JSON. */
#define CT_TERM_FIRST UINT64_C(1)
#define CT_TERM_NUMBER_MAX UINT64_C(0xfffff)
#define CT_TERM_MAX (CT_TERM_NUMBER_MAX << 32 | UINT32_MAX)

static inline uint64_t ct_term_number(uint64_t term)
{
    return term >> 32;
}

struct ct_job_record {
    /* The term of the host that has written it, and its number among the records of that host.
     * Records are ordered by term, then by version. */
    uint64_t term, version;
    struct ct_world_voters formed; /* the last world that is certain */
    struct ct_world_voters
        planned;   /* the world that was proposed to follow it; it may have begun */
    int restarts;  /* of the budget that are used */
    bool over;     /* the end of the job was proposed; it may be certain */
    int exit_code; /* then */
    bool ended;    /* that is certain; hosts and the arbiter know it, voters need not */
};

/* A record of a job that has had no world. */
void ct_job_record_init(struct ct_job_record *record);

/* Returns a number below, equal to or above 0 when `a` is older than, the same as or newer than
 * `b`. */
int ct_job_record_compare(const struct ct_job_record *a, const struct ct_job_record *b);

/* The newest world on record, which may be one that was only proposed. */
const struct ct_world_voters *ct_job_record_newest(const struct ct_job_record *record);

/* Its generation; -1 = there is no world on record. */
int ct_job_record_generation(const struct ct_job_record *record);

/* Returns the voter with this id in either world, or NULL. If both have it, that of the newer one
 * counts: its host may have met the voter at another address. */
const struct ct_voter *ct_job_record_find(const struct ct_job_record *record, uint64_t id);

/* Writes the ids of the voters of both worlds, each once. Returns their number. */
int ct_job_record_voters(const struct ct_job_record *record, uint64_t ids[CT_VOTERS_BOTH]);

#endif
