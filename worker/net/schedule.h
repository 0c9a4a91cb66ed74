/* SPDX-License-Identifier: Apache-2.0
 *
 * The schedules of collectives between hosts: which host sends which bytes of an array to which
 * host, and in what order. Pure arithmetic; worker/net/schedule_run.c carries a schedule out.
 *
 * A schedule is a list of steps. In each step a host sends one range and receives another. It
 * starts to send in step k when it has received everything of earlier steps. With `follows`, a step
 * sends exactly what the previous one receives, and sends each byte as soon as it has it.
 *
 * Ring, N hosts: the array has N segments. In N - 1 steps every segment travels once around the
 * ring and collects the sum on its way; in N - 1 more the sums travel around. Each host sends and
 * receives 2 (N - 1) / N of the array, which is the minimum.
 *
 * Tree, N a power of two: in log2 N steps, partners at distance 1, 2, 4, ... exchange halves of
 * what they have and keep the sum of the other half. Then the sums go back in the reverse order.
 * This sends as many bytes as the ring, and every sum is added as the balanced tree over the hosts.
 *
 * Doubling, N a power of two: partners at distance 1, 2, 4, ... exchange everything they have. It
 * costs only log2 N latencies, so it is for small arrays. It also adds as the balanced tree.
 */
#ifndef CT_WORKER_NET_SCHEDULE_H
#define CT_WORKER_NET_SCHEDULE_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>

/* The links of a host, as steps name them: to its neighbours in the ring, and to its partner at
 * distance 2^k (SCHEDULE_PARTNER + k). */
enum { SCHEDULE_NOBODY = -1, SCHEDULE_NEXT = 0, SCHEDULE_PREV = 1, SCHEDULE_PARTNER = 2 };

struct schedule_step {
    int to, from;                /* links; SCHEDULE_NOBODY: sends nothing, or receives nothing */
    size_t send_begin, send_end; /* bytes; floats in a schedule that adds */
    size_t recv_begin, recv_end;
    bool add;                /* adds what is received; otherwise stores it */
    bool mine_first;         /* in that sum this host's numbers come first */
    bool follows;            /* sends exactly what the previous step receives */
    bool copy;               /* copies what it sends first, because the sum replaces it */
    bool send_own, recv_own; /* the range that is sent, or added to, is this host's sum alone */
    size_t recv_base;        /* number of bytes that earlier steps with recv_own have received */
};

struct schedule {
    struct schedule_step *steps;
    size_t count;
};

bool schedule_power_of_two(int n);

/* Returns log2 of nodes, or 0 if nodes is not a power of two. */
int schedule_levels(int nodes);

/* Allocates memory for any schedule of that many hosts. CT_ENOMEM. */
CT_MUST_CHECK int schedule_init(struct schedule *schedule, int nodes);
void schedule_fini(struct schedule *schedule);

/* Each fills the schedule for host `node` of `nodes` >= 2. `bytes` must be a multiple of
 * sizeof(float), except in a broadcast. */
void schedule_ring(struct schedule *schedule, int node, int nodes, size_t bytes);
void schedule_tree(struct schedule *schedule, int node, int nodes, size_t bytes);
void schedule_doubling(struct schedule *schedule, int node, int nodes, size_t bytes);
void schedule_broadcast(struct schedule *schedule, int node, int nodes, int root, size_t bytes);

#endif
