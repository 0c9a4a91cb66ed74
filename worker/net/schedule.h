/* SPDX-License-Identifier: Apache-2.0
 *
 * Who sends which bytes of an array to whom, and in which order: the schedules of collectives
 * between hosts. Pure arithmetic; worker/net/schedule_run.c carries a plan out.
 *
 * A plan is a list of steps, in each of which a host sends one range and receives another. A host
 * starts to send in step k when it has received all of the steps before, except where a step passes
 * on just what the one before brings (`follows`): then it sends each byte as soon as it has it.
 *
 * Ring, N hosts: the array is cut in N segments. In N - 1 steps every segment travels once around
 * and gathers the sum on its way, in N - 1 more the sums travel around. Each host sends and
 * receives 2 (N - 1) / N of the array, which is the least there is.
 *
 * Tree, N a power of two: in log2 N steps partners at distance 1, 2, 4, ... exchange halves of what
 * they have and keep the sum of the other half, then the same backwards with the sums. As many
 * bytes as the ring; every sum is added as the balanced tree over the hosts.
 *
 * Doubling, N a power of two: partners at distance 1, 2, 4, ... exchange everything they have. Only
 * log2 N latencies, so it is for small arrays; for two hosts and more also the tree's sums.
 */
#ifndef CT_WORKER_NET_SCHEDULE_H
#define CT_WORKER_NET_SCHEDULE_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>

/* Links of a host, as steps name them: its neighbours in the ring, and its partner at distance
 * 2^k at SCHEDULE_PARTNER + k. */
enum { SCHEDULE_NOBODY = -1, SCHEDULE_NEXT = 0, SCHEDULE_PREV = 1, SCHEDULE_PARTNER = 2 };

struct schedule_step {
    int to, from;                /* links; SCHEDULE_NOBODY: nothing to send, to receive */
    size_t send_begin, send_end; /* bytes; floats in a plan that adds */
    size_t recv_begin, recv_end;
    bool add;                /* what comes is added, else stored */
    bool mine_first;         /* this host's numbers come first in that sum */
    bool follows;            /* sends just what the step before receives */
    bool copy;               /* what is sent must be copied first: the sum takes its place */
    bool send_own, recv_own; /* the range sent, or added to, is not a sum over hosts yet */
    size_t recv_base;        /* bytes that earlier steps with recv_own have covered */
};

struct schedule {
    struct schedule_step *steps;
    size_t count;
};

bool schedule_power_of_two(int n);

/* 2^levels = nodes; 0 when nodes is not a power of two. */
int schedule_levels(int nodes);

/* Memory for any plan of so many hosts. CT_ENOMEM. */
CT_MUST_CHECK int schedule_init(struct schedule *plan, int nodes);
void schedule_fini(struct schedule *plan);

/* Each fills the plan for host `node` of `nodes` >= 2. `bytes` is a multiple of a float's but in a
 * broadcast. */
void schedule_ring(struct schedule *plan, int node, int nodes, size_t bytes);
void schedule_tree(struct schedule *plan, int node, int nodes, size_t bytes);
void schedule_doubling(struct schedule *plan, int node, int nodes, size_t bytes);
void schedule_broadcast(struct schedule *plan, int node, int nodes, int root, size_t bytes);

#endif
