/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the topology and the GPUs' PCI addresses once, and gives every worker its CPUs. A binder
 * without CPUs binds nobody.
 */
#include "launcher/binding/binder.h"

#include "common/alloc.h"
#include "common/file.h"
#include "common/num.h"
#include "launcher/binding/gpu_mask.h"
#include "launcher/binding/gpus.h"
#include "launcher/util/environ.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* More devices than any machine has. */
#define DEVICES_MAX 256
/* "0000:3b:00.0", with room for domains of eight digits. */
#define ADDRESS_MAX 32
#define INFORMATION_MAX 4096
#define TOKEN_MAX 128

struct device {
    char address[ADDRESS_MAX];
};

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct device *)a)->address, ((const struct device *)b)->address);
}

/* Lists the devices in the order of their PCI addresses. CUDA has the same order with
 * CUDA_DEVICE_ORDER=PCI_BUS_ID and, if all devices are alike, without it, too. */
static int list_devices(const char *folder, struct device *out)
{
    DIR *dir = opendir(folder);
    int count = 0;
    if (dir == NULL) {
        return 0;
    }
    for (struct dirent *entry; (entry = readdir(dir)) != NULL && count < DEVICES_MAX;) {
        if (entry->d_name[0] != '.' && strlen(entry->d_name) < ADDRESS_MAX) {
            (void)snprintf(out[count++].address, ADDRESS_MAX, "%.31s", entry->d_name);
        }
    }
    (void)closedir(dir);
    qsort(out, (size_t)count, sizeof(*out), compare);
    return count;
}

/* The driver's file has the line "GPU UUID: <tab> GPU-...". As in CUDA, a token that is the
 * beginning of the UUID is enough. */
static bool has_uuid(const char *folder, const struct device *device, const char *token)
{
    char path[512];
    struct ct_buf text = CT_BUF_INIT;
    bool found = false;
    (void)snprintf(path, sizeof(path), "%.300s/%.31s/information", folder, device->address);
    if (ct_file_read(path, INFORMATION_MAX, &text, NULL) == 0 && ct_buf_cstr(&text) != NULL) {
        const char *line = strstr(ct_buf_cstr(&text), "GPU UUID:");
        if (line != NULL) {
            line += strlen("GPU UUID:");
            line += strspn(line, " \t");
            found = strncmp(line, token, strlen(token)) == 0;
        }
    }
    ct_buf_fini(&text);
    return found;
}

static int find_device(const char *folder, const struct device *devices, int count,
                       const char *token)
{
    int index;
    if (ct_parse_int(token, 0, count - 1, &index) == 0) {
        return index;
    }
    for (int i = 0; i < count && strncmp(token, "GPU-", 4) == 0; i++) {
        if (has_uuid(folder, &devices[i], token)) {
            return i;
        }
    }
    return -1;
}

/* Gives the NUMA nodes of the devices that `visible` names, in its order, and -1 for a token that
 * names no known device, such as a MIG device. Returns their number, at most `max`. */
static int device_nodes(const struct ct_binder_roots *roots, const char *visible, int *nodes,
                        int max)
{
    struct device devices[DEVICES_MAX];
    int count = list_devices(roots->gpus, devices), found = 0;
    if (count == 0 || visible == NULL) {
        for (; found < count && found < max; found++) {
            nodes[found] = ct_topology_pci_node(roots->sysfs, devices[found].address);
        }
        return found;
    }
    const char *entry;
    size_t len;
    for (; found < max && ct_gpu_entry(visible, found, &entry, &len); found++) {
        char token[TOKEN_MAX];
        (void)snprintf(token, sizeof(token), "%.*s", (int)(len < TOKEN_MAX ? len : 0), entry);
        int device = find_device(roots->gpus, devices, count, token);
        nodes[found] =
            device >= 0 ? ct_topology_pci_node(roots->sysfs, devices[device].address) : -1;
    }
    return found;
}

