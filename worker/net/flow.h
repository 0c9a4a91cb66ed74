/* SPDX-License-Identifier: Apache-2.0
 *
 * Carries out a plan (worker/net/plan.h) over the links of a leader. Both directions run at once
 * and take whatever the sockets take, so a slow reader slows its sender and nothing else; every
 * byte moves on as soon as it is there.
 */
#ifndef CT_WORKER_NET_FLOW_H
#define CT_WORKER_NET_FLOW_H

#include "worker/net/feed.h"
#include "worker/net/net.h"

struct flow {
    struct net *net;
    const struct plan *plan;
    struct view view;         /* the array: what is sent, and where what comes goes */
    const unsigned char *own; /* this host's numbers where they are elsewhere; NULL: in `view` */
    const struct feed *feed;  /* who gets them ready meanwhile; NULL: they are */
    unsigned char *scratch;   /* FLOW_SCRATCH bytes, aligned for float */
    unsigned char *copies;    /* as many as the plan's largest step with `copy` */
};

/* What has come and is not added yet: stays in a core's L2 cache. */
#define FLOW_SCRATCH ((size_t)256 * 1024)

/* The leaders' part of an operation; fails as net_wait() does. */
CT_MUST_CHECK int flow_run(const struct flow *flow, const struct net_header *header,
                           struct ct_err *err);

#endif
