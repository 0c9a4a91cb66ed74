/* SPDX-License-Identifier: Apache-2.0
 *
 * Adds up what the machines say and names the rank that stands out, if one does.
 */
#include "rendezvous/control/hang_vote.h"

bool ct_hang_vote_is_verdict(const struct ct_hang_vote *vote)
{
    return vote->kind != CT_HANG_VOTE_NO && vote->kind != CT_HANG_VOTE_WAITING &&
           vote->kind != CT_HANG_VOTE_QUIET;
}

void ct_hang_vote_add(struct ct_hang_votes *sum, const struct ct_hang_vote *of_machine)
{
    int kind = of_machine->kind;
    if (sum->count[kind]++ == 0 || of_machine->rank < sum->rank[kind]) {
        sum->rank[kind] = of_machine->rank;
    }
    if (kind == CT_HANG_VOTE_WAITING) {
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

static enum ct_hang_vote_kind judge(const struct ct_hang_votes *sum)
{
    int waiting = sum->count[CT_HANG_VOTE_WAITING];
    if (sum->count[CT_HANG_VOTE_STOPPED] > 0) {
        /* If all are stopped, somebody has suspended the job. */
        return sum->count[CT_HANG_VOTE_STOPPED] < sum->total ? CT_HANG_VOTE_STOPPED
                                                             : CT_HANG_VOTE_NO;
    }
    if (sum->count[CT_HANG_VOTE_BUSY] > 0) {
        /* If nobody waits, all may be doing the same, such as writing a checkpoint. */
        return waiting > 0 ? CT_HANG_VOTE_BUSY : CT_HANG_VOTE_NO;
    }
    if (waiting == sum->total) {
        return sum->alone && sum->total > 1 ? CT_HANG_VOTE_BEHIND : CT_HANG_VOTE_ALL;
    }
    if (sum->count[CT_HANG_VOTE_STUCK] == 1) {
        return CT_HANG_VOTE_STUCK;
    }
    if (sum->count[CT_HANG_VOTE_NAPPING] == 1) {
        return CT_HANG_VOTE_NAPPING;
    }
    return sum->unsure ? CT_HANG_VOTE_NO : CT_HANG_VOTE_ALL;
}

void ct_hang_vote_judge(const struct ct_hang_votes *sum, struct ct_hang_vote *out)
{
    out->kind = sum->total > 0 ? judge(sum) : CT_HANG_VOTE_NO;
    out->rank = out->kind == CT_HANG_VOTE_BEHIND ? sum->last
                : out->kind == CT_HANG_VOTE_ALL  ? 0
                                                 : sum->rank[out->kind];
    out->still_ms = sum->still_ms;
}
