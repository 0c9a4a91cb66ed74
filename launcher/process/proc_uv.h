/* SPDX-License-Identifier: Apache-2.0
 *
 * The processes of this node on a libuv loop: start, watch by pidfd, signal, stop as a whole, reap.
 *
 * One `struct ct_procs` per ctrun. It makes ctrun a child sub-reaper, so that every descendant of
 * a worker whose own parent has died becomes a child of ctrun: such orphans are reaped here (also
 * when ctrun is PID 1) and can be found when a generation ends. Exit statuses of watched workers
 * are never taken by that reaping.
 */
#ifndef CT_LAUNCHER_PROCESS_PROC_UV_H
#define CT_LAUNCHER_PROCESS_PROC_UV_H

#include "common/err.h"
#include "common/log.h"
#include "launcher/process/guard.h"
#include "launcher/process/spawn.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

struct ct_procs;
struct ct_proc;

/* How a process ended. */
struct ct_exit {
    int code;            /* exit code; meaningless when `signal` is not 0 */
    int signal;          /* the signal that ended it, or 0 */
    bool core;           /* a core file was written */
    int64_t max_rss_kib; /* largest resident size of it or of any child it waited for */
};

/* The code ctrun itself exits with for such an end: the exit code, or 128 + signal. */
int ct_proc_exit_code(const struct ct_exit *end);

/* ---- the set --------------------------------------------------------------------------------- */

/* Borrows loop, guard (may be NULL: nobody cleans up after a SIGKILL of ctrun) and log (may be
 * NULL) until the close callback. Watches SIGCHLD through libuv; nobody else may use uv_spawn() or
 * wait for "any child" on this process. Gives *out. */
CT_MUST_CHECK int ct_procs_open(uv_loop_t *loop, struct ct_guard *guard, const struct ct_log *log,
                                struct ct_procs **out, struct ct_err *err);

/* Legal when every process has been freed (after a finished stop). cb may be NULL; the set is
 * freed after it returns. NULL is allowed and calls nothing. */
typedef void (*ct_procs_close_fn)(void *data);
void ct_procs_close(struct ct_procs *procs, ct_procs_close_fn cb, void *data);

/* ---- one process ----------------------------------------------------------------------------- */

/* Called once, from the loop, when the process has ended. `end` is borrowed for the call. */
typedef void (*ct_proc_exit_fn)(void *data, struct ct_proc *proc, const struct ct_exit *end);

/* Errors as ct_spawn(). Gives *out, which stays valid until ct_proc_free(). */
CT_MUST_CHECK int ct_proc_start(struct ct_procs *procs, const struct ct_spawn_options *options,
                                ct_proc_exit_fn on_exit, void *data, struct ct_proc **out,
                                struct ct_err *err);

/* To be called when the process has ended. Its group may still be alive: the set forgets to which
 * process the group belonged, but finds its members as descendants. A process that is still alive
 * because SIGKILL does not reach it (`left` below) is reaped when it ends, without a call of
 * on_exit. NULL is allowed. May be called inside on_exit. */
void ct_proc_free(struct ct_proc *proc);

/* Gives the process another owner: from now on `on_exit` is called with `data`. */
void ct_proc_pass(struct ct_proc *proc, ct_proc_exit_fn on_exit, void *data);

pid_t ct_proc_pid(const struct ct_proc *proc);
bool ct_proc_alive(const struct ct_proc *proc);

/* Asks the kernel instead of the last event. If the process has ended meanwhile, on_exit is called
 * first. */
bool ct_proc_still_alive(struct ct_proc *proc);

/* To the worker's own process only, through its pidfd; nothing happens when it has ended. After a
 * signal that asks for an end (TERM, INT, HUP, QUIT) SIGCONT follows, so that a stopped process
 * wakes to obey. */
void ct_proc_signal_leader(struct ct_proc *proc, int sig);

/* To every member of the worker's process group, also after the leader has ended. Never to another
 * program's group that has the same number by now: without the leader, each member must be a
 * descendant of ctrun. SIGCONT follows as above. */
void ct_proc_signal_group(struct ct_proc *proc, int sig);

/* ---- stopping all of them -------------------------------------------------------------------- */

/* What a stop does about a process that lives. */
enum ct_proc_stay {
    CT_PROC_ENDS,  /* ends it */
    CT_PROC_WAITS, /* nothing yet: it may become one that stays */
    CT_PROC_STAYS, /* leaves it alone, with its session and all that descends from it */
};

/* Called for each living process at every look of a stop. The looks are frequent while an answer is
 * WAITS. `late`: 80 % of the grace time are over, so a process that does not stay must end now. */
typedef enum ct_proc_stay (*ct_proc_stay_fn)(void *data, struct ct_proc *proc, bool late);

/* Sets the function that is asked. Without one (NULL) every process ends. */
void ct_procs_set_stay_fn(struct ct_procs *procs, ct_proc_stay_fn stay, void *data);

/* To be called when an answer may have changed: a stop under way looks again at once. */
void ct_procs_look_again(struct ct_procs *procs);

struct ct_procs_stopped {
    size_t strays; /* leftover descendants (also such with a session of their own) that were told
                      to end after their worker had ended */
    size_t killed; /* processes that had to be ended by SIGKILL */
    size_t left;   /* processes that SIGKILL did not end within CT_STOP_GIVE_UP_MS */
};

typedef void (*ct_procs_stopped_fn)(void *data, const struct ct_procs_stopped *result);

/* Ends all descendants of ctrun except those that stay, in the order that stop.h prescribes: `sig`
 * to each worker's process (SIGINT: to its whole group), SIGTERM to the rest of its group, SIGKILL
 * when `grace_ms` is over. Other descendants get SIGTERM and soon after SIGKILL. Exit callbacks are
 * called as usual. `done` is called from the loop, never inside this call, when no other process is
 * left. It is called even if there was no process at all, so that every generation ends in the same
 * way.
 *
 * A second call during a stop can only make it shorter: the grace time may shrink (0 = SIGKILL at
 * once), a different `sig` goes to the workers that are still alive, and `done` and `data` are
 * replaced. */
void ct_procs_stop(struct ct_procs *procs, int sig, int64_t grace_ms, ct_procs_stopped_fn done,
                   void *data);

#endif
