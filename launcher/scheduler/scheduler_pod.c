/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedulers that start one process on each node: Kubernetes, TPU hosts, TorchX, and scripts that
 * set MASTER_ADDR and NODE_RANK.
 */
#include "launcher/scheduler/scheduler_scan.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* What is read of /etc/hosts. The kubelet writes a few lines. */
#define FILE_MAX ((size_t)1 << 20)

/* ---- Kubernetes ------------------------------------------------------------------------------ */

/* Finds the domain in the pod's full name, which the kubelet writes into /etc/hosts:
 * "job-3.svc.ns.svc.cluster.local". Without a service for the pods /etc/hosts has only the short
 * name, which other pods cannot resolve. */
static int read_pod_domain(const struct ct_scheduler_scan *scan, struct ct_buf *file,
                           const char **domain)
{
    size_t len = strlen(scan->in->host);
    const char *text;
    *domain = NULL;
    if (scan->in->read(scan->in->data, "/etc/hosts", FILE_MAX, file, NULL) != 0) {
        return 0; /* the name stays unknown */
    }
    text = ct_buf_cstr(file);
    if (text == NULL) {
        return ct_err_set(scan->err, CT_ENOMEM, "out of memory for /etc/hosts");
    }
    for (const char *at = text; len > 0 && (at = strstr(at, scan->in->host)) != NULL; at += len) {
        bool whole = at > text && isspace((unsigned char)at[-1]);
        if (whole && at[len] == '.') {
            *domain = at + len;
            return 0;
        }
    }
    return 0;
}

/* Makes "job-0.svc.ns..." from this pod's name, "job-3", and the domain, ".svc.ns...". */
static int read_first_pod(const struct ct_scheduler_scan *scan)
{
    static const char from[] = "JOB_COMPLETION_INDEX and /etc/hosts";
    char index[16], first[CT_HOST_MAX * 2];
    const char *host = scan->in->host, *domain;
    struct ct_buf file = CT_BUF_INIT;
    int len = snprintf(index, sizeof(index), "-%d", scan->out->node_rank.value);
    size_t host_len = strlen(host);
    int rc = read_pod_domain(scan, &file, &domain);
    if (rc == 0 && domain != NULL && host_len > (size_t)len &&
        strcmp(host + host_len - (size_t)len, index) == 0) {
        int size = snprintf(first, sizeof(first), "%.*s-0%.*s", (int)host_len - len, host,
                            (int)strcspn(domain, " \t\r\n"), domain);
        if (size > 0 && (size_t)size < sizeof(first)) {
            ct_scheduler_first_host(scan, first, (size_t)size, from);
        }
    }
    ct_buf_fini(&file);
    return rc;
}

/* The number of nodes stays unknown, because only the Job object says how many pods there are. */
int ct_scheduler_kubernetes(const struct ct_scheduler_scan *scan)
{
    if (ct_scheduler_get(scan, "KUBERNETES_SERVICE_HOST") == NULL ||
        ct_scheduler_get(scan, "JOB_COMPLETION_INDEX") == NULL) {
        return CT_SCHEDULER_E_NOT_HERE;
    }
    ct_scheduler_found(scan, CT_SCHEDULER_KUBERNETES, "a pod of an indexed Kubernetes job",
                       "KUBERNETES_SERVICE_HOST and JOB_COMPLETION_INDEX are set");
    int rc =
        ct_scheduler_need(scan, "JOB_COMPLETION_INDEX", 0, CT_MAX_NODES - 1, &scan->out->node_rank);
    if (rc != 0) {
        return rc;
    }
    return read_first_pod(scan);
}

/* ---- TPU hosts ------------------------------------------------------------------------------- */

