/* SPDX-License-Identifier: Apache-2.0
 *
 * Notices that this machine will be taken away: a file that appears (named by the environment
 * variable CTRUN_PREEMPT_FILE) or a signal. They reach ranks at different times, so all ranks agree
 * on the step to stop at: now and then, about 20 times a second, they exchange whether anyone has
 * seen one. That costs each step next to nothing. What else ranks must agree on now and then
 * travels with it.
 */
#ifndef CT_TRAINER_MODEL_PREEMPT_H
#define CT_TRAINER_MODEL_PREEMPT_H

#include "common/err.h"
#include "trainer/model/team.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

struct ct_preempt {
    const char *file;                     /* borrowed; NULL = none */
    const volatile sig_atomic_t *flagged; /* borrowed; NULL = none */
    int64_t steps;                        /* calls so far */
    int64_t next;                         /* the call that exchanges; the same on every rank */
    int64_t last, last_ns;                /* the call before that did, and when */
};

/* Both may be NULL. */
void ct_preempt_init(struct ct_preempt *preempt, const char *file,
                     const volatile sig_atomic_t *flagged);

/* Once after every step: does the exchange come now? The same on every rank. */
bool ct_preempt_due(struct ct_preempt *preempt);

#define CT_PREEMPT_SUMS 2

/* What some rank wants of all. */
enum { CT_PREEMPT_STOP = 1, CT_PREEMPT_SAVE = 2 };

/* Collective, the exchange. *wants is what this rank wants besides stopping, and becomes what any
 * rank does. Since all ranks are heard anyway, `sums` become their sums over ranks. */
CT_MUST_CHECK int ct_preempt_agree(struct ct_preempt *preempt, struct ct_team *team,
                                   double sums[CT_PREEMPT_SUMS], unsigned *wants,
                                   struct ct_err *err);

#endif
