/* SPDX-License-Identifier: Apache-2.0
 *
 * Notices that this machine will be taken away: a file that appears (its path is in the environment
 * variable CTRUN_PREEMPT_FILE) or a signal. Ranks notice it at different times, so they agree on
 * the step at which to stop: about 20 times a second they exchange whether one of them has noticed.
 * Most steps have no exchange and cost nothing. The exchange also carries requests for a checkpoint
 * and the sums of the metrics.
 */
#ifndef CT_TRAINER_MODEL_PREEMPT_H
#define CT_TRAINER_MODEL_PREEMPT_H

#include "common/err.h"
#include "trainer/model/group.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ct_preempt {
    const char *file;          /* borrowed; NULL = none */
    const atomic_int *flagged; /* borrowed; NULL = none */
    int64_t steps;             /* number of calls so far */
    int64_t next;              /* number of the next call that exchanges; the same on every rank */
    int64_t last, last_ns;     /* number and time of the last call that did */
};

/* Both may be NULL. */
void ct_preempt_init(struct ct_preempt *preempt, const char *file, const atomic_int *flagged);

/* Called once after every step. Is an exchange due? The same on every rank. */
bool ct_preempt_due(struct ct_preempt *preempt);

#define CT_PREEMPT_SUMS 2

/* What at least one rank wants all ranks to do. */
enum { CT_PREEMPT_STOP = 1, CT_PREEMPT_SAVE = 2 };

/* Collective: the exchange. On entry *wants is what this rank wants, besides stopping; on return it
 * is what at least one rank wants. `sums` are replaced by the sums over all ranks. */
CT_MUST_CHECK int ct_preempt_agree(struct ct_preempt *preempt, struct ct_group *group,
                                   double sums[CT_PREEMPT_SUMS], unsigned *wants,
                                   struct ct_err *err);

#endif
