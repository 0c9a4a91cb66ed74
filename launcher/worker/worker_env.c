/* SPDX-License-Identifier: Apache-2.0
 *
 * The variables and their values are those of torchrun 2.14, except: TORCHELASTIC_RESTART_COUNT is
 * the generation (torchrun counts per launcher, so machines of one job disagree), and
 * OMP_NUM_THREADS shares the CPUs out instead of giving each worker one.
 */
#include "launcher/worker/worker_env.h"

#include "common/env_names.h"
#include "common/handover.h"
#include "common/progress_page.h"
#include "launcher/process/cookie.h"
#include "launcher/util/environ.h"
#include "rendezvous/admission/token.h"

#include <stdbool.h>
#include <string.h>

/* Variables that are set for every worker, whatever the launcher itself was started with. */
static const char *const owned[] = {
    "RANK",
    "LOCAL_RANK",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "ROLE_NAME",
    "LOCAL_WORLD_SIZE",
    "WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCHELASTIC_ERROR_FILE",
    "TORCHELASTIC_SIGNALS_TO_HANDLE",
    CT_GENERATION_ENV,
    CT_COOKIE_NAME,
    "PMI_FD", /* names a descriptor that workers do not get, so MPI would fail */
    CT_SNAPSHOT_ENV,
    CT_PROGRESS_ENV,
    CT_HANDOVER_ENV,
    CT_DEVICE_INDEX_ENV,
    CT_GPU_SHARE_ENV,
    CT_PREEMPT_ENV,
    CT_TOKEN_ENV, /* secret: workers do not need it and would pass it on to what they start */
};

static bool is_owned(const char *var)
{
    for (size_t i = 0; i < sizeof(owned) / sizeof(owned[0]); i++) {
        size_t len = strlen(owned[i]);
        if (strncmp(var, owned[i], len) == 0 && var[len] == '=') {
            return true;
        }
    }
    return strncmp(var, CT_PORT_ENV_PREFIX, sizeof(CT_PORT_ENV_PREFIX) - 1) == 0;
}

/* The functions that add variables return false when memory is out. */

static bool add_int(struct ct_strlist *out, const char *name, int value)
{
    return ct_strlist_printf(out, "%s=%d", name, value) == 0;
}

static bool add_text(struct ct_strlist *out, const char *name, const char *value)
{
    return ct_strlist_printf(out, "%s=%s", name, value) == 0;
}

static bool add_ranks(const struct ct_worker_env *env, int index, struct ct_strlist *out)
{
    int local_rank = env->first_local_rank + index;
    const struct {
        const char *name;
        int value;
    } vars[] = {
        {"RANK", env->first_rank + index},
        {"LOCAL_RANK", env->virtual_local_rank ? 0 : local_rank},
        {"GROUP_RANK", env->node_rank},
        {"GROUP_WORLD_SIZE", env->node_count},
        {"ROLE_RANK", env->first_role_rank + index},
        {"ROLE_WORLD_SIZE", env->role_size},
        {"LOCAL_WORLD_SIZE", env->local_world_size},
        {"WORLD_SIZE", env->world_size},
        {"MASTER_PORT", env->master_port},
        {"TORCHELASTIC_RESTART_COUNT", env->generation},
        {"TORCHELASTIC_MAX_RESTARTS", env->max_restarts},
        {CT_GENERATION_ENV, env->generation},
    };
    for (size_t i = 0; i < sizeof(vars) / sizeof(vars[0]); i++) {
        if (!add_int(out, vars[i].name, vars[i].value)) {
            return false;
        }
    }
    return true;
}

static bool add_names(const struct ct_worker_env *env, const char *error_file,
                      struct ct_strlist *out)
{
    const struct {
        const char *name, *value;
    } vars[] = {
        {"ROLE_NAME", env->role},
        {"MASTER_ADDR", env->master_addr},
        {"TORCHELASTIC_RUN_ID", env->run_id},
        /* ctrun serves the store, so PyTorch is a client only. PyTorch wants this spelling. */
        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
        {"TORCHELASTIC_ERROR_FILE", error_file},
        {"TORCHELASTIC_SIGNALS_TO_HANDLE", env->signals},
    };
    for (size_t i = 0; i < sizeof(vars) / sizeof(vars[0]); i++) {
        if (!add_text(out, vars[i].name, vars[i].value)) {
            return false;
        }
    }
    return true;
}

