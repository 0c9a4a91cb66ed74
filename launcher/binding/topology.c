/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads what --numa-binding needs from sysfs: the NUMA node of a device; the CPUs of a node, of a
 * socket and of a cache; and which CPUs are threads of one core. hwloc could read all of that. It
 * is not used because linking it makes a start of ctrun, which takes 4 ms, longer by 2.5 ms, and
 * reading its topology takes 3 ms more.
 */
#include "launcher/binding/topology.h"

#include "common/alloc.h"
#include "common/file.h"
#include "common/num.h"

#include <stdio.h>
#include <string.h>

/* The longest list names every second CPU; it is shorter. */
#define LIST_MAX 16384
#define NODES_MAX 1024
/* Caches that a CPU has at most; instruction and data caches count separately. */
#define CACHES_MAX 10

/* Reads a small file, without its newline; false on failure. The caller frees *out. */
static bool read_text(const char *path, struct ct_buf *out, const char **text)
{
    if (ct_file_read(path, LIST_MAX, out, NULL) != 0) {
        return false;
    }
    while (out->len > 0 && ct_buf_bytes(out)[out->len - 1] == '\n') {
        out->len--;
    }
    *text = ct_buf_cstr(out);
    return *text != NULL;
}

static int read_int(const char *path, int min, int fallback)
{
    struct ct_buf buf = CT_BUF_INIT;
    const char *text;
    int value = fallback;
    if (read_text(path, &buf, &text) && ct_parse_int(text, min, 1 << 20, &value) != 0) {
        value = fallback;
    }
    ct_buf_fini(&buf);
    return value;
}

static bool read_list(const char *path, struct ct_cpus *out)
{
    struct ct_buf buf = CT_BUF_INIT;
    const char *text;
    bool ok = read_text(path, &buf, &text) && ct_cpus_parse(text, out) == 0;
    ct_buf_fini(&buf);
    return ok;
}

static bool text_is(const char *path, const char *want)
{
    struct ct_buf buf = CT_BUF_INIT;
    const char *text;
    bool ok = read_text(path, &buf, &text) && strcmp(text, want) == 0;
    ct_buf_fini(&buf);
    return ok;
}

static int lowest(const char *path, int fallback)
{
    struct ct_cpus cpus;
    int first = read_list(path, &cpus) ? ct_cpus_next(&cpus, 0) : -1;
    return first >= 0 ? first : fallback;
}

/* Gives the lowest CPU that shares the highest level of data cache; -1 = none. */
static int last_cache(const char *cpu_dir)
{
    char path[512];
    int best_level = 0, key = -1;
    for (int i = 0; i < CACHES_MAX; i++) {
        (void)snprintf(path, sizeof(path), "%s/cache/index%d/level", cpu_dir, i);
        int level = read_int(path, 1, 0);
        if (level <= best_level) {
            continue;
        }
        (void)snprintf(path, sizeof(path), "%s/cache/index%d/type", cpu_dir, i);
        if (text_is(path, "Instruction")) {
            continue;
        }
        (void)snprintf(path, sizeof(path), "%s/cache/index%d/shared_cpu_list", cpu_dir, i);
        best_level = level;
        key = lowest(path, -1);
    }
    return key;
}

static void read_cpu(const char *sysfs, int number, struct ct_cpu *out)
{
    char dir[256], path[512];
    (void)snprintf(dir, sizeof(dir), "%s/devices/system/cpu/cpu%d", sysfs, number);
    (void)snprintf(path, sizeof(path), "%s/topology/physical_package_id", dir);
    int package = read_int(path, -1, 0);
    (void)snprintf(path, sizeof(path), "%s/topology/thread_siblings_list", dir);
    *out = (struct ct_cpu){
        .package = package,
        .core = lowest(path, number),
        .cache = last_cache(dir),
    };
}

/* The numbers of nodes may have gaps. */
static void read_nodes(const char *sysfs, struct ct_topology *topology)
{
    char path[256];
    struct ct_cpus online, list;
    (void)snprintf(path, sizeof(path), "%s/devices/system/node/online", sysfs);
    if (!read_list(path, &online)) {
        online = (struct ct_cpus){{0}};
    }
    for (int node = ct_cpus_next(&online, 0); node >= 0; node = ct_cpus_next(&online, node + 1)) {
        (void)snprintf(path, sizeof(path), "%s/devices/system/node/node%d/cpulist", sysfs, node);
        if (!read_list(path, &list)) {
            continue;
        }
        for (int cpu = 0; cpu < topology->cpu_count; cpu++) {
            if (ct_cpus_has(&list, cpu)) {
                topology->cpu[cpu].node = node;
            }
        }
    }
    for (int node = 0; node < NODES_MAX; node++) {
        bool used = false;
        for (int cpu = 0; !used && cpu < topology->cpu_count; cpu++) {
            used = topology->cpu[cpu].node == node && ct_cpus_has(&topology->allowed, cpu);
        }
        if (used) {
            topology->nodes[topology->node_count++] = node;
        }
    }
}

int ct_topology_read(const char *sysfs, const struct ct_cpus *allowed, struct ct_topology *out,
                     struct ct_err *err)
{
    struct ct_topology topology = {.allowed = *allowed};
    for (int cpu = ct_cpus_next(allowed, 0); cpu >= 0; cpu = ct_cpus_next(allowed, cpu + 1)) {
        topology.cpu_count = cpu + 1;
    }
    if (topology.cpu_count == 0) {
        return ct_err_set(err, CT_ENOENT, "the kernel does not tell which CPUs may be used");
    }
    topology.cpu = ct_calloc((size_t)topology.cpu_count, sizeof(*topology.cpu));
    topology.nodes = ct_calloc(NODES_MAX, sizeof(*topology.nodes));
    if (topology.cpu == NULL || topology.nodes == NULL) {
        ct_topology_fini(&topology);
        return ct_err_set(err, CT_ENOMEM, "out of memory for the topology of the machine");
    }
    for (int cpu = ct_cpus_next(allowed, 0); cpu >= 0; cpu = ct_cpus_next(allowed, cpu + 1)) {
        read_cpu(sysfs, cpu, &topology.cpu[cpu]);
    }
    read_nodes(sysfs, &topology);
    *out = topology;
    return 0;
}

void ct_topology_fini(struct ct_topology *topology)
{
    ct_free(topology->cpu);
    ct_free(topology->nodes);
    *topology = (struct ct_topology){0};
}

int ct_topology_pci_node(const char *sysfs, const char *address)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/bus/pci/devices/%.64s/numa_node", sysfs, address);
    int node = read_int(path, -1, -2);
    if (node == -2) {
        return -1;
    }
    return node >= 0 ? node : 0;
}
