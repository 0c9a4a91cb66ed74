/* SPDX-License-Identifier: Apache-2.0
 *
 * All outputs of a training's events: the text for a person, and files. On rank 0 only.
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
    const struct ct_trainer *trainer; /* borrowed, from ct_sinks_start() on */
    FILE *complaints;                 /* borrowed */
};

/* Opens nothing yet. The streams are borrowed. `terminal`: lines of `out` may be rewritten. */
void ct_sinks_init(struct ct_sinks *sinks, FILE *out, bool terminal, FILE *complaints);
void ct_sinks_fini(struct ct_sinks *sinks);

/* Opens the files that the options name. A full or broken disk is only a complaint. It fails if a
 * path can never work, or without memory. `err` must not be NULL. */
CT_MUST_CHECK int ct_sinks_open(struct ct_sinks *sinks, const struct ct_train_options *options,
                                struct ct_err *err);

/* Prints what will be trained, and the warnings of the preparation. */
void ct_sinks_start(struct ct_sinks *sinks, struct ct_trainer *trainer);

/* Returns the events for ct_trainer_run(); they borrow the sinks. */
struct ct_train_events ct_sinks_events(struct ct_sinks *sinks);

void ct_sinks_done(struct ct_sinks *sinks, const struct ct_train_result *result);

/* Prints one line "train: ..." on `to`. Control characters in the message are replaced. */
void ct_complain(FILE *to, struct ct_err *err);

#endif
