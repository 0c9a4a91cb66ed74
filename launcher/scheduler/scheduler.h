/* SPDX-License-Identifier: Apache-2.0
 *
 * Which scheduler or launcher started ctrun, and what it has already decided. Pure: reads an
 * environment and the content of files, and gives facts, each with the variable it came from. What
 * only the launcher knows (MPICH's) is asked through a function.
 *
 * The innermost launcher wins, because it has started this process: with mpirun inside a Slurm step
 * the SLURM_ variables describe mpirun's daemons. The variables of a batch script describe the
 * allocation and no started processes, so a batch script counts as one node.
 */
#ifndef CT_LAUNCHER_SCHEDULER_SCHEDULER_H
#define CT_LAUNCHER_SCHEDULER_SCHEDULER_H

#include "common/addr.h"
#include "common/buf.h"
#include "common/err.h"
#include "launcher/util/strlist.h"

#include <stdbool.h>
#include <stdint.h>

#define CT_SCHEDULER_JOB_ID_MAX 128
#define CT_SCHEDULER_WARNING_MAX 256

enum ct_scheduler_kind {
    CT_SCHEDULER_ALONE, /* none was found */
    CT_SCHEDULER_OPEN_MPI,
    CT_SCHEDULER_PMIX,  /* PRRTE and others */
    CT_SCHEDULER_MPICH, /* Hydra: MPICH, Intel MPI */
    CT_SCHEDULER_MVAPICH,
    CT_SCHEDULER_FLUX,
    CT_SCHEDULER_PALS,
    CT_SCHEDULER_SLURM,
    CT_SCHEDULER_SLURM_BATCH, /* a batch script or an interactive shell, no step: one node */
    CT_SCHEDULER_PMI,
    CT_SCHEDULER_HOROVOD,
    CT_SCHEDULER_DEEPSPEED,
    CT_SCHEDULER_KUBERNETES,
    CT_SCHEDULER_TPU,
    CT_SCHEDULER_DSTACK,
    CT_SCHEDULER_SKYPILOT,
    CT_SCHEDULER_PBS,
    CT_SCHEDULER_LSF,
    CT_SCHEDULER_SGE, /* Grid Engine */
    CT_SCHEDULER_TORCHX,
    CT_SCHEDULER_MASTER, /* MASTER_ADDR, NODE_RANK, NNODES */
};

/* `from` is a static string; NULL = not known. */
struct ct_scheduler_int {
    int value;
    const char *from;
};

struct ct_scheduler_text {
    char value[CT_HOST_MAX];
    const char *from;
};

struct ct_scheduler {
    enum ct_scheduler_kind kind;
    const char *name;   /* "a Slurm job step" */
    const char *reason; /* "SLURM_STEP_NODELIST and SLURM_STEP_NUM_NODES are set" */

    struct ct_scheduler_int nnodes, node_rank;
    /* Of this process, if the scheduler has started one process for each rank. */
    struct ct_scheduler_int rank, world_size, local_rank, local_size;
    struct ct_scheduler_int nproc;       /* a hint: devices or slots on this node */
    struct ct_scheduler_text first_host; /* of node 0 */
    struct ct_scheduler_int port;        /* of the store on it */
    struct ct_strlist hosts;             /* by node rank; empty = not known */
    const char *hosts_from;
    /* The same on every node and different for every step: names the run and its port. */
    char job_id[CT_SCHEDULER_JOB_ID_MAX];
    const char *job_id_from;
    int64_t end_time; /* Unix time at which the allocation ends */
    const char *end_time_from;
    bool ranks_only;   /* its tasks are ranks, even if each node has one task only */
    bool kill_on_exit; /* the scheduler ends all tasks when one fails: no restart */
    char warning[CT_SCHEDULER_WARNING_MAX]; /* "" = none */
};

/* Appends the content of a file; as ct_file_read(). */
typedef int (*ct_scheduler_read_fn)(void *data, const char *path, size_t max, struct ct_buf *out,
                                    struct ct_err *err);

/* Reads the file system, without `data`. */
CT_MUST_CHECK int ct_scheduler_read_file(void *data, const char *path, size_t max,
                                         struct ct_buf *out, struct ct_err *err);

/* Talks with the launcher behind PMI_FD: gives the name of the job's key space; with `share` also
 * carries rank 0's `first_host` to all others. See ct_pmi_ask(). */
typedef int (*ct_scheduler_pmi_fn)(void *data, int fd, bool share, bool is_first,
                                   char space[CT_SCHEDULER_JOB_ID_MAX],
                                   char first_host[CT_HOST_MAX], struct ct_err *err);

struct ct_scheduler_input {
    char *const *env;
    const char *host; /* this machine's name */
    ct_scheduler_read_fn read;
    ct_scheduler_pmi_fn pmi; /* NULL = do not talk */
    void *data;
};

/* CT_EFORMAT: a variable or file that is needed is malformed; the text names it. CT_EINVAL: there
 * are several nodes, but the variables do not say how to join them; the text says what to pass.
 * CT_ENOMEM. Gives *out. */
CT_MUST_CHECK int ct_scheduler_detect(const struct ct_scheduler_input *input,
                                      struct ct_scheduler *out, struct ct_err *err);

/* NULL and zeroed memory are allowed. */
void ct_scheduler_fini(struct ct_scheduler *scheduler);

/* A port that every node computes alike: 61440 + hash(job id) mod 4096. Above the ports that Linux
 * hands out by itself (32768-60999). */
uint16_t ct_scheduler_port(const char *job_id);

#endif
