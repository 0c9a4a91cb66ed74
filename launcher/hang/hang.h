/* SPDX-License-Identifier: Apache-2.0
 *
 * Does the job hang, and who holds it up? Pure: samples in, verdict out.
 *
 * When. A rank that has begun to live stands still while nothing that counts as progress changes:
 * the step, the phase or the stamp of its progress page; CPU time in the phases that work for long
 * on their own (data, checkpoint); CPU time alone for a program without a page. The job hangs when
 * every living rank of this machine has stood still for the whole timeout. Anybody's progress
 * starts the time anew, so that a slow rank is never taken for a hanging one.
 *
 * Life begins with the end of the first step (which loads, compiles and connects for as long as it
 * likes), for a program without a page with its first second of CPU time. As long as one living
 * rank has not begun, there is no verdict.
 *
 * Who. Ranks that wait (phase "collective") are victims, others are suspects:
 *   1. a rank that is stopped (SIGSTOP), unless all are: then somebody has suspended the job;
 *   2. a rank with a page that is in no collective while another one is;
 *   3. of ranks that all wait, the one whose step is behind the others';
 *   4. a rank that is stuck in the kernel (state D) while no other is;
 *   5. of ranks that all sleep, the one that sleeps elsewhere in the kernel than all the others.
 * Where nobody stands out, the job as a whole is named, but only if all of it is on this machine
 * and all its ranks wait; else the one that holds it up may be elsewhere (which all machines
 * together find out, see rendezvous/control/hang_vote.h), or nothing is wrong (all evaluate, all
 * write a checkpoint). A rank that is traced by a debugger, and a launcher that was itself
 * suspended, start the time anew.
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

/* --hang-timeout auto: this many times the slowest usual step, and never less than the floor. A
 * program without a page has no steps: the longest time it was quiet stands for one. */
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
    int64_t cpu_ns;                /* of its process and all below, -1 = not known now */
    char state;                    /* of its process as in /proc/PID/stat; '?' = not known now */
    char wchan[CT_HANG_WCHAN_MAX]; /* where it sleeps in the kernel; "" = not known */
};

enum ct_hang_reason {
    CT_HANG_NONE,    /* all is well, or too early to say */
    CT_HANG_STOPPED, /* 1 */
    CT_HANG_BUSY,    /* 2 */
    CT_HANG_BEHIND,  /* 3 */
    CT_HANG_STUCK,   /* 4 */
    CT_HANG_ODD,     /* 5 */
    CT_HANG_ALL,     /* nobody stands out */
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
    bool whole_job; /* every rank of the job is on this machine */
    int64_t timeout_ns;
    int64_t last_ns; /* of the last sample, 0 = none */
    bool reported;   /* the verdict stands until somebody moves */
    struct ct_hang_rank *rank;
};

/* timeout_ns 0 = auto. CT_ENOMEM. */
CT_MUST_CHECK int ct_hang_init(struct ct_hang *hang, int ranks, bool whole_job, int64_t timeout_ns);
void ct_hang_fini(struct ct_hang *hang); /* NULL and zeroed memory are allowed */

/* A new generation: everybody is born again. */
void ct_hang_reset(struct ct_hang *hang);

/* Is it worth knowing cpu_ns and state of all workers? That is what costs. True for a worker
 * without a page, and for all when the job has stood still for half of its timeout. */
bool ct_hang_wants_proc(const struct ct_hang *hang, int local_rank, int64_t now_ns);

/* Takes a sample of each rank, in the order of local ranks. A verdict is given once; until somebody
 * has moved again it is not repeated. */
void ct_hang_step(struct ct_hang *hang, const struct ct_hang_sample *samples, int64_t now_ns,
                  struct ct_hang_verdict *out);

/* What this machine says of its workers to the others, from the samples of the last step; `rank` is
 * a local one. CT_HANG_VOTE_NO while one moves. */
void ct_hang_still(const struct ct_hang *hang, const struct ct_hang_sample *samples, int64_t now_ns,
                   struct ct_hang_vote *out);

/* The others have found that this one holds the job up: gives the verdict, unless one stands. */
void ct_hang_accuse(struct ct_hang *hang, int local_rank, int kind, int64_t now_ns,
                    struct ct_hang_verdict *out);

/* The story in lines with `prefix` in front of each: the verdict, what the suspect does (with
 * `stack`, its kernel stack or "", indented), then the others. `first_rank` is the global rank of
 * local rank 0. CT_ENOMEM. */
CT_MUST_CHECK int ct_hang_describe(const struct ct_hang *hang,
                                   const struct ct_hang_verdict *verdict,
                                   const struct ct_hang_sample *samples, int first_rank,
                                   const char *stack, int64_t now_ns, const char *prefix,
                                   struct ct_buf *out);

#endif
