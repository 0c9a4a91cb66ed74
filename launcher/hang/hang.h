/* SPDX-License-Identifier: Apache-2.0
 *
 * Does the job hang, and which rank holds it up? Pure: samples of the workers go in, a verdict
 * comes out. Nothing else in ctrun decides whether the workers of this machine hang. Three similar
 * questions are separate and have other inputs: docs/ARCHITECTURE.md lists them under "When a
 * worker does not go on".
 *
 * When. A rank makes progress when the step, the phase or the time stamp of its progress page
 * changes. In the phases that work alone for long (data, checkpoint) the use of CPU time is
 * progress too. For a program without a page it is the only sign of progress. The job hangs when no
 * living rank of this machine has made progress for the whole timeout. As long as one rank makes
 * progress, the others only wait for it, so a slow rank is never taken for a hanging one.
 *
 * A worker may tell its steps and never that it waits (phase "collective"), as a PyTorch program
 * does that calls ctworker.progress() and nothing else. As long as no rank of this machine has told
 * a wait, the phase "compute" says nothing: the rank may compute or wait. Its use of the CPU is
 * progress then, too, and it is judged like a program without a page. A job of one rank has nobody
 * to wait for, so its phase is believed.
 *
 * A rank has warmed up at the end of its first step: that step loads, compiles and connects for an
 * unknown time. A program without a page has warmed up after half a second of CPU time. There is no
 * verdict until every living rank has warmed up.
 *
 * Two cases need no such agreement. A rank that has been stopped for the whole timeout is reported
 * even if others use the CPU, since they may spin while they wait for it. And of programs without a
 * page, one rank may use the CPU while all others have waited for it for the whole timeout. It may
 * compute, or turn in an endless loop, which only its stack can tell: the caller looks at it
 * several times (ct_hang_busy_alone()).
 *
 * Who. A rank that waits for others (phase "collective") is a victim. The suspect is, in this
 * order:
 *   1. a rank that is stopped (SIGSTOP), unless all are: then somebody has suspended the job;
 *   2. a rank with a page that is in no collective while another one is, or that is the only rank;
 *   3. of ranks that all wait, or that never tell, the one whose step is lower than every other
 *      one's;
 *   4. the only rank in uninterruptible sleep (state D);
 *   5. of ranks without a page, or that never tell, the only one that sleeps for a time of its own
 *      choice (nanosleep), or, where there are three or more, the only one that sleeps in another
 *      place of the kernel than all others.
 *
 * When no rank stands out, the verdict names the job as a whole, but only if all ranks are on this
 * machine and all wait. Otherwise the culprit may be on another machine, which all machines find
 * out together (rendezvous/control/hang_vote.h), or nothing is wrong: all ranks evaluate, or write
 * a checkpoint.
 *
 * The time starts anew when a debugger traces a rank, and when ctrun itself was suspended. A rank
 * that wants to go on and gets no CPU, because the machine is overloaded, does not stand still.
 */
#ifndef CT_LAUNCHER_HANG_HANG_H
#define CT_LAUNCHER_HANG_HANG_H

#include "common/buf.h"
#include "common/err.h"
#include "common/progress_page.h"
#include "rendezvous/control/hang_vote.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* --hang-timeout auto: this many times the slowest step, and never less than the minimum. A program
 * without a page has no steps; the longest time without CPU use takes the place of one. */
#define CT_HANG_AUTO_FACTOR 5
#define CT_HANG_AUTO_MIN_NS (INT64_C(10) * 1000000000)
#define CT_HANG_AUTO_MIN_QUIET_NS (INT64_C(60) * 1000000000)

#define CT_HANG_WCHAN_MAX 64

/* One worker at one moment. */
struct ct_hang_sample {
    bool alive;
    pid_t pid;
    bool has_page;
    struct ct_progress page;
    int64_t cpu_ns; /* CPU time of its process and of all descendants; -1 = not known now */
    /* How long its main thread has waited for a free CPU in all, as /proc/PID/schedstat says; -1 =
     * not known now */
    int64_t queued_ns;
    char state;                    /* of its process as in /proc/PID/stat; '?' = not known now */
    char wchan[CT_HANG_WCHAN_MAX]; /* the kernel function in which it sleeps; "" = not known */
};

enum ct_hang_reason {
    CT_HANG_NONE, /* the job does not hang, or it is too early to say */
    /* Rules 1 to 5 above. */
    CT_HANG_STOPPED,
    CT_HANG_BUSY,
    CT_HANG_BEHIND,
    CT_HANG_UNINTERRUPTIBLE,
    CT_HANG_SLEEPS_ELSEWHERE,
    CT_HANG_LOOPS, /* it uses the CPU at one place, and the others wait for it */
    CT_HANG_ALL,   /* no rank stands out */
};

