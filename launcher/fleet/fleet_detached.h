/* SPDX-License-Identifier: Apache-2.0
 *
 * `ctrun --hosts --detach`: starts a detached ctrun on each machine and leaves them, so that the
 * job does not depend on this machine. The machine of node rank 0 hosts the store.
 */
#ifndef CT_LAUNCHER_FLEET_FLEET_DETACHED_H
#define CT_LAUNCHER_FLEET_FLEET_DETACHED_H

#include "launcher/fleet/fleet_uv.h"

/* Returns when every machine says that its workers run, or when the job has failed to start.
 * Exit code and errors as ct_fleet_run(). Says on `out_fd` where the job is, and on `err_fd` what
 * the machines say. */
CT_MUST_CHECK int ct_fleet_detached_start(const struct ct_fleet_job *job, int out_fd, int err_fd,
                                          int *exit_code, struct ct_err *err);

#endif
