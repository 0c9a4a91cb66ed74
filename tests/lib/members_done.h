/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks into the membership core for what no program asks.
 */
#ifndef CT_TESTS_LIB_MEMBERS_DONE_H
#define CT_TESTS_LIB_MEMBERS_DONE_H

#include "rendezvous/members/members_core.h"

/* The job is over and every member has left. */
static inline bool members_done(const struct ct_members *members)
{
    return members_state(members) == STATE_OVER && members->count == 0;
}

#endif