/* gloo takes a name. NCCL takes it for a prefix of names, unless "=" stands in front. */
static bool add_interface(const struct ct_worker_env *env, char *const *base,
                          struct ct_strlist *out)
{
    if (env->interface == NULL || env->interface[0] == '\0') {
        return true;
    }
    bool gloo = ct_environ_get(base, CT_GLOO_INTERFACE_ENV) == NULL;
    bool nccl = !env->nccl_configured && ct_environ_get(base, CT_NCCL_INTERFACE_ENV) == NULL;
    return (!gloo || add_text(out, CT_GLOO_INTERFACE_ENV, env->interface)) &&
           (!nccl || ct_strlist_printf(out, CT_NCCL_INTERFACE_ENV "==%s", env->interface) == 0);
}

/* Adds the variables that a worker gets only if the user has not set them. */
static bool add_defaults(const struct ct_worker_env *env, char *const *base, struct ct_strlist *out)
{
    static const char threads_var[] = "OMP_NUM_THREADS";
    static const char errors_var[] = "TORCH_NCCL_ASYNC_ERROR_HANDLING";
    static const char stack_var[] = "PYTHONFAULTHANDLER";
    int threads = env->cpus / env->local_world_size;
    return (ct_environ_get(base, threads_var) != NULL ||
            add_int(out, threads_var, threads > 0 ? threads : 1)) &&
           (ct_environ_get(base, errors_var) != NULL || add_int(out, errors_var, 1)) &&
           (!env->dump_stack || ct_environ_get(base, stack_var) != NULL ||
            add_int(out, stack_var, 1)) &&
           add_interface(env, base, out);
}

static const char visible_var[] = "CUDA_VISIBLE_DEVICES=";
static const size_t visible_len = sizeof(visible_var) - 1;
static const char timer_var[] = CT_TIMER_FILE_ENV "=";

/* Tells JAX which of the GPUs that it sees is the worker's. Without this, each of several workers
 * takes all of them, or under Slurm the one of SLURM_LOCALID, which is the same for all workers of
 * one ctrun. A worker that is alone on its machine keeps all of them, as JAX programs expect. */
static bool add_jax_device(int local_world_size, int index, char *const *base,
                           struct ct_strlist *out)
{
    static const char device_var[] = "JAX_LOCAL_DEVICE_IDS";
    return local_world_size == 1 || ct_environ_get(base, device_var) != NULL ||
           add_int(out, device_var, index);
}

/* Adds which device the worker has, and how many workers share it. */
static bool add_device(int local_world_size, const struct ct_gpu_share *gpu, char *const *base,
                       struct ct_strlist *out)
{
    /* NCCL 2.30 and later obey it. Older ones refuse ranks that share a GPU in any case. */
    static const char multi_rank_var[] = "NCCL_MULTI_RANK_GPU_ENABLE";
    bool shared = gpu->ranks > 1;
    bool order = gpu->counted && ct_environ_get(base, "CUDA_DEVICE_ORDER") == NULL;
    return add_int(out, CT_DEVICE_INDEX_ENV, gpu->index) &&
           add_jax_device(local_world_size, gpu->index, base, out) &&
           (gpu->token == NULL ||
            ct_strlist_printf(out, "%s%.*s", visible_var, (int)gpu->token_len, gpu->token) == 0) &&
           (!order || add_text(out, "CUDA_DEVICE_ORDER", "PCI_BUS_ID")) &&
           (!shared || ct_strlist_printf(out, CT_GPU_SHARE_ENV "=1/%d", gpu->ranks) == 0) &&
           (!shared || ct_environ_get(base, multi_rank_var) != NULL ||
            add_int(out, multi_rank_var, 1));
}

