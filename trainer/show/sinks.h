/* SPDX-License-Identifier: Apache-2.0
 *
 * Everywhere that a training's events go: what a person reads, and files. On rank 0 alone.
 */
#ifndef CT_TRAINER_SHOW_SINKS_H
#define CT_TRAINER_SHOW_SINKS_H

#include "trainer/loop/train.h"
#include "trainer/show/console.h"
#include "trainer/show/metrics.h"
#include "trainer/show/tensorboard.h"

#include <stdio.h>

struct ct_sinks {
    struct ct_console screen;
    struct ct_metrics metrics;
    struct ct_tensorboard board;
    const struct ct_trainer *trainer; /* borrowed, from start on */
    FILE *complaints;                 /* borrowed */
};

/* Opens nothing yet. The streams are borrowed; `terminal`: may a line of `out` be rewritten? */
void ct_sinks_init(struct ct_sinks *sinks, FILE *out, bool terminal, FILE *complaints);
void ct_sinks_fini(struct ct_sinks *sinks);

/* Opens the files that the options name. A disk that is full or broken costs a complaint; what
 * fails is that a path cannot be right, or memory. `err` is not NULL. */
CT_MUST_CHECK int ct_sinks_open(struct ct_sinks *sinks, const struct ct_train_options *options,
                                struct ct_err *err);

/* What will be trained, and what was found on the way there. */
void ct_sinks_start(struct ct_sinks *sinks, struct ct_trainer *trainer);

/* The events to hand to ct_trainer_run(); they borrow the sinks. */
struct ct_train_events ct_sinks_events(struct ct_sinks *sinks);

void ct_sinks_done(struct ct_sinks *sinks, const struct ct_train_result *result);

/* One line "train: ..." on `to`, whatever strange name the message quotes. */
void ct_complain(FILE *to, struct ct_err *err);

#endif
