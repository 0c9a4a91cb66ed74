/* SPDX-License-Identifier: Apache-2.0
 *
 * Which CPUs a worker runs on, by the four rules of torchrun's --numa-binding. Pure: a topology
 * goes in, a set of CPUs comes out. The set never has a CPU that ctrun itself may not use.
 *
 * A worker uses the device of its local rank, and so belongs to the NUMA node of that device. On a
 * machine without devices (which torchrun refuses) the workers are spread over the nodes in
 * contiguous blocks, so that ranks that follow each other share a node.
 *
 * Memory needs no rule: Linux takes it from the node of the CPU that first uses it, and the binding
 * takes effect before the program starts.
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
