/* SPDX-License-Identifier: Apache-2.0
 *
 * When all members of the world report that their workers make no progress, all of them are told
 * which rank holds the job up. They are told once, and again only after a worker has made progress.
 */
#include "rendezvous/members/members_hang.h"

#include <stdio.h>

/* Votes are added up at most this often, because it takes time for many members, and any beat may
 * be the last vote that is missing. */
#define LOOK_EVERY_NS CT_NS_PER_S

/* Does the member report that none of its workers makes progress? An invalid vote does not. */
static bool stands_still(const struct ct_members *m, const struct ct_member *member)
{
    const struct ct_hang_vote *still = &member->still;
    return still->kind > CT_HANG_VOTE_NO && still->kind < CT_HANG_VOTE_BEHIND &&
           still->generation == m->generation && still->rank >= member->first_rank &&
           still->rank - member->first_rank < member->workers;
}

/* Adds up the votes of all members of the world. Returns false if some worker makes progress. */
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

void members_hang_vote(struct ct_members *m, struct ct_member *member,
                       const struct ct_hang_vote *vote, int64_t now_ns)
{
    struct ct_hang_votes sum = {.total = 0};
    member->still = *vote;
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
    members_send_world(m);
}
