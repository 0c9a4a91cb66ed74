/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of MPI programs, which start one process for each rank.
 */
#include "launcher/scheduler/scheduler_scan.h"

#include <stdio.h>
#include <string.h>

static void here(const struct ct_scheduler_scan *scan, enum ct_scheduler_kind kind,
                 const char *name, const char *reason)
{
    ct_scheduler_found(scan, kind, name, reason);
    scan->out->ranks_only = true;
}

/* Are there, or may there be, ranks on other machines? */
static bool is_spread(const struct ct_scheduler *out)
{
    return out->local_size.from == NULL || out->local_size.value < out->world_size.value;
}

/* If all ranks are on this machine, no host name is needed. Otherwise they meet on the first host
 * of the allocation, unless their launcher has named one. */
static int finish(const struct ct_scheduler_scan *scan)
{
    ct_scheduler_nodes_from_ranks(scan);
    int rc = ct_scheduler_check_nodes(scan);
    if (rc != 0 || !is_spread(scan->out) || scan->out->first_host.from != NULL) {
        return rc;
    }
    return ct_scheduler_allocation(scan);
}

/* "778829824.0;tcp://192.0.2.2,10.0.0.2:42999;tcp6://...": the first address of mpirun's host. It
 * is also the host of rank 0, unless mpirun runs on a login node; then rank 0 cannot bind it. */
static void read_hnp_uri(const struct ct_scheduler_scan *scan)
{
    static const char name[] = "OMPI_MCA_orte_hnp_uri";
    const char *uri = ct_scheduler_get(scan, name);
    const char *host = uri != NULL ? strstr(uri, ";tcp://") : NULL;
    if (host != NULL) {
        host += strlen(";tcp://");
        ct_scheduler_first_host(scan, host, strcspn(host, ",:;"), name);
    }
}

