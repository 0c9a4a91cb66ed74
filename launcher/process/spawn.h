/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts one process. No libuv, no allocation, at a cost that does not grow with the caller's
 * memory: the child borrows the caller's memory (clone with CLONE_VM | CLONE_VFORK) until exec, so
 * nothing is copied, and what goes wrong in the child before exec comes back with its errno.
 *
 * The child: leads its own session and process group; is killed when the calling thread's process
 * dies (PR_SET_PDEATHSIG); has every signal disposition at its default and none blocked; has stdin,
 * stdout and stderr as asked and no other descriptor, unless one is to be passed. It has no
 * controlling terminal, so the terminal's SIGINT reaches ctrun alone, yet it may read from a
 * terminal that it inherits as stdin.
 */
#ifndef CT_LAUNCHER_PROCESS_SPAWN_H
#define CT_LAUNCHER_PROCESS_SPAWN_H

#include "common/err.h"
#include "launcher/binding/cpus.h"

#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

/* ioprio_set(2) has no wrapper in libc, and its names are in no header before Linux 5.15. */
#define CT_IOPRIO_WHO_PROCESS 1
#define CT_IOPRIO_IDLE (3 << 13)

/* Everything is borrowed for the call. */
struct ct_spawn_options {
    const char *path;  /* file to execute as it stands; PATH is not searched */
    char *const *argv; /* NULL-terminated, argv[0] included */
    char *const *envp; /* NULL-terminated; the whole environment of the child */
    int stdio[3];      /* descriptors that become 0, 1, 2; any may repeat; -1 = /dev/null */
    const struct ct_cpus *cpus;  /* that the child may run on; NULL = the caller's own */
    const struct rlimit *nofile; /* RLIMIT_NOFILE of the child; NULL = the caller's own */
    int passed;                  /* one more descriptor, which becomes 3; 0 = none */
    bool idle_cpu, idle_io;      /* SCHED_IDLE, and the idle class of I/O */
};

struct ct_child {
    pid_t pid; /* also its process group and its session */
    int pidfd; /* CLOEXEC; the caller closes it */
};

/* Returns when the child has executed `path` (or has been killed before it could). The child must
 * be reaped by the caller. On failure there is no child: the text names the path and the step that
 * failed, err->sys is its errno, and the code is CT_ENOENT, CT_EPERM or whatever
 * ct_code_from_errno() says. Call from the thread that lives as long as the process: the death
 * signal follows the thread. */
CT_MUST_CHECK int ct_spawn(const struct ct_spawn_options *options, struct ct_child *out,
                           struct ct_err *err);

/* The same in another cgroup, of which `cgroup` is the folder; -1 = in ours, as is also the child
 * that cannot be started there. */
CT_MUST_CHECK int ct_spawn_into(const struct ct_spawn_options *options, int cgroup,
                                struct ct_child *out, struct ct_err *err);

/* The shell's exit code for a command that could not be started: 127 when it was not found, 126
 * when it was found and could not be executed. `sys` is err->sys of a failed ct_spawn(). */
int ct_spawn_exit_code(int sys);

#endif
