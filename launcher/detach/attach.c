/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: show the end of console.log and follow the file, as tail(1) does, until the process
 * of the job's ctrun has ended; then read its exit code.
 *
 * Other paths: Ctrl-C leaves the job alone. A console that became shorter is read from its
 * beginning.
 *
 * Failure modes: a ctrun that was killed has left no exit code. Of a full disk the user is told
 * once, because the job cannot write it down.
 */
#include "launcher/detach/attach.h"

#include "common/alloc.h"
#include "common/exit_code.h"
#include "common/file.h"
#include "common/text.h"
#include "launcher/detach/console_tail.h"
#include "launcher/detach/detached_list.h"
#include "launcher/detach/state_folder.h"
#include "launcher/process/proctree.h"
#include "launcher/report/report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* What is shown of the past: two screens, and not more bytes than that. */
#define LINES_SHOWN 50
#define BYTES_SHOWN 65536
/* How often the file is read. */
#define LOOK_MS 100

struct viewer {
    struct ct_detached_entry entry;
    char root_path[CT_STATE_FOLDER_MAX];
    int folder, console; /* of the job */
    int exit;            /* its file of that name; -1 = it has none */
    int pidfd;           /* of its ctrun; -1 = it does not run */
    int signals;
    int out_fd, err_fd;
    off_t at; /* in the console */
    bool said_full;
};

static void write_text(const struct viewer *viewer, const char *text, size_t len)
{
    int rc =
        ct_fd_write_all(viewer->err_fd, text, len); /* nobody is left to be told of a failure */
    (void)rc;
}

