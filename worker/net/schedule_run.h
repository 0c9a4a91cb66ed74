/* SPDX-License-Identifier: Apache-2.0
 *
 * Carries out a plan (worker/net/schedule.h) over the links of a leader. Both directions run at
 * once and take whatever the sockets take, so a slow reader slows its sender and nothing else;
 * every byte moves on as soon as it is there.
 */
#ifndef CT_WORKER_NET_SCHEDULE_RUN_H
#define CT_WORKER_NET_SCHEDULE_RUN_H

#include "worker/net/leader_sum.h"
#include "worker/net/net.h"

struct schedule_run {
    struct net *net;
    const struct schedule *plan;
    struct view view;         /* the array: what is sent, and where what comes goes */
    const unsigned char *own; /* this host's numbers where they are elsewhere; NULL: in `view` */
    const struct leader_sum *own_sum; /* who gets them ready meanwhile; NULL: they are */
    unsigned char *scratch;           /* SCHEDULE_SCRATCH bytes, aligned for float */
    unsigned char *copies;            /* as many as the plan's largest step with `copy` */
};

/* What has come and is not added yet: stays in a core's L2 cache. */
#define SCHEDULE_SCRATCH ((size_t)256 * 1024)

/* The leaders' part of an operation; fails as net_wait() does. */
CT_MUST_CHECK int schedule_run(const struct schedule_run *flow, const struct net_header *header,
                               struct ct_err *err);

#endif
