/* SPDX-License-Identifier: Apache-2.0
 *
 * What a worker is told: torchrun's environment contract.
 */
#ifndef CT_LAUNCHER_WORKER_WORKER_ENV_H
#define CT_LAUNCHER_WORKER_WORKER_ENV_H

#include "common/err.h"
#include "launcher/binding/gpu_mask.h"
#include "launcher/util/strlist.h"
#include "launcher/worker/job_ports.h"

#include <stdbool.h>
#include <stdint.h>

/* Names the pipe through which workers set timers (file_timer_server_uv.h); users may set it. */
#define CT_TIMER_FILE_ENV "TORCHELASTIC_TIMER_FILE"

/* Where PyTorch's worker server listens, if the program starts one
 * (torch/distributed/elastic/control_plane.py). */
#define CT_SERVER_SOCKET_ENV "TORCH_WORKER_SERVER_SOCKET"

/* The start of the variables that have the job's ports (job_ports.h). */
#define CT_PORT_ENV_PREFIX "CTRUN_PORT_"

/* The network interface by which a library reaches other machines. */
#define CT_GLOO_INTERFACE_ENV "GLOO_SOCKET_IFNAME"
#define CT_NCCL_INTERFACE_ENV "NCCL_SOCKET_IFNAME"

/* One generation of workers of this launcher. Strings are borrowed. */
struct ct_worker_env {
    int local_world_size;
    int first_local_rank; /* of this launcher's first worker, where several share the machine */
    int first_rank;       /* global rank of local rank 0 */
    int world_size;
    int first_role_rank, role_size; /* the same among the workers of our role */
    int node_rank, node_count;
    int generation; /* 0 at first, one more with each restart */
    int max_restarts;
    int cpus; /* in the launcher's affinity mask */
    const char *role, *run_id;
    bool virtual_local_rank; /* each worker is told to be local rank 0 */
    const char *signals;     /* as --signals-to-handle has it */
    const char *master_addr;
    uint16_t master_port;
    const char *interface; /* to reach other machines by; "" or NULL = libraries find it alone */
    bool nccl_configured;  /* ... and NCCL has a file that says it */
    const char *preempt;   /* file that appears when the job is asked to end, or NULL */
    const char *cookie;    /* "NAME=value" by which the job's processes are known, or NULL */
    const char *progress;  /* path of the progress pages; "" or NULL = none */
    const char *snapshot;  /* "NAME=path" of memory that outlives the workers, or NULL */
    const char *handover;  /* path of the file with their orders; "" or NULL = none */
    const struct ct_job_ports *ports; /* that the arguments ask for; NULL = none */
    const char *timer_file;           /* named pipe of their timers, or NULL */
    const char *server_socket;        /* of this worker; "" or NULL = none */
    bool dump_stack; /* Python programs are to write their stacks when a signal ends them */
};

/* `index` counts the workers of this launcher; the local rank is first_local_rank more.
 *
 * Gives the worker's whole environment: that of the launcher (`base`, borrowed) without the
 * variables of the contract, then the contract. `gpus` says which GPU the worker uses. `error_file`
 * may be "". *out must be empty before. CT_ENOMEM. */
CT_MUST_CHECK int ct_worker_env_make(const struct ct_worker_env *env,
                                     const struct ct_gpu_masks *gpus, int index,
                                     const char *error_file, char *const *base,
                                     struct ct_strlist *out);

/* Gives the contract alone, without the variables that `base` already decides. */
CT_MUST_CHECK int ct_worker_env_vars(const struct ct_worker_env *env,
                                     const struct ct_gpu_masks *gpus, int index,
                                     const char *error_file, char *const *base,
                                     struct ct_strlist *out);

#endif
