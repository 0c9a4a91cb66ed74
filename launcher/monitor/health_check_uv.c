/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: the command runs in a session of its own, and its output comes through a pipe. When
 * its process has ended, what is left in the pipe is read, and the caller hears how it ended.
 *
 * Other paths: at the deadline the session is killed. A process that not even SIGKILL ends, because
 * it is stuck in the kernel, is given up after GIVE_UP_MS: its machine is not fit. The process is
 * one of the set's like a worker, because the set reaps every child that it does not know.
 *
 * Failure modes: output that cannot be read is missing in the result.
 *
 * Who frees: the last close callback.
 */
#include "launcher/monitor/health_check_uv.h"

#include "common/alloc.h"
#include "common/buf.h"
#include "common/exit_code.h"
#include "launcher/report/worker_end.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define GIVE_UP_MS 2000
/* Each takes 16 KiB, and a pipe holds 64 KiB. */
#define READS_AT_ONCE 8
#define SHELL "/bin/sh"

struct ct_health_check {
    struct ct_proc *proc;
    int output; /* the pipe's end that we read */
    uv_poll_t written;
    uv_timer_t deadline;
    int handles; /* that are not closed yet */
    const char *name, *timeout_option;
    bool shell; /* it is a command for the shell */
    int64_t timeout_ms;
    bool late, closing;
    char why[CT_HEALTH_WHY_MAX];
    int not_run;
    struct ct_buf tail;
    size_t keep;
    ct_health_done_fn done; /* NULL = cancelled */
    void *data;
};

static void free_check(struct ct_health_check *check)
{
    if (check->output >= 0) {
        (void)close(check->output);
    }
    ct_buf_fini(&check->tail);
    ct_free(check);
}

static void on_closed(uv_handle_t *handle)
{
    struct ct_health_check *check = handle->data;
    if (--check->handles > 0) {
        return;
    }
    if (check->done != NULL) {
        const char *tail = ct_buf_cstr(&check->tail);
        const struct ct_health_result result = {
            .why = check->why,
            .tail = tail != NULL ? tail : "",
            .late = check->late,
            .not_run = check->not_run,
        };
        check->done(check->data, &result);
    }
    free_check(check);
}

static void close_check(struct ct_health_check *check)
{
    if (!check->closing) {
        check->closing = true;
        ct_proc_free(check->proc);
        uv_close((uv_handle_t *)&check->written, on_closed);
        uv_close((uv_handle_t *)&check->deadline, on_closed);
    }
}

/* Reads what has come, and keeps its end. Returns false at the end of the pipe. A command may write
 * as fast as this reads, so no more is read at once than a pipe holds. */
