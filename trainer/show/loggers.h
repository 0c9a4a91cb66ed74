/* SPDX-License-Identifier: Apache-2.0
 *
 * All loggers of a training, as PyTorch Lightning calls them: the console, the metrics file and
 * TensorBoard. On rank 0 only.
 */
#ifndef CT_TRAINER_SHOW_LOGGERS_H
#define CT_TRAINER_SHOW_LOGGERS_H

#include "trainer/loop/train.h"
#include "trainer/show/console.h"
#include "trainer/show/metrics.h"
#include "trainer/show/tensorboard.h"

#include <stdio.h>

struct ct_loggers {
    struct ct_console console;
    struct ct_metrics metrics;
    struct ct_tensorboard board;
    const struct ct_trainer *trainer; /* borrowed, from ct_loggers_start() on */
    FILE *complaints;                 /* borrowed */
};

/* Opens nothing yet. The streams are borrowed. `terminal`: lines of `out` may be rewritten. */
void ct_loggers_init(struct ct_loggers *loggers, FILE *out, bool terminal, FILE *complaints);
void ct_loggers_fini(struct ct_loggers *loggers);

/* Opens the files that the options name. A full or broken disk is only a complaint. It fails if a
 * path can never work, or without memory. `err` must not be NULL. */
CT_MUST_CHECK int ct_loggers_open(struct ct_loggers *loggers,
                                  const struct ct_train_options *options, struct ct_err *err);

/* Prints what will be trained, and the warnings of the preparation. */
void ct_loggers_start(struct ct_loggers *loggers, struct ct_trainer *trainer);

/* Returns the events for ct_trainer_run(); they borrow the loggers. */
struct ct_train_events ct_loggers_events(struct ct_loggers *loggers);

void ct_loggers_done(struct ct_loggers *loggers, const struct ct_train_result *result);

/* Prints one line "train: ..." on `to`. Control characters in the message are replaced. */
void ct_loggers_complain(FILE *to, struct ct_err *err);

#endif
