/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: ct_proc_start() starts the process and polls its pidfd. The pidfd becomes readable
 * when the process has ended; then waitid(P_PIDFD) takes the status, and on_exit is called.
 *
 * Other paths: SIGCHLD says that some child has ended. A worker among them is treated as above, by
 * whichever event comes first. Any other child is an orphan that ctrun has adopted, or the guard,
 * and is only reaped. All children go through one loop of waitid(P_ALL, WNOWAIT). That call always
 * shows the first dead child, so a child that is not reaped would hide the others.
 *
 * Failure modes: when the poll cannot be started, the new process is ended and the start fails.
 * When another part of the program has taken the status (ECHILD), it counts as exit code 255.
 *
 * Who frees: a process lives until ct_proc_free(), its memory until the close callback of its poll
 * handle. The set lives until the close callback of its last handle.
 */
#include "launcher/process/proc_uv.h"

#include "common/alloc.h"
#include "launcher/process/proc_table_uv.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Exit code of a process whose status another part of the program has taken. */
#define CODE_UNKNOWN 255

int ct_proc_exit_code(const struct ct_exit *end)
{
    return end->signal != 0 ? 128 + end->signal : end->code;
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* Takes the status if the process has ended, and tells the owner. */
static void harvest(struct ct_proc *proc)
{
    siginfo_t info = {0};
    struct rusage usage;
    memset(&usage, 0, sizeof(usage));
    long rc;
    do { /* glibc's waitid() leaves out the last parameter */
        rc = syscall(SYS_waitid, P_PIDFD, proc->child.pidfd, &info, WEXITED | WNOHANG, &usage);
    } while (rc != 0 && errno == EINTR);
    if (rc == 0 && info.si_pid == 0) {
        return; /* still running */
    }

    struct ct_exit *end = &proc->end;
    if (rc != 0) {
        ct_log(proc->procs->log, CT_LOG_WARNING, "the exit status of pid %d is lost: %s",
               (int)proc->child.pid, strerror(errno));
        end->code = CODE_UNKNOWN;
    } else if (info.si_code == CLD_EXITED) {
        end->code = info.si_status;
    } else {
        end->signal = info.si_status;
        end->core = info.si_code == CLD_DUMPED;
    }
    end->max_rss_kib = usage.ru_maxrss;
    proc->alive = false;
    uv_poll_stop(&proc->poll);
    ct_procs_look_again(proc->procs);
    proc->on_exit(proc->data, proc, end); /* may free the process */
}

static void on_pidfd_readable(uv_poll_t *poll, int status, int events)
{
    (void)status; /* the process may have ended also when polling has failed */
    (void)events;
    struct ct_proc *proc = poll->data;
    if (proc->alive) {
        harvest(proc);
    }
    if (proc->alive) {
        /* It has ended, but its tracer has not looked yet. After that SIGCHLD comes, and until then
         * the pidfd would be readable again and again. */
        uv_poll_stop(poll);
    }
}

static struct ct_proc *find_alive(struct ct_procs *procs, pid_t pid)
{
    for (struct ct_list *l = procs->all.next; l != &procs->all; l = l->next) {
        struct ct_proc *proc = CT_CONTAINER_OF(l, struct ct_proc, link);
        if (proc->alive && proc->child.pid == pid) {
            return proc;
        }
    }
    return NULL;
}

/* Returns false when no dead child is left. */
static bool reap_one(struct ct_procs *procs)
{
    siginfo_t info = {0};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
        return errno == EINTR;
    }
    if (info.si_pid == 0) {
        return false;
    }
    struct ct_proc *proc = find_alive(procs, info.si_pid);
    if (proc != NULL) {
        harvest(proc);
        return true;
    }
    /* The pid cannot be reused before somebody has reaped it: this call, or a thread that could not
     * start a child after all (ct_spawn()). */
    return waitpid(info.si_pid, NULL, WNOHANG) == info.si_pid || errno == EINTR || errno == ECHILD;
}

static void on_sigchld(uv_signal_t *handle, int signum)
{
    (void)signum;
    struct ct_procs *procs = handle->data;
    if (procs->closing) {
        return;
    }
    while (reap_one(procs)) {
    }
    ct_procs_look_again(procs);
}

/* ---- one process ----------------------------------------------------------------------------- */

static void on_poll_closed(uv_handle_t *handle)
{
    ct_free(handle->data);
}

int ct_proc_start(struct ct_procs *procs, const struct ct_spawn_options *options,
                  ct_proc_exit_fn on_exit, void *data, struct ct_proc **out, struct ct_err *err)
{
    struct ct_proc *proc = ct_calloc(1, sizeof(*proc));
    if (proc == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory for process %s", options->path);
    }
    proc->procs = procs;
    proc->on_exit = on_exit;
    proc->data = data;
    int rc = ct_spawn_into(options, ct_guard_cgroup(procs->guard), &proc->child, err);
    if (rc != 0) {
        ct_free(proc);
        return rc;
    }

    rc = uv_poll_init(procs->loop, &proc->poll, proc->child.pidfd);
    bool has_handle = rc == 0;
    if (has_handle) {
        proc->poll.data = proc;
        rc = uv_poll_start(&proc->poll, UV_READABLE, on_pidfd_readable);
    }
    if (rc != 0) {
        (void)ct_proctree_signal_pidfd(proc->child.pidfd, SIGKILL);
        (void)waitpid(proc->child.pid, NULL, 0);
        int pidfd = proc->child.pidfd;
        if (has_handle) {
            uv_close((uv_handle_t *)&proc->poll, on_poll_closed);
        } else {
            ct_free(proc);
        }
        close(pidfd);
        return ct_err_set(err, CT_EIO, "cannot watch %s: %s", options->path, uv_strerror(rc));
    }
    proc->alive = true;
    ct_list_append(&procs->all, &proc->link);
    ct_guard_watch(procs->guard, proc->child.pid);
    *out = proc;
    return 0;
}

