/* SPDX-License-Identifier: Apache-2.0
 *
 * May another generation follow, and when? For the files of the core alone.
 */
#ifndef CT_RENDEZVOUS_MEMBERS_MEMBERS_BUDGET_H
#define CT_RENDEZVOUS_MEMBERS_MEMBERS_BUDGET_H

#include "rendezvous/members/members_core.h"

/* Takes one restart from the budget. Returns false if none is left. A generation uses one at most,
 * because further failures in it are consequences of the first. */
bool members_budget_take(struct ct_members *m, int64_t now_ns);

/* Counts once in a generation whether it has made progress. Returns true if it is the last one of
 * too many without; the job ends then. */
bool members_budget_is_stuck(struct ct_members *m, const struct ct_failure *failure);

/* To be called once for each generation that another one follows, with its first failure or NULL.
 * Returns how long the next one waits. Without the pause a program that fails as soon as it starts
 * would use up all restarts at once, and load the machines. Tells all members when it begins. */
int64_t members_budget_pause_ms(struct ct_members *m, const struct ct_failure *first);

#endif
