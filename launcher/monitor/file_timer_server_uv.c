/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: lines come through the pipe, timers are set and released, none expires.
 *
 * Other paths: a timer expires. The user is told its name, and the worker's group gets the signal
 * that the timer asks for, then SIGKILL if it has not ended within --shutdown-timeout. While a
 * generation is being stopped, no worker is ended for a timer.
 *
 * Failure modes: the lines are hostile. One that is no request, or that concerns a process which is
 * not a worker's, is ignored, and the user is told once. A worker may have CT_FILE_TIMERS_MAX
 * timers.
 *
 * Who frees: ct_file_timer_server_close(); the handles belong to the loop until it has run dry.
 */
#include "launcher/monitor/file_timer_server_uv.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/text.h"
#include "launcher/util/environ.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ENABLE_ENV "TORCHELASTIC_ENABLE_FILE_TIMER"
/* The length of a message, with room for a scope's name. */
#define SAY_MAX 512

static void say(struct ct_file_timer_server *server, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void say(struct ct_file_timer_server *server, const char *fmt, ...)
{
    char text[SAY_MAX], line[SAY_MAX + sizeof(CT_REPORT_PREFIX) + 1];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    ct_text_clean(text); /* a scope's name may hold anything */
    int len = snprintf(line, sizeof(line), CT_REPORT_PREFIX "%s\n", text);
    ct_output_say(server->output, CT_OUTPUT_ERR, line, (size_t)len);
}

static double unix_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / (double)CT_NS_PER_S;
}

/* ---- the worker of a timer ------------------------------------------------------------------- */

static bool lives(const struct ct_worker *worker)
{
    return worker->proc != NULL && ct_proc_alive(worker->proc);
}

/* Does this process belong to the worker? A worker leads its session. Its children stay in that
 * session unless they call setsid(2). */
static bool is_of(void *data, int local_rank, pid_t pid)
{
    const struct ct_file_timer_server *server = data;
    const struct ct_worker *worker = &server->workers[local_rank];
    return lives(worker) && getsid(pid) == ct_proc_pid(worker->proc);
}

/* Returns the local rank of the worker; -1 = the process belongs to no worker. */
static int rank_of(struct ct_file_timer_server *server, pid_t pid)
{
    for (int i = 0; i < server->job->resolved->workers; i++) {
        if (is_of(server, i, pid)) {
            return i;
        }
    }
    return -1;
}

/* ---- expiry ---------------------------------------------------------------------------------- */

static void name_signal(int signo, char out[32])
{
    const char *name = sigabbrev_np(signo);
    (void)(name != NULL ? snprintf(out, 32, "SIG%s", name) : snprintf(out, 32, "signal %d", signo));
}

static void expire(struct ct_file_timer_server *server, const struct ct_file_timer_due *due)
{
    struct ct_worker *worker = &server->workers[due->local_rank];
    int rank = *server->first_rank + due->local_rank;
    char name[32];
    if (*server->stopping || !lives(worker) ||
        (!due->again && !is_of(server, due->local_rank, due->pid))) {
        return;
    }
    if (due->signal == 0) {
        say(server, "rank %d: the timer '%.256s' of process %ld expired; it asks for no signal",
            rank, due->scope, (long)due->pid);
        return;
    }
    name_signal(due->signal, name);
    if (due->again && worker->ended_for.value == SIGKILL) {
        say(server,
            "rank %d has not ended although its timer '%s' expired: SIGKILL does not reach it, so "
            "it is stuck in the kernel (see dmesg)",
            rank, worker->ended_for.detail);
    } else if (due->again) {
        say(server, "rank %d did not end by that signal: %s", rank, name);
    } else {
        /* After SIGKILL the report of the failure comes at once, and it names the timer. */
        if (due->signal != SIGKILL) {
            say(server, "rank %d: the timer '%.256s' of process %ld expired; ending it (%s)", rank,
                due->scope, (long)due->pid, name);
        }
        worker->ended_for = (struct ct_worker_end){.kind = CT_END_EXPIRED, .value = due->signal};
        (void)snprintf(worker->ended_for.detail, sizeof(worker->ended_for.detail), "%.*s",
                       CT_END_DETAIL_MAX - 1, due->scope);
        ct_text_clean(worker->ended_for.detail);
    }
    ct_proc_signal_group(worker->proc, due->signal);
}

