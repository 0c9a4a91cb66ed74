/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: make the folder of the job and fork. The child makes a session of its own, writes the
 * record of the job, and goes on as the ctrun of the job. When its workers run, it writes the
 * address of the store into a pipe. The parent then says where the job is, and ends.
 *
 * Other paths: the child ends before its workers run. The parent has shown what it wrote, removes
 * the folder, and ends with its exit code. A second ctrun on the way, whose agent asks for a signal
 * or is gone, passes that on.
 *
 * Failure modes: a parent that is killed leaves the job as it is, unless another ctrun started it.
 * A job that cannot write its address on a full disk is still found by its id.
 */
#include "launcher/detach/detach.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/exit_code.h"
#include "common/file.h"
#include "common/num.h"
#include "launcher/detach/detached_list.h"
#include "launcher/detach/state_folder.h"
#include "launcher/process/proctree.h"
#include "launcher/report/report.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* How often the parent looks whether the job has written something. */
#define LOOK_MS 50
/* So many pieces are shown when the workers run: what ctrun has said before is much less. */
#define LAST_PIECES 4
/* Names that are tried for the folder. */
#define TRIES 16

/* What the parent has opened. */
struct waiter {
    const struct ct_detach_spec *spec;
    const char *root_path;
    const struct ct_detach *detach;
    pid_t child;
    int pipe, signals, console;
    int out_fd, err_fd;
    bool listens;  /* to standard input */
    bool cut_off;  /* standard input has ended, so the job was told to end */
    bool shown;    /* something of the job */
    char line[32]; /* of standard input */
    size_t line_len;
    char address[CT_JOB_ADDRESS_MAX];
    size_t address_len;
};

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
        *fd = -1;
    }
}

/* ---- the folder ------------------------------------------------------------------------------ */

static int make_folder(int root, const struct ct_detach_spec *spec, struct ct_detached_job *job,
                       struct ct_err *err)
{
    if (spec->options->agent_job != NULL) {
        if (!ct_detached_job_is_name(spec->options->agent_job)) {
            return ct_err_set(err, CT_EINVAL, "--agent-job: '%.64s' is no id of a job",
                              spec->options->agent_job);
        }
        (void)snprintf(job->id, sizeof(job->id), "%s", spec->options->agent_job);
        return ct_state_folder_make_job(root, job->id, err);
    }
    for (int i = 0; i < TRIES; i++) {
        unsigned char random[CT_DETACHED_RANDOM];
        if (getentropy(random, sizeof(random)) != 0) {
            return ct_err_sys(err, CT_EIO, errno, "cannot draw a random id");
        }
        if (spec->run_id_random && i == 0) { /* ctrun-stat shows the run id, so this begins it */
            (void)snprintf(job->id, sizeof(job->id), "%.8s", spec->run_id);
        } else {
            ct_detached_job_name(spec->run_id_given ? spec->run_id : NULL, random, job->id);
        }
        int fd = ct_state_folder_make_job(root, job->id, err);
        if (fd != CT_EBUSY) {
            return fd;
        }
    }
    return CT_EBUSY;
}

/* `rc` tells why the folder of a job could not be made. */
static int refuse_folder(const char *root_path, int rc, struct ct_err *err)
{
    if (rc == CT_EBUSY || rc == CT_EINVAL) { /* a mistake in --agent-job */
        return rc;
    }
    (void)ct_err_wrap(err, "%s", root_path);
    return ct_state_folder_advise(err, rc);
}

/* Closes it first: to remove it takes a descriptor, and there may be no other. */
static void give_up_folder(int root, int *folder, const struct ct_detached_job *job)
{
    close_fd(folder);
    ct_state_folder_remove_job(root, job->id);
}

static void write_exit(const struct ct_detach *detach, int exit_code)
{
    char text[CT_DETACHED_EXIT_SIZE + 1];
    ct_detached_job_exit_text(exit_code, (int64_t)time(NULL), text);
    ssize_t n;
    do {
        n = pwrite(detach->exit, text, CT_DETACHED_EXIT_SIZE, 0);
    } while (n < 0 && errno == EINTR);
}

