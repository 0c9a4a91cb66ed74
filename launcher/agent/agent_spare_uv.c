/* SPDX-License-Identifier: Apache-2.0
 *
 * The process of a spare: it is started on stand-ins for its standard streams, told what to import,
 * watched, ended, asked to be a worker, and given its real streams.
 *
 * Failure modes: what cannot be started is an error of the caller; a spare that is gone makes a
 * send fail.
 *
 * Who frees: agent_warm_uv.c, when the process has ended or belongs to a worker.
 */
#include "launcher/agent/agent_spare_uv.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/env_names.h"
#include "common/file.h"
#include "launcher/process/proctree.h"
#include "launcher/warm/spare.h"
#include "launcher/warm/spare_note.h"
#include "launcher/warm/spare_priority.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PRINTED_MAX 120

/* As much as a pipe takes. It waits in memory until it is looked at. */
#define STAND_IN_BYTES 65536

/* A spare without a process, in run->warm.all. NULL without memory. */
static struct ct_agent_spare *spare_new(struct ct_agent_run *run, int rank)
{
    struct ct_agent_spare *spare = ct_calloc(1, sizeof(*spare));
    if (spare == NULL) {
        return NULL;
    }
    spare->run = run;
    spare->rank = rank;
    spare->channel = spare->printed[0] = spare->printed[1] = -1;
    ct_list_append(&run->warm.all, &spare->link);
    return spare;
}

static void close_fds(struct ct_agent_spare *spare)
{
    if (spare->channel >= 0) {
        (void)close(spare->channel);
        (void)close(spare->printed[0]);
        (void)close(spare->printed[1]);
    }
    spare->channel = spare->printed[0] = spare->printed[1] = -1;
}

void ct_agent_spare_free(struct ct_agent_spare *spare)
{
    close_fds(spare);
    ct_strlist_fini(&spare->args);
    ct_strlist_fini(&spare->vars);
    ct_list_remove(&spare->link);
    ct_free(spare);
}

void ct_agent_spare_end(struct ct_agent_spare *spare)
{
    close_fds(spare);
    ct_proc_signal_group(spare->proc, SIGKILL);
}

/* ---- starting -------------------------------------------------------------------------------- */

/* A file of a fixed size: to write beyond it is an error. Nothing of it takes memory before it is
 * written. */
static int open_bounded(void)
{
    int fd = ct_file_in_memory("ctrun-spare-output", true);
    if (fd >= 0 && (ftruncate(fd, STAND_IN_BYTES) != 0 ||
                    fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0)) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

/* What stands in for a descriptor that only the worker will have: Python looks once whether a
 * stream can be repositioned. Gives the descriptor for the child and, for output, a second one that
 * reads what it writes. */
static int stand_in(bool seekable, bool output, int out[2])
{
    if (output && seekable) {
        out[1] = open_bounded();
        out[0] = out[1] >= 0 ? fcntl(out[1], F_DUPFD_CLOEXEC, 3) : -1;
    } else if (seekable) {
        out[0] = out[1] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    } else {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) {
            return -1;
        }
        out[0] = output ? ends[1] : ends[0];
        out[1] = output ? ends[0] : ends[1];
        return fcntl(ends[0], F_SETFL, output ? O_NONBLOCK : 0);
    }
    return out[0] >= 0 ? 0 : -1;
}

static void close_both(const int fds[2])
{
    for (int i = 0; i < 2; i++) {
        if (fds[i] >= 0 && (i == 0 || fds[1] != fds[0])) {
            (void)close(fds[i]);
        }
    }
}

/* The environment of a worker, and what makes a spare of the process: CTRUN_WARM and, for Python,
 * the folder of ctrun's part in front of the user's PYTHONPATH. */
static int add_part(struct ct_agent_run *run, struct ct_strlist *vars, const char *role,
                    char *const *env)
{
    static const char name[] = "PYTHONPATH=";
    const char *path = NULL;
    int rc = 0;
    for (; *env != NULL && rc == 0; env++) {
        if (run->warm.folder != NULL && strncmp(*env, name, sizeof(name) - 1) == 0) {
            path = *env + sizeof(name) - 1;
            rc = ct_strlist_printf(vars, "%s%s%s%s", name, run->warm.folder,
                                   path[0] != '\0' ? ":" : "", path);
        } else {
            rc = ct_strlist_borrow(vars, *env);
        }
    }
    if (rc == 0 && run->warm.folder != NULL && path == NULL) {
        rc = ct_strlist_printf(vars, "%s%s", name, run->warm.folder);
    }
    if (rc != 0) {
        return rc;
    }
    rc = ct_strlist_printf(vars, CT_WARM_ENV "=1:%d:%s", CT_SPARE_FD, role);
    if (rc != 0) {
        return rc;
    }
    return ct_strlist_close(vars);
}