static int decide_all(const struct ct_topology *topology, enum ct_bind bind,
                      const struct ct_bind_devices *devices, struct ct_binder *binder,
                      struct ct_err *err)
{
    for (int i = 0; i < binder->workers; i++) {
        struct ct_err why = {0};
        int rc = ct_binding_decide(topology, bind, devices, binder->workers, i, &binder->cpus[i],
                                   &binder->nodes[i], &why);
        /* A cpuset may leave ctrun no CPU of the worker's node; then there is no binding. */
        if (rc != 0 && rc != CT_ENOENT) {
            return ct_err_set(err, rc, "cannot bind worker %d: %s", i, why.text);
        }
    }
    return 0;
}

int ct_binder_open(enum ct_bind bind, const struct ct_binder_roots *roots,
                   const struct ct_cpus *allowed, const char *visible, int workers,
                   struct ct_binder *out, struct ct_err *err)
{
    int nodes[DEVICES_MAX];
    struct ct_topology topology;
    if (bind == CT_BIND_NONE) {
        *out = (struct ct_binder){0};
        return 0;
    }
    int rc = ct_topology_read(roots->sysfs, allowed, &topology, err);
    if (rc != 0) {
        return rc;
    }
    const struct ct_bind_devices devices = {nodes,
                                            device_nodes(roots, visible, nodes, DEVICES_MAX)};
    struct ct_binder binder = {
        .cpus = ct_calloc((size_t)workers, sizeof(*binder.cpus)),
        .nodes = ct_calloc((size_t)workers, sizeof(*binder.nodes)),
        .workers = workers,
        .has_devices = devices.count > 0,
    };
    if (binder.cpus == NULL || binder.nodes == NULL) {
        rc = ct_err_set(err, CT_ENOMEM, "out of memory for the binding of %d workers", workers);
    } else {
        rc = decide_all(&topology, bind, &devices, &binder, err);
    }
    ct_topology_fini(&topology);
    if (rc != 0) {
        ct_binder_fini(&binder);
        return rc;
    }
    *out = binder;
    return 0;
}

int ct_binder_open_here(enum ct_bind bind, char *const *env, int workers, struct ct_binder *out,
                        struct ct_err *err)
{
    static const struct ct_binder_roots roots = {CT_SYSFS, CT_GPUS_PROC_DIR};
    struct ct_cpus allowed;
    ct_cpus_allowed(&allowed);
    return ct_binder_open(bind, &roots, &allowed, ct_environ_get(env, "CUDA_VISIBLE_DEVICES"),
                          workers, out, err);
}

void ct_binder_fini(struct ct_binder *binder)
{
    ct_free(binder->cpus);
    ct_free(binder->nodes);
    *binder = (struct ct_binder){0};
}

const struct ct_cpus *ct_binder_cpus(const struct ct_binder *binder, int local_rank)
{
    if (local_rank >= binder->workers || ct_cpus_count(&binder->cpus[local_rank]) == 0) {
        return NULL;
    }
    return &binder->cpus[local_rank];
}

void ct_binder_report(const struct ct_binder *binder, int first_rank, const struct ct_log *log)
{
    for (int i = 0; i < binder->workers; i++) {
        struct ct_buf text = CT_BUF_INIT;
        const struct ct_cpus *cpus = ct_binder_cpus(binder, i);
        if (cpus == NULL) {
            ct_log(log, CT_LOG_WARNING,
                   "rank %d is not bound: no CPU of its NUMA node may be used here",
                   first_rank + i);
        } else if (ct_cpus_print(cpus, &text) == 0 && ct_buf_cstr(&text) != NULL) {
            ct_log(log, CT_LOG_INFO, "rank %d is bound to CPUs %s (NUMA node %d%s)", first_rank + i,
                   ct_buf_cstr(&text), binder->nodes[i],
                   binder->has_devices ? ", that of its GPU" : "");
        }
        ct_buf_fini(&text);
    }
}