static int write_record(int folder, const struct ct_detached_job *job, struct ct_err *err)
{
    struct ct_buf text = CT_BUF_INIT;
    int rc = ct_detached_job_print(job, &text);
    if (rc != 0) {
        rc = ct_err_set(err, rc, "out of memory for a detached job");
    } else {
        rc = ct_state_folder_write(folder, CT_STATE_JOB, (const char *)ct_buf_bytes(&text),
                                   text.len, err);
        if (rc != 0) {
            (void)ct_err_wrap(err, "job %s", job->id);
        }
    }
    ct_buf_fini(&text);
    return rc;
}

/* Fills in what is known of this process. */
static void describe_self(struct ct_detached_job *job, const char *host)
{
    struct ct_proctree_entry self = {0};
    struct ct_detached_here here;
    (void)ct_proctree_read_pid(getpid(), &self);
    ct_detached_list_here(host, &here);
    job->pid = getpid();
    job->start = self.start;
    job->begun_s = (int64_t)time(NULL);
    (void)snprintf(job->host, sizeof(job->host), "%s", host);
    (void)snprintf(job->place, sizeof(job->place), "%s", here.place);
    (void)snprintf(job->machine, sizeof(job->machine), "%s", here.machine);
}

int ct_detach_note(char *const *env, const char *host, struct ct_detached_job *job,
                   struct ct_err *err)
{
    char root_path[CT_STATE_FOLDER_MAX];
    int rc = ct_state_folder_path(env, root_path, err);
    if (rc != 0) {
        return rc;
    }
    int root = ct_state_folder_open(root_path, true, err);
    if (root < 0) {
        return root;
    }
    ct_detached_list_prune(root, host, (int64_t)time(NULL));
    int folder = ct_state_folder_make_job(root, job->id, err);
    if (folder >= 0) {
        describe_self(job, host);
        rc = write_record(folder, job, err);
        if (rc != 0) {
            give_up_folder(root, &folder, job);
        }
    } else {
        rc = refuse_folder(root_path, folder, err);
    }
    close_fd(&folder);
    close_fd(&root);
    return rc;
}

/* ---- the child ------------------------------------------------------------------------------- */

/* Takes the place of standard input, output and error. */
static int leave_terminal(int console, struct ct_err *err)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(console, STDOUT_FILENO) < 0 ||
        dup2(console, STDERR_FILENO) < 0) {
        int saved = errno;
        if (null >= 0) {
            (void)close(null);
        }
        return ct_err_sys(err, CT_EIO, saved, "cannot leave the terminal");
    }
    (void)close(null);
    (void)setsid(); /* a new child leads no group, so this cannot fail */
    return 0;
}

/* Closes what was inherited but for the standard streams and the job's own. A pipe or a lock of the
 * shell would stay open as long as the job runs. */
static void close_inherited(const struct ct_detach *detach)
{
    int first = STDERR_FILENO + 1;
    while (first < INT_MAX) {
        int next = INT_MAX; /* the lowest of ours from `first` on */
        const int ours[] = {detach->folder, detach->exit, detach->pipe};
        for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
            next = ours[i] >= first && ours[i] < next ? ours[i] : next;
        }
        if (next > first) {
            (void)close_range((unsigned)first, (unsigned)next - 1, 0);
        }
        first = next < INT_MAX ? next + 1 : INT_MAX;
    }
}

/* A launch agent of this machine may be killed together with the parent, which can then pass
 * nothing on. So until the workers run, the end of the parent ends the job. */
static void follow_parent(pid_t parent)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGHUP);
    if (getppid() != parent) { /* it was faster */
        (void)raise(SIGHUP);
    }
}

/* Notes the word by which --attach finds the job on its other machines. With --hosts, the id is
 * that of the job, a dash and the number of the machine. */
static void fill_word(const struct ct_detach_spec *spec, struct ct_detached_job *job)
{
    const char *dash = spec->options->agent_job != NULL ? strrchr(job->id, '-') : NULL;
    const char *word = dash != NULL ? job->id : spec->run_id;
    int len = dash != NULL ? (int)(dash - job->id) : (int)sizeof(job->word) - 1;
    (void)snprintf(job->word, sizeof(job->word), "%.*s", len, word);
}

static int begin_child(struct ct_detach *detach, const struct ct_detach_spec *spec, int console,
                       pid_t parent, struct ct_err *err)
{
    struct ct_detached_job *job = &detach->job;
    int rc = leave_terminal(console, err);
    if (rc != 0) {
        return rc;
    }
    if (spec->options->agent_stdin) {
        follow_parent(parent);
    }
    describe_self(job, spec->host);
    (void)snprintf(job->run_id, sizeof(job->run_id), "%s", spec->run_id);
    fill_word(spec, job);
    ct_options_program(spec->options, job->program);
    detach->begun = true;
    write_exit(detach, -1);
    return write_record(detach->folder, job, err);
}

