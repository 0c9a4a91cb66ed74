/* SPDX-License-Identifier: Apache-2.0
 *
 * Does one rank work while the others wait for it, step after step? Pure: the samples of hang.h go
 * in, a verdict comes out. Nothing hangs then, so nobody is ended; the user learns which rank makes
 * the job slow.
 *
 * In a window of time each rank has a share of work: the part of its samples in which it is not in
 * the phase "collective", or without a progress page its use of the CPU, of which one CPU counts. A
 * rank is slow if in four windows in a row its share is the largest and at least `factor` times the
 * median of the others. A rank that writes a checkpoint is not slow, and there is no verdict while
 * a rank with a page has completed no step, because that may be a hang.
 *
 * Why four windows: with fewer, chance alone accuses a rank of a healthy job. Say there are 8
 * ranks, every third step waits up to 9 s for any one of them, and the factor is 3. Then two
 * windows would accuse somebody 7 times in an hour, three windows once in 2 hours, four hardly
 * ever.
 */
#ifndef CT_LAUNCHER_HANG_SLOW_H
#define CT_LAUNCHER_HANG_SLOW_H

#include "common/err.h"
#include "launcher/hang/hang.h"

#include <stdbool.h>
#include <stdint.h>

/* With a sample each second, fewer would say little. */
#define CT_SLOW_WINDOW_NS (INT64_C(15) * 1000000000)
#define CT_SLOW_WINDOWS 4

struct ct_slow_rank;

/* Zeroed memory finds nothing. */
struct ct_slow {
    int ranks;
    double factor;               /* 0 = nobody is slow */
    bool told;                   /* one verdict for each generation is enough */
    int candidate;               /* the slow one of the last window; -1 = none */
    int windows;                 /* in a row of which it is the slow one */
    int percent, others_percent; /* sums over these windows */
    int64_t begun_ns, last_ns;   /* of the window; 0 = none has begun */
    struct ct_slow_rank *rank;
};

struct ct_slow_verdict {
    int local_rank;     /* -1 = nobody is slow */
    int percent;        /* its share of work in these windows */
    int others_percent; /* the median of the others */
};

/* CT_ENOMEM. */
CT_MUST_CHECK int ct_slow_init(struct ct_slow *slow, int ranks, double factor);
void ct_slow_fini(struct ct_slow *slow); /* zeroed memory is allowed */

/* Forgets all samples, because a new generation of workers begins. */
void ct_slow_reset(struct ct_slow *slow);

/* Takes a sample of each rank, in the order of local ranks. */
void ct_slow_step(struct ct_slow *slow, const struct ct_hang_sample *samples, int64_t now_ns,
                  struct ct_slow_verdict *out);

#endif
