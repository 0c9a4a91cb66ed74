/* SPDX-License-Identifier: Apache-2.0
 *
 * One job on this machine: everything that is decided before the first worker starts. Filled in by
 * main.c, read by the parts that run it.
 */
#ifndef CT_LAUNCHER_SETUP_JOB_SPEC_H
#define CT_LAUNCHER_SETUP_JOB_SPEC_H

#include "common/log.h"
#include "launcher/binding/binder.h"
#include "launcher/cli/options.h"
#include "launcher/process/cookie.h"
#include "launcher/process/logdir.h"
#include "launcher/setup/machine.h"
#include "launcher/setup/resolve.h"
#include "launcher/worker/command.h"

#include <sys/resource.h>

struct ct_detach;
struct ct_guard;
struct ct_token;

/* Everything is borrowed. */
struct ct_job_spec {
    const struct ct_options *options;
    const struct ct_resolved *resolved;
    const struct ct_machine *machine;
    const struct ct_command *command;
    const struct ct_logdir *logdir;
    const struct ct_cookie *cookie;
    struct ct_binder binder; /* main.c frees it */
    struct ct_gpu_masks gpus;
    struct ct_guard *guard;
    struct ct_detach *detach; /* hears when the job runs; NULL = it keeps its terminal */
    char *const *env;         /* the launcher's own, on which the workers' is built */
    const char *run_id;
    const struct ct_token *token; /* of the job; NULL = none */
    const char *const *expected;  /* names of its hosts by node rank; NULL = not known */
    int num_expected;
    int64_t begun_ns;     /* monotonic: when ctrun was started */
    struct rlimit nofile; /* what ctrun was started with; workers get it back */
    enum ct_log_level log_level;
};

#endif