static int read_slices(const struct ct_scheduler_scan *scan)
{
    struct ct_scheduler *out = scan->out;
    struct ct_scheduler_int slices = {1, NULL}, slice = {0, NULL};
    int rc = ct_scheduler_read(scan, "MEGASCALE_NUM_SLICES", 1, CT_MAX_NODES, &slices);
    if (rc != 0 || slices.value == 1) {
        return rc;
    }
    rc = ct_scheduler_need(scan, "MEGASCALE_SLICE_ID", 0, slices.value - 1, &slice);
    int64_t nodes = (int64_t)out->nnodes.value * slices.value;
    if (rc == 0 && nodes > CT_MAX_NODES) {
        rc = ct_err_set(scan->err, CT_EFORMAT, "MEGASCALE_NUM_SLICES=%d: too many nodes",
                        slices.value);
    }
    if (rc != 0) {
        return rc;
    }
    out->node_rank.value += slice.value * out->nnodes.value;
    out->node_rank.from = "TPU_WORKER_ID and MEGASCALE_SLICE_ID";
    out->nnodes =
        (struct ct_scheduler_int){(int)nodes, "TPU_WORKER_HOSTNAMES, MEGASCALE_NUM_SLICES"};
    /* The names are those of this slice only. */
    ct_strlist_fini(&out->hosts);
    out->hosts_from = NULL;
    out->first_host.from = NULL;
    const char *first = ct_scheduler_get(scan, "MEGASCALE_COORDINATOR_ADDRESS");
    if (first != NULL) {
        ct_scheduler_first_host(scan, first, strcspn(first, ":"), "MEGASCALE_COORDINATOR_ADDRESS");
    }
    return 0;
}

int ct_scheduler_tpu(const struct ct_scheduler_scan *scan)
{
    struct ct_scheduler *out = scan->out;
    static const char names[] = "TPU_WORKER_HOSTNAMES";
    if (ct_scheduler_get(scan, names) == NULL || ct_scheduler_get(scan, "TPU_WORKER_ID") == NULL) {
        return CT_SCHEDULER_E_NOT_HERE;
    }
    ct_scheduler_found(scan, CT_SCHEDULER_TPU, "a TPU host",
                       "TPU_WORKER_ID and TPU_WORKER_HOSTNAMES are set");
    int rc = ct_scheduler_host_list(scan, names, ',');
    if (rc != 0) {
        return rc;
    }
    rc = ct_scheduler_need(scan, "TPU_WORKER_ID", 0, out->nnodes.value - 1, &out->node_rank);
    if (rc != 0) {
        return rc;
    }
    return read_slices(scan);
}

/* ---- other ----------------------------------------------------------------------------------- */

/* TorchX passes everything else as flags. */
int ct_scheduler_torchx(const struct ct_scheduler_scan *scan)
{
    const char *host = ct_scheduler_get(scan, "TORCHX_RANK0_HOST");
    if (host == NULL) {
        return CT_SCHEDULER_E_NOT_HERE;
    }
    ct_scheduler_found(scan, CT_SCHEDULER_TORCHX, "a TorchX role", "TORCHX_RANK0_HOST is set");
    ct_scheduler_first_host(scan, host, strlen(host), "TORCHX_RANK0_HOST");
    return 0;
}

/* RANK and WORLD_SIZE are not read: on a pod they may count pods or processes. */
int ct_scheduler_master(const struct ct_scheduler_scan *scan)
{
    struct ct_scheduler *out = scan->out;
    const char *master = ct_scheduler_get(scan, "MASTER_ADDR");
    if (master == NULL || ct_scheduler_get(scan, "NODE_RANK") == NULL) {
        return CT_SCHEDULER_E_NOT_HERE;
    }
    ct_scheduler_found(scan, CT_SCHEDULER_MASTER, "a node of a job",
                       "MASTER_ADDR and NODE_RANK are set");
    int rc = ct_scheduler_need(scan, "NODE_RANK", 0, CT_MAX_NODES - 1, &out->node_rank);
    if (rc != 0) {
        return rc;
    }
    rc = ct_scheduler_read(scan, "NNODES", 1, CT_MAX_NODES, &out->nnodes);
    if (rc != 0) {
        return rc;
    }
    rc = ct_scheduler_check_nodes(scan);
    if (rc != 0) {
        return rc;
    }
    rc = ct_scheduler_read(scan, "MASTER_PORT", 1, UINT16_MAX, &out->port);
    if (rc != 0) {
        return rc;
    }
    ct_scheduler_first_host(scan, master, strlen(master), "MASTER_ADDR");
    return 0;
}