static void say(const struct viewer *viewer, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void say(const struct viewer *viewer, const char *fmt, ...)
{
    char line[CT_ERR_TEXT_MAX + CT_STATE_FOLDER_MAX];
    va_list args;
    va_start(args, fmt);
    size_t size = ct_report_line(line, sizeof(line), fmt, args);
    va_end(args);
    write_text(viewer, line, size);
}

/* ---- the console ----------------------------------------------------------------------------- */

/* Reads some bytes at viewer->at. */
static ssize_t read_console(struct viewer *viewer, char *bytes, size_t size)
{
    ssize_t n;
    do {
        n = pread(viewer->console, bytes, size, viewer->at);
    } while (n < 0 && errno == EINTR);
    viewer->at += n > 0 ? n : 0;
    return n;
}

/* Returns false if it cannot be written, with errno as it was. */
static bool show_past(struct viewer *viewer)
{
    struct stat st;
    char *bytes = ct_calloc(BYTES_SHOWN, 1);
    if (bytes == NULL || fstat(viewer->console, &st) != 0) {
        ct_free(bytes);
        return true;
    }
    viewer->at = st.st_size > BYTES_SHOWN ? st.st_size - BYTES_SHOWN : 0;
    bool cut = viewer->at > 0;
    ssize_t n = read_console(viewer, bytes, BYTES_SHOWN);
    size_t len = n > 0 ? (size_t)n : 0, from = ct_console_tail(bytes, len, LINES_SHOWN);
    if (from == 0 && cut) { /* it begins inside a line */
        const char *end = memchr(bytes, '\n', len);
        from = end != NULL && (size_t)(end - bytes) + 1 < len ? (size_t)(end - bytes) + 1 : 0;
    }
    bool written = ct_fd_write_all(viewer->out_fd, bytes + from, len - from) == 0;
    int saved = errno;
    ct_free(bytes);
    errno = saved;
    return written;
}

/* Shows some of what is new. Returns the number of bytes, or -1 if they cannot be written, with
 * errno as it was. */
static ssize_t show_new(struct viewer *viewer)
{
    char bytes[16384];
    struct stat st;
    if (fstat(viewer->console, &st) == 0 && st.st_size < viewer->at) {
        viewer->at = 0;
    }
    ssize_t n = read_console(viewer, bytes, sizeof(bytes));
    if (n <= 0) {
        return 0;
    }
    return ct_fd_write_all(viewer->out_fd, bytes, (size_t)n) == 0 ? n : -1;
}

static void look_at_disk(struct viewer *viewer)
{
    struct statvfs room;
    if (!viewer->said_full && fstatvfs(viewer->console, &room) == 0 && room.f_blocks > 0 &&
        room.f_bavail == 0) {
        viewer->said_full = true;
        say(viewer,
            "the disk of %s/%s is full: what the job writes now may be lost; the job goes on",
            viewer->root_path, viewer->entry.job.id);
    }
}

/* ---- the job --------------------------------------------------------------------------------- */

static int leave(const struct viewer *viewer)
{
    say(viewer, "the job goes on; ctrun --attach %s shows it again", viewer->entry.job.id);
    return CT_EXIT_SIGNAL_BASE + SIGINT;
}

/* Returns the exit code when the output cannot be written, for the reason in errno. */
static int lose_output(const struct viewer *viewer)
{
    struct ct_err err = {0};
    if (errno == EPIPE) {
        return CT_EXIT_SIGNAL_BASE + SIGPIPE; /* whoever read it has gone, and knows */
    }
    (void)ct_err_sys(&err, CT_EIO, errno, "cannot write to standard output");
    say(viewer, "%s; ctrun --attach %s shows the job again", err.text, viewer->entry.job.id);
    return CT_EXIT_SETUP;
}

/* Returns 0 when the job's ctrun has ended and all that it wrote is shown, or at Ctrl-C after its
 * end; else the exit code of this one. A slow terminal may never have shown all that a job writes,
 * so signals are looked at between any two pieces. */
static int follow(struct viewer *viewer)
{
    bool runs = viewer->pidfd >= 0;
    ssize_t shown = 0;
    for (;;) {
        struct pollfd ready[] = {{.fd = runs ? viewer->pidfd : -1, .events = POLLIN},
                                 {.fd = viewer->signals, .events = POLLIN},
                                 {.fd = viewer->out_fd}}; /* an error: nobody reads it any more */
        bool look_again = shown > 0 || !runs;
        int n = poll(ready, sizeof(ready) / sizeof(ready[0]), look_again ? 0 : LOOK_MS);
        if (n > 0 && ready[1].revents != 0) {
            return runs ? leave(viewer) : 0;
        }
        runs = runs && !(n > 0 && ready[0].revents != 0);
        if (n > 0 && ready[2].revents != 0) {
            return CT_EXIT_SIGNAL_BASE + SIGPIPE;
        }
        shown = show_new(viewer);
        if (shown < 0) {
            return lose_output(viewer);
        }
        if (shown == 0 && !runs) {
            return 0;
        }
        if (runs) {
            look_at_disk(viewer);
        }
    }
}

/* The job's ctrun was killed. If no other machine can go on with the job, it has ended, and a
 * script may start it again. Else nobody here knows how it ends. */
static int tell_killed(const struct viewer *viewer)
{
    const struct ct_detached_job *job = &viewer->entry.job;
    bool plain = ct_detached_job_is_name(job->word); /* to a shell */
    if (job->others[0] == '\0') {
        say(viewer,
            "job %s has ended without an exit code: its ctrun on %s was killed, or the machine was "
            "restarted",
            job->id, job->host);
        return CT_EXIT_NODE_LOST;
    }
    say(viewer,
        "job %s: its ctrun on %s was killed, or the machine was restarted, so its end is not known "
        "here; the job's other machines may go on with it: ctrun --attach%s%s on one of %s shows "
        "it, also after its end, and what to tell ctrun-stat",
        job->id, job->host, plain ? " " : "", plain ? job->word : "", job->others);
    return CT_EXIT_SETUP;
}

/* Says how the job has ended, and returns its exit code. */
static int tell_end(struct viewer *viewer)
{
    const char *id = viewer->entry.job.id;
    char end[CT_DETACHED_EXIT_SIZE + 1], when[64] = "an unknown time";
    int exit_code;
    int64_t ended_s;
    struct tm local;
    if (!ct_state_folder_read_fd(viewer->exit, end, sizeof(end)) ||
        !ct_detached_job_exit_parse(end, &exit_code, &ended_s)) {
        return tell_killed(viewer);
    }
    time_t ended = (time_t)ended_s;
    if (localtime_r(&ended, &local) != NULL) {
        (void)strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &local);
    }
    say(viewer, "job %s has ended with code %d at %s", id, exit_code, when);
    return exit_code;
}

