/* SPDX-License-Identifier: Apache-2.0
 *
 * What ssh(1) itself makes of a host's name: its configuration may know names ("Host gpu-1") that
 * nobody else knows.
 */
#ifndef CT_LAUNCHER_FLEET_SSH_H
#define CT_LAUNCHER_FLEET_SSH_H

#include "common/addr.h"
#include "launcher/fleet/fleet.h"

#include <stdbool.h>

/* Gives the name or address by which the launch agent reaches machine `index` of spec->hosts: asks
 * `ssh -G`, which does not connect. Reads only spec->hosts and spec->agent. False when the agent is
 * not ssh, or does not answer within five seconds. */
bool ct_ssh_host_name(const struct ct_fleet_spec *spec, int index, char *const *env,
                      char out[CT_HOST_MAX]);

/* Finds the name in the answer, whose lines are "keyword value". Pure. */
bool ct_ssh_parse(const char *answer, char out[CT_HOST_MAX]);

#endif
