/* SPDX-License-Identifier: Apache-2.0
 *
 * Which machines are left out, and what is said about it. A machine is left out only if the others
 * are enough for a world; otherwise a warning names it, once for each generation.
 */
#include "rendezvous/members/members_ban.h"

#include "common/exit_code.h"

#include <stdio.h>
#include <string.h>

static bool is_on(const struct ct_member *member, const char *host, const char *address)
{
    return strcmp(member->host, host) == 0 && strcmp(members_address(member), address) == 0;
}

int members_ban_eligible(const struct ct_members *m)
{
    int others = m->count - m->num_left_out;
    return others >= m->job.min_nodes ? others : m->count;
}

/* Counts the members that would be left for a world without this machine. */
static int without(const struct ct_members *m, const char *host, const char *address)
{
    int others = 0;
    EACH_MEMBER(m, pos)
    {
        const struct ct_member *member = MEMBER_OF(pos, link);
        others += !member->left_out && !is_on(member, host, address);
    }
    return others;
}

bool members_ban_spares(const struct ct_members *m, const struct ct_member *member)
{
    return without(m, member->host, members_address(member)) >= m->job.min_nodes;
}

/* Its node rank is free for a machine that replaces it. */
static void leave_out(struct ct_members *m, struct ct_member *member)
{
    members_place_release(&m->places, member);
    member->wish = -1;
    member->wish_given = false;
    member->left_out = true;
    member->node_rank = -1;
    m->num_left_out++;
}

void members_ban_tell(struct ct_members *m, struct ct_member *member)
{
    struct ct_msg *msg = members_msg(m, CT_MSG_SPARE);
    (void)snprintf(msg->text, sizeof(msg->text),
                   "this node is left out of the job: it waits in case that another one is lost");
    member->told_spare = true;
    members_send(m, member);
}

bool members_ban_no_check(struct ct_members *m, struct ct_member *member,
                          const struct ct_failure *failure)
{
    bool nowhere = failure->unfit && (failure->exit_code == CT_EXIT_NOT_FOUND ||
                                      failure->exit_code == CT_EXIT_NOT_EXECUTABLE);
    member->no_check = nowhere;
    EACH_MEMBER(m, pos)
    {
        const struct ct_member *other = MEMBER_OF(pos, link);
        nowhere = nowhere && (!other->in_world || other->no_check);
    }
    return nowhere;
}

void members_ban_joined(struct ct_members *m, struct ct_member *member)
{
    if (ct_restarts_is_left_out(&m->counts, member->host, members_address(member))) {
        leave_out(m, member);
    }
}

/* Is the job one of a single machine, and meant to stay so? */
static bool is_alone(const struct ct_members *m)
{
    return m->job.max_nodes == 1 && m->job.spares == 0;
}

/* Says why a machine cannot be left out: there are so many `others`. What would allow it is said
 * only to those who have not asked for it. */
static const char *why_not(const struct ct_members *m, int others)
{
    if (m->job.max_nodes == m->job.min_nodes && m->job.spares == 0) {
        return "the others are not enough; --spares or --nnodes MIN:MAX would allow it";
    }
    return others > 0 ? "the others are not enough" : "no other machine has joined the job";
}

void members_ban_judge(struct ct_members *m, const struct ct_failure *first)
{
    int most = m->job.limits.ban_after;
    if (first == NULL || (most == 0 && !first->unfit)) {
        return;
    }
    int row = ct_restarts_blame(&m->counts, first->host, first->address);
    if ((!first->unfit && row < most) || is_alone(m)) {
        return;
    }
    char why[160];
    const char *at = first->address[0] != '\0' ? " at " : "";
    if (first->unfit) {
        (void)snprintf(why, sizeof(why), "it failed its check");
    } else {
        (void)snprintf(why, sizeof(why),
                       "%d generation%s in a row failed first on it (--ban-after %d)", row,
                       row == 1 ? "" : "s", most);
    }
    int others = without(m, first->host, first->address);
    bool possible = others >= m->job.min_nodes;
    struct ct_msg *msg = members_msg(m, CT_MSG_WAITING);
    (void)snprintf(msg->text, sizeof(msg->text),
                   possible
                       ? "machine %.100s%s%.64s is left out: %s"
                       : "warning: machine %.100s%s%.64s should be left out, because %s, but %s",
                   first->host, at, first->address, why, why_not(m, others));
    ct_log(m->options.log, CT_LOG_INFO, "job %s: %s", m->job.run_id, msg->text);
    members_send_all(m);
    if (!possible) {
        return;
    }
    ct_restarts_leave_out(&m->counts, first->host, first->address);
    EACH_MEMBER(m, pos)
    {
        struct ct_member *member = MEMBER_OF(pos, link);
        if (!member->left_out && is_on(member, first->host, first->address)) {
            leave_out(m, member);
            members_ban_tell(m, member);
        }
    }
}
