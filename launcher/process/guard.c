/* SPDX-License-Identifier: Apache-2.0
 *
 * Two halves: ctrun's side (ct_guard_*), and the guard process (guard_*), which runs in a fork and
 * never returns from guard_main(). ctrun sends it fixed records of 8 bytes through a pipe.
 */
#include "launcher/process/guard.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "launcher/process/cgroup.h"
#include "launcher/process/logdir.h"
#include "launcher/process/proctree.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A dismissed guard only has to wake and exit. */
#define DISMISS_MS 1000

/* Pause between two rounds of killing: long enough for SIGKILL to act, and so short that nobody
 * notices that a process has outlived ctrun. */
#define ROUND_MS 20

/* So many rounds in a row must find nothing. A round can miss a process that is forked while /proc
 * is read, but the next round sees it. */
#define CALM_ROUNDS 3

/* How long, and how often, ctrun kills what is left in the job's cgroup at the job's end. */
#define LEFTOVER_MS 200
#define LEFTOVER_ROUND_MS 2

enum op { OP_WATCH = 1, OP_UNWATCH = 2, OP_DISMISS = 3 };

struct record {
    int32_t op;
    int32_t session;
};

struct ct_guard {
    pid_t pid;
    int pidfd;
    int pipe; /* write end, non-blocking */
    bool dismissed;
    struct ct_cgroup cgroup;
};

/* ---- the guard process -------------------------------------------------------------------- */

struct guard {
    struct ct_cookie cookie;
    const char *folder; /* borrowed: the fork has a copy of ctrun's memory */
    const char *cgroup; /* the same */
    struct ct_proctree tree;
    size_t session_count;
    pid_t sessions[CT_GUARD_SESSIONS_MAX];
};

static void guard_apply(struct guard *guard, const struct record *record)
{
    size_t at = 0;
    while (at < guard->session_count && guard->sessions[at] != record->session) {
        at++;
    }
    bool known = at < guard->session_count;
    if (record->op == OP_WATCH && !known && guard->session_count < CT_GUARD_SESSIONS_MAX) {
        guard->sessions[guard->session_count++] = record->session;
    } else if (record->op == OP_UNWATCH && known) {
        guard->sessions[at] = guard->sessions[--guard->session_count];
    }
}

/* Obeys ctrun's records until ctrun dismisses the guard (true) or dies (false). */
static bool guard_listen(struct guard *guard, int pipe)
{
    for (;;) {
        struct record record;
        /* Records are shorter than PIPE_BUF, so they are written and read whole. */
        ssize_t n = read(pipe, &record, sizeof(record));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n != (ssize_t)sizeof(record)) {
            return false;
        }
        if (record.op == OP_DISMISS) {
            return true;
        }
        guard_apply(guard, &record);
    }
}

static bool guard_knows_session(const struct guard *guard, pid_t session)
{
    for (size_t i = 0; i < guard->session_count; i++) {
        if (guard->sessions[i] == session) {
            return true;
        }
    }
    return false;
}

/* Marks the job's processes. `death` is when ctrun died, in the ticks of /proc/PID/stat: a process
 * that was started later has only reused a session's number. */
static void guard_mark(struct guard *guard, uint64_t death)
{
    for (size_t i = 0; i < guard->tree.count; i++) {
        struct ct_proctree_entry *entry = &guard->tree.entries[i];
        entry->marked = (guard_knows_session(guard, entry->session) && entry->start <= death) ||
                        ct_cookie_in_process(&guard->cookie, entry->pid);
    }
    /* The guard must never kill itself, although it does not have this job's cookie. */
    struct ct_proctree_entry *self = ct_proctree_find(&guard->tree, getpid());
    if (self != NULL) {
        self->marked = false;
        self->ppid = 0;
    }
    struct ct_proctree_entry *init = ct_proctree_find(&guard->tree, 1);
    if (init != NULL) {
        init->marked = false;
    }
    ct_proctree_mark_children(&guard->tree);
}