void ct_detach_started(struct ct_detach *detach, const char *address, const char *others)
{
    if (detach == NULL || !detach->begun) {
        return;
    }
    if (strcmp(detach->job.address, address) != 0 || strcmp(detach->job.others, others) != 0) {
        (void)snprintf(detach->job.address, sizeof(detach->job.address), "%s", address);
        (void)snprintf(detach->job.others, sizeof(detach->job.others), "%s", others);
        int rc = write_record(detach->folder, &detach->job, NULL); /* the id still finds the job */
        (void)rc;
    }
    if (detach->pipe >= 0) {
        (void)prctl(PR_SET_PDEATHSIG, 0); /* the parent ends now */
        char line[CT_JOB_ADDRESS_MAX + 1];
        int len = snprintf(line, sizeof(line), "%s\n", address);
        int rc = ct_fd_write_all(detach->pipe, line, (size_t)len); /* the parent may be gone */
        (void)rc;
        close_fd(&detach->pipe);
    }
}

void ct_detach_end(struct ct_detach *detach, int exit_code)
{
    if (!detach->begun) {
        return;
    }
    detach->begun = false;
    write_exit(detach, exit_code);
    close_fd(&detach->exit);
    close_fd(&detach->folder);
    close_fd(&detach->pipe);
}

/* ---- the parent ------------------------------------------------------------------------------ */

/* Shows some of what the job has written since. Returns false if that was all, or if nobody reads
 * it. */
static bool show_some(struct waiter *waiter)
{
    char bytes[16384];
    ssize_t n = read(waiter->console, bytes, sizeof(bytes));
    if (n <= 0) {
        return false;
    }
    waiter->shown = true;
    return ct_fd_write_all(waiter->err_fd, bytes, (size_t)n) == 0;
}

static void take_signal(struct waiter *waiter)
{
    struct signalfd_siginfo info;
    if (read(waiter->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        (void)kill(waiter->child, (int)info.ssi_signo);
    }
}

/* A line "signal N" of the ctrun that has started this one. */
static void take_line(struct waiter *waiter)
{
    static const char word[] = "signal ";
    int signo;
    waiter->line[waiter->line_len] = '\0';
    waiter->line_len = 0;
    if (strncmp(waiter->line, word, sizeof(word) - 1) == 0 &&
        ct_parse_int(waiter->line + sizeof(word) - 1, 1, SIGRTMAX, &signo) == 0) {
        (void)kill(waiter->child, signo);
    }
}

static void take_input(struct waiter *waiter)
{
    char bytes[64];
    ssize_t n = read(STDIN_FILENO, bytes, sizeof(bytes));
    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) {
        waiter->listens = false;
        waiter->cut_off = true;
        (void)kill(waiter->child, SIGHUP);
    }
    for (ssize_t i = 0; i < n; i++) {
        if (bytes[i] == '\n') {
            take_line(waiter);
        } else if (waiter->line_len < sizeof(waiter->line) - 1) {
            waiter->line[waiter->line_len++] = bytes[i];
        }
    }
}

/* Returns true at the end of the pipe. */
static bool take_address(struct waiter *waiter)
{
    size_t room = sizeof(waiter->address) - 1 - waiter->address_len;
    ssize_t n = room > 0 ? read(waiter->pipe, waiter->address + waiter->address_len, room) : 0;
    if (n > 0) {
        waiter->address_len += (size_t)n;
    }
    return n == 0 || (n < 0 && errno != EINTR);
}

