/* SPDX-License-Identifier: Apache-2.0
 *
 * The guard: a tiny process that ends the job when ctrun itself is killed by SIGKILL.
 *
 * It is forked before ctrun's heap grows, has its own session, ignores the terminal's signals and
 * SIGTERM, and holds nothing but the read end of a pipe from ctrun. When the pipe closes without a
 * dismissal it kills, again and again until nothing is left (at most CT_GUARD_KILL_MS), every
 * process that belongs to the job:
 *   - it carries the job's cookie in its environment (found also in a process that made a session
 *     of its own), or
 *   - it is in the session of a worker that ctrun announced and is older than ctrun's death (found
 *     also when it has cleared its environment), or
 *   - it is the child of such a process, or
 *   - it is in the job's cgroup, where one can be had (found whatever it has done to hide).
 * Each one is held by a pidfd while it is verified, so a reused pid is never hit; pid 1, kernel
 * threads and the guard itself never are. Last it removes the job's temporary folder.
 */
#ifndef CT_LAUNCHER_PROCESS_GUARD_H
#define CT_LAUNCHER_PROCESS_GUARD_H

#include "common/err.h"
#include "launcher/process/cookie.h"

#include <sys/types.h>

/* Workers that can be announced at a time; more are not an error, they are found by the cookie. */
#define CT_GUARD_SESSIONS_MAX 4096

/* How long the guard goes on killing: a process that forks faster than it dies is hit again in
 * the next round, one that is stuck in the kernel is given up. */
#define CT_GUARD_KILL_MS 10000

struct ct_guard;

/* Forks the guard. Every worker must get ct_cookie_env() of `cookie` in its environment. `folder`,
 * an absolute path or NULL, is removed with all it holds when ctrun is killed. Call before any
 * thread is started. Gives *out. */
CT_MUST_CHECK int ct_guard_start(const struct ct_cookie *cookie, const char *folder,
                                 struct ct_guard **out, struct ct_err *err);

/* Lets the guard end, once nothing of the job is left: what ctrun does meanwhile costs no time in
 * ct_guard_free(). NULL is allowed. */
void ct_guard_dismiss(struct ct_guard *guard);

/* Dismisses the guard, waits until it is gone (SIGKILL after a second) and reaps it. To be called
 * when the job is over: kills what may be left in its cgroup. NULL is allowed. */
void ct_guard_free(struct ct_guard *guard);

/* The folder of the job's cgroup, for ct_spawn(); -1 when there is none. NULL is allowed. */
int ct_guard_cgroup(const struct ct_guard *guard);

/* -1 when NULL. For telling it from the job's processes. */
pid_t ct_guard_pid(const struct ct_guard *guard);

/* Announces a worker's session, or withdraws it when the worker has been reaped and its group is
 * dealt with. Never blocks, never fails: at worst the session is not known. NULL is allowed. */
void ct_guard_watch(struct ct_guard *guard, pid_t session);
void ct_guard_unwatch(struct ct_guard *guard, pid_t session);

#endif
