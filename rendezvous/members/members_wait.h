/* SPDX-License-Identifier: Apache-2.0
 *
 * Which nodes the world waits for, in words, and when those who wait are told. For the files of the
 * core alone.
 */
#ifndef CT_RENDEZVOUS_MEMBERS_MEMBERS_WAIT_H
#define CT_RENDEZVOUS_MEMBERS_MEMBERS_WAIT_H

#include "rendezvous/members/members_core.h"

/* Calls fn with a line for each place that is missing. */
typedef void (*members_missing_fn)(void *data, const char *text);
void members_wait_missing(const struct ct_members *m, int64_t now_ns, members_missing_fn fn,
                          void *data);

/* Writes everything in one line. Long lists are shortened. */
void members_wait_text(const struct ct_members *m, int64_t now_ns, char *out, size_t size);

/* Decides when waiting members are told again: now, if they could have been for a while. */
void members_wait_plan(struct ct_members *m, int64_t now_ns);

/* Tells all members whom the world waits for. */
void members_wait_tell(struct ct_members *m, int64_t now_ns);

#endif
