/* SPDX-License-Identifier: Apache-2.0
 *
 * Which CPUs a worker runs on, by torchrun's four rules of --numa-binding. Pure: a topology in, a
 * set of CPUs out. Never more than what ctrun itself was given.
 *
 * A worker belongs to the device of its local rank and with it to that device's NUMA node. Without
 * devices (torchrun refuses that) each worker counts as a device of its own, and they are dealt out
 * over the nodes in contiguous blocks, so that neighbours in rank are neighbours in memory.
 *
 * Memory needs no rule of its own: Linux allocates it on the node of the CPU that first touches it,
 * and the binding is there before the program is.
 */
#ifndef CT_LAUNCHER_BINDING_BINDING_H
#define CT_LAUNCHER_BINDING_BINDING_H

#include "common/err.h"
#include "launcher/binding/cpus.h"
#include "launcher/binding/topology.h"

enum ct_bind {
    CT_BIND_NONE,
    CT_BIND_NODE,         /* all CPUs of the node */
    CT_BIND_SOCKET,       /* of all nodes of its socket */
    CT_BIND_EXCLUSIVE,    /* its share of the node's cores */
    CT_BIND_CORE_COMPLEX, /* the CPUs that share one last cache */
};

/* nodes[i] is the NUMA node of device i, or -1 when it is not known; count 0 = no devices. */
struct ct_bind_devices {
    const int *nodes;
    int count;
};

/* CT_ENOENT: no CPU of the worker's node may be used; CT_ELIMIT: the node has fewer cores than
 * devices (exclusive only). The text says which. *node gets the worker's node. */
CT_MUST_CHECK int ct_binding_decide(const struct ct_topology *topology, enum ct_bind bind,
                                    const struct ct_bind_devices *devices, int workers,
                                    int local_rank, struct ct_cpus *out, int *node,
                                    struct ct_err *err);

#endif
