/* SPDX-License-Identifier: Apache-2.0
 *
 * SCHED_IDLE and the idle class of I/O are set by spawn.c in the child. Both belong to a thread,
 * and threads that an import has made have inherited them, so each thread is looked at.
 */
#include "launcher/warm/spare_priority.h"

#include "common/num.h"
#include "launcher/process/proctree.h"
#include "launcher/process/spawn.h"
#include "launcher/warm/spare.h"

#include <dirent.h>
#include <limits.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* can_nice() of the kernel: a limit of 20 allows the nice value 0. */
#define NICE_LIMIT 20

/* USER_NS_INIT_INO of linux/nsfs.h, which older systems do not have. */
#define FIRST_USER_NAMESPACE 0xEFFFFFFDu

/* Of the capabilities that a process has in another user namespace, as root of a container may, the
 * scheduler counts none. A kernel without such namespaces has no such file. */
static bool in_first_user_namespace(void)
{
    struct stat space;
    return stat("/proc/self/ns/user", &space) != 0 || space.st_ino == FIRST_USER_NAMESPACE;
}

bool ct_spare_priority_may_idle(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NICE, &limit) == 0 &&
        (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= NICE_LIMIT)) {
        return true;
    }
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};
    return syscall(SYS_capget, &header, data) == 0 &&
           (data[0].effective & (1u << CAP_SYS_NICE)) != 0 && in_first_user_namespace();
}

/* Gives the policy, and returns the priority in it, that a child of this thread has. */
static struct sched_param child_policy(int *policy)
{
    struct sched_param priority = {0};
    *policy = sched_getscheduler(0);
    if (*policy == SCHED_FIFO || *policy == SCHED_RR) {
        (void)sched_getparam(0, &priority);
    } else if (*policy != SCHED_BATCH && *policy != SCHED_IDLE) {
        *policy = SCHED_OTHER; /* also in place of one that children do not inherit */
    }
    return priority;
}

static bool restore_process(pid_t pid)
{
    char path[64];
    bool ok = true;
    long io = syscall(SYS_ioprio_get, CT_IOPRIO_WHO_PROCESS, 0);
    int policy;
    struct sched_param priority = child_policy(&policy);
    (void)snprintf(path, sizeof(path), "/proc/%ld/task", (long)pid);
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return kill(pid, 0) != 0; /* a process that has ended meanwhile needs nothing */
    }
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        int thread;
        if (ct_parse_int(entry->d_name, 1, INT_MAX, &thread) != 0) {
            continue;
        }
        bool moved = sched_setscheduler(thread, policy, &priority) == 0;
        moved =
            syscall(SYS_ioprio_set, CT_IOPRIO_WHO_PROCESS, thread, io >= 0 ? io : 0) == 0 && moved;
        /* A thread that has ended meanwhile needs nothing. */
        ok = ok && (moved || syscall(SYS_tgkill, pid, thread, 0) != 0);
    }
    (void)closedir(dir);
    return ok;
}

bool ct_spare_priority_restore(pid_t pid)
{
    pid_t family[CT_SPARE_PROCESSES_MAX];
    size_t count;
    bool ok = ct_proctree_family(pid, family, CT_SPARE_PROCESSES_MAX, &count);
    for (size_t i = 0; i < count; i++) {
        ok = restore_process(family[i]) && ok;
    }
    return ok;
}
