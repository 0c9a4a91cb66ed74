/* SPDX-License-Identifier: Apache-2.0
 *
 * What both forms of --hosts need to start a ctrun on each machine: fleet_uv.h stays with the job,
 * fleet_detached.h leaves it.
 */
#ifndef CT_LAUNCHER_FLEET_FLEET_START_H
#define CT_LAUNCHER_FLEET_FLEET_START_H

#include "common/err.h"
#include "launcher/fleet/fleet.h"
#include "launcher/fleet/fleet_uv.h"

#include <limits.h>
#include <stdbool.h>

/* The paths that a spec borrows. */
struct ct_fleet_paths {
    char folder[PATH_MAX], ctrun[PATH_MAX + 8];
};

/* Fills in all of *out but where the store is. CT_EIO: there is no working directory. */
CT_MUST_CHECK int ct_fleet_start_spec(const struct ct_fleet_job *job, struct ct_fleet_paths *paths,
                                      struct ct_fleet_spec *out, struct ct_err *err);

/* Looks for the launch agent before anything starts, because no machine must begin a job that
 * another one cannot join. */
CT_MUST_CHECK int ct_fleet_start_find_agent(const struct ct_fleet_job *job,
                                            const struct ct_fleet_spec *spec, struct ct_err *err);

/* What is executed here for one machine. */
struct ct_fleet_start {
    char *path;
    struct ct_strlist argv;
    struct ct_buf command;
};

/* Gives *out. Errors as ct_fleet_argv() and ct_command_find(). */
CT_MUST_CHECK int ct_fleet_start_command(const struct ct_fleet_job *job,
                                         const struct ct_fleet_spec *spec, int index,
                                         struct ct_fleet_start *out, struct ct_err *err);

/* Zeroed memory is allowed. */
void ct_fleet_start_fini(struct ct_fleet_start *start);

/* The launch agent of a machine that has not joined has ended with this code. Writes one or two
 * lines about it, each with an end. `spoke`: ctrun there has said why. Returns the exit code, which
 * is never 0. */
#define CT_FLEET_WHY_MAX 1024
int ct_fleet_start_failed(const struct ct_fleet_job *job, int index, int code, bool spoke,
                          char why[CT_FLEET_WHY_MAX]);

#endif
