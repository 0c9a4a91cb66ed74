/* SPDX-License-Identifier: Apache-2.0
 *
 * What the leaders learn of each other through the store before they connect: where each host
 * listens, which ranks it has, and the secret by which those who belong together know each other.
 */
#ifndef CT_WORKER_NET_NET_BOOTSTRAP_H
#define CT_WORKER_NET_NET_BOOTSTRAP_H

#include "common/addr.h"
#include "worker/net/net.h"

/* Who connects proves itself by the first so many bytes of the secret, who answers by the others.
 */
#define NET_PROOF_BYTES 32

struct net_bootstrap {
    struct net *net;
    const struct comm_setup *setup;
    int64_t deadline;
    int listener;              /* where other hosts connect; -1 at first */
    struct ct_endpoint *where; /* the hosts */
    char secret[2 * NET_PROOF_BYTES + 1];
};

/* Listens on the address from which this host reaches the store, on a port that the kernel chooses,
 * and publishes that. The caller closes boot->listener. */
CT_MUST_CHECK int net_bootstrap_publish(struct net_bootstrap *boot, struct ct_err *err);

/* Waits until all hosts have published, fills boot->where and the peers' names and ranks, and
 * checks that these make up the job. CT_ETIMEDOUT names the host that has not come. */
CT_MUST_CHECK int net_bootstrap_learn(struct net_bootstrap *boot, struct ct_err *err);

#endif
