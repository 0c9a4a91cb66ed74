/* SPDX-License-Identifier: Apache-2.0
 *
 * The binding of all workers of this machine, decided before the first one starts: --bind,
 * --numa-binding.
 */
#ifndef CT_LAUNCHER_BINDING_BINDER_H
#define CT_LAUNCHER_BINDING_BINDER_H

#include "common/err.h"
#include "common/log.h"
#include "launcher/binding/binding.h"

/* Zeroed memory binds no worker. */
struct ct_binder {
    struct ct_cpus *cpus; /* by local rank; an empty set = not bound */
    int *nodes;
    int workers;
    bool has_devices;
};

/* The system's folders; tests have others. */
struct ct_binder_roots {
    const char *sysfs; /* CT_SYSFS */
    const char *gpus;  /* CT_GPUS_PROC_DIR */
};

/* `visible` is the value of CUDA_VISIBLE_DEVICES or NULL. Does nothing for CT_BIND_NONE. A worker
 * is not bound if ctrun may use no CPU of its node. CT_ELIMIT when a node has fewer cores than
 * workers. Gives *out. */
CT_MUST_CHECK int ct_binder_open(enum ct_bind bind, const struct ct_binder_roots *roots,
                                 const struct ct_cpus *allowed, const char *visible, int workers,
                                 struct ct_binder *out, struct ct_err *err);

/* The same on this machine, with what the environment says. */
CT_MUST_CHECK int ct_binder_open_here(enum ct_bind bind, char *const *env, int workers,
                                      struct ct_binder *out, struct ct_err *err);
void ct_binder_fini(struct ct_binder *binder); /* repeated calls are allowed */

/* The CPUs to which a worker is bound; NULL = it is not bound. */
const struct ct_cpus *ct_binder_cpus(const struct ct_binder *binder, int local_rank);

/* A line for each worker at level INFO, a warning for each that could not be bound. */
void ct_binder_report(const struct ct_binder *binder, int first_rank, const struct ct_log *log);

#endif