/* Kills the processes of the job that are alive, and returns how many there were. */
static size_t guard_round(struct guard *guard, uint64_t death)
{
    if (ct_proctree_read(&guard->tree, NULL) != 0) {
        return 1; /* out of memory or descriptors: try again */
    }
    guard_mark(guard, death);
    size_t found = 0;
    for (size_t i = 0; i < guard->tree.count; i++) {
        const struct ct_proctree_entry *entry = &guard->tree.entries[i];
        if (entry->marked && !ct_proctree_is_zombie(entry)) {
            found++;
            (void)ct_proctree_signal(entry, SIGKILL);
        }
    }
    return found;
}

static void guard_kill_job(struct guard *guard)
{
    struct timespec boot;
    clock_gettime(CLOCK_BOOTTIME, &boot);
    const long hz = sysconf(_SC_CLK_TCK);
    uint64_t death = (uint64_t)boot.tv_sec * (uint64_t)hz +
                     (uint64_t)boot.tv_nsec / (UINT64_C(1000000000) / (uint64_t)hz);

    int64_t end = ct_clock_now(NULL) + CT_GUARD_KILL_MS * CT_NS_PER_MS;
    int calm = 0;
    ct_cgroup_kill(guard->cgroup);
    while (calm < CALM_ROUNDS && ct_clock_now(NULL) < end) {
        calm = guard_round(guard, death) == 0 ? calm + 1 : 0;
        (void)poll(NULL, 0, ROUND_MS);
    }
    while (!ct_cgroup_remove(guard->cgroup) && ct_clock_now(NULL) < end) {
        ct_cgroup_kill(guard->cgroup);
        (void)poll(NULL, 0, ROUND_MS);
    }
}

/* Closes everything except the pipe, which becomes 3. Whoever reads ctrun's output would wait for
 * its end as long as the guard holds 0-2 open. */
static int guard_keep_only(int pipe)
{
    pipe = fcntl(pipe, F_DUPFD, 3); /* it may be one of 0-2 when ctrun was started without them */
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++) {
        (void)dup2(null, fd);
    }
    int kept = dup2(pipe, 3);
    if (close_range(4, ~0u, 0) != 0) {
        for (int fd = 4; fd < 1024; fd++) {
            close(fd);
        }
    }
    return kept;
}

/* Inherits a mask that blocks all signals. */
static _Noreturn void guard_main(struct guard *guard, int pipe)
{
    (void)prctl(PR_SET_NAME, "ctrun-guard");
    (void)setsid();
    (void)!chdir("/"); /* or the user could not unmount the file system of ctrun's folder */
    pipe = guard_keep_only(pipe);
    if (!guard_listen(guard, pipe)) {
        guard_kill_job(guard);
        if (guard->folder != NULL) {
            ct_logdir_remove(guard->folder);
        }
    }
    _exit(0);
}

/* ---- ctrun's side ------------------------------------------------------------------------- */

static int guard_fork(struct ct_guard *guard, struct guard *state, int read_end, int write_end,
                      struct ct_err *err)
{
    /* The guard keeps every signal blocked: no handler of ctrun's runs in it, and nothing but
     * SIGKILL ends it. */
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    pid_t pid = fork();
    int error = errno;
    if (pid == 0) {
        close(write_end); /* or the guard would never see the end of the pipe */
        guard_main(state, read_end);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pid < 0) {
        return ct_err_sys(err, ct_code_from_errno(error), error, "cannot fork the guard process");
    }
    guard->pid = pid;
    guard->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (guard->pidfd < 0) {
        error = errno;
        kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
        return ct_err_sys(err, CT_EUNSUPPORTED, error, "cannot watch the guard process");
    }
    return 0;
}

static void close_cgroup(struct ct_cgroup *cgroup)
{
    int64_t end = ct_deadline_in(NULL, LEFTOVER_MS);
    while (!ct_cgroup_remove(cgroup->path) && ct_deadline_left_ms(NULL, end) > 0) {
        ct_cgroup_kill(cgroup->path);
        (void)poll(NULL, 0, LEFTOVER_ROUND_MS);
    }
    if (cgroup->fd >= 0) {
        close(cgroup->fd);
    }
}

