/* SPDX-License-Identifier: Apache-2.0
 *
 * How the ranks of a host get the host's own sum ready while their leader is sending it: they add
 * chunk after chunk in the order in which the plan needs them, and count how far they are.
 *
 * The plan needs two streams of bytes at a time: what its first step sends, and what it adds to
 * what comes. Chunk c of each is added by helper c modulo their number; helpers are the ranks but
 * the leader, which has its hands full.
 */
#ifndef CT_WORKER_NET_LEADER_SUM_H
#define CT_WORKER_NET_LEADER_SUM_H

#include "worker/net/schedule.h"
#include "worker/shm/host.h"

/* Large enough that counting costs nothing, small enough that the first is ready soon and that it
 * is still in the cache when the leader sends it. */
#define LEADER_SUM_CHUNK ((size_t)128 * 1024)

enum leader_sum_stream { LEADER_SUM_SENT, LEADER_SUM_ADDED, LEADER_SUM_STREAMS };

/* An array that lies in pieces: byte i of it is start[i] of the piece that has it. */
struct view_piece {
    unsigned char *start;
    size_t end; /* of the piece; the next begins here */
};
struct view {
    const struct view_piece *pieces;
    size_t count;
};

/* Where byte `at` is and how many bytes follow it there. `at` is inside the array. */
unsigned char *view_at(const struct view *view, size_t at, size_t *run);

struct leader_sum {
    struct host *host; /* whose sources have been found */
    const struct schedule *plan;
    struct view view; /* where the sums go */
};

/* Before the ranks meet for the operation. */
void leader_sum_begin(struct host *host);

/* In a helper: adds all that is its. */
void leader_sum_work(const struct leader_sum *own_sum);

/* In the leader: the end of what is ready of a range that starts at `begin`, given that the
 * stream's ranges before it have `base` bytes; at most `end`. */
size_t leader_sum_ready(const struct leader_sum *own_sum, enum leader_sum_stream stream,
                        size_t base, size_t begin, size_t at, size_t end);

/* Adds [begin, end) bytes of all sources at once. */
void leader_sum_add(const struct leader_sum *own_sum, size_t begin, size_t end);

#endif
