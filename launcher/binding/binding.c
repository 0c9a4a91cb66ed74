/* SPDX-License-Identifier: Apache-2.0
 *
 * A seat is the place of a worker among those of its NUMA node: the node, and which share of its
 * cores, sockets or caches the worker gets. Each rule turns a seat into a set of CPUs. The topology
 * has only those CPUs that ctrun itself may use.
 */
#include "launcher/binding/binding.h"

#include <stdint.h>

/* The worker, or its device, is number `index` of the `peers` that belong to its node. */
struct seat {
    int node;
    int index, peers;
};

/* A device whose node is unknown counts as one of the first node, as in torchrun. */
static int node_of(const struct ct_topology *topology, const struct ct_bind_devices *devices,
                   int workers, int device)
{
    if (devices->count > 0) {
        return devices->nodes[device] >= 0 ? devices->nodes[device] : topology->nodes[0];
    }
    return topology->nodes[(int64_t)device * topology->node_count / workers];
}

static struct seat seat_of(const struct ct_topology *topology,
                           const struct ct_bind_devices *devices, int workers, int local_rank)
{
    int count = devices->count > 0 ? devices->count : workers;
    int own = local_rank % count;
    struct seat seat = {.node = node_of(topology, devices, workers, own)};
    for (int i = 0; i < count; i++) {
        bool same = node_of(topology, devices, workers, i) == seat.node;
        seat.index += same && i < own;
        seat.peers += same;
    }
    return seat;
}

static bool in_node(const struct ct_topology *topology, int cpu, int node)
{
    return ct_cpus_has(&topology->allowed, cpu) && topology->cpu[cpu].node == node;
}

static void add_node(const struct ct_topology *topology, int node, struct ct_cpus *out)
{
    for (int cpu = 0; cpu < topology->cpu_count; cpu++) {
        if (in_node(topology, cpu, node)) {
            ct_cpus_add(out, cpu);
        }
    }
}

static void add_socket(const struct ct_topology *topology, int node, struct ct_cpus *out)
{
    for (int cpu = 0; cpu < topology->cpu_count; cpu++) {
        if (!in_node(topology, cpu, node)) {
            continue;
        }
        int package = topology->cpu[cpu].package;
        for (int other = 0; other < topology->cpu_count; other++) {
            if (ct_cpus_has(&topology->allowed, other) && topology->cpu[other].package == package) {
                ct_cpus_add(out, other);
            }
        }
        return; /* a node lies in one socket */
    }
}

/* Is this the lowest CPU of its core that may be used? */
static bool leads_core(const struct ct_topology *topology, int cpu, int node)
{
    for (int other = 0; other < cpu; other++) {
        if (in_node(topology, other, node) &&
            topology->cpu[other].core == topology->cpu[cpu].core) {
            return false;
        }
    }
    return in_node(topology, cpu, node);
}

static int add_share(const struct ct_topology *topology, const struct seat *seat,
                     struct ct_cpus *out, struct ct_err *err)
{
    int cores = 0, at = 0;
    for (int cpu = 0; cpu < topology->cpu_count; cpu++) {
        cores += leads_core(topology, cpu, seat->node);
    }
    if (cores == 0 || seat->peers < 1) {
        return 0;
    }
    if (cores < seat->peers) {
        return ct_err_set(err, CT_ELIMIT,
                          "NUMA node %d has %d cores for %d workers or devices; bind to the node, "
                          "or start fewer workers",
                          seat->node, cores, seat->peers);
    }
    /* If the cores cannot be divided evenly, the first workers get one more each. */
    int each = cores / seat->peers, rest = cores % seat->peers;
    int first = seat->index * each + (seat->index < rest ? seat->index : rest);
    int end = first + each + (seat->index < rest);
    for (int cpu = 0; cpu < topology->cpu_count; cpu++) {
        if (!leads_core(topology, cpu, seat->node)) {
            continue;
        }
        for (int other = cpu; at >= first && at < end && other < topology->cpu_count; other++) {
            if (in_node(topology, other, seat->node) &&
                topology->cpu[other].core == topology->cpu[cpu].core) {
                ct_cpus_add(out, other);
            }
        }
        at++;
    }
    return 0;
}

static int cache_size(const struct ct_topology *topology, int cache, int node)
{
    int size = 0;
    for (int cpu = 0; cpu < topology->cpu_count; cpu++) {
        size += in_node(topology, cpu, node) && topology->cpu[cpu].cache == cache;
    }
    return size;
}

/* Does the group of CPU a come before that of b? Greater groups come first, and of two equal ones
 * that with the lowest CPU. */
static bool comes_before(const struct ct_topology *topology, int a, int b, int node)
{
    int size_a = cache_size(topology, topology->cpu[a].cache, node);
    int size_b = cache_size(topology, topology->cpu[b].cache, node);
    return size_a > size_b || (size_a == size_b && a < b);
}

static bool leads_cache(const struct ct_topology *topology, int cpu, int node)
{
    for (int other = 0; other < cpu; other++) {
        if (in_node(topology, other, node) &&
            topology->cpu[other].cache == topology->cpu[cpu].cache) {
            return false;
        }
    }
    return in_node(topology, cpu, node);
}

static void add_complex(const struct ct_topology *topology, const struct seat *seat,
                        struct ct_cpus *out)
{
    int groups = 0;
    for (int cpu = 0; cpu < topology->cpu_count; cpu++) {
        groups += leads_cache(topology, cpu, seat->node);
    }
    for (int cpu = 0; groups > 0 && cpu < topology->cpu_count; cpu++) {
        if (!leads_cache(topology, cpu, seat->node)) {
            continue;
        }
        int before = 0;
        for (int other = 0; other < topology->cpu_count; other++) {
            before += other != cpu && leads_cache(topology, other, seat->node) &&
                      comes_before(topology, other, cpu, seat->node);
        }
        if (before != seat->index % groups) {
            continue;
        }
        for (int other = cpu; other < topology->cpu_count; other++) {
            if (in_node(topology, other, seat->node) &&
                topology->cpu[other].cache == topology->cpu[cpu].cache) {
                ct_cpus_add(out, other);
            }
        }
    }
}

int ct_binding_decide(const struct ct_topology *topology, enum ct_bind bind,
                      const struct ct_bind_devices *devices, int workers, int local_rank,
                      struct ct_cpus *out, int *node, struct ct_err *err)
{
    struct seat seat = seat_of(topology, devices, workers, local_rank);
    struct ct_cpus cpus = {{0}};
    int rc = 0;
    switch (bind) {
    case CT_BIND_NONE:
        cpus = topology->allowed;
        break;
    case CT_BIND_NODE:
        add_node(topology, seat.node, &cpus);
        break;
    case CT_BIND_SOCKET:
        add_socket(topology, seat.node, &cpus);
        break;
    case CT_BIND_EXCLUSIVE:
        rc = add_share(topology, &seat, &cpus, err);
        break;
    case CT_BIND_CORE_COMPLEX:
        add_complex(topology, &seat, &cpus);
        break;
    }
    if (rc == 0 && ct_cpus_count(&cpus) == 0) {
        rc = ct_err_set(err, CT_ENOENT, "no CPU of NUMA node %d may be used here", seat.node);
    }
    if (rc == 0) {
        *out = cpus;
        *node = seat.node;
    }
    return rc;
}