/* Starts the process on three stand-ins and a socket. `env` is what a worker has; what makes it a
 * spare is added. CT_ENOMEM, and what ct_proc_start() returns. */
static int spare_start(struct ct_agent_spare *spare, char *const *argv, char *const *env,
                       ct_proc_exit_fn on_exit, struct ct_err *err)
{
    struct ct_agent_run *run = spare->run;
    const struct ct_job_spec *job = run->job;
    struct ct_strlist vars = {0};
    const struct ct_worker_options worker = {
        .job = job, .worker_env = &run->worker_env, .output = run->output};
    int channel[2] = {-1, -1}, in[2] = {-1, -1}, out[2] = {-1, -1}, err_out[2] = {-1, -1};
    bool reads = spare->rank == 0 && !job->options->agent_stdin;
    bool in_seekable = !reads || lseek(STDIN_FILENO, 0, SEEK_CUR) >= 0;
    bool out_seekable = spare->rank >= 0 && !job->options->detach &&
                        ct_worker_inherits_stdout(&worker, spare->rank) &&
                        lseek(STDOUT_FILENO, 0, SEEK_CUR) >= 0;
    int rc = add_part(run, &vars, spare->rank >= 0 ? "spare" : "plan", env);
    if (rc != 0) {
        rc = ct_err_set(err, rc, "out of memory");
    } else if (stat(job->command->path, &spare->program) != 0) {
        rc = ct_err_sys(err, ct_code_from_errno(errno), errno, "%s", job->command->path);
    } else if (stand_in(in_seekable, false, in) != 0 || stand_in(out_seekable, true, out) != 0 ||
               stand_in(false, true, err_out) != 0) {
        rc = ct_err_sys(err, ct_code_from_errno(errno), errno, "cannot make a pipe");
    } else {
        rc = ct_spare_pair(channel, err);
    }
    if (rc == 0) {
        bool idle = ct_spare_priority_may_idle();
        const struct ct_spawn_options options = {
            .path = job->command->path,
            .argv = argv,
            .envp = vars.list,
            .stdio = {in[0], out[0], err_out[0]},
            .cpus = spare->rank >= 0 ? ct_binder_cpus(&job->binder, spare->rank) : NULL,
            .nofile = &job->nofile,
            .passed = channel[1],
            .idle_cpu = idle,
            .idle_io = true,
        };
        rc = ct_proc_start(run->workers.procs, &options, on_exit, spare, &spare->proc, err);
    }
    if (rc == 0) {
        spare->channel = channel[0];
        spare->printed[0] = out[1];
        spare->printed[1] = err_out[1];
        spare->seekable[0] = in_seekable;
        spare->seekable[1] = out_seekable;
        channel[0] = out[1] = err_out[1] = -1;
    }
    close_both(channel);
    close_both(in);
    close_both(out);
    close_both(err_out);
    ct_strlist_fini(&vars);
    return rc;
}

static int send_program(struct ct_agent_spare *spare)
{
    const struct ct_options *options = spare->run->job->options;
    const char *names = options->warm_import;
    bool named = names != NULL && strcmp(names, "auto") != 0;
    const char *fields[] = {"plan", options->module ? "module" : "file", options->command[0],
                            named ? names : "", NULL};
    return ct_spare_send(spare->channel, fields, NULL, 0);
}

/* The environment goes with it, because a wrapper around the interpreter may change its own. */
static int send_imports(struct ct_agent_spare *spare, char *const *env, struct ct_err *err)
{
    const char *plan = spare->run->warm.plan;
    const char *fields[] = {"import", plan != NULL ? plan : "", NULL};
    int fd;
    int rc = ct_spare_environment(env, &fd, err);
    if (rc == 0) {
        rc = ct_spare_send(spare->channel, fields, &fd, 1);
        (void)close(fd);
    }
    return rc;
}

/* What workers of the next generation are told, as far as that is known. Before the first one
 * ranks and master are a guess. */
static struct ct_worker_env next_env(const struct ct_agent_run *run)
{
    const struct ct_resolved *resolved = run->job->resolved;
    struct ct_worker_env next = run->worker_env;
    if (run->agent.generation >= 0) {
        next.generation++;
        return next;
    }
    next.node_rank = resolved->node_rank > 0 ? resolved->node_rank : 0;
    next.node_count =
        resolved->min_nodes > next.node_rank ? resolved->min_nodes : next.node_rank + 1;
    next.first_rank = next.first_role_rank = next.node_rank * resolved->workers;
    next.world_size = next.role_size = next.node_count * resolved->workers;
    next.master_addr = run->store.address.host;
    next.master_port = run->store.address.port != 0 ? run->store.address.port : 1;
    ct_resolved_worker_env(resolved, &next);
    return next;
}

