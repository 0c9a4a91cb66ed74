/* SPDX-License-Identifier: Apache-2.0
 *
 * The states of a job, and what moves it from one to the next. For the files of the core alone.
 */
#ifndef CT_RENDEZVOUS_MEMBERS_MEMBERS_ROUND_H
#define CT_RENDEZVOUS_MEMBERS_MEMBERS_ROUND_H

#include "rendezvous/members/members_core.h"

/* No world yet, no deadline. */
void members_round_init(struct ct_members *m);

/* A member has joined. */
void members_round_arrived(struct ct_members *m, int64_t now_ns);

/* The member is lost or leaves. Frees it. If it is still `connected`, drops its connection. */
void members_round_left(struct ct_members *m, struct ct_member *member, enum ct_failure_kind kind,
                        const char *why, bool connected, int64_t now_ns);

/* A member has pledged a record. */
void members_round_pledged(struct ct_members *m, struct ct_member *member, const struct ct_msg *msg,
                           int64_t now_ns);

/* Node rank 0 has opened the workers' store. */
void members_round_serving(struct ct_members *m, const struct ct_msg *serving, int64_t now_ns);

/* A worker of the member has failed at `happened_ns`. Takes the texts of *failure. */
void members_round_failed(struct ct_members *m, struct ct_member *member,
                          struct ct_failure *failure, int64_t happened_ns, int64_t now_ns);

/* All workers of the member have ended well. */
void members_round_finished(struct ct_members *m, struct ct_member *member, int64_t now_ns);

/* The member has stopped its workers. */
void members_round_stopped(struct ct_members *m, struct ct_member *member, int64_t now_ns);

/* The member asks the whole job to end. */
void members_round_preempt(struct ct_members *m, const struct ct_member *member,
                           const struct ct_msg *preempt, int64_t now_ns);

/* Does what is due by now. The second function returns when something is due next; NEVER = never.
 */
void members_round_tick(struct ct_members *m, int64_t now_ns);
int64_t members_round_next(const struct ct_members *m);

#endif
