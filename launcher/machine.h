/* SPDX-License-Identifier: Apache-2.0
 *
 * What the launcher has to know of the machine and of itself. Reads files and asks the kernel; no
 * name service.
 */
#ifndef CT_LAUNCHER_MACHINE_H
#define CT_LAUNCHER_MACHINE_H

#include "common/err.h"
#include "launcher/options.h"

#include <limits.h>

struct ct_machine {
    char host[CT_HOST_MAX];
    char own_dir[PATH_MAX]; /* folder of the running executable; "" when unknown */
    int cpus;               /* in the affinity mask, at least 1 */
    int gpus;               /* that workers would see */
};

void ct_machine_read(char *const *env, struct ct_machine *out);

/* How many workers --nproc-per-node means here. CT_ENOENT when it means GPUs and there are none. */
CT_MUST_CHECK int ct_machine_workers(const struct ct_machine *machine,
                                     const struct ct_options *options, int *out,
                                     struct ct_err *err);

/* Are there devices for --virtual-local-rank? `visible` is the value of CUDA_VISIBLE_DEVICES or
 * NULL (then nothing is known and each worker is given its number). CT_ENOENT. */
CT_MUST_CHECK int ct_machine_check_devices(const struct ct_options *options, int workers,
                                           const char *visible, struct ct_err *err);

/* A random (version 4) UUID. */
#define CT_UUID_TEXT 37
CT_MUST_CHECK int ct_uuid_random(char out[CT_UUID_TEXT], struct ct_err *err);

#endif
