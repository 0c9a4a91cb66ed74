/* SPDX-License-Identifier: Apache-2.0
 *
 * `ctrun --attach`, also on the machine that has started a job of --hosts and --detach.
 */
#ifndef CT_LAUNCHER_FLEET_FLEET_ATTACH_H
#define CT_LAUNCHER_FLEET_FLEET_ATTACH_H

/* As ct_attach(), with standard output and error. If the job is on other machines, the launch agent
 * shows it on the first of them. Returns the exit code. */
int ct_fleet_attach(const char *word, char *const *env, const char *host);

#endif
