/* SPDX-License-Identifier: Apache-2.0
 *
 * The sum over the ranks of one host. The leader sends it to other hosts while the helpers, which
 * are all other ranks of the host, still add: chunk after chunk, in the order in which the schedule
 * needs them. Counters say how far each helper is.
 *
 * The schedule reads two streams of bytes at a time: the bytes that its first step sends, and the
 * bytes to which it adds what it receives. With n helpers, helper c modulo n adds chunk c of each
 * stream.
 */
#ifndef CT_WORKER_NET_LEADER_SUM_H
#define CT_WORKER_NET_LEADER_SUM_H

#include "worker/net/schedule.h"
#include "worker/shm/host.h"

/* Large enough that counting costs nothing; small enough that the first chunk is ready soon and
 * that a chunk is still in the cache when the leader sends it. */
#define LEADER_SUM_CHUNK ((size_t)128 * 1024)

enum leader_sum_stream { LEADER_SUM_SENT, LEADER_SUM_ADDED, LEADER_SUM_STREAMS };

/* An array in several pieces: byte i of the array is start[i] of the piece that contains it. */
struct view_piece {
    unsigned char *start;
    size_t end; /* of the piece, in bytes of the array; the next piece begins here */
};
struct view {
    const struct view_piece *pieces;
    size_t count;
};

/* Returns the address of byte `at` of the array, and in *run how many bytes follow in that piece.
 * `at` must be inside the array. */
unsigned char *view_at(const struct view *view, size_t at, size_t *run);

struct leader_sum {
    struct host *host; /* host_find_sources() has been called */
    const struct schedule *schedule;
    struct view view; /* the destination of the sums */
};

/* Resets the counters. Call it before host_begin(). */
void leader_sum_begin(struct host *host);

/* On a helper: adds all its chunks. */
void leader_sum_work(const struct leader_sum *own_sum);

/* On the leader: returns how far the range [begin, end) of a stream has been added. `at` is a
 * position that is known to be ready. `base` is how many bytes of the stream precede the range. */
size_t leader_sum_ready(const struct leader_sum *own_sum, enum leader_sum_stream stream,
                        size_t base, size_t begin, size_t at, size_t end);

/* Adds the bytes [begin, end) of all sources at once. */
void leader_sum_add(const struct leader_sum *own_sum, size_t begin, size_t end);

#endif