static void say_what_is_shown(const struct viewer *viewer)
{
    const struct ct_detached_job *job = &viewer->entry.job;
    struct stat st;
    bool empty = fstat(viewer->console, &st) == 0 && st.st_size == 0;
    if (viewer->pidfd >= 0) {
        say(viewer,
            "job %s runs on %s; Ctrl-C leaves it alone, kill %ld ends it, and its status is %s%s",
            job->id, job->host, (long)job->pid,
            job->address[0] != '\0' ? "ctrun-stat " : "not known yet", job->address);
    } else {
        say(viewer, "job %s ran on %s as process %ld", job->id, job->host, (long)job->pid);
    }
    say(viewer, empty ? "nothing has been written to %s/%s/%s" : "the last lines of %s/%s/%s:",
        viewer->root_path, job->id, CT_STATE_CONSOLE);
}

static int view(struct viewer *viewer)
{
    say_what_is_shown(viewer);
    if (!show_past(viewer)) {
        return lose_output(viewer);
    }
    int code = follow(viewer);
    return code != 0 ? code : tell_end(viewer);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Gives *fd, which is -1 if the process with that number is another one now. */
static void open_process(const struct ct_detached_job *job, int *fd)
{
    struct ct_proctree_entry process;
    *fd = (int)syscall(SYS_pidfd_open, job->pid, 0);
    if (*fd >= 0 && (!ct_proctree_read_pid(job->pid, &process) || process.start != job->start)) {
        (void)close(*fd);
        *fd = -1;
    }
}

static int choose(struct viewer *viewer, int root, const char *word, const char *host,
                  struct ct_err *err)
{
    struct ct_detached_entry *entries = NULL;
    struct ct_buf why = CT_BUF_INIT;
    int count = ct_detached_list_read(root, word, host, &entries, err), at;
    if (count < 0) {
        return count;
    }
    at = ct_detached_list_choose(entries, count, word, host, &why);
    if (at >= 0 && entries != NULL) {
        viewer->entry = entries[at];
    } else {
        write_text(viewer, CT_REPORT_PREFIX, strlen(CT_REPORT_PREFIX));
        write_text(viewer, (const char *)ct_buf_bytes(&why), why.len);
    }
    ct_buf_fini(&why);
    ct_free(entries);
    return at >= 0 ? 0 : at;
}

/* Says how to see a job whose ctrun cannot be seen from here. */
static int refuse_elsewhere(const struct ct_detached_entry *entry, const char *host,
                            struct ct_err *err)
{
    const struct ct_detached_job *job = &entry->job;
    if (entry->where == CT_DETACHED_CONTAINER) {
        return ct_err_set(err, CT_ENOENT,
                          "job %s runs on this machine, but in another container (PID namespace), "
                          "with the host name %s: run ctrun --attach %s there",
                          job->id, job->host, job->id);
    }
    if (entry->where == CT_DETACHED_NAMESAKE) {
        return ct_err_set(err, CT_ENOENT,
                          "job %s runs on another machine that is called %s, too: run ctrun "
                          "--attach %s there",
                          job->id, job->host, job->id);
    }
    return ct_err_set(err, CT_ENOENT, "job %s runs on %s and not on %s: ssh %s ctrun --attach %s",
                      job->id, job->host, host, job->host, job->id);
}

static int open_job(struct viewer *viewer, int root, const char *host, struct ct_err *err)
{
    const struct ct_detached_job *job = &viewer->entry.job;
    sigset_t stop;
    if (viewer->entry.state == CT_DETACHED_VIA) {
        return 0; /* there is nothing here but the record */
    }
    if (viewer->entry.state == CT_DETACHED_ELSEWHERE) {
        return refuse_elsewhere(&viewer->entry, host, err);
    }
    viewer->folder = ct_state_folder_open_job(root, job->id, err);
    if (viewer->folder < 0) {
        return viewer->folder;
    }
    viewer->console = ct_state_folder_open_file(viewer->folder, CT_STATE_CONSOLE, O_RDONLY, err);
    if (viewer->console < 0) {
        (void)ct_err_wrap(err, "job %s", job->id);
        return viewer->console;
    }
    /* Opened now: the folder may be removed while somebody reads on, in a pager for days. */
    viewer->exit = ct_state_folder_open_file(viewer->folder, CT_STATE_EXIT, O_RDONLY, NULL);
    sigemptyset(&stop);
    sigaddset(&stop, SIGINT);
    (void)pthread_sigmask(SIG_BLOCK, &stop, NULL); /* this process ends with it */
    viewer->signals = signalfd(-1, &stop, SFD_CLOEXEC | SFD_NONBLOCK);
    if (viewer->signals < 0) { /* Ctrl-C would have no effect */
        return ct_err_sys(err, ct_code_from_errno(errno), errno, "cannot wait for signals");
    }
    if (viewer->entry.state == CT_DETACHED_RUNS) {
        open_process(job, &viewer->pidfd);
    }
    return 0;
}

static int open_viewer(struct viewer *viewer, const char *word, char *const *env, const char *host,
                       int *root, struct ct_err *err)
{
    int rc = ct_state_folder_path(env, viewer->root_path, err);
    if (rc != 0) {
        return rc;
    }
    *root = ct_state_folder_open(viewer->root_path, false, err);
    if (*root < 0 && *root != CT_ENOENT) {
        return *root;
    }
    if (*root < 0) {
        char named[CT_TEXT_EXCERPT_MAX] = "";
        say(viewer,
            "--attach%s%s: no detached job of yours is known on %s, and there is no folder %s "
            "(XDG_STATE_HOME): start one with ctrun --detach",
            word != NULL ? " " : "", word != NULL ? ct_text_excerpt(word, named) : "", host,
            viewer->root_path);
        return CT_EINVAL;
    }
    rc = choose(viewer, *root, word, host, err);
    return rc == 0 ? open_job(viewer, *root, host, err) : rc;
}

int ct_attach(const char *word, char *const *env, const char *host, int out_fd, int err_fd,
              struct ct_detached_job *via)
{
    struct viewer viewer = {.folder = -1,
                            .console = -1,
                            .exit = -1,
                            .pidfd = -1,
                            .signals = -1,
                            .out_fd = out_fd,
                            .err_fd = err_fd};
    struct ct_err err = {0};
    int root = -1, exit_code;
    int rc = open_viewer(&viewer, word, env, host, &root, &err);
    if (rc == 0 && viewer.entry.state == CT_DETACHED_VIA) {
        *via = viewer.entry.job;
        exit_code = CT_ATTACH_VIA;
    } else if (rc == 0) {
        exit_code = view(&viewer);
    } else if (rc == CT_EINVAL) { /* the reason was a list */
        exit_code = CT_EXIT_USAGE;
    } else {
        say(&viewer, "%s", err.text);
        exit_code = CT_EXIT_SETUP;
    }
    const int fds[] = {root,        viewer.folder, viewer.console,
                       viewer.exit, viewer.pidfd,  viewer.signals};
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
    }
    return exit_code;
}
