/* SPDX-License-Identifier: Apache-2.0
 *
 * Spare interpreters (--warm): carries out what warm.h decides, and makes workers of spares.
 *
 * Happy path: when all workers run, a process reads the program and answers with a plan. Then one
 * spare after the other is started with the command line and the environment that the worker of its
 * rank will have in the next generation, but with the folder of ctrun's part in Python in front of
 * PYTHONPATH. It imports and says that it is ready. When the next generation begins, all spares are
 * asked whether they are there. Each gets its priority, its descriptors and its environment, says
 * that these are set, and is told to start. From then on it is a worker like any other.
 *
 * Failure modes: a spare that refuses, has printed, does not answer, or has died is ended, one line
 * says why, and the worker starts cold. A spare is ended before the worker is started in its place,
 * so no rank is there twice.
 *
 * Who frees: a spare lives until its process has ended, or belongs to a worker. Spares are looked
 * at from a timer, so they have no handles of their own. ct_agent_warm_close() ends and frees all.
 */
#include "launcher/agent/agent_run_uv.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "launcher/util/environ.h"
#include "launcher/warm/spare.h"
#include "launcher/warm/spare_priority.h"
#include "launcher/warm/warm_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* All spares together have this time to say that they are there. They only wait for this, but the
 * machine may be busy. */
#define PONG_MS 2000
/* One spare has this time to compare its files and its environment, which takes milliseconds. If
 * one does not make it, the next one has a quarter of its time, because nothing else happens
 * meanwhile: many spares may wait for the same file server, and other machines take a silent ctrun
 * for lost. */
#define SET_MS 2000

#define PRINTED_MAX 120

static const char *const own_names[] = {"launcher/warm/sitecustomize.py", "warm/sitecustomize.py"};

/* A process that waits to be a worker, or that makes the plan. */
struct ct_agent_spare {
    struct ct_list link; /* in run->warm.all */
    struct ct_agent_run *run;
    struct ct_proc *proc;
    int rank;               /* local rank; -1 = it makes the plan */
    int channel;            /* -1 = it is being ended */
    struct ct_strlist args; /* its command line */
    int printed[2];         /* what it writes to its stdout and stderr can be read here */
    bool answered;          /* it has said that it is there */
};

static void spare_close_fds(struct ct_agent_spare *spare)
{
    if (spare->channel >= 0) {
        (void)close(spare->channel);
        (void)close(spare->printed[0]);
        (void)close(spare->printed[1]);
    }
    spare->channel = spare->printed[0] = spare->printed[1] = -1;
}

static void spare_free(struct ct_agent_spare *spare)
{
    spare_close_fds(spare);
    ct_strlist_fini(&spare->args);
    ct_list_remove(&spare->link);
    ct_free(spare);
}

static void look_soon(struct ct_agent_run *run);
static void turn_off(struct ct_agent_run *run, const char *why);

static struct ct_agent_spare *find_spare(struct ct_agent_run *run, int rank)
{
    for (struct ct_list *l = run->warm.all.next; l != &run->warm.all; l = l->next) {
        struct ct_agent_spare *spare = CT_CONTAINER_OF(l, struct ct_agent_spare, link);
        if (spare->rank == rank && spare->channel >= 0) {
            return spare;
        }
    }
    return NULL;
}

/* Kills it. It is freed when its end is seen. */
static void spare_end(struct ct_agent_spare *spare)
{
    spare_close_fds(spare);
    ct_proc_signal_group(spare->proc, SIGKILL);
}

static void on_spare_exit(void *data, struct ct_proc *proc, const struct ct_exit *end)
{
    struct ct_agent_spare *spare = data;
    struct ct_agent_run *run = spare->run;
    (void)end;
    if (spare->channel >= 0 && spare->rank >= 0) {
        /* Its last message may say why it has ended. */
        struct ct_spare_message *message = &run->warm.message;
        ct_spare_receive(spare->channel, 0, message);
        if (message->word == CT_SPARE_NO) {
            turn_off(run, message->text);
        }
        ct_warm_died(&run->warm.policy, spare->rank);
        look_soon(run);
    }
    if (spare->rank >= 0 || spare->channel < 0) {
        ct_proc_free(proc);
        spare_free(spare);
    } else {
        spare->proc = NULL; /* on_look() reads its answer */
        ct_proc_free(proc);
        look_soon(run);
    }
}

