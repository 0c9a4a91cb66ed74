/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks one detector after the other whether its scheduler has started this process. The first that
 * says yes, or finds its variables broken, decides. The rest of the file is what detectors share.
 */
#include "launcher/scheduler/scheduler.h"

#include "common/hash.h"
#include "common/num.h"
#include "launcher/scheduler/scheduler_scan.h"
#include "launcher/util/environ.h"
#include "launcher/util/nodelist.h"

#include <stdio.h>
#include <string.h>

/* The range is JAX's: the top of the port space, where Linux chooses no port by itself. */
#define PORT_FIRST 61440
#define PORT_COUNT 4096

/* Innermost launcher first: mpirun's detector comes before srun's, since srun may have started
 * mpirun. Launchers of processes come before schedulers of an allocation or a pod. */
static int (*const detectors[])(const struct ct_scheduler_scan *) = {
    ct_scheduler_open_mpi, ct_scheduler_pmix,        ct_scheduler_hydra,      ct_scheduler_mvapich,
    ct_scheduler_flux,     ct_scheduler_pals,        ct_scheduler_slurm,      ct_scheduler_pmi,
    ct_scheduler_horovod,  ct_scheduler_deepspeed,   ct_scheduler_kubernetes, ct_scheduler_tpu,
    ct_scheduler_dstack,   ct_scheduler_skypilot,    ct_scheduler_pbs,        ct_scheduler_lsf,
    ct_scheduler_sge,      ct_scheduler_slurm_batch, ct_scheduler_torchx,     ct_scheduler_master,
};

int ct_scheduler_detect(const struct ct_scheduler_input *input, struct ct_scheduler *out,
                        struct ct_err *err)
{
    struct ct_scheduler found = {.name = "stand-alone",
                                 .reason = "no scheduler's variables are set"};
    const struct ct_scheduler_scan scan = {input, &found, err};
    int rc = CT_SCHEDULER_E_NOT_HERE;
    for (size_t i = 0;
         rc == CT_SCHEDULER_E_NOT_HERE && i < sizeof(detectors) / sizeof(detectors[0]); i++) {
        rc = detectors[i](&scan);
    }
    if (rc < 0) {
        ct_scheduler_fini(&found);
        return rc;
    }
    *out = found;
    return 0;
}

void ct_scheduler_fini(struct ct_scheduler *scheduler)
{
    if (scheduler != NULL) {
        ct_strlist_fini(&scheduler->hosts);
    }
}

uint16_t ct_scheduler_port(const char *job_id)
{
    /* Not random, because every node must compute the same port. */
    static const struct ct_hash_key key = {0, 0};
    return (uint16_t)(PORT_FIRST + ct_hash(&key, job_id, strlen(job_id)) % PORT_COUNT);
}

/* ---- for the detectors ----------------------------------------------------------------------- */

