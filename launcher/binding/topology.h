/* SPDX-License-Identifier: Apache-2.0
 *
 * The processors that ctrun may use, as sysfs describes them. Where sysfs says nothing, the
 * simplest machine is assumed: one NUMA node, one socket, cores with one thread, one cache for all.
 */
#ifndef CT_LAUNCHER_BINDING_TOPOLOGY_H
#define CT_LAUNCHER_BINDING_TOPOLOGY_H

#include "common/err.h"
#include "launcher/binding/cpus.h"

#define CT_SYSFS "/sys"

struct ct_cpu {
    int node;    /* NUMA node */
    int package; /* socket */
    int core;    /* lowest CPU of the same core, allowed or not */
    int cache;   /* lowest CPU that shares its last cache */
};

struct ct_topology {
    struct ct_cpus allowed;
    struct ct_cpu *cpu; /* by number, up to the highest one allowed */
    int cpu_count;
    int *nodes; /* those with a CPU that is allowed, ascending */
    int node_count;
};

/* `sysfs` is CT_SYSFS or a test's. CT_ENOMEM; CT_ENOENT when `allowed` is empty. Gives *out. */
CT_MUST_CHECK int ct_topology_read(const char *sysfs, const struct ct_cpus *allowed,
                                   struct ct_topology *out, struct ct_err *err);
void ct_topology_fini(struct ct_topology *topology); /* zeroed memory is allowed */

/* The NUMA node of a PCI device, as "0000:3b:00.0"; 0 = not known, -1 = no such device. */
int ct_topology_pci_node(const char *sysfs, const char *address);

#endif