struct ct_hang_verdict {
    enum ct_hang_reason reason;
    int local_rank; /* the suspect; of CT_HANG_ALL the first living one */
    int64_t still_ns;
    int64_t timeout_ns;
};

struct ct_hang_rank;

/* Read-only for others. */
struct ct_hang {
    int ranks;
    bool whole_job;   /* every rank of the job is on this machine */
    bool tells_waits; /* a rank with a page has told that it waits */
    int64_t timeout_ns;
    int64_t last_ns; /* of the last sample, 0 = none */
    bool suspended;  /* every watched rank was stopped then */
    struct ct_hang_verdict
        standing; /* was given and is not over; no other one is given meanwhile */
    struct ct_hang_rank *rank;
};

/* timeout_ns 0 = auto. CT_ENOMEM. */
CT_MUST_CHECK int ct_hang_init(struct ct_hang *hang, int ranks, bool whole_job, int64_t timeout_ns);
void ct_hang_fini(struct ct_hang *hang); /* NULL and zeroed memory are allowed */

/* Forgets all samples, because a new generation of workers begins. */
void ct_hang_reset(struct ct_hang *hang);

/* Should the next sample have cpu_ns and state? Reading them is expensive. True for a worker
 * without a page, and for every worker when the job has stood still for half of its timeout. */
bool ct_hang_wants_proc(const struct ct_hang *hang, int local_rank, int64_t now_ns);

/* Takes a sample of each rank, in the order of local ranks. A verdict is given once; the next one
 * can only follow when it is over (ct_hang_is_over()). */
void ct_hang_step(struct ct_hang *hang, const struct ct_hang_sample *samples, int64_t now_ns,
                  struct ct_hang_verdict *out);

/* To be called when the workers were not sampled for a while, because they were asked where they
 * stand, and asking uses CPU time of theirs and stops them for moments. None of that counts.
 * Returns true if no rank has made progress on its page meanwhile. */
bool ct_hang_resume(struct ct_hang *hang, const struct ct_hang_sample *samples, int64_t now_ns);

/* Is the hang of this verdict over? It is when the suspect has ended, or when the last samples show
 * progress of a rank. It is no progress that the time starts anew, that a rank was starved, what a
 * debugger makes a rank do, or that a rank in an endless loop uses the CPU. A rank that is named
 * because it is stopped must also run again. */
bool ct_hang_is_over(const struct ct_hang *hang, const struct ct_hang_sample *samples,
                     const struct ct_hang_verdict *verdict);

/* Gives what this machine tells the others about its workers, from the samples of the last step.
 * `rank` is a local one. The kind is CT_HANG_VOTE_NO while a rank makes progress, and for a timeout
 * after the time has begun anew. `still_ms` counts from the last progress in any case, so that
 * others can tell a hang that they know from a new one. */
void ct_hang_local_vote(const struct ct_hang *hang, const struct ct_hang_sample *samples,
                        int64_t now_ns, struct ct_hang_vote *out);

/* Takes a verdict of all machines: this worker holds the job up. `kind` is that of the verdict.
 * Gives it as a verdict of this machine, unless one stands that says as much. */
void ct_hang_take_job_verdict(struct ct_hang *hang, int local_rank, int kind, int64_t now_ns,
                              struct ct_hang_verdict *out);

/* The stacks have named a suspect: from now on this verdict stands. */
void ct_hang_name(struct ct_hang *hang, const struct ct_hang_verdict *verdict);

/* Returns the local rank that uses the CPU while all other ranks of the job have waited for the
 * whole timeout; -1 = there is none, or the last verdict still holds. Programs that tell their
 * waits say themselves what they do, so of them there is none. */
int ct_hang_busy_alone(const struct ct_hang *hang, const struct ct_hang_sample *samples,
                       int64_t now_ns);

/* Takes the caller's word that this rank, which ct_hang_busy_alone() has named, has stayed at one
 * place of its program. Gives the verdict. */
void ct_hang_take_loop(struct ct_hang *hang, const struct ct_hang_sample *samples, int local_rank,
                       int64_t now_ns, struct ct_hang_verdict *out);

/* Appends why the suspect is named, in a clause without a line end. CT_ENOMEM. */
CT_MUST_CHECK int ct_hang_reason_text(const struct ct_hang_verdict *verdict,
                                      const struct ct_hang_sample *suspect, struct ct_buf *out);

/* Appends the verdict in words: who, for how long and why (of CT_HANG_ALL, only that the job hangs
 * and for how long), then what the suspect does, then what the others do, and what the verdict
 * rests on if that may mislead. Each line begins with `prefix`. `first_rank` is the global rank of
 * local rank 0. CT_ENOMEM. */
CT_MUST_CHECK int ct_hang_describe(const struct ct_hang *hang,
                                   const struct ct_hang_verdict *verdict,
                                   const struct ct_hang_sample *samples, int first_rank,
                                   int64_t now_ns, const char *prefix, struct ct_buf *out);

#endif
