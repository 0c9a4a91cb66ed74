/* SPDX-License-Identifier: Apache-2.0
 *
 * What leaders learn of each other through the store before they connect: each host's address and
 * ranks, and a secret that proves who belongs to the communicator.
 */
#ifndef CT_WORKER_NET_NET_BOOTSTRAP_H
#define CT_WORKER_NET_NET_BOOTSTRAP_H

#include "common/addr.h"
#include "worker/net/net.h"

/* The connecting end proves itself by so many first bytes of the secret, the other by the rest. */
#define NET_PROOF_BYTES 32

struct net_bootstrap {
    struct net *net;
    const struct comm_setup *setup;
    int listener;              /* other hosts connect to it; -1 at first */
    struct ct_endpoint *where; /* the addresses of the hosts */
    char secret[2 * NET_PROOF_BYTES + 1];
};

/* Listens on the address from which this host reaches the store, on a port that the kernel chooses,
 * and publishes both. The caller closes boot->listener. */
CT_MUST_CHECK int net_bootstrap_publish(struct net_bootstrap *boot, struct ct_err *err);

/* Waits until all hosts have published, for each one as long as the set-up says, fills in
 * boot->where and the peers' names and ranks, and checks that these make up the job. The message of
 * CT_ETIMEDOUT names a missing host. */
CT_MUST_CHECK int net_bootstrap_learn(struct net_bootstrap *boot, struct ct_err *err);

#endif
