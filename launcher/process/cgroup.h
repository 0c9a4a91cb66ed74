/* SPDX-License-Identifier: Apache-2.0
 *
 * A cgroup for the processes of one job, below ctrun's own: whatever they do to their session,
 * their environment and their parents, they stay in it, and one write kills them all. Only for
 * that: no controller is switched on in it, so that what they use counts as ctrun's own.
 *
 * There is none, and nothing else is different, without cgroup v2, without the right to make one
 * (delegation, or root), before Linux 5.14, and where ctrun's own cgroup has a limit of memory or
 * CPU time: programs look for that in the files of their own cgroup, and would find none.
 */
#ifndef CT_LAUNCHER_PROCESS_CGROUP_H
#define CT_LAUNCHER_PROCESS_CGROUP_H

#include "launcher/process/cookie.h"

#include <stdbool.h>
#include <stddef.h>

#define CT_CGROUP_PATH_MAX 1024

struct ct_cgroup {
    int fd;                        /* the folder, CLOEXEC; -1 = there is none */
    char path[CT_CGROUP_PATH_MAX]; /* "" = there is none */
};

/* The path of a process by its /proc/PID/cgroup, such as "/user.slice/x.scope"; false when it is in
 * no cgroup of v2 that can be seen from here. */
bool ct_cgroup_own_path(const char *text, char *out, size_t size);

/* Never fails: at worst there is none. */
void ct_cgroup_make(struct ct_cgroup *cgroup, const struct ct_cookie *cookie);

/* Kills what is in it, and in those that were made below it. "" is allowed. */
void ct_cgroup_kill(const char *path);

/* Removes it with those below it; false when something is left in one of them. "" is allowed. */
bool ct_cgroup_remove(const char *path);

#endif