static bool read_output(struct ct_health_check *check)
{
    char bytes[16384];
    ssize_t got = 1;
    for (int i = 0; i < READS_AT_ONCE && got > 0; i++) {
        got = read(check->output, bytes, sizeof(bytes));
        if (got > 0) {
            ct_buf_add(&check->tail, bytes, (size_t)got);
        }
        if (check->tail.len > check->keep) {
            ct_buf_consume(&check->tail, check->tail.len - check->keep);
        }
    }
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

/* Where the last CT_HEALTH_TAIL_LINES lines begin. If the beginning of the output is missing, the
 * first of them must be whole, unless there is no other. */
static size_t find_last_lines(const struct ct_health_check *check)
{
    const unsigned char *bytes = ct_buf_bytes(&check->tail);
    size_t len = check->tail.len, at = len, whole = len;
    int lines = 0;
    if (at > 0 && bytes[at - 1] == '\n') {
        at--;
    }
    while (at > 0 && lines < CT_HEALTH_TAIL_LINES) {
        at--;
        if (bytes[at] == '\n') {
            whole = at + 1;
            lines++;
        }
    }
    bool is_cut = len == check->keep && whole < len;
    return lines == CT_HEALTH_TAIL_LINES || is_cut ? whole : 0;
}

/* A command may write NUL, which would hide what follows. */
static void end_tail(struct ct_health_check *check)
{
    if (check->shell) { /* its output is for people */
        ct_buf_consume(&check->tail, find_last_lines(check));
    }
    unsigned char *bytes = ct_buf_bytes(&check->tail);
    for (size_t i = 0; i < check->tail.len; i++) {
        bytes[i] = bytes[i] == '\0' ? '?' : bytes[i];
    }
}

/* Has the shell itself refused the command, as it refuses "if true"? The shells of Debian, Alpine
 * and Fedora name themselves as they were called and end with 2, bash before 4.4 with 1. */
static bool is_refused_by_shell(struct ct_health_check *check, const struct ct_worker_end *end)
{
    static const char own_name[] = SHELL ": ";
    const char *line = ct_buf_cstr(&check->tail);
    if (!check->shell || end->kind != CT_END_EXITED || (end->value != 2 && end->value != 1)) {
        return false;
    }
    while (line != NULL && *line != '\0') {
        size_t len = strcspn(line, "\n");
        const char *word =
            strncmp(line, own_name, sizeof(own_name) - 1) == 0 ? strstr(line, "yntax error") : NULL;
        if (word != NULL && word < line + len) {
            return true;
        }
        line += len + (line[len] == '\n');
    }
    return false;
}

/* Says in words how the command ended. */
static void judge(struct ct_health_check *check, const struct ct_exit *how)
{
    if (check->late || how == NULL) {
        const char *option = check->timeout_option;
        (void)snprintf(check->why, sizeof(check->why), "its %s did not end within %g s%s%s%s",
                       check->name, (double)check->timeout_ms / 1000, option != NULL ? " (" : "",
                       option != NULL ? option : "", option != NULL ? ")" : "");
        return;
    }
    const struct ct_worker_end end = {
        .kind = how->signal == 0 ? CT_END_EXITED : CT_END_SIGNALED,
        .value = how->signal == 0 ? how->code : how->signal,
    };
    if (check->shell && end.kind == CT_END_EXITED &&
        (end.value == CT_EXIT_NOT_FOUND || end.value == CT_EXIT_NOT_EXECUTABLE)) {
        check->not_run = end.value;
        (void)snprintf(check->why, sizeof(check->why),
                       "the command of its %s %s there (exit code %d of /bin/sh)", check->name,
                       end.value == CT_EXIT_NOT_FOUND ? "was not found" : "cannot be executed",
                       end.value);
        return;
    }
    if (is_refused_by_shell(check, &end)) {
        check->not_run = CT_EXIT_NOT_EXECUTABLE;
        (void)snprintf(check->why, sizeof(check->why),
                       "the command of its %s is no command for " SHELL " (syntax error)",
                       check->name);
        return;
    }
    struct ct_buf text = CT_BUF_INIT;
    int rc = ct_worker_end_describe(&end, &text);
    if (!ct_worker_end_is_success(&end)) {
        (void)snprintf(check->why, sizeof(check->why), "its %s %.200s", check->name,
                       rc == 0 ? ct_buf_cstr(&text) : "failed");
    }
    ct_buf_fini(&text);
}

/* `how` is NULL if not even SIGKILL has ended it. */
static void finish(struct ct_health_check *check, const struct ct_exit *how)
{
    ct_proc_signal_group(check->proc, SIGKILL); /* what it has left behind */
    (void)read_output(check);
    end_tail(check);
    judge(check, how);
    close_check(check);
}

static void on_ended(void *data, struct ct_proc *proc, const struct ct_exit *how)
{
    (void)proc;
    finish(data, how);
}

static void on_written(uv_poll_t *poll, int status, int events)
{
    struct ct_health_check *check = poll->data;
    (void)events;
    if (status != 0 || !read_output(check)) {
        (void)uv_poll_stop(poll);
    }
}

static void on_deadline(uv_timer_t *timer);

static void kill_all(struct ct_health_check *check)
{
    check->late = true;
    ct_proc_signal_group(check->proc, SIGKILL);
    (void)uv_timer_start(&check->deadline, on_deadline, GIVE_UP_MS, 0);
}

static void on_deadline(uv_timer_t *timer)
{
    struct ct_health_check *check = timer->data;
    if (check->late) {
        finish(check, NULL);
    } else {
        kill_all(check);
    }
}

/* The kernel may have no room for another descriptor to watch (fs.epoll.max_user_watches). */
static int open_handles(struct ct_health_check *check, uv_loop_t *loop, struct ct_err *err)
{
    int rc = uv_poll_init(loop, &check->written, check->output);
    if (rc != 0) {
        return ct_err_set(err, CT_EIO, "cannot watch its output: %s", uv_strerror(rc));
    }
    (void)uv_timer_init(loop, &check->deadline); /* cannot fail, nor can what follows */
    check->written.data = check->deadline.data = check;
    check->handles = 2;
    (void)uv_poll_start(&check->written, UV_READABLE, on_written);
    (void)uv_timer_start(&check->deadline, on_deadline, (uint64_t)check->timeout_ms, 0);
    return 0;
}

/* Ends the process without waiting for it: the set reaps it. */
static void kill_and_free(struct ct_proc *proc)
{
    ct_proc_signal_group(proc, SIGKILL);
    ct_proc_free(proc);
}

int ct_health_check_start(uv_loop_t *loop, struct ct_procs *procs,
                          const struct ct_health_options *options, struct ct_health_check **out,
                          struct ct_err *err)
{
    char shell[] = SHELL, flag[] = "-c";
    char *argv[] = {shell, flag, (char *)(uintptr_t)options->command, NULL}; /* not changed */
    int ends[2];
    struct ct_health_check *check = ct_calloc(1, sizeof(*check));
    if (check == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    check->output = -1;
    check->done = options->done;
    check->data = options->data;
    check->name = options->name;
    check->shell = options->command != NULL;
    check->keep = options->keep;
    check->timeout_ms = options->timeout_ms;
    check->timeout_option = options->timeout_option;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        int rc = ct_err_sys(err, CT_EIO, errno, "cannot make a pipe");
        free_check(check);
        return rc;
    }
    check->output = ends[0];
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK); /* not the end that the command gets */
    const struct ct_spawn_options spawn = {
        .path = check->shell ? SHELL : options->path,
        .argv = check->shell ? argv : options->argv,
        .envp = options->env,
        .stdio = {-1, ends[1], ends[1]},
        .nofile = options->nofile,
    };
    int rc = ct_proc_start(procs, &spawn, on_ended, check, &check->proc, err);
    (void)close(ends[1]);
    if (rc != 0) {
        free_check(check);
        return rc;
    }
    rc = open_handles(check, loop, err);
    if (rc != 0) {
        kill_and_free(check->proc);
        free_check(check);
        return rc;
    }
    *out = check;
    return 0;
}

const char *ct_health_check_written(struct ct_health_check *check)
{
    if (!check->closing) {
        (void)read_output(check);
    }
    const char *tail = ct_buf_cstr(&check->tail);
    return tail != NULL ? tail : "";
}

void ct_health_check_cancel(struct ct_health_check *check)
{
    if (check == NULL) {
        return;
    }
    check->done = NULL;
    if (!check->closing) {
        ct_proc_signal_group(check->proc, SIGKILL);
        close_check(check);
    }
}