/* Looks at the files that make a spare of the process; without a part of ctrun's out[1] is zeroed.
 * The errors of stat(2). */
static int look_at_files(const struct ct_agent_run *run, struct stat out[2], struct ct_err *err)
{
    char part[PATH_MAX];
    const char *paths[] = {run->job->command->path, part};
    int count = run->warm.folder != NULL ? 2 : 1;
    (void)snprintf(part, sizeof(part), "%s/sitecustomize.py", count == 2 ? run->warm.folder : "");
    out[1] = (struct stat){0};
    for (int i = 0; i < count; i++) {
        if (stat(paths[i], &out[i]) != 0) {
            return ct_err_sys(err, ct_code_from_errno(errno), errno, "%s", paths[i]);
        }
    }
    return 0;
}

static bool is_same(const struct stat *then, const struct stat *now)
{
    return now->st_ino == then->st_ino && now->st_dev == then->st_dev &&
           now->st_size == then->st_size && now->st_mtim.tv_sec == then->st_mtim.tv_sec &&
           now->st_mtim.tv_nsec == then->st_mtim.tv_nsec;
}

bool ct_agent_spare_plan_holds(const struct ct_agent_run *run)
{
    struct stat now[2];
    return look_at_files(run, now, NULL) == 0 && is_same(&run->warm.files[0], &now[0]) &&
           is_same(&run->warm.files[1], &now[1]);
}

/* Begins a plan. Sets *done if there is none to be made. */
static int begin_plan(struct ct_agent_run *run, bool *done, struct ct_err *err)
{
    const char *path = run->job->command->path;
    int rc = look_at_files(run, run->warm.files, err);
    *done = !run->job->command->python; /* the program knows what to make ready */
    if (rc == 0 && *done && !ct_spare_note_in(path)) {
        rc = ct_err_set(err, CT_EUNSUPPORTED, "%s offers no warm form of itself any more", path);
    } else if (rc == 0 && *done) {
        ct_warm_planned(&run->warm.policy);
    }
    return rc;
}

