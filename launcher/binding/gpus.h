/* SPDX-License-Identifier: Apache-2.0
 *
 * How many GPUs a worker would see, read from the driver's files. Asking CUDA would cost the
 * launcher hundreds of milliseconds and a GPU context.
 */
#ifndef CT_LAUNCHER_BINDING_GPUS_H
#define CT_LAUNCHER_BINDING_GPUS_H

#include "launcher/binding/gpu_mask.h"

#define CT_GPUS_PROC_DIR "/proc/driver/nvidia/gpus"
#define CT_GPUS_DEV_DIR "/dev"

/* The system's files; tests have others. */
struct ct_gpus_roots {
    const char *proc_gpus; /* CT_GPUS_PROC_DIR */
    const char *dev;       /* CT_GPUS_DEV_DIR */
    const char *caps;      /* "/proc/driver/nvidia/capabilities" */
    const char *preload;   /* "/etc/ld.so.preload" */
};

/* Counts the entries of `proc_dir` and the nodes nvidia0, nvidia1, ... of `dev_dir`. The smaller
 * count is right, because a container may see the host's /proc. If one of them is 0, the other is
 * right, because a fresh host has no device nodes before the first use. */
int ct_gpus_count(const char *proc_dir, const char *dev_dir);

/* What is known of the GPUs. The strings are the environment's; `roots` NULL = the real ones. */
void ct_gpus_read(const struct ct_gpus_roots *roots, char *const *env, struct ct_gpu_facts *out);

/* How many workers "one for each GPU" means. Each MIG device counts as one. As in CUDA, only the
 * devices in front of the first entry of CUDA_VISIBLE_DEVICES that names none count. */
int ct_gpus_workers(const struct ct_gpu_facts *facts);

#endif