static void say_where(const struct waiter *waiter)
{
    const struct ct_detached_job *job = &waiter->detach->job;
    char text[4 * CT_STATE_FOLDER_MAX];
    int len;
    if (waiter->spec->options
            ->agent_stdin) { /* the ctrun there says the rest, once for all machines */
        len =
            snprintf(text, sizeof(text), "%s%s: process %ld" CT_DETACH_OUTPUT_IN "%s/%s/%s there\n",
                     CT_REPORT_PREFIX, waiter->spec->host, (long)waiter->child, waiter->root_path,
                     job->id, CT_STATE_CONSOLE);
    } else {
        len = snprintf(text, sizeof(text),
                       "%sjob %s runs on %s without this terminal, as process %ld\n"
                       "%sits output: ctrun --attach %s, or %s/%s/%s\n"
                       "%sits status: ctrun-stat %s\n"
                       "%sto end it: kill %ld\n",
                       CT_REPORT_PREFIX, job->id, waiter->spec->host, (long)waiter->child,
                       CT_REPORT_PREFIX, job->id, waiter->root_path, job->id, CT_STATE_CONSOLE,
                       CT_REPORT_PREFIX, waiter->address, CT_REPORT_PREFIX, (long)waiter->child);
    }
    size_t size = (size_t)len < sizeof(text) ? (size_t)len : sizeof(text) - 1;
    if (ct_fd_write_all(waiter->out_fd, text, size) == 0) {
        return;
    }
    struct ct_err err = {0};
    (void)ct_err_sys(&err, CT_EIO, errno, "cannot write to standard output");
    len = snprintf(text, sizeof(text),
                   "%s%s; job %s runs all the same, as process %ld: ctrun --attach %s shows it\n",
                   CT_REPORT_PREFIX, err.text, job->id, (long)waiter->child, job->id);
    int rc = ct_fd_write_all(waiter->err_fd, text, (size_t)len); /* there is nobody else to tell */
    (void)rc;
}

/* Returns when the child says that its workers run, or has ended. Workers may write faster than a
 * slow terminal shows, so between any two pieces it looks whether they run, and for signals. */
static void wait_for_child(struct waiter *waiter)
{
    bool over = false, more = false;
    while (!over) {
        struct pollfd ready[] = {
            {.fd = waiter->pipe, .events = POLLIN},
            {.fd = waiter->signals, .events = POLLIN},
            {.fd = waiter->listens ? STDIN_FILENO : -1, .events = POLLIN},
        };
        int n = poll(ready, sizeof(ready) / sizeof(ready[0]), more ? 0 : LOOK_MS);
        more = show_some(waiter);
        if (n > 0 && ready[2].revents != 0) {
            take_input(waiter);
        }
        if (n > 0 && ready[1].revents != 0) {
            take_signal(waiter);
        }
        over = n > 0 && ready[0].revents != 0 && take_address(waiter);
    }
    for (int i = 0; i < LAST_PIECES && show_some(waiter); i++) {
    }
}

/* A process that was killed, or that cannot write on a full disk, has not said why it ended. */
static void say_why(const struct waiter *waiter, int status)
{
    char text[2 * CT_STATE_FOLDER_MAX];
    int len = 0;
    if (waiter->cut_off && (WIFEXITED(status) || WTERMSIG(status) == SIGHUP)) {
        return; /* the ctrun that has started this one knows why it ended the job */
    }
    if (WIFSIGNALED(status)) {
        len =
            snprintf(text, sizeof(text),
                     "%sthe job's ctrun (process %ld) was killed by SIG%s before the workers ran\n",
                     CT_REPORT_PREFIX, (long)waiter->child, sigabbrev_np(WTERMSIG(status)));
    } else if (WEXITSTATUS(status) != 0 && !waiter->shown) {
        len = snprintf(text, sizeof(text),
                       "%sthe job ended with code %d before the workers ran, and could not write "
                       "why: is the disk of %s full?\n",
                       CT_REPORT_PREFIX, WEXITSTATUS(status), waiter->root_path);
    }
    int rc = ct_fd_write_all(waiter->err_fd, text, (size_t)len); /* there is nobody else to tell */
    (void)rc;
}

/* Returns the exit code of the parent. */
static int be_parent(struct waiter *waiter, int root)
{
    int status = 0;
    wait_for_child(waiter);
    char *end = memchr(waiter->address, '\n', waiter->address_len);
    if (end != NULL) {
        *end = '\0';
        say_where(waiter);
        return CT_EXIT_OK;
    }
    while (waitpid(waiter->child, &status, 0) < 0) {
        if (errno != EINTR) {
            return CT_EXIT_SETUP;
        }
    }
    while (show_some(waiter)) {
    }
    say_why(waiter, status);
    ct_state_folder_remove_job(root, waiter->detach->job.id);
    return WIFEXITED(status) ? WEXITSTATUS(status) : CT_EXIT_SIGNAL_BASE + WTERMSIG(status);
}

/* ---- both ------------------------------------------------------------------------------------ */