int ct_guard_start(const struct ct_cookie *cookie, const char *folder, struct ct_guard **out,
                   struct ct_err *err)
{
    struct ct_guard *guard = ct_calloc(1, sizeof(*guard));
    if (guard != NULL) {
        guard->cgroup.fd = -1;
    }
    struct guard *state = ct_calloc(1, sizeof(*state)); /* for the fork, which has a copy of it */
    int ends[2] = {-1, -1};
    int rc;
    if (guard == NULL || state == NULL) {
        rc = ct_err_set(err, CT_ENOMEM, "out of memory for the guard process");
        goto out;
    }
    if (pipe2(ends, O_CLOEXEC) != 0) {
        rc = ct_err_sys(err, ct_code_from_errno(errno), errno, "cannot make the guard's pipe");
        goto out;
    }
    /* Only ctrun's end is non-blocking, so that a stopped guard never blocks ctrun. */
    (void)fcntl(ends[1], F_SETFL, O_NONBLOCK);
    ct_cgroup_make(&guard->cgroup, cookie);
    state->cookie = *cookie;
    state->folder = folder;
    state->cgroup = guard->cgroup.path;
    rc = guard_fork(guard, state, ends[0], ends[1], err);
    if (rc == 0) {
        guard->pipe = ends[1];
        ends[1] = -1;
        *out = guard;
        guard = NULL;
    }
out:
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0) {
            close(ends[i]);
        }
    }
    ct_free(state);
    if (guard != NULL) {
        close_cgroup(&guard->cgroup);
    }
    ct_free(guard);
    return rc;
}

static void guard_send(struct ct_guard *guard, enum op op, pid_t session)
{
    struct record record = {.op = (int32_t)op, .session = session};
    ssize_t n;
    do {
        n = write(guard->pipe, &record, sizeof(record));
    } while (n < 0 && errno == EINTR);
}

void ct_guard_dismiss(struct ct_guard *guard)
{
    if (guard != NULL && !guard->dismissed) {
        guard_send(guard, OP_DISMISS, 0);
        guard->dismissed = true;
    }
}

void ct_guard_free(struct ct_guard *guard)
{
    if (guard == NULL) {
        return;
    }
    ct_guard_dismiss(guard);
    struct pollfd gone = {.fd = guard->pidfd, .events = POLLIN};
    int64_t deadline = ct_deadline_in(NULL, DISMISS_MS);
    int rc;
    do {
        rc = poll(&gone, 1, ct_deadline_left_ms(NULL, deadline));
    } while (rc < 0 && errno == EINTR);
    if (rc <= 0) { /* somebody has stopped the guard, which is not needed any more */
        (void)ct_proctree_signal_pidfd(guard->pidfd, SIGKILL);
    }
    /* The pipe stays open until the guard is gone: its end would mean that ctrun has died. */
    siginfo_t info;
    while (waitid(P_PIDFD, (id_t)guard->pidfd, &info, WEXITED) != 0 && errno == EINTR) {
    }
    close(guard->pipe);
    close(guard->pidfd);
    close_cgroup(&guard->cgroup);
    ct_free(guard);
}

int ct_guard_cgroup(const struct ct_guard *guard)
{
    return guard != NULL ? guard->cgroup.fd : -1;
}

pid_t ct_guard_pid(const struct ct_guard *guard)
{
    return guard != NULL ? guard->pid : -1;
}

void ct_guard_watch(struct ct_guard *guard, pid_t session)
{
    if (guard != NULL) {
        guard_send(guard, OP_WATCH, session);
    }
}

void ct_guard_unwatch(struct ct_guard *guard, pid_t session)
{
    if (guard != NULL) {
        guard_send(guard, OP_UNWATCH, session);
    }
}