/* Adds CTRUN_PORT_NAME for each port that is known. */
static bool add_ports(const struct ct_job_ports *ports, struct ct_strlist *out)
{
    for (int i = 0; ports != NULL && i < ports->count; i++) {
        const struct ct_job_port *port = &ports->list[i];
        char name[sizeof(port->name)];
        size_t len = strlen(port->name);
        for (size_t c = 0; c <= len; c++) {
            bool lower = port->name[c] >= 'a' && port->name[c] <= 'z';
            name[c] = (char)(lower ? port->name[c] - 'a' + 'A' : port->name[c]);
        }
        if (port->port != 0 &&
            ct_strlist_printf(out, CT_PORT_ENV_PREFIX "%s=%u", name, (unsigned)port->port) != 0) {
            return false;
        }
    }
    return true;
}

static bool is_set(const char *value)
{
    return value != NULL && value[0] != '\0';
}

/* Adds where the worker finds the files that it shares with ctrun. */
static bool add_files(const struct ct_worker_env *env, int index, struct ct_strlist *out)
{
    return (env->cookie == NULL || ct_strlist_borrow(out, env->cookie) == 0) &&
           (!is_set(env->progress) ||
            ct_strlist_printf(out, CT_PROGRESS_ENV "=%s:%d", env->progress,
                              index * CT_PROGRESS_SLOT) == 0) &&
           (!is_set(env->handover) ||
            ct_strlist_printf(out, CT_HANDOVER_ENV "=%s:%lld", env->handover,
                              (long long)index * CT_HANDOVER_SLOT) == 0) &&
           (env->timer_file == NULL || add_text(out, CT_TIMER_FILE_ENV, env->timer_file)) &&
           (!is_set(env->server_socket) ||
            add_text(out, CT_SERVER_SOCKET_ENV, env->server_socket)) &&
           (env->preempt == NULL || add_text(out, CT_PREEMPT_ENV, env->preempt)) &&
           (env->snapshot == NULL || ct_strlist_borrow(out, env->snapshot) == 0);
}

static int add_vars(const struct ct_worker_env *env, const struct ct_gpu_share *gpu, int index,
                    const char *error_file, char *const *base, struct ct_strlist *out)
{
    bool ok = add_ranks(env, index, out) && add_names(env, error_file, out) &&
              (!gpu->assigned || add_device(env->local_world_size, gpu, base, out)) &&
              add_defaults(env, base, out) && add_files(env, index, out) &&
              add_ports(env->ports, out) && ct_strlist_close(out) == 0;
    return ok ? 0 : CT_ENOMEM;
}

int ct_worker_env_vars(const struct ct_worker_env *env, const struct ct_gpu_masks *gpus, int index,
                       const char *error_file, char *const *base, struct ct_strlist *out)
{
    struct ct_gpu_share gpu;
    ct_gpu_masks_of(gpus, env->first_local_rank + index, &gpu);
    return add_vars(env, &gpu, index, error_file, base, out);
}

/* The strings of `base` are borrowed: with hundreds of workers, copying them would be most of the
 * work. */
int ct_worker_env_make(const struct ct_worker_env *env, const struct ct_gpu_masks *gpus, int index,
                       const char *error_file, char *const *base, struct ct_strlist *out)
{
    struct ct_gpu_share gpu;
    ct_gpu_masks_of(gpus, env->first_local_rank + index, &gpu);
    for (char *const *var = base; *var != NULL; var++) {
        bool device = gpu.token != NULL && strncmp(*var, visible_var, visible_len) == 0;
        bool timers =
            env->timer_file != NULL && strncmp(*var, timer_var, sizeof(timer_var) - 1) == 0;
        if (!device && !timers && !is_owned(*var) && ct_strlist_borrow(out, *var) != 0) {
            return CT_ENOMEM;
        }
    }
    return add_vars(env, &gpu, index, error_file, base, out);
}