/* ---- starting -------------------------------------------------------------------------------- */

/* What stands in for a descriptor that only the worker will have: Python looks once whether a
 * stream can be repositioned. Gives the descriptor for the child and, for output, a second one that
 * reads what it writes. */
static int stand_in(bool seekable, bool output, int out[2])
{
    if (output && seekable) {
        out[1] = memfd_create("ctrun-spare-output", MFD_CLOEXEC);
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

/* The folder of ctrun's part in Python in front of the user's PYTHONPATH. */
static int add_part(struct ct_agent_run *run, struct ct_strlist *vars, const char *role,
                    char *const *env)
{
    static const char name[] = "PYTHONPATH=";
    const char *path = NULL;
    int rc = 0;
    for (; *env != NULL && rc == 0; env++) {
        if (strncmp(*env, name, sizeof(name) - 1) == 0) {
            path = *env + sizeof(name) - 1;
            rc = ct_strlist_printf(vars, "%s%s%s%s", name, run->warm.folder,
                                   path[0] != '\0' ? ":" : "", path);
        } else {
            rc = ct_strlist_borrow(vars, *env);
        }
    }
    if (rc == 0 && path == NULL) {
        rc = ct_strlist_printf(vars, "%s%s", name, run->warm.folder);
    }
    rc = rc == 0 ? ct_strlist_printf(vars, CT_WARM_ENV "=1:%d:%s", CT_SPARE_FD, role) : rc;
    return rc == 0 ? ct_strlist_close(vars) : rc;
}

/* Starts the process on three stand-ins and a socket. */
static int spare_spawn(struct ct_agent_spare *spare, char *const *argv, char *const *env,
                       struct ct_err *err)
{
    struct ct_agent_run *run = spare->run;
    const struct ct_job_spec *job = run->job;
    struct ct_strlist vars = {0};
    const struct ct_worker_options worker = {
        .job = job, .worker_env = &run->worker_env, .output = run->output};
    int channel[2] = {-1, -1}, in[2] = {-1, -1}, out[2] = {-1, -1}, err_out[2] = {-1, -1};
    bool reads = spare->rank == 0 && !job->options->agent_stdin;
    bool in_seekable = !reads || lseek(STDIN_FILENO, 0, SEEK_CUR) >= 0;
    bool out_seekable = spare->rank >= 0 && ct_worker_inherits_stdout(&worker, spare->rank) &&
                        lseek(STDOUT_FILENO, 0, SEEK_CUR) >= 0;
    int rc = add_part(run, &vars, spare->rank >= 0 ? "spare" : "plan", env);
    if (rc != 0) {
        rc = ct_err_set(err, rc, "out of memory");
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
        rc = ct_proc_start(run->workers.procs, &options, on_spare_exit, spare, &spare->proc, err);
    }
    if (rc == 0) {
        spare->channel = channel[0];
        spare->printed[0] = out[1];
        spare->printed[1] = err_out[1];
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
    const char *fields[] = {"import", spare->run->warm.plan, NULL};
    int fd;
    int rc = ct_spare_environment(env, &fd, err);
    if (rc == 0) {
        rc = ct_spare_send(spare->channel, fields, &fd, 1);
        (void)close(fd);
    }
    return rc;
}

/* A spare is started as the worker of the next generation would be, as far as that is known. */
static int spare_start(struct ct_agent_run *run, int rank, struct ct_err *err)
{
    struct ct_worker_env next = run->worker_env;
    struct ct_strlist vars = {0};
    char socket[CT_PROBE_SOCKET_MAX];
    next.generation++;
    const struct ct_worker_options options = {.job = run->job, .worker_env = &next};
    struct ct_agent_spare *spare = ct_calloc(1, sizeof(*spare));
    if (spare == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    spare->run = run;
    spare->rank = rank;
    spare->channel = spare->printed[0] = spare->printed[1] = -1;
    ct_list_append(&run->warm.all, &spare->link);
    int rc = ct_worker_describe(&options, rank < 0 ? 0 : rank, socket, &spare->args, &vars, err);
    if (rc == 0 && rank < 0) {
        static char flag[] = "-u", command[] = "-c", text[] = "pass";
        char *nothing[] = {run->job->command->path, flag, command, text, NULL};
        rc = spare_spawn(spare, nothing, vars.list, err);
    } else if (rc == 0) {
        rc = spare_spawn(spare, spare->args.list, vars.list, err);
    }
    if (rc != 0) {
        spare_free(spare);
    } else {
        rc = rank < 0 ? send_program(spare) : send_imports(spare, vars.list, err);
        if (rc != 0) {
            spare_end(spare);
            rc = ct_err_set(err, rc, "it cannot be told what to import");
        }
    }
    ct_strlist_fini(&vars);
    return rc;
}

/* ---- looking at them ------------------------------------------------------------------------- */

/* Reads the first line that is there, if any. */
static bool read_line(int fd, char text[PRINTED_MAX + 1])
{
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    if (poll(&poller, 1, 0) <= 0) {
        return false;
    }
    bool file = lseek(fd, 0, SEEK_CUR) >= 0;
    ssize_t len = file ? pread(fd, text, PRINTED_MAX, 0) : read(fd, text, PRINTED_MAX);
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

/* Says in `why` what the spare has printed. Returns whether it has. */
static bool has_printed(const struct ct_agent_spare *spare, char *why, size_t size)
{
    char text[PRINTED_MAX + 1];
    if (!read_line(spare->printed[0], text) && !read_line(spare->printed[1], text)) {
        return false;
    }
    (void)snprintf(why, size, "an import has printed: %s", text);
    return true;
}

/* Says once why no spare is made any more. */
static void say_off(struct ct_agent_run *run)
{
    if (run->warm.policy.off && !run->warm.said_off && ct_agent_report_speaks(run->job->resolved)) {
        ct_agent_report_say(run->output, "--warm makes no spares: %s", run->warm.policy.why);
    }
    run->warm.said_off = run->warm.policy.off;
}

static void turn_off(struct ct_agent_run *run, const char *why)
{
    ct_warm_turn_off(&run->warm.policy, why);
    say_off(run);
}

static void drop(struct ct_agent_run *run, int rank)
{
    struct ct_agent_spare *spare = find_spare(run, rank);
    if (spare != NULL) {
        spare_end(spare);
    }
}

static void look_at_plan(struct ct_agent_run *run)
{
    struct ct_agent_spare *spare = find_spare(run, -1);
    struct ct_spare_message *message = &run->warm.message;
    if (spare == NULL) {
        return;
    }
    ct_spare_receive(spare->channel, 0, message);
    if (message->word == CT_SPARE_NOTHING) {
        return;
    }
    if (message->word == CT_SPARE_PLAN) {
        ct_free(run->warm.plan);
        run->warm.plan = ct_strdup(message->text);
        if (run->warm.plan != NULL) {
            ct_warm_planned(&run->warm.policy);
        } else {
            ct_warm_plan_failed(&run->warm.policy);
        }
    } else if (message->word == CT_SPARE_NO) {
        turn_off(run, message->text);
    } else if (run->workers.stopping || !run->warm.policy.running) {
        ct_warm_plan_failed(&run->warm.policy); /* the stop has ended it */
    } else {
        turn_off(run, "this interpreter does not import sitecustomize at its start");
    }
    if (spare->proc == NULL) {
        spare_free(spare);
    } else {
        spare_end(spare);
    }
}

static int64_t cpu_ms_of(pid_t pid)
{
    clockid_t clock;
    struct timespec used;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0) {
        return 0;
    }
    return (int64_t)used.tv_sec * 1000 + used.tv_nsec / CT_NS_PER_MS;
}

static void look_at_import(struct ct_agent_run *run)
{
    struct ct_warm *policy = &run->warm.policy;
    struct ct_agent_spare *spare =
        policy->importing >= 0 ? find_spare(run, policy->importing) : NULL;
    struct ct_spare_message *message = &run->warm.message;
    char why[CT_WARM_WHY_MAX] = "";
    if (spare == NULL) {
        return;
    }
    ct_spare_receive(spare->channel, 0, message);
    /* This cannot wait until it is ready: what it prints into a file in memory takes memory, and
     * into a full pipe it waits. */
    bool printed = has_printed(spare, why, sizeof(why));
    if (!printed && (message->word == CT_SPARE_NOTHING || message->word == CT_SPARE_GONE)) {
        /* on_spare_exit() sees that it is gone. */
        ct_warm_used(policy, cpu_ms_of(ct_proc_pid(spare->proc)), ct_clock_now(NULL));
        return;
    }
    if (!printed && message->word == CT_SPARE_READY) {
        uint64_t bytes = ct_warm_memory_of(ct_proc_pid(spare->proc));
        ct_warm_ready(policy, spare->rank, bytes);
        ct_log(&run->log, CT_LOG_INFO,
               "the spare of local rank %d is ready (pid %d, %llu MiB, %lld ms of CPU)",
               spare->rank, (int)ct_proc_pid(spare->proc), (unsigned long long)(bytes >> 20),
               (long long)cpu_ms_of(ct_proc_pid(spare->proc)));
        return;
    }
    if (why[0] == '\0') {
        (void)snprintf(why, sizeof(why), "%s",
                       message->word == CT_SPARE_NO ? message->text : "it sent a wrong message");
    }
    turn_off(run, why);
}

static void read_memory(struct ct_agent_run *run, struct ct_warm_memory *memory)
{
    *memory = (struct ct_warm_memory){0};
    ct_warm_memory_read(&ct_warm_here, memory);
    for (struct ct_list *l = run->warm.all.next; l != &run->warm.all; l = l->next) {
        struct ct_agent_spare *spare = CT_CONTAINER_OF(l, struct ct_agent_spare, link);
        if (spare->proc != NULL) {
            memory->spares += ct_warm_memory_of(ct_proc_pid(spare->proc));
        }
    }
}

static void on_look(uv_timer_t *timer)
{
    struct ct_agent_run *run = timer->data;
    struct ct_warm *policy = &run->warm.policy;
    struct ct_warm_memory memory;
    look_at_plan(run);
    look_at_import(run);
    read_memory(run, &memory);
    for (;;) {
        struct ct_err err = {0};
        struct ct_warm_action action = ct_warm_step(policy, &memory, ct_clock_now(NULL));
        say_off(run);
        switch (action.act) {
        case CT_WARM_WAIT:
            if (action.wait_ms >= 0) {
                uv_timer_start(timer, on_look, (uint64_t)action.wait_ms, 0);
            }
            return;
        case CT_WARM_DROP:
        case CT_WARM_GIVE_UP:
            drop(run, action.act == CT_WARM_DROP ? action.spare : -1);
            break;
        case CT_WARM_PLAN:
        case CT_WARM_MAKE:
            if (spare_start(run, action.act == CT_WARM_MAKE ? action.spare : -1, &err) != 0) {
                turn_off(run, err.text);
            }
            break;
        }
    }
}

static void look_soon(struct ct_agent_run *run)
{
    if (run->warm.on && !uv_is_closing((uv_handle_t *)&run->warm.timer)) {
        uv_timer_start(&run->warm.timer, on_look, 0, 0);
    }
}

/* ---- what others call ------------------------------------------------------------------------ */

static bool find_folder(struct ct_agent_run *run)
{
    for (size_t i = 0; i < sizeof(own_names) / sizeof(own_names[0]); i++) {
        char *path = NULL;
        if (ct_command_find_own(run->job->machine->own_dir, own_names[i], &path) == 0) {
            *strrchr(path, '/') = '\0';
            run->warm.folder = path;
            return strchr(path, ':') == NULL;
        }
    }
    return false;
}

int ct_agent_warm_open(struct ct_agent_run *run, struct ct_err *err)
{
    const struct ct_job_spec *job = run->job;
    const struct ct_options *options = job->options;
    int workers = job->resolved->workers;
    int wanted = options->warm < 0 ? workers : options->warm;
    ct_list_init(&run->warm.all);
    if (wanted == 0 || (options->max_restarts == 0 && !job->resolved->shared)) {
        return 0;
    }
    if (wanted > workers) {
        ct_log(&run->log, CT_LOG_WARNING,
               "--warm=%d: there are %d worker%s here, so %d spare%s will be made", wanted, workers,
               workers == 1 ? "" : "s", workers, workers == 1 ? "" : "s");
        wanted = workers;
    }
    if (!job->command->python) {
        ct_log(&run->log, CT_LOG_WARNING, "--warm has no effect: %s is not a Python program",
               options->command[0]);
        return 0;
    }
    if (!find_folder(run)) {
        ct_log(&run->log, CT_LOG_WARNING,
               "--warm has no effect: sitecustomize.py of ctrun is not where it was installed");
        return 0;
    }
    if (ct_warm_init(&run->warm.policy, wanted, (uint64_t)options->warm_memory_mib << 20) != 0) {
        return ct_err_set(err, CT_ENOMEM, "out of memory for %d spares", wanted);
    }
    CT_ASSERT(uv_timer_init(&run->loop, &run->warm.timer) == 0); /* cannot fail */
    run->warm.timer.data = run;
    run->warm.on = true;
    return 0;
}

void ct_agent_warm_run(struct ct_agent_run *run)
{
    if (run->warm.on) {
        ct_warm_run(&run->warm.policy, ct_clock_now(NULL));
        look_soon(run);
    }
}

void ct_agent_warm_stop(struct ct_agent_run *run)
{
    struct ct_warm *policy = &run->warm.policy;
    if (!run->warm.on) {
        return;
    }
    ct_warm_stop(policy);
    uv_timer_stop(&run->warm.timer);
    if (policy->importing >= 0) {
        int rank = policy->importing;
        ct_warm_taken(policy, rank);
        drop(run, rank);
    }
    struct ct_agent_spare *plan = find_spare(run, -1);
    if (plan != NULL && plan->proc != NULL) {
        spare_end(plan);
    } else if (plan != NULL) {
        spare_free(plan);
    }
}

static struct ct_agent_spare *spare_of(struct ct_agent_run *run, const struct ct_proc *proc)
{
    for (struct ct_list *l = run->warm.all.next; run->warm.on && l != &run->warm.all; l = l->next) {
        struct ct_agent_spare *spare = CT_CONTAINER_OF(l, struct ct_agent_spare, link);
        if (spare->proc == proc) {
            return spare;
        }
    }
    return NULL;
}

bool ct_agent_warm_may_stay(struct ct_agent_run *run, struct ct_proc *proc,
                            enum ct_proc_stay *answer)
{
    struct ct_agent_spare *spare = spare_of(run, proc);
    bool decided;
    if (spare == NULL) {
        return false;
    }
    *answer = CT_PROC_STAYS;
    if (spare->channel < 0 || !ct_agent_may_keep(&run->agent, &decided)) {
        /* Its work is of no value, so it needs no time to end. */
        if (spare->channel >= 0 && spare->rank >= 0) {
            ct_warm_taken(&run->warm.policy, spare->rank);
        }
        spare_end(spare);
        *answer = CT_PROC_ENDS;
    }
    return true;
}

bool ct_agent_warm_any(const struct ct_agent_run *run)
{
    return run->warm.on && !ct_list_empty(&run->warm.all);
}

/* Says why the worker starts cold, and ends its spare. */
static void refuse(struct ct_agent_spare *spare, int rank, const char *why)
{
    struct ct_agent_run *run = spare->run;
    ct_agent_report_say(run->output, "rank %d starts cold: %s", rank, why);
    ct_warm_taken(&run->warm.policy, spare->rank);
    spare_end(spare);
}

static bool is_stopped(pid_t pid)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

void ct_agent_warm_begin(struct ct_agent_run *run)
{
    static const char *const ping[] = {"ping", NULL};
    struct ct_spare_message *message = &run->warm.message;
    int64_t deadline = ct_clock_now(NULL) + PONG_MS * CT_NS_PER_MS;
    run->warm.taken = 0;
    run->warm.set_ms = SET_MS;
    for (int rank = 0; run->warm.on && rank < run->warm.policy.count; rank++) {
        struct ct_agent_spare *spare = find_spare(run, rank);
        if (spare != NULL) {
            spare->answered = !is_stopped(ct_proc_pid(spare->proc)) &&
                              ct_spare_priority_restore(ct_proc_pid(spare->proc)) &&
                              ct_spare_send(spare->channel, ping, NULL, 0) == 0;
        }
    }
    for (int rank = 0; run->warm.on && rank < run->warm.policy.count; rank++) {
        struct ct_agent_spare *spare = find_spare(run, rank);
        char why[CT_WARM_WHY_MAX];
        if (spare == NULL) {
            continue;
        }
        if (spare->answered) {
            ct_spare_receive(spare->channel, deadline, message);
        }
        if (!spare->answered || message->word != CT_SPARE_PONG) {
            (void)snprintf(why, sizeof(why), "its spare (pid %d) does not answer",
                           (int)ct_proc_pid(spare->proc));
            refuse(spare, run->worker_env.first_rank + rank, why);
        } else if (has_printed(spare, why, sizeof(why))) {
            refuse(spare, run->worker_env.first_rank + rank, why);
        }
    }
}

/* Gives the spare what it is to have as a worker. 0, or *why is set. */
static int hand_over(struct ct_agent_spare *spare, char *const *env, const int stdio[3],
                     char why[CT_WARM_WHY_MAX])
{
    static const char *const start[] = {"start", NULL};
    struct ct_agent_run *run = spare->run;
    struct ct_spare_message *message = &run->warm.message;
    struct ct_err err = {0};
    int fds[4] = {stdio[0], stdio[1], stdio[2], -1};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    const char *go[] = {"go", run->job->options->module ? "module" : "file",
                        run->job->options->command[0], NULL};
    int rc = ct_spare_environment(env, &fds[3], &err);
    for (int i = 0; i < 3; i++) {
        fds[i] = fds[i] >= 0 ? fds[i] : null;
    }
    if (rc == 0) {
        rc = ct_spare_send(spare->channel, go, fds, 4);
    }
    (void)snprintf(why, CT_WARM_WHY_MAX, "its spare (pid %d) does not answer",
                   (int)ct_proc_pid(spare->proc));
    if (rc == 0) {
        int64_t deadline = ct_clock_now(NULL) + run->warm.set_ms * CT_NS_PER_MS;
        ct_spare_receive(spare->channel, deadline, message);
        run->warm.set_ms /= message->word == CT_SPARE_NOTHING ? 4 : 1;
        if (message->word == CT_SPARE_NO) {
            (void)snprintf(why, CT_WARM_WHY_MAX, "%s", message->text);
        }
        rc = message->word == CT_SPARE_SET ? ct_spare_send(spare->channel, start, NULL, 0) : CT_EIO;
    }
    if (fds[3] >= 0) {
        (void)close(fds[3]);
    }
    if (null >= 0) {
        (void)close(null);
    }
    return rc;
}

/* Placeholders such as ${rank} can have other values in another generation. */
static bool same_arguments(char *const *one, char *const *other)
{
    for (; *one != NULL && *other != NULL; one++, other++) {
        if (strcmp(*one, *other) != 0) {
            return false;
        }
    }
    return *one == *other;
}

struct ct_proc *ct_agent_warm_take(void *data, int local_rank, char *const *argv, char *const *env,
                                   const int stdio[3], ct_proc_exit_fn on_exit, void *owner)
{
    struct ct_agent_run *run = data;
    struct ct_agent_spare *spare = run->warm.on ? find_spare(run, local_rank) : NULL;
    char why[CT_WARM_WHY_MAX];
    if (spare == NULL) {
        return NULL;
    }
    if (!same_arguments(spare->args.list, argv)) {
        refuse(spare, run->worker_env.first_rank + local_rank, "its arguments have changed");
        return NULL;
    }
    if (hand_over(spare, env, stdio, why) != 0) {
        refuse(spare, run->worker_env.first_rank + local_rank, why);
        return NULL;
    }
    struct ct_proc *proc = spare->proc;
    ct_warm_taken(&run->warm.policy, local_rank);
    ct_proc_pass(proc, on_exit, owner);
    spare_free(spare);
    run->warm.taken++;
    return proc;
}

void ct_agent_warm_report(struct ct_agent_run *run)
{
    if (run->warm.on && run->agent.generation > 0 && run->warm.taken > 0 &&
        ct_agent_report_speaks(run->job->resolved)) {
        int workers = run->job->resolved->workers;
        ct_agent_report_say(run->output,
                            workers == 1 ? "generation %d: the worker here was warm"
                                         : "generation %d: %d of %d workers here were warm",
                            run->agent.generation, run->warm.taken, workers);
    }
}

void ct_agent_warm_close(struct ct_agent_run *run)
{
    if (run->warm.on) {
        while (!ct_list_empty(&run->warm.all)) {
            struct ct_agent_spare *spare =
                CT_CONTAINER_OF(run->warm.all.next, struct ct_agent_spare, link);
            if (spare->proc != NULL) {
                ct_proc_signal_group(spare->proc, SIGKILL);
                ct_proc_free(spare->proc);
            }
            spare_free(spare);
        }
        run->warm.on = false;
        uv_close((uv_handle_t *)&run->warm.timer, NULL);
    }
    ct_warm_fini(&run->warm.policy);
    ct_free(run->warm.plan);
    ct_free(run->warm.folder);
    run->warm.plan = run->warm.folder = NULL;
}
