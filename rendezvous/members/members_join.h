/* SPDX-License-Identifier: Apache-2.0
 *
 * The first and the last moment of a member. For the files of the core alone.
 */
#ifndef CT_RENDEZVOUS_MEMBERS_MEMBERS_JOIN_H
#define CT_RENDEZVOUS_MEMBERS_MEMBERS_JOIN_H

#include "rendezvous/members/members_core.h"

/* Sets the parameters of the job. CT_ENOMEM, CT_ELIMIT (over the budget). */
CT_MUST_CHECK int members_join_begin(struct ct_members *m, const struct ct_msg_join *job,
                                     struct ct_err *err);

/* Takes the member out of every list and frees it. */
void members_join_remove(struct ct_members *m, struct ct_member *member);

#endif