void ct_proc_free(struct ct_proc *proc)
{
    if (proc == NULL) {
        return;
    }
    proc->alive = false;
    ct_list_remove(&proc->link);
    ct_guard_unwatch(proc->procs->guard, proc->child.pid);
    /* This stops the polling at once, so the pidfd can be closed here. */
    uv_close((uv_handle_t *)&proc->poll, on_poll_closed);
    close(proc->child.pidfd);
}

void ct_proc_pass(struct ct_proc *proc, ct_proc_exit_fn on_exit, void *data)
{
    proc->on_exit = on_exit;
    proc->data = data;
}

pid_t ct_proc_pid(const struct ct_proc *proc)
{
    return proc->child.pid;
}

bool ct_proc_alive(const struct ct_proc *proc)
{
    return proc->alive;
}

bool ct_proc_still_alive(struct ct_proc *proc)
{
    if (proc->alive) {
        harvest(proc);
    }
    return proc->alive;
}

static bool asks_for_end(int sig)
{
    return sig == SIGTERM || sig == SIGINT || sig == SIGHUP || sig == SIGQUIT;
}

void ct_proc_signal_leader(struct ct_proc *proc, int sig)
{
    if (proc->alive && ct_proctree_signal_pidfd(proc->child.pidfd, sig) && asks_for_end(sig)) {
        (void)ct_proctree_signal_pidfd(proc->child.pidfd, SIGCONT);
    }
}

/* Signals each living member of the group that is a descendant of ctrun. */
static void signal_orphaned_group(struct ct_proc *proc, int sig)
{
    struct ct_procs *procs = proc->procs;
    if (ct_proctree_read(&procs->tree, NULL) != 0) {
        return;
    }
    (void)ct_proctree_mark_descendants(&procs->tree, getpid(), ct_guard_pid(procs->guard));
    for (size_t i = 0; i < procs->tree.count; i++) {
        const struct ct_proctree_entry *entry = &procs->tree.entries[i];
        if (entry->marked && entry->pgrp == proc->child.pid && ct_proctree_signal(entry, sig) &&
            asks_for_end(sig)) {
            (void)ct_proctree_signal(entry, SIGCONT);
        }
    }
}

void ct_proc_signal_group(struct ct_proc *proc, int sig)
{
    const pid_t group = proc->child.pid;
    if (proc->alive) {
        /* The worker is not reaped yet, so no other group can have its number. */
        if (kill(-group, sig) == 0 && asks_for_end(sig)) {
            (void)kill(-group, SIGCONT);
        }
    } else if (kill(-group, 0) == 0 || errno != ESRCH) {
        signal_orphaned_group(proc, sig);
    }
}

/* ---- the set --------------------------------------------------------------------------------- */

static void on_handle_closed(uv_handle_t *handle)
{
    struct ct_procs *procs = handle->data;
    if (--procs->open_handles > 0) {
        return;
    }
    if (procs->close_cb != NULL) {
        procs->close_cb(procs->close_data);
    }
    ct_proctree_fini(&procs->tree);
    ct_free(procs);
}

static void close_handles(struct ct_procs *procs)
{
    procs->closing = true;
    uv_close((uv_handle_t *)&procs->sigchld, on_handle_closed);
    uv_close((uv_handle_t *)&procs->timer, on_handle_closed);
}

int ct_procs_open(uv_loop_t *loop, struct ct_guard *guard, const struct ct_log *log,
                  struct ct_procs **out, struct ct_err *err)
{
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
        return ct_err_sys(err, CT_EUNSUPPORTED, errno, "cannot become a child sub-reaper");
    }
    struct ct_procs *procs = ct_calloc(1, sizeof(*procs));
    if (procs == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory for the process table");
    }
    procs->loop = loop;
    procs->guard = guard;
    procs->log = log;
    ct_list_init(&procs->all);
    int rc = uv_signal_init(loop, &procs->sigchld);
    if (rc != 0) {
        ct_free(procs);
        return ct_err_set(err, CT_EIO, "cannot watch SIGCHLD: %s", uv_strerror(rc));
    }
    (void)uv_timer_init(loop, &procs->timer); /* cannot fail */
    procs->sigchld.data = procs;
    procs->timer.data = procs;
    procs->open_handles = 2;
    rc = uv_signal_start(&procs->sigchld, on_sigchld, SIGCHLD);
    if (rc != 0) {
        close_handles(procs);
        return ct_err_set(err, CT_EIO, "cannot watch SIGCHLD: %s", uv_strerror(rc));
    }
    /* Watching for orphans does not keep the loop running. */
    uv_unref((uv_handle_t *)&procs->sigchld);
    *out = procs;
    return 0;
}

void ct_procs_close(struct ct_procs *procs, ct_procs_close_fn cb, void *data)
{
    if (procs == NULL) {
        return;
    }
    CT_ASSERT(ct_list_empty(&procs->all) && !procs->closing);
    procs->close_cb = cb;
    procs->close_data = data;
    close_handles(procs);
}
