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

/* Do two CPUs belong to the same group, which is a core or a cache? */
typedef bool same_fn(const struct ct_topology *topology, int a, int b);

static bool same_core(const struct ct_topology *topology, int a, int b)
{
    return topology->cpu[a].core == topology->cpu[b].core;
}

static bool same_cache(const struct ct_topology *topology, int a, int b)
{
    return topology->cpu[a].cache == topology->cpu[b].cache;
}

/* Is this the lowest CPU of its group that may be used? */
static bool leads(const struct ct_topology *topology, int cpu, int node, same_fn *same)
{
    for (int other = 0; other < cpu; other++) {
        if (in_node(topology, other, node) && same(topology, other, cpu)) {
            return false;
        }
    }
    return in_node(topology, cpu, node);
}

/* Adds the group that `cpu` leads. */
static void add_group(const struct ct_topology *topology, int cpu, int node, same_fn *same,
                      struct ct_cpus *out)
{
    for (int other = cpu; other < topology->cpu_count; other++) {
        if (in_node(topology, other, node) && same(topology, other, cpu)) {
            ct_cpus_add(out, other);
        }
    }
}

static int add_share(const struct ct_topology *topology, const struct seat *seat,
                     struct ct_cpus *out, struct ct_err *err)
{
    int cores = 0, at = 0;
    for (int cpu = 0; cpu < topology->cpu_count; cpu++) {
        cores += leads(topology, cpu, seat->node, same_core);
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
        if (!leads(topology, cpu, seat->node, same_core)) {
            continue;
        }
        if (at >= first && at < end) {
            add_group(topology, cpu, seat->node, same_core, out);
        }
        at++;
    }
    return 0;
}

/* The number of CPUs that have the same cache as `cpu`. */
static int cache_size(const struct ct_topology *topology, int cpu, int node)
{
    int size = 0;
    for (int other = 0; other < topology->cpu_count; other++) {
        size += in_node(topology, other, node) && same_cache(topology, other, cpu);
    }
    return size;
}

/* Does the group of CPU a come before that of b? Greater groups come first, and of two equal ones
 * that with the lowest CPU. */
static bool comes_before(const struct ct_topology *topology, int a, int b, int node)
{
    int size_a = cache_size(topology, a, node), size_b = cache_size(topology, b, node);
    return size_a > size_b || (size_a == size_b && a < b);
}

static void add_complex(const struct ct_topology *topology, const struct seat *seat,
                        struct ct_cpus *out)
{
    int groups = 0;
    for (int cpu = 0; cpu < topology->cpu_count; cpu++) {
        groups += leads(topology, cpu, seat->node, same_cache);
    }
    for (int cpu = 0; groups > 0 && cpu < topology->cpu_count; cpu++) {
        if (!leads(topology, cpu, seat->node, same_cache)) {
            continue;
        }
        int before = 0;
        for (int other = 0; other < topology->cpu_count; other++) {
            before += other != cpu && leads(topology, other, seat->node, same_cache) &&
                      comes_before(topology, other, cpu, seat->node);
        }
        if (before == seat->index % groups) {
            add_group(topology, cpu, seat->node, same_cache, out);
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
    if (rc != 0) {
        return rc;
    }
    if (ct_cpus_count(&cpus) == 0) {
        return ct_err_set(err, CT_ENOENT, "no CPU of NUMA node %d may be used here", seat.node);
    }
    *out = cpus;
    *node = seat.node;
    return 0;
}
