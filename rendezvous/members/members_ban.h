/* SPDX-License-Identifier: Apache-2.0
 *
 * Machines that are left out: --ban-after, and those that fail a check. Pure. Such a machine stays
 * a member and waits like a spare, so it can still host the store, and it is taken again if there
 * are not enough others. For the files of the core alone.
 */
#ifndef CT_RENDEZVOUS_MEMBERS_MEMBERS_BAN_H
#define CT_RENDEZVOUS_MEMBERS_MEMBERS_BAN_H

#include "rendezvous/members/members_core.h"

/* How many members may be in the next world: those that are not left out, if they are enough. */
int members_ban_eligible(const struct ct_members *m);

/* Could the job go on without the machine of this member? */
bool members_ban_spares(const struct ct_members *m, const struct ct_member *member);

/* To be called when a generation has failed and another one follows. Leaves out the machine on
 * which it failed first, if it has to be and can be, and tells all members. */
void members_ban_judge(struct ct_members *m, const struct ct_failure *first);

/* To be called for a new member, before it takes its place. */
void members_ban_joined(struct ct_members *m, struct ct_member *member);

/* To be called for each failure. Returns true if the command of the check could be run on no
 * machine of this world; then it is the command that is wrong. */
bool members_ban_no_check(struct ct_members *m, struct ct_member *member,
                          const struct ct_failure *failure);

/* Tells a member that it waits because its machine is left out. */
void members_ban_tell(struct ct_members *m, struct ct_member *member);

#endif
