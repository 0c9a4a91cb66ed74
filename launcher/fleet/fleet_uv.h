/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a ctrun on each of several machines: hosts the store here, starts every ctrun through a
 * launch agent, shows what they write, passes signals on to them, and ends them all.
 */
#ifndef CT_LAUNCHER_FLEET_FLEET_UV_H
#define CT_LAUNCHER_FLEET_FLEET_UV_H

#include "common/err.h"
#include "launcher/cli/options.h"
#include "launcher/fleet/hosts.h"
#include "launcher/process/guard.h"
#include "launcher/setup/machine.h"

#include <sys/resource.h>

/* Everything is borrowed. */
struct ct_fleet_job {
    const struct ct_options *options;
    const struct ct_hosts *hosts;
    const struct ct_machine *machine;
    struct ct_guard *guard;
    char *const *argv; /* ours, of which options->command is the end */
    char *const *env;
    const char *run_id;
    struct rlimit nofile;
};

/* Returns when the last launch agent has ended. *exit_code is 0 when all have ended with 0, else
 * the code of the first one that failed, or 128 + signal. Fails when nothing could be started. */
CT_MUST_CHECK int ct_fleet_run(const struct ct_fleet_job *job, int *exit_code, struct ct_err *err);

#endif
