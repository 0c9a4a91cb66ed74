/* SPDX-License-Identifier: Apache-2.0
 *
 * dstack and SkyPilot, which start the same commands on each machine of a cluster that they have
 * rented, and say in variables which machines these are.
 */
#include "launcher/scheduler/scheduler_scan.h"

#include <string.h>

struct variables {
    enum ct_scheduler_kind kind;
    const char *name, *reason;
    const char *node_rank, *nnodes, *addresses, *gpus;
    const char *job_kind, *job_id;
};

static int read_cluster(const struct ct_scheduler_scan *scan, const struct variables *v)
{
    struct ct_scheduler *out = scan->out;
    if (ct_scheduler_get(scan, v->node_rank) == NULL ||
        ct_scheduler_get(scan, v->addresses) == NULL) {
        return CT_SCHEDULER_E_NOT_HERE;
    }
    ct_scheduler_found(scan, v->kind, v->name, v->reason);
    int rc = ct_scheduler_host_list(scan, v->addresses, '\n');
    if (rc != 0) {
        return rc;
    }
    struct ct_scheduler_int count = out->nnodes;
    rc = ct_scheduler_read(scan, v->nnodes, 1, CT_MAX_NODES, &count);
    if (rc != 0) {
        return rc;
    }
    if (count.value != out->nnodes.value) {
        return ct_err_set(scan->err, CT_EFORMAT, "%s=%d, but %s has %d addresses", v->nnodes,
                          count.value, v->addresses, out->nnodes.value);
    }
    rc = ct_scheduler_need(scan, v->node_rank, 0, out->nnodes.value - 1, &out->node_rank);
    if (rc != 0) {
        return rc;
    }
    struct ct_scheduler_int gpus = {0, NULL};
    rc = ct_scheduler_read(scan, v->gpus, 0, CT_MAX_WORLD, &gpus);
    if (rc != 0) {
        return rc;
    }
    if (gpus.value > 0) {
        out->nproc = gpus;
    }
    ct_scheduler_job_id(scan, v->job_kind, v->job_id);
    return 0;
}

int ct_scheduler_dstack(const struct ct_scheduler_scan *scan)
{
    static const struct variables variables = {
        .kind = CT_SCHEDULER_DSTACK,
        .name = "a dstack task",
        .reason = "DSTACK_NODE_RANK and DSTACK_NODES_IPS are set",
        .node_rank = "DSTACK_NODE_RANK",
        .nnodes = "DSTACK_NODES_NUM",
        .addresses = "DSTACK_NODES_IPS",
        .gpus = "DSTACK_GPUS_PER_NODE",
        .job_kind = "dstack",
        .job_id = "DSTACK_RUN_NAME",
    };
    return read_cluster(scan, &variables);
}

int ct_scheduler_skypilot(const struct ct_scheduler_scan *scan)
{
    static const struct variables variables = {
        .kind = CT_SCHEDULER_SKYPILOT,
        .name = "a SkyPilot task",
        .reason = "SKYPILOT_NODE_RANK and SKYPILOT_NODE_IPS are set",
        .node_rank = "SKYPILOT_NODE_RANK",
        .nnodes = "SKYPILOT_NUM_NODES",
        .addresses = "SKYPILOT_NODE_IPS",
        .gpus = "SKYPILOT_NUM_GPUS_PER_NODE",
        .job_kind = "skypilot",
        .job_id = "SKYPILOT_TASK_ID",
    };
    return read_cluster(scan, &variables);
}
