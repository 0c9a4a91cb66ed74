/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of --print-config: what was found, where each value came from, what would be started.
 */
#ifndef CT_LAUNCHER_SETUP_CONFIG_H
#define CT_LAUNCHER_SETUP_CONFIG_H

#include "common/buf.h"
#include "common/err.h"
#include "launcher/cli/options.h"
#include "launcher/scheduler/scheduler.h"
#include "launcher/setup/interface.h"
#include "launcher/setup/machine.h"
#include "launcher/setup/resolve.h"

/* Everything is borrowed. */
struct ct_config {
    const struct ct_options *options;
    const struct ct_scheduler *scheduler;
    const struct ct_resolved *resolved;
    const struct ct_machine *machine;
    const struct ct_interface_facts *interface; /* NULL = ct_config_print() finds them out */
};

/* Appends lines of text. `env` is for looking up the program. If something would keep the job from
 * starting, a line called "problem" says so, and *exit_code is the exit code that the job would
 * have. Otherwise *exit_code is CT_EXIT_OK. CT_ENOMEM. */
CT_MUST_CHECK int ct_config_print(const struct ct_config *config, char *const *env, int *exit_code,
                                  struct ct_buf *out);

#endif
