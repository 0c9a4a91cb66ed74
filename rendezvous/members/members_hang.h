/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds out whether the whole job hangs, and which rank holds it up. For the files of the core
 * alone.
 */
#ifndef CT_RENDEZVOUS_MEMBERS_MEMBERS_HANG_H
#define CT_RENDEZVOUS_MEMBERS_MEMBERS_HANG_H

#include "rendezvous/members/members_core.h"

/* Takes what a beat says of the workers of a member. */
void members_hang_vote(struct ct_members *m, struct ct_member *member,
                       const struct ct_hang_vote *vote, int64_t now_ns);

/* Takes where the workers of a member stand. */
void members_hang_stands(struct ct_members *m, struct ct_member *member, const struct ct_msg *msg,
                         int64_t now_ns);

/* Judges the answers if their time is over. */
void members_hang_tick(struct ct_members *m, int64_t now_ns);

/* Forgets the answer of a member, which leaves. */
void members_hang_forget(struct ct_members *m, struct ct_member *member);

#endif
