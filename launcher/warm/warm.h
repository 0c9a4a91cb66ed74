/* SPDX-License-Identifier: Apache-2.0
 *
 * When to make spare interpreters (--warm), and when to throw them away. No process, no socket, no
 * clock.
 *
 * A spare is made for one local rank, because its CPUs and its GPU are those of that rank. Spares
 * are made one after the other, and only while all workers of a generation run or, before the first
 * generation of a job of several machines, while machines are missing. First a plan is made: what
 * the program imports. It is made again in each generation, because the program may have changed,
 * and when what makes a spare of a process has changed.
 *
 *             make            says ready           taken, thrown away, died
 *     NONE ---------> IMPORTING ---------> READY -------------------------> NONE
 *                        | refuses, dies, or takes too long
 *                        +------------------------------------------------> NONE
 *
 * A spare that still imports when its generation ends goes on. When the next one begins, it is
 * waited for if all other workers there can begin warm: a cold start would import the same again.
 *
 * What the program itself causes (an import that fails, prints, or takes too long) would happen
 * again, so it ends the making of spares for the whole job. A spare that somebody has killed is
 * made again, CT_WARM_DEATHS times in a generation.
 */
#ifndef CT_LAUNCHER_WARM_WARM_H
#define CT_LAUNCHER_WARM_WARM_H

#include "common/err.h"
#include "rendezvous/control/control.h"

#include <stdbool.h>
#include <stdint.h>

/* Workers import their own modules first. */
#define CT_WARM_BEGIN_MS 1000

/* Imports hang when they have used no CPU for so long: a slow network file system takes minutes.
 * They never end when they have used so much of it. At idle priority beside busy workers the time
 * itself says nothing. */
#define CT_WARM_IMPORT_MS 600000
#define CT_WARM_IMPORT_CPU_MS 600000

/* How long a generation that begins waits for a spare that still imports. At the usual priority
 * imports take a few seconds; from a slow file server they take minutes, also at a cold start. */
#define CT_WARM_WAIT_MS 30000

/* Reading the program takes a fraction of a second. */
#define CT_WARM_PLAN_MS 60000

/* Pauses between two looks: while something is under way, and otherwise, for the memory. */
#define CT_WARM_BUSY_MS 20
#define CT_WARM_QUIET_MS 1000

/* So many spares may die in a generation before no more are made. */
#define CT_WARM_DEATHS 20

#define CT_WARM_WHY_MAX 480

enum ct_warm_state {
    CT_WARM_NONE,
    CT_WARM_IMPORTING,
    CT_WARM_READY,
};

/* Of this machine, or of its memory cgroup if that has less. */
struct ct_warm_memory {
    uint64_t total, available; /* bytes; 0 = not known */
    uint64_t spares;           /* what all spares of this ctrun take alone */
};

struct ct_warm {
    int count;       /* spares that are wanted */
    uint64_t limit;  /* bytes that all of them may take; 0 = a tenth of the memory stays free */
    uint8_t *states; /* enum ct_warm_state by local rank */
    bool running;    /* between ct_warm_run() and ct_warm_stop(): spares may be made */
    bool planning, planned;
    bool full;                 /* memory does not allow more spares in this generation */
    bool in_vain;              /* a wait for an import was in vain, so there is no other */
    bool off;                  /* no spare is made any more */
    int64_t since_ns;          /* when `running` began, or what is under way */
    int importing;             /* local rank; -1 = none */
    int64_t import_cpu_ms;     /* that its process has used so far */
    int deaths;                /* of spares in this generation */
    uint64_t each;             /* bytes that one spare takes; 0 = not known yet */
    char why[CT_WARM_WHY_MAX]; /* why there are none; "" = there are */
};

enum ct_warm_act {
    CT_WARM_WAIT,    /* until wait_ms are over; -1 = until something happens */
    CT_WARM_PLAN,    /* begin to make the plan */
    CT_WARM_MAKE,    /* start the spare of `spare` */
    CT_WARM_DROP,    /* end the spare of `spare`, which this module has forgotten */
    CT_WARM_GIVE_UP, /* end the making of the plan */
};

struct ct_warm_action {
    enum ct_warm_act act;
    int spare;
    int64_t wait_ms;
};

/* `count` spares with the local ranks from 0. CT_ENOMEM. */
CT_MUST_CHECK int ct_warm_init(struct ct_warm *warm, int count, uint64_t limit);
void ct_warm_fini(struct ct_warm *warm); /* zeroed memory and repeated calls are allowed */

/* From now on spares may be made: all workers run, or machines are missing. Ends when workers are
 * to stop, or a world has come. */
void ct_warm_run(struct ct_warm *warm, int64_t now_ns);
void ct_warm_stop(struct ct_warm *warm);

/* To be called again after every action but WAIT. */
struct ct_warm_action ct_warm_step(struct ct_warm *warm, const struct ct_warm_memory *memory,
                                   int64_t now_ns);

/* The spare that imports has used so much CPU time up to now. */
void ct_warm_used(struct ct_warm *warm, int64_t cpu_ms, int64_t now_ns);

/* What has become of an action. */
void ct_warm_planned(struct ct_warm *warm);
void ct_warm_plan_failed(struct ct_warm *warm); /* it can be tried again in the next generation */
void ct_warm_plan_died(struct ct_warm *warm);   /* somebody has killed it: it is tried again */
void ct_warm_plan_again(struct ct_warm *warm, int spare); /* before this spare, which is not made */
void ct_warm_ready(struct ct_warm *warm, int spare, uint64_t bytes);
void ct_warm_died(struct ct_warm *warm, int spare);
void ct_warm_taken(struct ct_warm *warm, int spare); /* or thrown away */

/* Does a generation of `workers` that begins wait for the spare that still imports? Not if another
 * worker starts cold, which would wait, too, and take as long afterwards. */
bool ct_warm_waits(const struct ct_warm *warm, int workers);

/* The spare for which a generation has waited became no worker. */
void ct_warm_waited_in_vain(struct ct_warm *warm);

/* No spare is made any more, for this reason. The first reason stays. */
void ct_warm_turn_off(struct ct_warm *warm, const char *why);

/* Is there no spare only because memory does not allow any? */
bool ct_warm_none_fits(const struct ct_warm *warm);

int ct_warm_count(const struct ct_warm *warm, enum ct_warm_state state);

enum ct_warm_making ct_warm_making(const struct ct_warm *warm);

#endif