static int open_files(struct ct_detach *detach, int *console, int *reader, struct ct_err *err)
{
    *console = ct_state_folder_open_file(detach->folder, CT_STATE_CONSOLE,
                                         O_WRONLY | O_CREAT | O_EXCL | O_APPEND, err);
    if (*console < 0) {
        return *console;
    }
    *reader = ct_state_folder_open_file(detach->folder, CT_STATE_CONSOLE, O_RDONLY, err);
    if (*reader < 0) {
        return *reader;
    }
    detach->exit =
        ct_state_folder_open_file(detach->folder, CT_STATE_EXIT, O_WRONLY | O_CREAT | O_EXCL, err);
    return detach->exit < 0 ? detach->exit : 0;
}

static int fork_job(struct ct_detach *detach, struct waiter *waiter, sigset_t *before,
                    struct ct_err *err)
{
    sigset_t passed;
    int pipes[2];
    sigemptyset(&passed);
    sigaddset(&passed, SIGINT);
    sigaddset(&passed, SIGTERM);
    sigaddset(&passed, SIGQUIT);
    if (pipe2(pipes, O_CLOEXEC) != 0) {
        return ct_err_sys(err, ct_code_from_errno(errno), errno, "cannot make a pipe");
    }
    waiter->pipe = pipes[0];
    detach->pipe = pipes[1];
    (void)pthread_sigmask(SIG_BLOCK, &passed, before);
    waiter->signals = signalfd(-1, &passed, SFD_CLOEXEC | SFD_NONBLOCK);
    waiter->child = waiter->signals >= 0 ? fork() : -1;
    int saved = errno;
    if (waiter->child <= 0) {
        (void)pthread_sigmask(SIG_SETMASK, before, NULL);
    }
    return waiter->child >= 0
               ? 0
               : ct_err_sys(err, ct_code_from_errno(saved), saved, "cannot start a detached job");
}

int ct_detach_begin(struct ct_detach *detach, const struct ct_detach_spec *spec, int out_fd,
                    int err_fd, int *exit_code, struct ct_err *err)
{
    char root_path[CT_STATE_FOLDER_MAX];
    sigset_t before;
    struct waiter waiter = {.spec = spec,
                            .root_path = root_path,
                            .detach = detach,
                            .pipe = -1,
                            .signals = -1,
                            .console = -1,
                            .out_fd = out_fd,
                            .err_fd = err_fd,
                            .listens = spec->options->agent_stdin};
    const pid_t parent = getpid();
    int root = -1, console = -1;
    if (!spec->options->detach) {
        return 0;
    }
    *detach = (struct ct_detach){.folder = -1, .exit = -1, .pipe = -1};
    int rc = ct_state_folder_path(spec->env, root_path, err);
    if (rc != 0) {
        return rc;
    }
    root = ct_state_folder_open(root_path, true, err);
    if (root < 0) {
        return root;
    }
    ct_detached_list_prune(root, spec->host, (int64_t)time(NULL));
    detach->folder = make_folder(root, spec, &detach->job, err);
    rc = detach->folder < 0 ? detach->folder : 0;
    if (rc != 0) {
        rc = refuse_folder(root_path, rc, err);
        goto out;
    }
    rc = open_files(detach, &console, &waiter.console, err);
    if (rc != 0) {
        (void)ct_err_wrap(err, "%s: job %s", root_path, detach->job.id);
        rc = ct_state_folder_advise(err, rc);
        give_up_folder(root, &detach->folder, &detach->job);
        goto out;
    }
    rc = fork_job(detach, &waiter, &before, err);
    if (rc != 0) {
        give_up_folder(root, &detach->folder, &detach->job);
        goto out;
    }
    if (waiter.child == 0) {
        rc = begin_child(detach, spec, console, parent, err);
    } else {
        close_fd(&detach->pipe); /* or its end would never come */
        *exit_code = be_parent(&waiter, root);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        rc = CT_DETACH_LEFT;
    }
out:
    close_fd(&root);
    close_fd(&console);
    close_fd(&waiter.console);
    close_fd(&waiter.pipe);
    close_fd(&waiter.signals);
    if (rc != 0) {
        close_fd(&detach->pipe);
        close_fd(&detach->exit);
        close_fd(&detach->folder);
        detach->begun = false;
    } else {
        close_inherited(detach);
    }
    return rc;
}
