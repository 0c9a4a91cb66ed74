/* SPDX-License-Identifier: Apache-2.0
 *
 * The job's failure history, as the membership collects it. For the files of the core alone.
 */
#ifndef CT_RENDEZVOUS_MEMBERS_MEMBERS_HISTORY_H
#define CT_RENDEZVOUS_MEMBERS_MEMBERS_HISTORY_H

#include "rendezvous/members/members_core.h"

/* Copies the history of a former host into the empty one. CT_ENOMEM. */
CT_MUST_CHECK int members_history_inherit(struct ct_members *m,
                                          const struct ct_failure_history *from);

/* Begins the record of a generation. */
void members_history_begin(struct ct_members *m, const struct ct_history_round *round);

/* The record of the last generation that has begun; there must be one. */
struct ct_history_round *members_history_round(struct ct_members *m);

/* Adds a failure of this generation. Sets its generation and time, takes its texts. Returns whether
 * it is now the first of its generation. */
bool members_history_record(struct ct_members *m, struct ct_failure *failure, int64_t happened_ns);

/* Adds a loss that is to blame for nothing, behind all failures of this generation. The nodes have
 * to know of it, because a lost one reports nothing. */
void members_history_record_harmless(struct ct_members *m, struct ct_failure *loss, int64_t now_ns);

/* The failure that is to blame for the end of this generation; NULL = there was none. */
const struct ct_failure *members_history_first(const struct ct_members *m);

/* Adds the texts of a failure to its record. STOPPED brings them after FAILED. */
void members_history_complete(struct ct_members *m, struct ct_failure *failure);

/* Describes the loss of a node as a failure. */
void members_history_loss(const struct ct_member *member, enum ct_failure_kind kind,
                          const char *why, struct ct_failure *out);

/* "rank 3 on gpu-1: process 42 exited with code 3", "node 2 (gpu-7 at 10.0.0.6): ..." */
void members_history_describe(const struct ct_failure *failure, char *out, size_t size);

#endif
