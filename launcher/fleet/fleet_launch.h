/* SPDX-License-Identifier: Apache-2.0
 *
 * `ctrun --hosts`, from the command line to its exit code.
 */
#ifndef CT_LAUNCHER_FLEET_FLEET_LAUNCH_H
#define CT_LAUNCHER_FLEET_FLEET_LAUNCH_H

#include "common/err.h"
#include "launcher/cli/options.h"
#include "launcher/setup/machine.h"

#include <stdbool.h>

/* Does the command line name machines to start on? */
bool ct_fleet_wanted(const struct ct_options *options);

/* `argv` is ours, of which options->command is the end. --detach tells on `out_fd` where the job
 * is; -1 = nobody reads it. Exit code and errors as ct_fleet_run(); CT_EINVAL and CT_EFORMAT are
 * the command line's fault. */
CT_MUST_CHECK int ct_fleet_launch(const struct ct_options *options,
                                  const struct ct_machine *machine, char *const *argv,
                                  char *const *env, int out_fd, int *exit_code, struct ct_err *err);

#endif
