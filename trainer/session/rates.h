/* SPDX-License-Identifier: Apache-2.0
 *
 * How training goes within an epoch: means since the epoch began, for who watches, and since the
 * last line, for files. Pure: sums and times come in.
 */
#ifndef CT_TRAINER_SESSION_RATES_H
#define CT_TRAINER_SESSION_RATES_H

#include <stddef.h>
#include <stdint.h>

struct ct_step_report {
    int epoch, epochs;     /* the epoch that runs, from 1 */
    size_t batch, batches; /* steps done of it */
    int64_t step;          /* of the whole training */
    double loss, accuracy; /* of the samples trained on, each before its step */
    double samples_per_s;
    double comm_share; /* part of rank 0's time that went into summing gradients, 0 .. 1 */
    double eta_s;      /* until the last epoch's end, without evaluation */
    double lr;
};

/* Everything since the epoch began, or since a resumed one was taken up. */
struct ct_rates_point {
    int64_t ns, comm_ns;
    double loss, hits; /* summed over samples */
    size_t samples;    /* that the sums are over */
    size_t trained;    /* by this process: those, but for what it was handed by one before it */
};

struct ct_rates {
    struct ct_rates_point start, line;
};

/* An epoch begins at that time; what was summed so far counts as nothing. */
void ct_rates_start(struct ct_rates *watch, int64_t ns, int64_t comm_ns);

/* Fills the means of the report, over what came between the two points. */
void ct_rates_means(const struct ct_rates_point *from, const struct ct_rates_point *to,
                    struct ct_step_report *report);

#endif
