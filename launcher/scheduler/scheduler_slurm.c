/* SPDX-License-Identifier: Apache-2.0
 *
 * Slurm. Only the variables of a step count: a batch script sees SLURM_NODEID=0 and the number of
 * nodes of the whole allocation, which looks like node 0 of N although nothing was started on the
 * others. SLURM_LAUNCH_NODE_IPADDR is not used either, because it names the machine on which
 * srun(1) ran.
 */
#include "launcher/scheduler/scheduler_scan.h"
#include "launcher/util/nodelist.h"

#include "common/num.h"

#include <stdio.h>
#include <string.h>

static int read_hosts(const struct ct_scheduler_scan *scan)
{
    struct ct_scheduler *out = scan->out;
    static const char name[] = "SLURM_STEP_NODELIST";
    int rc = ct_nodelist_expand(ct_scheduler_get(scan, name), &out->hosts, scan->err);
    if (rc != 0) {
        (void)ct_err_wrap(scan->err, name);
        return rc == CT_ENOMEM ? rc : CT_EFORMAT;
    }
    out->hosts_from = name;
    if (out->hosts.count != (size_t)out->nnodes.value) {
        return ct_err_set(scan->err, CT_EFORMAT, "%s has %zu hosts, SLURM_STEP_NUM_NODES says %d",
                          name, out->hosts.count, out->nnodes.value);
    }
    ct_scheduler_first_host(scan, out->hosts.list[0], strlen(out->hosts.list[0]), name);
    return 0;
}

/* The number of tasks on this node; srun -N2 -n3 puts two on one node, one on the other. */
static int read_local_size(const struct ct_scheduler_scan *scan)
{
    struct ct_scheduler *out = scan->out;
    static const char name[] = "SLURM_STEP_TASKS_PER_NODE";
    const char *list = ct_scheduler_get(scan, name);
    int count;
    if (list == NULL) {
        return 0;
    }
    int rc = ct_nodelist_count(list, out->node_rank.value, &count, scan->err);
    if (rc != 0) {
        (void)ct_err_wrap(scan->err, name);
        return CT_EFORMAT;
    }
    out->local_size = (struct ct_scheduler_int){count, name};
    if (out->local_rank.from != NULL && out->local_rank.value >= count) {
        return ct_err_set(scan->err, CT_EFORMAT, "%s=%d is not below the %d tasks of %s",
                          out->local_rank.from, out->local_rank.value, count, name);
    }
    return 0;
}

/* In a step of a heterogeneous job the tasks of all components are numbered together, but each
 * component knows its own nodes only, so the numbers do not fit together. */
static int check_het(const struct ct_scheduler_scan *scan)
{
    const char *size = ct_scheduler_get(scan, "SLURM_HET_SIZE");
    int components;
    if (size == NULL || ct_parse_int(size, 1, CT_MAX_NODES, &components) != 0 || components == 1) {
        return 0;
    }
    const struct ct_scheduler *out = scan->out;
    bool spans =
        out->node_rank.value >= out->nnodes.value || out->rank.value >= out->world_size.value;
    struct ct_scheduler_int job_nodes = {0, NULL};
    int rc = ct_scheduler_read(scan, "SLURM_NNODES", 1, CT_MAX_NODES, &job_nodes);
    if (rc == 0 && (spans || job_nodes.value > out->nnodes.value)) {
        rc = ct_err_set(scan->err, CT_EINVAL,
                        "this step spans %d components of a heterogeneous Slurm job, whose "
                        "variables do not say who node 0 is: pass --nnodes, --node-rank and "
                        "--master-addr",
                        components);
    }
    return rc;
}

static void read_job_id(const struct ct_scheduler_scan *scan)
{
    ct_scheduler_job_id(scan, "slurm", "SLURM_JOB_ID");
    /* Two steps of one job may run at the same time, so the step is part of the id. */
    ct_scheduler_job_part(scan, "SLURM_STEP_ID", 0, "SLURM_JOB_ID and SLURM_STEP_ID");
}

