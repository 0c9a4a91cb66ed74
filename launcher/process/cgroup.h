/* SPDX-License-Identifier: Apache-2.0
 *
 * A cgroup for the processes of one job, below ctrun's own. A process stays in it whatever it does
 * to its session, its environment and its parent, and one write kills all of them. That is the only
 * purpose: no controller is switched on, so what the processes use is charged to ctrun's own
 * cgroup.
 *
 * Without cgroup v2, without the right to make a cgroup (delegation, or root) and before Linux 5.14
 * there is none, and the other ways to find the job's processes must do. There is none either where
 * ctrun's own cgroup has a limit of memory or CPU time: programs look for such a limit in the files
 * of their own cgroup, and would not find it there.
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

/* Never fails: where no cgroup can be made, `cgroup` says that there is none. */
void ct_cgroup_make(struct ct_cgroup *cgroup, const struct ct_cookie *cookie);

/* Kills all processes in it and in the cgroups below it. "" is allowed. */
void ct_cgroup_kill(const char *path);

/* Removes it and the cgroups below it. False while one of them has a process. "" is allowed. */
bool ct_cgroup_remove(const char *path);

#endif
