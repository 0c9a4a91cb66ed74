/* SPDX-License-Identifier: Apache-2.0
 *
 * The sum over the ranks of one host. The leader sends it to the other hosts while its helpers,
 * which are all other ranks of the host, still add: chunk after chunk, in the order in which the
 * plan needs them. A counter says how far each helper is.
 *
 * The plan reads two streams of bytes at a time: the bytes that its first step sends, and those to
 * which it adds what it receives. Of n helpers, number c modulo n adds chunk c of each stream.
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

/* Before host_begin(). */
void leader_sum_begin(struct host *host);

/* In a helper: adds all its chunks. */
void leader_sum_work(const struct leader_sum *own_sum);

/* In the leader: how far the range [begin, end) of a stream has been added; it is known that this
 * is at least as far as `at`. `base` is the number of bytes of the stream's ranges before this one.
 */
size_t leader_sum_ready(const struct leader_sum *own_sum, enum leader_sum_stream stream,
                        size_t base, size_t begin, size_t at, size_t end);

/* Adds [begin, end) bytes of all sources at once. */
void leader_sum_add(const struct leader_sum *own_sum, size_t begin, size_t end);

#endif
