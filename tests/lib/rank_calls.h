/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls a forked rank makes in many tests; each ends the process when it fails (CHECK of ranks.h).
 */
#ifndef CT_TESTS_LIB_RANK_CALLS_H
#define CT_TESTS_LIB_RANK_CALLS_H

#include "worker/ctworker.h"

/* A deadline that a test never waits for, so that a return proves another way out. */
#define LONG_MS (600 * 1000)
/* One that a test does wait for, and how messages say it. */
#define SHORT_MS 800
#define SHORT_S "0.8"

struct ctw_job *rank_open_job(void);
struct ctw_comm *rank_open_comm(struct ctw_job *job, int64_t timeout_ms);
struct ctw_comm *rank_open_tree(struct ctw_job *job); /* adds as a tree; waits LONG_MS */
struct ctw_comm *rank_split(struct ctw_comm *comm, int color, int key); /* NULL: color < 0 */
struct ctw_link *rank_open_link(struct ctw_comm *comm, int peer, size_t buffer);

/* One end of a link between ranks 0 and 1 with all that it needs. */
struct rank_pair {
    struct ctw_job *job;
    struct ctw_comm *comm;
    struct ctw_link *link;
};
struct rank_pair rank_open_pair(int rank, size_t buffer, int64_t timeout_ms);
void rank_close_pair(struct rank_pair *pair);

void *rank_alloc(struct ctw_comm *comm, enum ctw_memory kind, size_t bytes);

/* The sum of what each rank has in `mine`. */
float rank_sum(struct ctw_comm *comm, float mine);

/* Number `i` of a rank: a fraction, so that another order of adding gives other bits. */
float rank_fraction(int rank, size_t i);

/* The sum of those of `n` ranks from `first` on, added as a balanced tree. */
float rank_fraction_tree(int first, int n, size_t i);

/* Broadcasts a pattern from `root` and checks that it has arrived. */
void rank_check_broadcast(struct ctw_comm *comm, unsigned char *buf, size_t bytes, int root);

/* Descriptors that this process has open, and a few that never change. */
int rank_open_files(void);

/* The message contains `want`. */
void rank_check_text(const struct ct_err *err, const char *want);

/* The communicator has ended: every call fails at once with this code. */
void rank_check_dead(struct ctw_comm *comm, int code);

#endif