/* These values are optional, so a malformed one is no error. */
static void read_extras(const struct ct_scheduler_scan *scan)
{
    const char *gpus = ct_scheduler_get(scan, "SLURM_GPUS_ON_NODE");
    const char *end = ct_scheduler_get(scan, "SLURM_JOB_END_TIME");
    const char *kill = ct_scheduler_get(scan, "SLURM_KILL_BAD_EXIT");
    int count;
    int64_t time;
    if (gpus != NULL && ct_parse_int(gpus, 1, CT_MAX_NODES, &count) == 0) {
        scan->out->nproc = (struct ct_scheduler_int){count, "SLURM_GPUS_ON_NODE"};
    }
    if (end != NULL && ct_parse_i64(end, 1, INT64_MAX, &time) == 0) {
        scan->out->end_time = time;
        scan->out->end_time_from = "SLURM_JOB_END_TIME";
    }
    scan->out->kill_on_exit = kill != NULL && strcmp(kill, "1") == 0;
}

int ct_scheduler_slurm(const struct ct_scheduler_scan *scan)
{
    struct ct_scheduler *out = scan->out;
    if (ct_scheduler_get(scan, "SLURM_STEP_NODELIST") == NULL ||
        ct_scheduler_get(scan, "SLURM_STEP_NUM_NODES") == NULL) {
        return CT_SCHEDULER_E_NOT_HERE;
    }
    ct_scheduler_found(scan, CT_SCHEDULER_SLURM, "a Slurm job step",
                       "SLURM_STEP_NODELIST and SLURM_STEP_NUM_NODES are set");
    int rc = ct_scheduler_need(scan, "SLURM_STEP_NUM_NODES", 1, CT_MAX_NODES, &out->nnodes);
    if (rc != 0) {
        return rc;
    }
    rc = ct_scheduler_need(scan, "SLURM_NODEID", 0, CT_MAX_NODES - 1, &out->node_rank);
    if (rc != 0) {
        return rc;
    }
    rc = ct_scheduler_need(scan, "SLURM_PROCID", 0, CT_MAX_WORLD - 1, &out->rank);
    if (rc != 0) {
        return rc;
    }
    const char *size = ct_scheduler_get(scan, "SLURM_STEP_NUM_TASKS") != NULL
                           ? "SLURM_STEP_NUM_TASKS"
                           : "SLURM_NTASKS";
    rc = ct_scheduler_need(scan, size, 1, CT_MAX_WORLD, &out->world_size);
    if (rc != 0) {
        return rc;
    }
    rc = check_het(scan);
    if (rc != 0) {
        return rc;
    }
    rc = ct_scheduler_check_nodes(scan);
    if (rc != 0) {
        return rc;
    }
    rc = ct_scheduler_ranks(scan, out->rank.from, out->world_size.from, "SLURM_LOCALID", NULL);
    if (rc != 0) {
        return rc;
    }
    rc = read_local_size(scan);
    if (rc != 0) {
        return rc;
    }
    rc = read_hosts(scan);
    if (rc != 0) {
        return rc;
    }
    read_extras(scan);
    read_job_id(scan);
    return 0;
}

int ct_scheduler_slurm_batch(const struct ct_scheduler_scan *scan)
{
    struct ct_scheduler *out = scan->out;
    if (ct_scheduler_get(scan, "SLURM_JOB_ID") == NULL) {
        return CT_SCHEDULER_E_NOT_HERE;
    }
    ct_scheduler_found(scan, CT_SCHEDULER_SLURM_BATCH, "a Slurm job, outside of any step",
                       "SLURM_JOB_ID is set, the variables of a step are not");
    read_extras(scan);
    const char *nodes = ct_scheduler_get(scan, "SLURM_JOB_NUM_NODES");
    int count;
    if (nodes != NULL && ct_parse_int(nodes, 2, CT_MAX_NODES, &count) == 0) {
        (void)snprintf(out->warning, sizeof(out->warning),
                       "this Slurm job has %d nodes, but here only this one is used: start ctrun "
                       "through srun (srun --ntasks-per-node=1 ctrun ...) to use them all",
                       count);
    }
    return 0;
}
