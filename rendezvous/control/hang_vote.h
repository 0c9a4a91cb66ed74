/* SPDX-License-Identifier: Apache-2.0
 *
 * Does a whole job stand still, and which rank holds it up? Pure: the votes of the agents go in,
 * one suspect comes out.
 *
 * Each machine judges its own workers (launcher/hang/hang.h). If all of them wait for another
 * machine, it cannot know for which one. So an agent whose workers all stand still reports that and
 * what they do with its beats. When all machines of a world have reported it, the suspect is the
 * rank that does not wait while others wait for it.
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
    CT_HANG_VOTE_NAPPING, /* ... one sleeps for a time that it has chosen, others do not */
    CT_HANG_VOTE_QUIET,   /* ... none stands out */
    CT_HANG_VOTE_BEHIND,  /* as a verdict: all wait, this one in an earlier step than all others */
    CT_HANG_VOTE_ALL,     /* as a verdict: none stands out */
    CT_HANG_VOTE_NAMED,   /* as a verdict: the answers of the workers tell this rank (stands.h) */
    CT_HANG_VOTE_KINDS,
};

/* What one machine reports about its workers, or the verdict on the job. */
struct ct_hang_vote {
    int kind;         /* enum ct_hang_vote_kind */
    int generation;   /* the generation of these workers; votes of another one are ignored */
    int rank;         /* the one that stands out; of those that wait, the one in the lowest step */
    int64_t step;     /* WAITING: its step */
    bool alone;       /* WAITING: no other rank of this machine is in that step */
    bool sure;        /* the user has set the limit (--hang-timeout) */
    int64_t still_ms; /* for how long all workers have stood still */
    bool asks; /* a verdict that is not the last one: machines ask their workers and say STANDS */
};

/* Bytes of a reason, with its NUL. */
#define CT_HANG_WHY_MAX 256

/* What a machine tells for the status: a hang that it has reported and that is not over. */
struct ct_hang_report {
    bool stands;               /* else the other fields mean nothing */
    int generation;            /* of the workers */
    int rank;                  /* the one that holds the job up; -1 = none stands out */
    int64_t still_ms;          /* for how long the workers have stood still */
    char why[CT_HANG_WHY_MAX]; /* a clause, such as "it is stopped, by SIGSTOP or by a terminal" */
};

/* The sum of the votes. Zeroed memory is empty. */
struct ct_hang_votes {
    int count[CT_HANG_VOTE_KINDS]; /* machines that voted so */
    int rank[CT_HANG_VOTE_KINDS];  /* the lowest rank that they named */
    int total;                     /* machines */
    int64_t step;                  /* the lowest step of those that wait */
    int last;                      /* the rank in that step */
    bool alone;                    /* no other rank is in that step */
    bool unsure;                   /* at least one vote was not `sure` */
    int64_t still_ms;              /* the shortest of the machines */
};

/* Does it name a suspect, as a verdict does? False for votes that only say what the workers do. */
bool ct_hang_vote_is_verdict(const struct ct_hang_vote *vote);

/* Adds the vote of one machine, which must not be CT_HANG_VOTE_NO or one of the verdicts. */
void ct_hang_vote_add(struct ct_hang_votes *sum, const struct ct_hang_vote *of_machine);

/* Sets kind, rank and still_ms of *out. CT_HANG_VOTE_NO: nobody is to blame, or all is well. */
void ct_hang_vote_judge(const struct ct_hang_votes *sum, struct ct_hang_vote *out);

#endif
