/* SPDX-License-Identifier: Apache-2.0
 *
 * Does a whole job stand still, and who holds it up? Pure: what each agent says of its workers in,
 * one suspect out.
 *
 * Each machine judges its own workers (launcher/hang/hang.h); where they all wait for another
 * machine it cannot know for whom. So an agent whose workers all stand still says so with its
 * beats, and what they do. When all machines of a world say it, the one is named that does
 * something else than wait while others wait for it.
 */
#ifndef CT_RENDEZVOUS_CONTROL_HANG_VOTE_H
#define CT_RENDEZVOUS_CONTROL_HANG_VOTE_H

#include <stdbool.h>
#include <stdint.h>

enum ct_hang_vote_kind {
    CT_HANG_VOTE_NO,      /* somebody moves, or it is too early to say */
    CT_HANG_VOTE_STOPPED, /* a worker is stopped */
    CT_HANG_VOTE_BUSY,    /* a worker is in a phase of its own */
    CT_HANG_VOTE_WAITING, /* all wait for others */
    CT_HANG_VOTE_STUCK,   /* the workers tell nothing; one is stuck in the kernel, others are not */
    CT_HANG_VOTE_NAPPING, /* ... one sleeps for a time of its own choice, others do not */
    CT_HANG_VOTE_QUIET,   /* ... none stands out */
    CT_HANG_VOTE_BEHIND,  /* as a verdict: all wait, this one in an earlier step than all others */
    CT_HANG_VOTE_ALL,     /* as a verdict: none stands out */
    CT_HANG_VOTE_KINDS,
};

/* Of the workers of a machine, or as a verdict on the job. */
struct ct_hang_vote {
    int kind;       /* enum ct_hang_vote_kind */
    int generation; /* who says something of another one is not heard */
    int rank;       /* the one that stands out, of those who wait the one in the lowest step */
    int64_t step;   /* WAITING: its step */
    bool alone;     /* WAITING: no other one of this machine is in that step */
    bool sure;      /* the user has said how long nobody may stand still */
    int64_t still_ms;
};

/* Zeroed memory is empty. */
struct ct_hang_votes {
    int count[CT_HANG_VOTE_KINDS]; /* machines */
    int rank[CT_HANG_VOTE_KINDS];  /* the lowest */
    int total;
    int64_t step; /* the lowest of those who wait */
    int last;     /* the rank in it */
    bool alone;
    bool unsure;
    int64_t still_ms; /* of the machine that stands still the shortest time */
};

/* Takes what one machine says; not CT_HANG_VOTE_NO, nor what is a verdict only. */
void ct_hang_vote_add(struct ct_hang_votes *sum, const struct ct_hang_vote *of_machine);

/* Sets kind, rank and still_ms of *out. CT_HANG_VOTE_NO: nobody is to blame, or nothing is wrong.
 */
void ct_hang_vote_judge(const struct ct_hang_votes *sum, struct ct_hang_vote *out);

#endif
