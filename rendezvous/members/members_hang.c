/* SPDX-License-Identifier: Apache-2.0
 *
 * The whole job stands still: who holds it up is told to all, once, until somebody has moved.
 */
#include "rendezvous/members/members_impl.h"

#include <stdio.h>

/* A beat of any machine may complete the picture; looking at all of them costs, and what stands
 * still can wait. */
#define LOOK_EVERY_NS CT_NS_PER_S

/* Of a machine; what no agent of ours says counts as moving. */
static bool stands_still(const struct ct_members *m, const struct ct_member *member)
{
    const struct ct_hang_vote *still = &member->still;
    return still->kind > CT_HANG_VOTE_NO && still->kind < CT_HANG_VOTE_BEHIND &&
           still->generation == m->generation && still->rank >= member->first_rank &&
           still->rank - member->first_rank < member->workers;
}

/* False: somebody moves. */
static bool sum_up(const struct ct_members *m, struct ct_hang_votes *sum)
{
    EACH_MEMBER(m, pos)
    {
        const struct ct_member *member = MEMBER_OF(pos, link);
        if (!member->in_world || member->finished) {
            continue;
        }
        if (!stands_still(m, member)) {
            return false;
        }
        ct_hang_vote_add(sum, &member->still);
    }
    return true;
}

static const char *host_of_rank(const struct ct_members *m, int rank)
{
    EACH_MEMBER(m, pos)
    {
        const struct ct_member *member = MEMBER_OF(pos, link);
        if (member->in_world && rank >= member->first_rank &&
            rank - member->first_rank < member->workers) {
            return member->host;
        }
    }
    return "";
}

void members_stand_still(struct ct_members *m, struct ct_member *member,
                         const struct ct_hang_vote *still, int64_t now_ns)
{
    struct ct_hang_votes sum = {.total = 0};
    member->still = *still;
    if (!stands_still(m, member)) {
        m->hang_told = m->hang_told && !member->in_world;
        return;
    }
    if (m->hang_told || members_state(m) != STATE_RUNNING || m->world_size == member->workers ||
        now_ns - m->hang_looked_ns < LOOK_EVERY_NS) {
        return;
    }
    m->hang_looked_ns = now_ns;
    if (!sum_up(m, &sum)) {
        return;
    }
    struct ct_msg *msg = members_msg(m, CT_MSG_BEAT);
    ct_hang_vote_judge(&sum, &msg->still);
    if (msg->still.kind == CT_HANG_VOTE_NO) {
        return;
    }
    m->hang_told = true;
    msg->still.generation = m->generation;
    (void)snprintf(msg->text, sizeof(msg->text), "%s", host_of_rank(m, msg->still.rank));
    EACH_MEMBER(m, pos)
    {
        struct ct_member *each = MEMBER_OF(pos, link);
        if (each->in_world) {
            members_send(m, each);
        }
    }
}
