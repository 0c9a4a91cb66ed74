/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/control/still.h"

void ct_still_add(struct ct_still_sum *sum, const struct ct_still *of_machine)
{
    int kind = of_machine->kind;
    if (sum->count[kind]++ == 0 || of_machine->rank < sum->rank[kind]) {
        sum->rank[kind] = of_machine->rank;
    }
    if (kind == CT_STILL_WAITING) {
        bool first = sum->count[kind] == 1;
        if (first || of_machine->step < sum->step) {
            sum->step = of_machine->step;
            sum->last = of_machine->rank;
            sum->alone = of_machine->alone;
        } else if (of_machine->step == sum->step) {
            sum->alone = false;
        }
    }
    if (sum->total++ == 0 || of_machine->still_ms < sum->still_ms) {
        sum->still_ms = of_machine->still_ms;
    }
    sum->unsure = sum->unsure || !of_machine->sure;
}

static enum ct_still_kind judge(const struct ct_still_sum *sum)
{
    int waiting = sum->count[CT_STILL_WAITING];
    if (sum->count[CT_STILL_STOPPED] > 0) {
        /* If all are, somebody has suspended the job. */
        return sum->count[CT_STILL_STOPPED] < sum->total ? CT_STILL_STOPPED : CT_STILL_NO;
    }
    if (sum->count[CT_STILL_BUSY] > 0) {
        /* If nobody waits they may all be at the same thing: evaluating, writing a checkpoint. */
        return waiting > 0 ? CT_STILL_BUSY : CT_STILL_NO;
    }
    if (waiting == sum->total) {
        return sum->alone && sum->total > 1 ? CT_STILL_BEHIND : CT_STILL_ALL;
    }
    if (sum->count[CT_STILL_STUCK] == 1) {
        return CT_STILL_STUCK;
    }
    if (sum->count[CT_STILL_NAPPING] == 1) {
        return CT_STILL_NAPPING;
    }
    return sum->unsure ? CT_STILL_NO : CT_STILL_ALL;
}

void ct_still_judge(const struct ct_still_sum *sum, struct ct_still *out)
{
    out->kind = sum->total > 0 ? judge(sum) : CT_STILL_NO;
    out->rank = out->kind == CT_STILL_BEHIND ? sum->last
                : out->kind == CT_STILL_ALL  ? 0
                                             : sum->rank[out->kind];
    out->still_ms = sum->still_ms;
}
