/* SPDX-License-Identifier: Apache-2.0
 *
 * What a person sees of a training: on a terminal one line that is rewritten, elsewhere plain
 * lines, one per epoch. The stream is the caller's.
 */
#ifndef CT_TRAINER_SHOW_CONSOLE_H
#define CT_TRAINER_SHOW_CONSOLE_H

#include "trainer/loop/train.h"

#include <stdbool.h>
#include <stdio.h>

struct ct_console {
    FILE *out;       /* borrowed */
    bool terminal;   /* may the line be rewritten? */
    bool unfinished; /* a line without its newline stands on the terminal */
};

/* What will be trained on what. */
void ct_console_start(struct ct_console *screen, const struct ct_trainer *trainer);

/* Within an epoch. Nothing unless on a terminal. */
void ct_console_tick(struct ct_console *screen, const struct ct_step_report *report);

void ct_console_epoch(struct ct_console *screen, const struct ct_epoch_report *report);

/* The last line. */
void ct_console_done(struct ct_console *screen, const struct ct_train_result *result);

/* Ends an unfinished line, so that what others write starts on its own. */
void ct_console_break(struct ct_console *screen);

#endif
