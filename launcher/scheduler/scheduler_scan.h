/* SPDX-License-Identifier: Apache-2.0
 *
 * One scan of the environment for a scheduler: the detectors that ct_scheduler_detect() asks one
 * after the other, and what they share to read variables and host files.
 */
#ifndef CT_LAUNCHER_SCHEDULER_SCHEDULER_SCAN_H
#define CT_LAUNCHER_SCHEDULER_SCHEDULER_SCAN_H

#include "launcher/scheduler/scheduler.h"
#include "rendezvous/control/control.h"

/* Outcome of a detector: its scheduler has not started this process; nothing was written. */
#define CT_SCHEDULER_E_NOT_HERE 1

struct ct_scheduler_scan {
    const struct ct_scheduler_input *in;
    struct ct_scheduler *out;
    struct ct_err *err;
};

/* In the order in which they are asked; see ct_scheduler_detect(). */
CT_MUST_CHECK int ct_scheduler_open_mpi(const struct ct_scheduler_scan *scan);
CT_MUST_CHECK int ct_scheduler_pmix(const struct ct_scheduler_scan *scan);
CT_MUST_CHECK int ct_scheduler_hydra(const struct ct_scheduler_scan *scan);
CT_MUST_CHECK int ct_scheduler_mvapich(const struct ct_scheduler_scan *scan);
CT_MUST_CHECK int ct_scheduler_flux(const struct ct_scheduler_scan *scan);
CT_MUST_CHECK int ct_scheduler_pals(const struct ct_scheduler_scan *scan);
CT_MUST_CHECK int ct_scheduler_slurm(const struct ct_scheduler_scan *scan);
CT_MUST_CHECK int ct_scheduler_pmi(const struct ct_scheduler_scan *scan);
CT_MUST_CHECK int ct_scheduler_horovod(const struct ct_scheduler_scan *scan);
CT_MUST_CHECK int ct_scheduler_deepspeed(const struct ct_scheduler_scan *scan);
CT_MUST_CHECK int ct_scheduler_kubernetes(const struct ct_scheduler_scan *scan);
CT_MUST_CHECK int ct_scheduler_tpu(const struct ct_scheduler_scan *scan);
CT_MUST_CHECK int ct_scheduler_dstack(const struct ct_scheduler_scan *scan);
CT_MUST_CHECK int ct_scheduler_skypilot(const struct ct_scheduler_scan *scan);
CT_MUST_CHECK int ct_scheduler_pbs(const struct ct_scheduler_scan *scan);
CT_MUST_CHECK int ct_scheduler_lsf(const struct ct_scheduler_scan *scan);
CT_MUST_CHECK int ct_scheduler_sge(const struct ct_scheduler_scan *scan);
CT_MUST_CHECK int ct_scheduler_slurm_batch(const struct ct_scheduler_scan *scan);
CT_MUST_CHECK int ct_scheduler_torchx(const struct ct_scheduler_scan *scan);
CT_MUST_CHECK int ct_scheduler_master(const struct ct_scheduler_scan *scan);

/* The value; NULL when it is absent or empty. */
const char *ct_scheduler_get(const struct ct_scheduler_scan *scan, const char *name);

/* Notes which scheduler has started this process, and by what that is known. */
void ct_scheduler_found(const struct ct_scheduler_scan *scan, enum ct_scheduler_kind kind,
                        const char *name, const char *reason);

/* Reads a variable. *out stays as it is if it is unset or `name` NULL. CT_EFORMAT names it. */
CT_MUST_CHECK int ct_scheduler_read(const struct ct_scheduler_scan *scan, const char *name, int min,
                                    int max, struct ct_scheduler_int *out);

/* The same, but an absent variable is CT_EFORMAT, too. */
CT_MUST_CHECK int ct_scheduler_need(const struct ct_scheduler_scan *scan, const char *name, int min,
                                    int max, struct ct_scheduler_int *out);

/* Reads four variables. Rank and world size must be set; the local ones may be unset, and their
 * names may be NULL. Checks that each rank is below its size. */
CT_MUST_CHECK int ct_scheduler_ranks(const struct ct_scheduler_scan *scan, const char *rank,
                                     const char *size, const char *local_rank,
                                     const char *local_size);

/* Computes nnodes and node_rank from the ranks, if they are in equal blocks. */
void ct_scheduler_nodes_from_ranks(const struct ct_scheduler_scan *scan);

/* Checks that nnodes and node_rank fit together. */
CT_MUST_CHECK int ct_scheduler_check_nodes(const struct ct_scheduler_scan *scan);

/* Makes the job's id "kind-value" and replaces characters that no id may have. An absent variable
 * leaves the id as it is. */
void ct_scheduler_job_id(const struct ct_scheduler_scan *scan, const char *kind,
                         const char *variable);

/* Adds ".N" to the job's id if it has one and the variable holds a number N of at least `min`: jobs
 * that run at the same time may share an id. `from` names both variables. */
void ct_scheduler_job_part(const struct ct_scheduler_scan *scan, const char *variable, int min,
                           const char *from);

/* The same for a value that does not come from a variable. */
void ct_scheduler_set_job_id(const struct ct_scheduler_scan *scan, const char *kind,
                             const char *value, const char *from);

/* Takes `host` of `len` characters as the first host, unless it is too long for a name. */
void ct_scheduler_first_host(const struct ct_scheduler_scan *scan, const char *host, size_t len,
                             const char *from);

/* Sets hosts, nnodes and first_host from a variable that is set: the hosts by node rank, with
 * `separator` between them. CT_EFORMAT, CT_ENOMEM. */
CT_MUST_CHECK int ct_scheduler_host_list(const struct ct_scheduler_scan *scan, const char *variable,
                                         char separator);

/* Gives the hosts in the file that `variable` names: one on each line, without blanks, comments and
 * repetitions. *slots gets the slots of this host: a line is one, unless the line has a number as
 * its second word. *index is its place among the hosts (-1 = none). `drop`, or NULL, says which
 * lines are no hosts. CT_EFORMAT, CT_ENOMEM. */
CT_MUST_CHECK int ct_scheduler_hosts_file(const struct ct_scheduler_scan *scan,
                                          const char *variable, bool (*drop)(const char *line),
                                          struct ct_strlist *hosts, int *index, int *slots);

/* Sets first_host from the batch system's allocation, for MPI launchers that name no host. */
CT_MUST_CHECK int ct_scheduler_allocation(const struct ct_scheduler_scan *scan);

/* Is this a line of LSF's file that names no compute node, but a batch or login host? */
bool ct_scheduler_lsf_drop(const char *line);

#endif
