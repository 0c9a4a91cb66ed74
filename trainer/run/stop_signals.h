/* SPDX-License-Identifier: Apache-2.0
 *
 * SIGTERM and SIGUSR1 ask a training to save everything and to stop. State of the process: they are
 * its signals.
 */
#ifndef CT_TRAINER_RUN_STOP_SIGNALS_H
#define CT_TRAINER_RUN_STOP_SIGNALS_H

#include "common/err.h"

#include <stdatomic.h>

/* Gives these signals a thread of their own, which hears them even if the process was started with
 * them blocked. Called before any other thread is created. */
CT_MUST_CHECK int ct_stop_signals_apart(struct ct_err *err);

/* From here on these signals set the flag; before, they end the process. A second signal some
 * seconds after the first one ends the process, too. */
void ct_stop_signals_catch(void);

/* Gives the flag, which another thread sets: nonzero = a stop was asked for. */
const atomic_int *ct_stop_signals_asked(void);

#endif
