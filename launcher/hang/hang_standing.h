/* SPDX-License-Identifier: Apache-2.0
 *
 * The hang that was told last, until it is over, and what to do when the membership gives a verdict
 * meanwhile. Pure.
 *
 * The membership gives a verdict again when a machine has voted that its workers do not stand
 * still. That machine may only have been unable to say so: a debugger was at a worker, ctrun was
 * suspended, a worker got no CPU. So a verdict that comes again is about the same hang if no rank
 * has made progress since it was told. It is not told again then, but answered, and acted upon if
 * that was not done before.
 */
#ifndef CT_LAUNCHER_HANG_HANG_STANDING_H
#define CT_LAUNCHER_HANG_HANG_STANDING_H

#include "common/clock.h"
#include "launcher/hang/hang.h"

/* What looks like progress may be the end of a worker that prints why it fails, so a hang is over
 * when nobody has failed for so long after it. */
#define CT_HANG_OVER_NS (2 * CT_NS_PER_S)

struct ct_hang_standing {
    struct ct_hang_report report;   /* its still_ms counts up to `since_ns` */
    struct ct_hang_verdict verdict; /* in case that it is this machine's */
    int64_t since_ns;               /* when it was told */
    int64_t went_on_ns;             /* when a sample first showed progress; 0 = none has */
    bool failed;                    /* a worker of this machine failed, so it is never over */
    bool is_here;                   /* it is this machine that tells the membership of it */
    bool acted;                     /* the suspect was killed */
    bool explained;                 /* it was printed where the workers stand */
    bool says_nobody;               /* it was said that no rank stands out */
};

/* A verdict of the membership, as it concerns this machine. */
struct ct_hang_news {
    const struct ct_hang_vote *verdict;
    bool is_here; /* the rank that it names, or that acts where none is named, runs here */
    bool awaits;  /* the membership was told where the workers stand, and owes its last verdict */
    bool stand_still; /* the workers here do, as the last sample says */
    int64_t now_ns;
};

struct ct_hang_todo {
    bool is_last; /* the verdict is the last one on the hang, no first one */
    bool ends;    /* the hang that stands is over: ranks have made progress since it was told */
    bool tells;   /* the verdict is news */
    bool answers; /* the membership asks where the workers stand */
    bool acts;    /* the suspect is here and is to be killed, if the user wants that */
    bool objects; /* workers here may have made progress: the membership is to hear of that at once,
                     so that its verdict comes again when they have not */
};

/* For how long no rank had made progress. */
int64_t ct_hang_standing_ms(const struct ct_hang_standing *standing, int64_t now_ns);

/* Takes a sample. `went_on`: it shows progress. Returns true when the hang is over. */
bool ct_hang_standing_take_sample(struct ct_hang_standing *standing, bool went_on, int64_t now_ns);

/* A worker of this machine has ended by itself. Returns true if the hang is over by that: a worker
 * that succeeds after progress was no victim of it. */
bool ct_hang_standing_take_end(struct ct_hang_standing *standing, bool success);

void ct_hang_standing_take(const struct ct_hang_standing *standing, const struct ct_hang_news *news,
                           struct ct_hang_todo *out);

#endif
