/* SPDX-License-Identifier: Apache-2.0
 *
 * The progress of the training within an epoch: means since the start of the epoch for the screen,
 * and since the last line for files. Pure: the caller passes sums and times.
 */
#ifndef CT_TRAINER_SESSION_RATES_H
#define CT_TRAINER_SESSION_RATES_H

#include <stddef.h>
#include <stdint.h>

struct ct_step_report {
    int epoch, epochs;     /* the current epoch, from 1 */
    size_t batch, batches; /* steps done of the epoch, and its number of steps */
    int64_t step;          /* of the whole training */
    double loss, accuracy; /* of the samples trained on, each measured before its step */
    double samples_per_s;
    double comm_share; /* part of rank 0's time that it spent on summing gradients, 0 .. 1 */
    double eta_s;      /* until the end of the last epoch, without evaluations */
    double lr;
};

/* Sums since the start of the epoch, or since this process resumed it. */
struct ct_rates_point {
    int64_t ns, comm_ns;
    double loss, hits; /* summed over samples */
    size_t samples;    /* number of samples in the sums */
    size_t trained;    /* the same without the samples of earlier processes */
};

struct ct_rates {
    struct ct_rates_point start, line;
};

/* Starts an epoch at that time, with all sums at 0. */
void ct_rates_start(struct ct_rates *watch, int64_t ns, int64_t comm_ns);

/* Sets the means of the report, over the samples and time between the two points. */
void ct_rates_means(const struct ct_rates_point *from, const struct ct_rates_point *to,
                    struct ct_step_report *report);

#endif