int ct_scheduler_open_mpi(const struct ct_scheduler_scan *scan)
{
    if (ct_scheduler_get(scan, "OMPI_COMM_WORLD_RANK") == NULL) {
        return CT_SCHEDULER_E_NOT_HERE;
    }
    here(scan, CT_SCHEDULER_OPEN_MPI, "Open MPI's mpirun", "OMPI_COMM_WORLD_RANK is set");
    int rc = ct_scheduler_ranks(scan, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
    if (rc != 0) {
        return rc;
    }
    ct_scheduler_job_id(scan, "openmpi",
                        ct_scheduler_get(scan, "PMIX_NAMESPACE") != NULL
                            ? "PMIX_NAMESPACE"
                            : "OMPI_MCA_ess_base_jobid");
    read_hnp_uri(scan);
    return finish(scan);
}

/* Slurm speaks PMIx, too, but its own variables say more. */
int ct_scheduler_pmix(const struct ct_scheduler_scan *scan)
{
    const char *space = ct_scheduler_get(scan, "PMIX_NAMESPACE");
    if (ct_scheduler_get(scan, "PMIX_RANK") == NULL || space == NULL ||
        strncmp(space, "slurm.pmix", strlen("slurm.pmix")) == 0) {
        return CT_SCHEDULER_E_NOT_HERE;
    }
    here(scan, CT_SCHEDULER_PMIX, "a PMIx launcher", "PMIX_RANK and PMIX_NAMESPACE are set");
    return ct_err_set(scan->err, CT_EINVAL,
                      "a PMIx launcher has started this as rank %.16s, but no variable says of how "
                      "many: pass --nnodes, --node-rank and --master-addr, or --standalone",
                      ct_scheduler_get(scan, "PMIX_RANK"));
}

/* Asks for what no variable says: an id of the job, and the host of rank 0. Hydra gives each
 * process the name by which mpiexec knows its host. This is the name that other hosts are most
 * likely to resolve. */
static int ask_hydra(const struct ct_scheduler_scan *scan)
{
    struct ct_scheduler *out = scan->out;
    struct ct_scheduler_int fd = {-1, NULL};
    char space[CT_SCHEDULER_JOB_ID_MAX] = "", host[CT_HOST_MAX] = "";
    int rc = ct_scheduler_read(scan, "PMI_FD", 0, INT32_MAX, &fd);
    if (rc != 0 || fd.from == NULL || scan->in->pmi == NULL || out->world_size.value == 1) {
        return rc;
    }
    bool spread = is_spread(out);
    const char *own = ct_scheduler_get(scan, "MPIR_CVAR_CH3_INTERFACE_HOSTNAME");
    (void)snprintf(host, sizeof(host), "%s", own != NULL ? own : scan->in->host);
    rc = scan->in->pmi(scan->in->data, fd.value, spread, out->rank.value == 0, space, host,
                       scan->err);
    if (rc != 0) {
        return rc;
    }
    ct_scheduler_set_job_id(scan, "mpich", space, fd.from);
    if (spread) {
        ct_scheduler_first_host(scan, host, strlen(host), fd.from);
    }
    return 0;
}

int ct_scheduler_hydra(const struct ct_scheduler_scan *scan)
{
    if (ct_scheduler_get(scan, "PMI_RANK") == NULL ||
        ct_scheduler_get(scan, "MPI_LOCALRANKID") == NULL) {
        return CT_SCHEDULER_E_NOT_HERE;
    }
    here(scan, CT_SCHEDULER_MPICH, "MPICH's mpiexec (Hydra)",
         "PMI_RANK and MPI_LOCALRANKID are set");
    int rc = ct_scheduler_ranks(scan, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS");
    if (rc != 0) {
        return rc;
    }
    rc = ask_hydra(scan);
    if (rc != 0) {
        return rc;
    }
    return finish(scan);
}

int ct_scheduler_mvapich(const struct ct_scheduler_scan *scan)
{
    if (ct_scheduler_get(scan, "MV2_COMM_WORLD_RANK") == NULL) {
        return CT_SCHEDULER_E_NOT_HERE;
    }
    here(scan, CT_SCHEDULER_MVAPICH, "MVAPICH2", "MV2_COMM_WORLD_RANK is set");
    int rc = ct_scheduler_ranks(scan, "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE",
                                "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE");
    if (rc != 0) {
        return rc;
    }
    return finish(scan);
}

int ct_scheduler_flux(const struct ct_scheduler_scan *scan)
{
    struct ct_scheduler *out = scan->out;
    if (ct_scheduler_get(scan, "FLUX_TASK_RANK") == NULL) {
        return CT_SCHEDULER_E_NOT_HERE;
    }
    here(scan, CT_SCHEDULER_FLUX, "a Flux job", "FLUX_TASK_RANK is set");
    int rc =
        ct_scheduler_ranks(scan, "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", NULL);
    if (rc != 0) {
        return rc;
    }
    rc = ct_scheduler_read(scan, "FLUX_JOB_NNODES", 1, CT_MAX_NODES, &out->nnodes);
    if (rc != 0) {
        return rc;
    }
    ct_scheduler_job_id(scan, "flux", "FLUX_JOB_ID");
    int nodes = out->nnodes.value;
    if (out->nnodes.from != NULL && out->world_size.value % nodes == 0) {
        out->local_size =
            (struct ct_scheduler_int){out->world_size.value / nodes, out->nnodes.from};
    }
    return finish(scan);
}

int ct_scheduler_pals(const struct ct_scheduler_scan *scan)
{
    if (ct_scheduler_get(scan, "PALS_RANKID") == NULL) {
        return CT_SCHEDULER_E_NOT_HERE;
    }
    here(scan, CT_SCHEDULER_PALS, "Cray PALS", "PALS_RANKID is set");
    bool own = ct_scheduler_get(scan, "PALS_LOCAL_RANKID") != NULL;
    int rc = ct_scheduler_ranks(
        scan, "PALS_RANKID", ct_scheduler_get(scan, "PALS_SIZE") != NULL ? "PALS_SIZE" : "PMI_SIZE",
        own ? "PALS_LOCAL_RANKID" : "PMI_LOCAL_RANK",
        ct_scheduler_get(scan, "PALS_LOCAL_SIZE") != NULL ? "PALS_LOCAL_SIZE" : "PMI_LOCAL_SIZE");
    if (rc != 0) {
        return rc;
    }
    ct_scheduler_job_id(scan, "pals",
                        ct_scheduler_get(scan, "PALS_APID") != NULL ? "PALS_APID" : "PBS_JOBID");
    return finish(scan);
}

/* Other launchers that speak PMI-1. Slurm speaks it, too, but was asked before. */
int ct_scheduler_pmi(const struct ct_scheduler_scan *scan)
{
    if (ct_scheduler_get(scan, "PMI_RANK") == NULL || ct_scheduler_get(scan, "PMI_SIZE") == NULL) {
        return CT_SCHEDULER_E_NOT_HERE;
    }
    here(scan, CT_SCHEDULER_PMI, "a PMI launcher", "PMI_RANK and PMI_SIZE are set");
    int rc = ct_scheduler_ranks(scan, "PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE");
    if (rc != 0) {
        return rc;
    }
    ct_scheduler_job_id(scan, "pmi", "PMI_JOBID");
    return finish(scan);
}

/* Reads the node rank and the number of nodes, Horovod's cross rank and cross size. */
static int read_cross(const struct ct_scheduler_scan *scan, const char *rank, const char *size)
{
    int rc = ct_scheduler_read(scan, rank, 0, CT_MAX_NODES - 1, &scan->out->node_rank);
    if (rc != 0) {
        return rc;
    }
    return ct_scheduler_read(scan, size, 1, CT_MAX_NODES, &scan->out->nnodes);
}

int ct_scheduler_horovod(const struct ct_scheduler_scan *scan)
{
    if (ct_scheduler_get(scan, "HOROVOD_RANK") == NULL ||
        ct_scheduler_get(scan, "HOROVOD_SIZE") == NULL) {
        return CT_SCHEDULER_E_NOT_HERE;
    }
    here(scan, CT_SCHEDULER_HOROVOD, "horovodrun", "HOROVOD_RANK and HOROVOD_SIZE are set");
    int rc = ct_scheduler_ranks(scan, "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK",
                                "HOROVOD_LOCAL_SIZE");
    if (rc != 0) {
        return rc;
    }
    rc = read_cross(scan, "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE");
    if (rc != 0) {
        return rc;
    }
    return finish(scan);
}

int ct_scheduler_deepspeed(const struct ct_scheduler_scan *scan)
{
    struct ct_scheduler *out = scan->out;
    if (ct_scheduler_get(scan, "CROSS_RANK") == NULL ||
        ct_scheduler_get(scan, "CROSS_SIZE") == NULL ||
        ct_scheduler_get(scan, "MASTER_ADDR") == NULL) {
        return CT_SCHEDULER_E_NOT_HERE;
    }
    here(scan, CT_SCHEDULER_DEEPSPEED, "DeepSpeed's launcher",
         "MASTER_ADDR, CROSS_RANK and CROSS_SIZE are set");
    int rc = ct_scheduler_ranks(scan, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE");
    if (rc != 0) {
        return rc;
    }
    rc = read_cross(scan, "CROSS_RANK", "CROSS_SIZE");
    if (rc != 0) {
        return rc;
    }
    rc = ct_scheduler_read(scan, "MASTER_PORT", 1, UINT16_MAX, &out->port);
    if (rc != 0) {
        return rc;
    }
    const char *master = ct_scheduler_get(scan, "MASTER_ADDR");
    ct_scheduler_first_host(scan, master, strlen(master), "MASTER_ADDR");
    return finish(scan);
}
