/* SPDX-License-Identifier: Apache-2.0
 *
 * The guard: a small process that ends the job when ctrun itself is killed by SIGKILL.
 *
 * It is forked before ctrun's heap grows, has a session of its own, ignores SIGTERM and the signals
 * of the terminal, and holds only the read end of a pipe from ctrun. When that pipe is closed
 * without a dismissal, it kills every process of the job, again and again until none is left, at
 * most for CT_GUARD_KILL_MS. A process belongs to the job if one of these is true:
 *   - it has the job's cookie in its environment (even if it has made a session of its own);
 *   - it is in the session of a worker that ctrun announced, and started before ctrun died (even if
 *     it has cleared its environment);
 *   - it is the child of such a process;
 *   - it is in the job's cgroup, where there is one (whatever the process has done).
 * The guard holds a pidfd of each process while it checks this, so it never kills another process
 * that has got the same pid. It never kills pid 1, kernel threads or itself. Last it removes the
 * job's temporary folder.
 */
#ifndef CT_LAUNCHER_PROCESS_GUARD_H
#define CT_LAUNCHER_PROCESS_GUARD_H

#include "common/err.h"
#include "launcher/process/cookie.h"

#include <sys/types.h>

/* Workers that can be announced at a time. The guard finds any others by the cookie. */
#define CT_GUARD_SESSIONS_MAX 4096

/* How long the guard goes on killing. Processes that fork while they are killed are found in the
 * next round. A process that SIGKILL does not end is given up. */
#define CT_GUARD_KILL_MS 10000

struct ct_guard;

/* Forks the guard. Every worker must get ct_cookie_env() of `cookie` in its environment. `folder`,
 * an absolute path or NULL, is removed with all it holds when ctrun is killed. Call before any
 * thread is started. Gives *out. */
CT_MUST_CHECK int ct_guard_start(const struct ct_cookie *cookie, const char *folder,
                                 struct ct_guard **out, struct ct_err *err);

/* Tells the guard to end, to be called when no process of the job is left. The guard then ends
 * while ctrun still works, so that ct_guard_free() need not wait for it. NULL is allowed. */
void ct_guard_dismiss(struct ct_guard *guard);

/* Dismisses the guard, waits until it is gone (SIGKILL after a second) and reaps it. To be called
 * when the job is over: kills what may be left in its cgroup. NULL is allowed. */
void ct_guard_free(struct ct_guard *guard);

/* The folder of the job's cgroup, for ct_spawn_into(); -1 when there is none. NULL is allowed. */
int ct_guard_cgroup(const struct ct_guard *guard);

/* -1 when NULL. For telling it from the job's processes. */
pid_t ct_guard_pid(const struct ct_guard *guard);

/* Announces a worker's session, or withdraws it when the set of processes forgets the worker. What
 * is then left of the session is found by the cookie or in the cgroup. Never blocks. Never fails:
 * at worst the guard does not know the session. NULL is allowed. */
void ct_guard_watch(struct ct_guard *guard, pid_t session);
void ct_guard_unwatch(struct ct_guard *guard, pid_t session);

#endif
