/* SPDX-License-Identifier: Apache-2.0
 *
 * What the launcher has to know of the machine and of itself. Reads files and asks the kernel; no
 * name service.
 */
#ifndef CT_LAUNCHER_SETUP_MACHINE_H
#define CT_LAUNCHER_SETUP_MACHINE_H

#include "common/err.h"
#include "launcher/binding/gpu_mask.h"
#include "launcher/cli/options.h"
#include "launcher/setup/resolve.h"

#include <limits.h>

struct ct_machine {
    char host[CT_HOST_MAX];
    char own_dir[PATH_MAX]; /* folder of the running executable; "" when unknown */
    int cpus;               /* in the affinity mask, at least 1 */
    int gpus;               /* GPUs that workers see */
    struct ct_gpu_facts gpu_facts;
};

/* `env` must outlive *out, which borrows from it. */
void ct_machine_read(char *const *env, struct ct_machine *out);

/* The number of CPUs that all workers on this machine share. If a scheduler has started a ctrun for
 * each rank, this is more than each ctrun may use itself. */
int ct_machine_cpus_to_share(const struct ct_machine *machine, const struct ct_resolved *resolved);

/* Which GPU each worker is meant to use. Errors as ct_gpu_masks_decide(). */
CT_MUST_CHECK int ct_machine_gpus(const struct ct_machine *machine,
                                  const struct ct_options *options,
                                  const struct ct_resolved *resolved, struct ct_gpu_masks *out,
                                  struct ct_err *err);

/* A random (version 4) UUID. */
#define CT_UUID_TEXT 37
CT_MUST_CHECK int ct_machine_uuid(char out[CT_UUID_TEXT], struct ct_err *err);

#endif
