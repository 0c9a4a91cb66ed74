/* SPDX-License-Identifier: Apache-2.0
 *
 * The text that a training prints for a person: on a terminal one line that is rewritten, otherwise
 * plain lines, one per epoch. The caller owns the stream.
 */
#ifndef CT_TRAINER_SHOW_CONSOLE_H
#define CT_TRAINER_SHOW_CONSOLE_H

#include "trainer/loop/train.h"

#include <stdbool.h>
#include <stdio.h>

struct ct_console {
    FILE *out;       /* borrowed */
    bool terminal;   /* may the line be rewritten? */
    bool unfinished; /* the terminal shows a line without its newline */
};

/* Prints the model, the data and the workers. */
void ct_console_start(struct ct_console *screen, const struct ct_trainer *trainer);

/* Called within an epoch. Prints only on a terminal. */
void ct_console_tick(struct ct_console *screen, const struct ct_step_report *report);

void ct_console_epoch(struct ct_console *screen, const struct ct_epoch_report *report);

/* Prints the last line. */
void ct_console_done(struct ct_console *screen, const struct ct_train_result *result);

/* Ends an unfinished line, so that other output starts on a new one. */
void ct_console_break(struct ct_console *screen);

#endif
