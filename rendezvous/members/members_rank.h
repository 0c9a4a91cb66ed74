/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers the nodes and the workers of a world. Pure; for the files of the core alone.
 */
#ifndef CT_RENDEZVOUS_MEMBERS_MEMBERS_RANK_H
#define CT_RENDEZVOUS_MEMBERS_MEMBERS_RANK_H

#include "rendezvous/members/members_core.h"

/* Reads wish, node_rank, host and order, sets node_rank from 0 to n - 1, and sorts by it. */
void members_rank_nodes(struct ct_member **nodes, int n);

/* Sets first_rank, first_role_rank and role_size of the array, which is sorted by node rank and
 * stays so. Returns the world size. */
int members_rank_workers(struct ct_member **nodes, int n);

#endif