static void on_due(uv_timer_t *timer);

static void arm(struct ct_file_timer_server *server)
{
    int64_t wait_ns = server->timers.next_ns - ct_clock_now(NULL);
    if (server->timers.next_ns == INT64_MAX) {
        (void)uv_timer_stop(&server->timer);
        return;
    }
    uint64_t ms = wait_ns > 0 ? (uint64_t)(wait_ns / CT_NS_PER_MS) + 1 : 0;
    (void)uv_timer_start(&server->timer, on_due, ms, 0);
}

static void on_due(uv_timer_t *timer)
{
    struct ct_file_timer_server *server = timer->data;
    int64_t grace_ns = server->job->options->shutdown_timeout_ms * CT_NS_PER_MS;
    struct ct_file_timer_due due;
    while (ct_file_timers_due(&server->timers, ct_clock_now(NULL), grace_ns, &due)) {
        expire(server, &due);
    }
    arm(server);
}

/* ---- the pipe -------------------------------------------------------------------------------- */

static void say_once(struct ct_file_timer_server *server, bool *said, const char *what)
{
    if (!*said) {
        say(server, "%s: %s (not repeated)", CT_TIMER_FILE_ENV, what);
    }
    *said = true;
}

static void take_line(struct ct_file_timer_server *server, const char *line)
{
    struct ct_file_timer_request request;
    struct ct_err err = {0};
    char text[SAY_MAX];
    if (ct_file_timer_parse(line, &request, &err) != 0) {
        (void)snprintf(text, sizeof(text), "a line is not a timer request (%.200s): %.128s",
                       err.text, line);
        say_once(server, &server->said_bad, text);
        return;
    }
    int rank = rank_of(server, request.pid);
    if (rank < 0) {
        if (request.expires >= 0) {
            (void)snprintf(
                text, sizeof(text),
                "the timer '%.128s' of process %ld has no effect, because the process is "
                "none of this job's workers here",
                request.scope, (long)request.pid);
            say_once(server, &server->said_foreign, text);
        }
        return;
    }
    int rc = 0;
    for (int turn = 0; turn < 2; turn++) {
        rc = ct_file_timers_take(&server->timers, rank, &request, ct_clock_now(NULL), unix_now());
        if (rc != CT_ELIMIT) {
            break;
        }
        ct_file_timers_sweep(&server->timers, rank, is_of, server);
    }
    if (rc != 0) {
        (void)snprintf(text, sizeof(text), "rank %d has %d timers, further ones have no effect",
                       *server->first_rank + rank, CT_FILE_TIMERS_MAX);
        say_once(server, &server->said_many, rc == CT_ELIMIT ? text : "out of memory for a timer");
    }
}

static void on_readable(uv_poll_t *handle, int status, int events)
{
    struct ct_file_timer_server *server = handle->data;
    char bytes[16384];
    const char *line;
    (void)events;
    ssize_t n = status == 0 ? read(server->fd, bytes, sizeof(bytes)) : -1;
    for (ssize_t at = 0; at < n;) {
        at += (ssize_t)ct_file_timer_cut(&server->lines, bytes + at, (size_t)(n - at), &line);
        if (line != NULL) {
            take_line(server, line);
        }
    }
    arm(server);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Removes an old pipe of this name if nobody serves it; never a file of another kind, and no pipe
 * that cannot be asked. */
static int make_room(const char *path, bool *served, struct ct_err *err)
{
    struct stat st;
    *served = false;
    if (lstat(path, &st) != 0) {
        return 0;
    }
    if (!S_ISFIFO(st.st_mode)) {
        return ct_err_set(err, CT_EBUSY, "%s: %s is there already, and is no named pipe",
                          CT_TIMER_FILE_ENV, path);
    }
    int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0) {
        close(fd);
        *served = true;
    } else if (errno == ENXIO) { /* nobody has it open for reading */
        (void)unlink(path);
    }
    return 0;
}

