/* SPDX-License-Identifier: Apache-2.0
 *
 * Carries out a schedule (worker/net/schedule.h) over the links of a leader. Both directions run at
 * once and move whatever the sockets accept, so a slow reader delays only its sender. Every byte
 * moves on as soon as it has arrived.
 */
#ifndef CT_WORKER_NET_SCHEDULE_RUN_H
#define CT_WORKER_NET_SCHEDULE_RUN_H

#include "worker/net/leader_sum.h"
#include "worker/net/net.h"

struct schedule_run {
    struct net *net;
    const struct schedule *schedule;
    struct view view;         /* the array that is sent, and that receives */
    const unsigned char *own; /* this host's numbers, if they are not in `view`; NULL: they are */
    const struct leader_sum *own_sum; /* makes those numbers meanwhile; NULL: they are ready */
    unsigned char *scratch;           /* SCHEDULE_SCRATCH bytes, aligned for float */
    unsigned char *copies;            /* room for the largest step with `copy` */
};

/* For bytes that have been received and not yet added; it stays in a core's L2 cache. */
#define SCHEDULE_SCRATCH ((size_t)256 * 1024)

/* Carries out the schedule. Fails as net_wait() does. */
CT_MUST_CHECK int schedule_run(const struct schedule_run *flow, const struct net_header *header,
                               struct ct_err *err);

#endif