const char *ct_scheduler_get(const struct ct_scheduler_scan *scan, const char *name)
{
    const char *value = ct_environ_get(scan->in->env, name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

void ct_scheduler_found(const struct ct_scheduler_scan *scan, enum ct_scheduler_kind kind,
                        const char *name, const char *reason)
{
    scan->out->kind = kind;
    scan->out->name = name;
    scan->out->reason = reason;
}

int ct_scheduler_read(const struct ct_scheduler_scan *scan, const char *name, int min, int max,
                      struct ct_scheduler_int *out)
{
    const char *value = name != NULL ? ct_scheduler_get(scan, name) : NULL;
    int number;
    if (value == NULL) {
        return 0;
    }
    if (ct_parse_int(value, min, max, &number) != 0) {
        return ct_err_set(scan->err, CT_EFORMAT, "%s: '%.64s' is not a whole number from %d to %d",
                          name, value, min, max);
    }
    *out = (struct ct_scheduler_int){number, name};
    return 0;
}

int ct_scheduler_need(const struct ct_scheduler_scan *scan, const char *name, int min, int max,
                      struct ct_scheduler_int *out)
{
    if (ct_scheduler_get(scan, name) == NULL) {
        return ct_err_set(scan->err, CT_EFORMAT, "this looks like %s (%s), but %s is not set",
                          scan->out->name, scan->out->reason, name);
    }
    return ct_scheduler_read(scan, name, min, max, out);
}

static int check_below(const struct ct_scheduler_scan *scan, const struct ct_scheduler_int *rank,
                       const struct ct_scheduler_int *size)
{
    if (rank->from == NULL || size->from == NULL || rank->value < size->value) {
        return 0;
    }
    return ct_err_set(scan->err, CT_EFORMAT, "%s=%d is not below %s=%d", rank->from, rank->value,
                      size->from, size->value);
}

int ct_scheduler_ranks(const struct ct_scheduler_scan *scan, const char *rank, const char *size,
                       const char *local_rank, const char *local_size)
{
    struct ct_scheduler *out = scan->out;
    int rc = ct_scheduler_need(scan, rank, 0, CT_MAX_WORLD - 1, &out->rank);
    if (rc != 0) {
        return rc;
    }
    rc = ct_scheduler_need(scan, size, 1, CT_MAX_WORLD, &out->world_size);
    if (rc != 0) {
        return rc;
    }
    rc = ct_scheduler_read(scan, local_rank, 0, CT_MAX_WORLD - 1, &out->local_rank);
    if (rc != 0) {
        return rc;
    }
    rc = ct_scheduler_read(scan, local_size, 1, CT_MAX_WORLD, &out->local_size);
    if (rc != 0) {
        return rc;
    }
    rc = check_below(scan, &out->rank, &out->world_size);
    if (rc != 0) {
        return rc;
    }
    rc = check_below(scan, &out->local_rank, &out->local_size);
    if (rc != 0) {
        return rc;
    }
    if (out->local_size.from == NULL || out->local_size.value <= out->world_size.value) {
        return 0;
    }
    return ct_err_set(scan->err, CT_EFORMAT, "%s=%d is more than %s=%d", out->local_size.from,
                      out->local_size.value, out->world_size.from, out->world_size.value);
}

/* Assumes ranks 0..L-1 on the first node, L..2L-1 on the second, and so on, which is every
 * launcher's default. Nothing is set if this process's own numbers show another order. */
void ct_scheduler_nodes_from_ranks(const struct ct_scheduler_scan *scan)
{
    struct ct_scheduler *out = scan->out;
    if (out->local_size.from == NULL) {
        return;
    }
    int size = out->local_size.value;
    bool in_blocks =
        out->world_size.value % size == 0 &&
        (out->local_rank.from == NULL || out->rank.value % size == out->local_rank.value);
    if (!in_blocks) {
        return;
    }
    if (out->nnodes.from == NULL) {
        out->nnodes = (struct ct_scheduler_int){out->world_size.value / size, out->local_size.from};
    }
    if (out->node_rank.from == NULL && out->nnodes.value == out->world_size.value / size) {
        out->node_rank = (struct ct_scheduler_int){out->rank.value / size, out->rank.from};
    }
}

int ct_scheduler_check_nodes(const struct ct_scheduler_scan *scan)
{
    return check_below(scan, &scan->out->node_rank, &scan->out->nnodes);
}

void ct_scheduler_set_job_id(const struct ct_scheduler_scan *scan, const char *kind,
                             const char *value, const char *from)
{
    (void)snprintf(scan->out->job_id, sizeof(scan->out->job_id), "%s-%s", kind, value);
    for (char *p = scan->out->job_id; *p != '\0'; p++) {
        if (*p == '/' || (unsigned char)*p <= ' ' || *p == 0x7f) {
            *p = '_';
        }
    }
    scan->out->job_id_from = from;
}

void ct_scheduler_job_id(const struct ct_scheduler_scan *scan, const char *kind,
                         const char *variable)
{
    const char *value = ct_scheduler_get(scan, variable);
    if (value != NULL) {
        ct_scheduler_set_job_id(scan, kind, value, variable);
    }
}

void ct_scheduler_job_part(const struct ct_scheduler_scan *scan, const char *variable, int min,
                           const char *from)
{
    const char *value = ct_scheduler_get(scan, variable);
    size_t len = strlen(scan->out->job_id);
    int number;
    if (len > 0 && value != NULL && ct_parse_int(value, min, INT32_MAX, &number) == 0) {
        (void)snprintf(scan->out->job_id + len, sizeof(scan->out->job_id) - len, ".%d", number);
        scan->out->job_id_from = from;
    }
}

int ct_scheduler_host_list(const struct ct_scheduler_scan *scan, const char *variable,
                           char separator)
{
    const char *at = ct_scheduler_get(scan, variable);
    const char between[] = {separator, '\0'};
    struct ct_scheduler *out = scan->out;
    int rc = 0;
    for (size_t len; rc == 0; at += len + 1) {
        len = strcspn(at, between);
        if (len == 0 || len >= CT_HOST_MAX || out->hosts.count == CT_MAX_NODES) {
            return ct_err_set(scan->err, CT_EFORMAT, "%s is no list of host names", variable);
        }
        rc = ct_strlist_printf(&out->hosts, "%.*s", (int)len, at);
        if (at[len] == '\0' || at[len + 1] == '\0') { /* the last may have a separator, too */
            break;
        }
    }
    if (rc != 0 || ct_strlist_close(&out->hosts) != 0) {
        return ct_err_set(scan->err, CT_ENOMEM, "out of memory for %s", variable);
    }
    out->hosts_from = variable;
    out->nnodes = (struct ct_scheduler_int){(int)out->hosts.count, variable};
    ct_scheduler_first_host(scan, out->hosts.list[0], strlen(out->hosts.list[0]), variable);
    return 0;
}

void ct_scheduler_first_host(const struct ct_scheduler_scan *scan, const char *host, size_t len,
                             const char *from)
{
    struct ct_scheduler_text *out = &scan->out->first_host;
    if (len > 0 && len < sizeof(out->value)) {
        memcpy(out->value, host, len);
        out->value[len] = '\0';
        out->from = from;
    }
}

int ct_scheduler_allocation(const struct ct_scheduler_scan *scan)
{
    static const struct {
        const char *variable;
        bool (*drop)(const char *line);
    } files[] = {{"PBS_NODEFILE", NULL},
                 {"LSB_DJOB_HOSTFILE", ct_scheduler_lsf_drop},
                 {"PE_HOSTFILE", NULL}};
    struct ct_strlist hosts = {0};
    const char *from = NULL;
    int index, slots, rc = 0;
    for (size_t i = 0; from == NULL && i < sizeof(files) / sizeof(files[0]); i++) {
        if (ct_scheduler_get(scan, files[i].variable) != NULL) {
            from = files[i].variable;
            rc = ct_scheduler_hosts_file(scan, from, files[i].drop, &hosts, &index, &slots);
        }
    }
    const char *slurm = ct_scheduler_get(scan, "SLURM_JOB_NODELIST");
    if (from == NULL && slurm != NULL) {
        from = "SLURM_JOB_NODELIST";
        rc = ct_nodelist_expand(slurm, &hosts, scan->err);
        if (rc != 0) {
            (void)ct_err_wrap(scan->err, "%s", from);
        }
    }
    if (rc == 0 && hosts.count > 0) {
        ct_scheduler_first_host(scan, hosts.list[0], strlen(hosts.list[0]), from);
    }
    ct_strlist_fini(&hosts);
    return rc;
}