static char *own_path(const struct ct_job_spec *job)
{
    const char *tmp = ct_environ_get(job->env, "TMPDIR");
    if (job->logdir->run != NULL) {
        return ct_asprintf("%s/timers", job->logdir->run);
    }
    return ct_asprintf("%s/ctrun_timers_%ld", tmp != NULL && tmp[0] == '/' ? tmp : "/tmp",
                       (long)getpid());
}

static int choose_path(struct ct_file_timer_server *server, struct ct_err *err)
{
    const char *named = ct_environ_get(server->job->env, CT_TIMER_FILE_ENV);
    bool served = false;
    int rc = named != NULL && named[0] != '\0' ? make_room(named, &served, err) : 0;
    if (rc != 0) {
        return rc;
    }
    /* If another ctrun serves the pipe, for example the one under which this one runs, this one
     * makes a pipe of its own. */
    bool own = named == NULL || named[0] == '\0' || served;
    server->path = own ? own_path(server->job) : ct_strdup(named);
    return server->path != NULL ? 0 : ct_err_set(err, CT_ENOMEM, "timers: out of memory");
}

static int open_pipe(struct ct_file_timer_server *server, struct ct_err *err)
{
    int rc = choose_path(server, err);
    if (rc != 0) {
        return rc;
    }
    bool made = mkfifo(server->path, 0600) == 0;
    if (made) {
        /* Opened for writing, too, so that there is no end of file after the last writer. */
        server->fd = open(server->path, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    }
    if (server->fd < 0) {
        int saved = errno;
        if (made) {
            (void)unlink(server->path);
        }
        return ct_err_sys(err, ct_code_from_errno(saved), saved,
                          "cannot make the named pipe %s (" CT_TIMER_FILE_ENV ")", server->path);
    }
    return 0;
}

static int watch(struct ct_file_timer_server *server, uv_loop_t *loop, struct ct_err *err)
{
    if (ct_file_timers_init(&server->timers, server->job->resolved->workers) != 0) {
        return ct_err_set(err, CT_ENOMEM, "timers: out of memory");
    }
    int rc = uv_poll_init(loop, &server->pipe, server->fd);
    if (rc != 0) {
        return ct_err_set(err, CT_EIO, "cannot watch %s: %s", server->path, uv_strerror(rc));
    }
    server->open = true;
    server->pipe.data = server->timer.data = server;
    CT_ASSERT(uv_timer_init(loop, &server->timer) == 0); /* cannot fail */
    rc = uv_poll_start(&server->pipe, UV_READABLE, on_readable);
    return rc == 0 ? 0
                   : ct_err_set(err, CT_EIO, "cannot watch %s: %s", server->path, uv_strerror(rc));
}

int ct_file_timer_server_open(struct ct_file_timer_server *server, uv_loop_t *loop,
                              struct ct_err *err)
{
    const char *enabled = ct_environ_get(server->job->env, ENABLE_ENV);
    server->fd = -1;
    if (enabled == NULL || strcmp(enabled, "1") != 0) {
        return 0;
    }
    int rc = open_pipe(server, err);
    if (rc == 0) {
        rc = watch(server, loop, err);
    }
    if (rc != 0) {
        ct_file_timer_server_close(server);
    }
    return rc;
}

void ct_file_timer_server_reset(struct ct_file_timer_server *server, int local_rank)
{
    if (server->open) {
        ct_file_timers_reset(&server->timers, local_rank);
    }
}

void ct_file_timer_server_close(struct ct_file_timer_server *server)
{
    if (server->path == NULL) {
        return;
    }
    if (server->open) {
        uv_close((uv_handle_t *)&server->pipe, NULL);
        uv_close((uv_handle_t *)&server->timer, NULL);
        server->open = false;
    }
    if (server->fd >= 0) {
        close(server->fd);
        (void)unlink(server->path);
    }
    ct_file_timers_fini(&server->timers);
    ct_free(server->path);
    server->path = NULL;
    server->fd = -1;
}