int ct_agent_spare_make(struct ct_agent_run *run, int rank, ct_proc_exit_fn on_exit,
                        struct ct_err *err)
{
    bool done = false;
    int rc = rank < 0 ? begin_plan(run, &done, err) : 0;
    if (rc != 0 || done) {
        return rc;
    }
    const struct ct_worker_env next = next_env(run);
    struct ct_strlist vars = {0};
    char socket[CT_PROBE_SOCKET_MAX];
    const struct ct_worker_options options = {.job = run->job, .worker_env = &next};
    struct ct_agent_spare *spare = spare_new(run, rank);
    if (spare == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    rc = ct_worker_describe(&options, rank < 0 ? 0 : rank, socket, &spare->args, &vars, err);
    if (rc == 0 && rank < 0) {
        static char flag[] = "-u", command[] = "-c", text[] = "pass";
        char *nothing[] = {run->job->command->path, flag, command, text, NULL};
        rc = spare_start(spare, nothing, vars.list, on_exit, err);
    } else if (rc == 0) {
        rc = spare_start(spare, spare->args.list, vars.list, on_exit, err);
    }
    if (rc != 0) {
        ct_agent_spare_free(spare);
    } else {
        rc = rank < 0 ? send_program(spare) : send_imports(spare, vars.list, err);
        if (rc != 0) {
            ct_agent_spare_end(spare);
            rc = ct_err_set(err, rc, "it cannot be told what to import");
        }
    }
    ct_strlist_fini(&vars);
    return rc;
}

/* ---- watching -------------------------------------------------------------------------------- */

/* Reads the first line that is there, if any. A file has memory only where something was written.
 */
static bool read_line(int fd, char text[PRINTED_MAX + 1])
{
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    struct stat file;
    if (fstat(fd, &file) != 0 || (S_ISREG(file.st_mode) && file.st_blocks == 0) ||
        poll(&poller, 1, 0) <= 0) {
        return false;
    }
    ssize_t len =
        S_ISREG(file.st_mode) ? pread(fd, text, PRINTED_MAX, 0) : read(fd, text, PRINTED_MAX);
    if (len <= 0) {
        return false;
    }
    text[len] = '\0';
    text[strcspn(text, "\r\n")] = '\0';
    for (char *c = text; *c != '\0'; c++) {
        *c = (unsigned char)*c < ' ' || *c == 0x7f ? ' ' : *c;
    }
    return true;
}

bool ct_agent_spare_printed(const struct ct_agent_spare *spare, const char *who, char *why,
                            size_t size)
{
    char text[PRINTED_MAX + 1];
    if (!read_line(spare->printed[0], text) && !read_line(spare->printed[1], text)) {
        return false;
    }
    (void)snprintf(why, size, "%s has printed: %s", who, text);
    return true;
}

bool ct_agent_spare_stopped(const struct ct_agent_spare *spare)
{
    siginfo_t info = {0};
    pid_t pid = ct_proc_pid(spare->proc);
    return waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

int64_t ct_agent_spare_cpu_ms(const struct ct_agent_spare *spare)
{
    pid_t family[CT_SPARE_PROCESSES_MAX];
    size_t count;
    int64_t ms = 0;
    (void)ct_proctree_family(ct_proc_pid(spare->proc), family, CT_SPARE_PROCESSES_MAX, &count);
    for (size_t i = 0; i < count; i++) {
        clockid_t clock;
        struct timespec used;
        if (clock_getcpuclockid(family[i], &clock) == 0 && clock_gettime(clock, &used) == 0) {
            ms += (int64_t)used.tv_sec * 1000 + used.tv_nsec / CT_NS_PER_MS;
        }
    }
    return ms;
}

/* Does the command still name the file with which the process was started? Behind it may stand
 * another one, which a spare checks itself: the interpreter of a script. */
static bool is_current(const struct ct_agent_spare *spare)
{
    struct stat now;
    return stat(spare->run->job->command->path, &now) == 0 && is_same(&spare->program, &now);
}

bool ct_agent_spare_same(char *const *one, char *const *other)
{
    for (; *one != NULL && *other != NULL; one++, other++) {
        if (strcmp(*one, *other) != 0) {
            return false;
        }
    }
    return *one == *other;
}

bool ct_agent_spare_ask(struct ct_agent_spare *spare, char why[CT_WARM_WHY_MAX])
{
    struct ct_agent_run *run = spare->run;
    const struct ct_worker_options options = {.job = run->job, .worker_env = &run->worker_env};
    const char *go[] = {"go", run->job->options->module ? "module" : "file",
                        run->job->options->command[0], NULL};
    pid_t pid = ct_proc_pid(spare->proc);
    struct ct_strlist args = {0};
    char socket[CT_PROBE_SOCKET_MAX];
    struct ct_err err = {0};
    int fd = -1;
    (void)snprintf(why, CT_WARM_WHY_MAX, "its spare (pid %d) does not answer", (int)pid);
    if (ct_agent_spare_stopped(spare) ||
        ct_agent_spare_printed(spare, "its spare", why, CT_WARM_WHY_MAX)) {
        return false;
    }
    if (!ct_spare_priority_restore(pid)) {
        (void)snprintf(why, CT_WARM_WHY_MAX, "its spare (pid %d) stays at idle priority", (int)pid);
        return false;
    }
    int rc = ct_worker_describe(&options, spare->rank, socket, &args, &spare->vars, &err);
    if (rc == 0 && !is_current(spare)) {
        rc = ct_err_set(&err, CT_EINVAL, "%s has changed", run->job->command->path);
    }
    if (rc == 0 && !ct_agent_spare_same(spare->args.list, args.list)) {
        rc = ct_err_set(&err, CT_EINVAL, "its arguments have changed");
    }
    if (rc == 0) {
        rc = ct_spare_environment(spare->vars.list, &fd, &err);
    }
    if (err.text[0] != '\0') {
        (void)snprintf(why, CT_WARM_WHY_MAX, "%.*s", CT_WARM_WHY_MAX - 1, err.text);
    }
    if (rc == 0) {
        rc = ct_spare_send(spare->channel, go, &fd, 1);
        (void)close(fd);
        if (rc == CT_EIO) { /* its end is closed, and its exit was not seen yet */
            (void)snprintf(why, CT_WARM_WHY_MAX, "its spare (pid %d) has died", (int)pid);
        }
    }
    ct_strlist_fini(&args);
    spare->asked = rc == 0;
    return rc == 0;
}

static bool is_seekable(int fd)
{
    return fd < 0 || lseek(fd, 0, SEEK_CUR) >= 0; /* -1 stands for /dev/null */
}

bool ct_agent_spare_go(struct ct_agent_spare *spare, const int stdio[3], char why[CT_WARM_WHY_MAX])
{
    static const char *const start[] = {"start", NULL};
    int fds[3];
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    (void)snprintf(why, CT_WARM_WHY_MAX, "its spare (pid %d) has died",
                   (int)ct_proc_pid(spare->proc));
    bool ok = !ct_agent_spare_printed(spare, "its spare", why, CT_WARM_WHY_MAX);
    for (int i = 0; i < 3; i++) {
        fds[i] = stdio[i] >= 0 ? stdio[i] : null;
        if (ok && is_seekable(stdio[i]) != spare->seekable[i]) {
            (void)snprintf(why, CT_WARM_WHY_MAX, "descriptor %d is of another kind than it was", i);
            ok = false;
        }
    }
    ok = ok && ct_spare_send(spare->channel, start, fds, 3) == 0;
    if (null >= 0) {
        (void)close(null);
    }
    return ok;
}
