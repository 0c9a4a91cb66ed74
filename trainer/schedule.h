/* SPDX-License-Identifier: Apache-2.0
 *
 * The learning rate over a training, as a function of how much of it is done, so that a resumed run
 * needs no state to go on exactly.
 */
#ifndef CT_TRAINER_SCHEDULE_H
#define CT_TRAINER_SCHEDULE_H

enum ct_schedule {
    CT_SCHEDULE_COSINE, /* from the full rate to zero along half a cosine (Loshchilov and Hutter) */
    CT_SCHEDULE_CONSTANT, /* the full rate throughout */
};

/* `done` is 0 at the first step and below 1 at the last. */
double ct_schedule_rate(enum ct_schedule schedule, double full, double done);

#endif
