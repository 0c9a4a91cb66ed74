/* SPDX-License-Identifier: Apache-2.0
 *
 * Notices that this machine will be taken away: a file that appears (named by the environment
 * variable CTRUN_PREEMPT_FILE) or a signal. Ranks notice it at different times, so they agree on
 * the step to stop at: about 20 times a second they exchange whether one of them has noticed. Most
 * steps have no exchange and cost nothing. The exchange also carries the requests for a checkpoint
 * and the sums of the metrics.
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

/* Collective: the exchange. *wants goes in as what this rank wants besides stopping, and comes out
 * as what at least one rank wants. `sums` become the sums over all ranks. */
CT_MUST_CHECK int ct_preempt_agree(struct ct_preempt *preempt, struct ct_team *team,
                                   double sums[CT_PREEMPT_SUMS], unsigned *wants,
                                   struct ct_err *err);

#endif
