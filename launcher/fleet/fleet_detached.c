/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: start a launch agent for each machine, and write the job's token as the first line of
 * its standard input. The ctrun there reads the token, forks the one that runs the job, and ends
 * with 0 when its workers run (launcher/detach/detach.c). When all have ended so, the job runs and
 * needs nobody here any more.
 *
 * Other paths: a signal is sent as a line "signal N" to each machine that still starts. The end of
 * their standard input, also because this process was killed, ends those whose workers do not run
 * yet.
 *
 * Failure modes: a launch agent that ends with another code ends the start, as does join_timeout;
 * with --nnodes MIN:MAX the job may run without that machine. Code 0 alone does not count, because
 * not every launch agent passes on the code of what it has started: the ctrun there must have said
 * that its workers run. A launch agent that does not end is killed.
 *
 * It needs no event loop: there are only pipes and processes to wait for, for as long as the start
 * takes.
 */
#include "launcher/fleet/fleet_detached.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/exit_code.h"
#include "common/file.h"
#include "common/host_list.h"
#include "launcher/cli/option_table.h"
#include "launcher/detach/detach.h"
#include "launcher/fleet/fleet.h"
#include "launcher/fleet/fleet_address.h"
#include "launcher/fleet/fleet_start.h"
#include "launcher/fleet/ssh.h"
#include "launcher/process/proctree.h"
#include "launcher/process/spawn.h"
#include "launcher/report/report.h"
#include "launcher/scheduler/scheduler.h"
#include "rendezvous/admission/token.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long launch agents may take to end, beyond what ends on their machines. */
#define EXIT_MS 1000
/* So many reads take what a pipe holds. */
#define LAST_READS 16

/* What a machine says is shown in whole lines of at most this length. */
#define LINE_MAX_LEN 4096

struct node {
    struct ct_child child; /* the launch agent; pidfd -1 = it has ended, or never began */
    int in, out;           /* its standard input; its output and errors. -1 = closed */
    bool started;          /* the workers there run */
    bool spoke;            /* ctrun has said something there */
    bool runs;             /* it has said that its workers run */
    size_t len;
    char line[LINE_MAX_LEN];
};

struct fleet {
    const struct ct_fleet_job *job;
    struct node *nodes;
    struct pollfd *ready; /* of the signals, then two for each node */
    int out_fd, err_fd, signals;
    struct ct_token token;
    char job_id[CT_DETACHED_ID_MAX];
    char address[CT_HOST_MAX];
    uint16_t port;
    int64_t deadline_ns; /* of join_timeout, then of the end */
    bool ending;
    int signo;
    int exit_code;
};

/* Returns false if that cannot be written, with errno as it was. Mostly there is nobody else to
 * tell. */
static bool say(int fd, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool say(int fd, const char *fmt, ...)
{
    char line[CT_ERR_TEXT_MAX + CT_HOST_LIST_MAX];
    va_list args;
    va_start(args, fmt);
    size_t size = ct_report_line(line, sizeof(line), fmt, args);
    va_end(args);
    return ct_fd_write_all(fd, line, size) == 0;
}

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
        *fd = -1;
    }
}

/* ---- what the machines say ------------------------------------------------------------------- */

static void show_line(struct fleet *fleet, struct node *node)
{
    node->spoke =
        node->spoke || (node->len >= sizeof(CT_REPORT_PREFIX) - 1 &&
                        memcmp(node->line, CT_REPORT_PREFIX, sizeof(CT_REPORT_PREFIX) - 1) == 0);
    /* Some launch agents put the name of the machine in front of its lines. */
    node->runs = node->runs || memmem(node->line, node->len, CT_DETACH_OUTPUT_IN,
                                      sizeof(CT_DETACH_OUTPUT_IN) - 1) != NULL;
    int rc = ct_fd_write_all(fleet->err_fd, node->line, node->len); /* the job goes on */
    (void)rc;
    node->len = 0;
}

/* Returns false at the end. */
static bool take_output(struct fleet *fleet, struct node *node)
{
    char bytes[4096];
    ssize_t n = read(node->out, bytes, sizeof(bytes));
    for (ssize_t i = 0; i < n; i++) {
        node->line[node->len++] = bytes[i];
        if (bytes[i] == '\n' || node->len == sizeof(node->line)) {
            show_line(fleet, node);
        }
    }
    if (n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN))) {
        return n > 0;
    }
    if (node->len > 0) {
        show_line(fleet, node);
    }
    close_fd(&node->out);
    return false;
}

/* ---- the end of the start -------------------------------------------------------------------- */

static void end_all(struct fleet *fleet)
{
    int64_t left_ms = EXIT_MS + fleet->job->options->shutdown_timeout_ms;
    if (!fleet->ending) {
        fleet->deadline_ns = ct_deadline_in(NULL, left_ms);
    }
    fleet->ending = true;
    for (int i = 0; i < fleet->job->hosts->count; i++) {
        close_fd(&fleet->nodes[i].in);
    }
}

static int nodes_needed(const struct fleet *fleet)
{
    const struct ct_options *options = fleet->job->options;
    return ct_option_given(options, CT_OPT_NNODES) != CT_GIVEN_NOT ? options->min_nodes
                                                                   : fleet->job->hosts->count;
}

static int count_started(const struct fleet *fleet)
{
    int count = 0;
    for (int i = 0; i < fleet->job->hosts->count; i++) {
        count += fleet->nodes[i].started;
    }
    return count;
}

/* Counts the launch agents that have not ended. */
static int running(const struct fleet *fleet)
{
    int count = 0;
    for (int i = 0; i < fleet->job->hosts->count; i++) {
        count += fleet->nodes[i].child.pidfd >= 0;
    }
    return count;
}

/* Names the machines that have started, or those that have not. */
static int name_nodes(const struct fleet *fleet, bool started, char text[CT_HOST_LIST_MAX])
{
    const struct ct_hosts *hosts = fleet->job->hosts;
    const char **names = ct_calloc((size_t)hosts->count, sizeof(*names));
    int count = 0;
    for (int i = 0; i < hosts->count; i++) {
        if (fleet->nodes[i].started == started) {
            if (names != NULL) {
                names[count] = hosts->list[i].name;
            }
            count++;
        }
    }
    text[0] = '\0';
    if (names != NULL && count > 0) {
        ct_host_list_text(names, count, text, CT_HOST_LIST_MAX);
    }
    ct_free(names);
    return count;
}

static void take_end(struct fleet *fleet, int index)
{
    struct node *node = &fleet->nodes[index];
    int status = 0;
    while (waitpid(node->child.pid, &status, 0) < 0 && errno == EINTR) {
    }
    close_fd(&node->child.pidfd);
    close_fd(&node->in);
    for (int i = 0; i < LAST_READS && node->out >= 0 && take_output(fleet, node); i++) {
    }
    close_fd(&node->out); /* a process that ssh left behind may hold it, and write for ever */
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : CT_EXIT_SIGNAL_BASE + WTERMSIG(status);
    node->started = code == 0 && node->runs;
    bool enough = count_started(fleet) + running(fleet) >= nodes_needed(fleet);
    if (fleet->ending || (code == 0 && enough)) {
        return;
    }
    char why[CT_FLEET_WHY_MAX];
    fleet->exit_code = ct_fleet_start_failed(fleet->job, index, code, node->spoke, why);
    if (fleet->signo == 0) {
        int rc = ct_fd_write_all(fleet->err_fd, why, strlen(why));
        (void)rc;
    } else { /* not every launch agent passes on a code */
        fleet->exit_code = code != 0 ? code : CT_EXIT_SIGNAL_BASE + fleet->signo;
    }
    end_all(fleet);
}

static void take_signal(struct fleet *fleet)
{
    struct signalfd_siginfo info;
    char line[32];
    if (read(fleet->signals, &info, sizeof(info)) != (ssize_t)sizeof(info)) {
        return;
    }
    bool again = fleet->signo != 0;
    fleet->signo = (int)info.ssi_signo;
    say(fleet->err_fd, "received SIG%s: %s", sigabbrev_np(fleet->signo),
        again                                         ? "ending at once"
        : count_started(fleet) >= nodes_needed(fleet) ? "not waiting for the machines that are left"
                                                      : "ending the job that starts");
    int len = snprintf(line, sizeof(line), "signal %d\n", fleet->signo);
    for (int i = 0; i < fleet->job->hosts->count; i++) {
        if (fleet->nodes[i].in >= 0 && write(fleet->nodes[i].in, line, (size_t)len) != len) {
            close_fd(&fleet->nodes[i].in);
        }
    }
    if (again || fleet->deadline_ns == CT_DEADLINE_NEVER) {
        end_all(fleet);
    }
    fleet->deadline_ns =
        ct_deadline_in(NULL, again ? 0 : EXIT_MS + fleet->job->options->shutdown_timeout_ms);
}

static void on_deadline(struct fleet *fleet)
{
    char names[CT_HOST_LIST_MAX];
    if (!fleet->ending && fleet->signo == 0) {
        (void)name_nodes(fleet, false, names);
        say(fleet->err_fd,
            "join_timeout (%g s) is over: the job does not run on %s; see whether `%.200s HOST "
            "true` ends by itself",
            (double)fleet->job->options->rdzv_conf.join_ms / 1000, names,
            fleet->job->options->launch_agent);
        fleet->exit_code = CT_EXIT_RDZV_TIMEOUT;
        end_all(fleet);
        return;
    }
    fleet->ending = true;
    fleet->deadline_ns = CT_DEADLINE_NEVER;
    for (int i = 0; i < fleet->job->hosts->count; i++) {
        if (fleet->nodes[i].child.pidfd >= 0) {
            (void)kill(-fleet->nodes[i].child.pid, SIGKILL);
        }
    }
    if (fleet->exit_code == 0 && fleet->signo != 0) {
        fleet->exit_code = CT_EXIT_SIGNAL_BASE + fleet->signo;
    }
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void wait_for_all(struct fleet *fleet)
{
    int count = fleet->job->hosts->count;
    while (running(fleet) > 0) {
        fleet->ready[0] = (struct pollfd){.fd = fleet->signals, .events = POLLIN};
        for (int i = 0; i < count; i++) {
            const struct node *node = &fleet->nodes[i];
            fleet->ready[1 + 2 * i] = (struct pollfd){.fd = node->out, .events = POLLIN};
            fleet->ready[2 + 2 * i] = (struct pollfd){.fd = node->child.pidfd, .events = POLLIN};
        }
        int n = poll(fleet->ready, 1 + 2 * (nfds_t)count,
                     ct_deadline_left_ms(NULL, fleet->deadline_ns));
        /* A machine whose output never pauses must not keep the deadline off. */
        if (ct_deadline_left_ms(NULL, fleet->deadline_ns) == 0) {
            on_deadline(fleet);
        }
        for (int i = 0; n > 0 && i < count; i++) {
            if (fleet->ready[1 + 2 * i].revents != 0 && fleet->nodes[i].out >= 0) {
                (void)take_output(fleet, &fleet->nodes[i]);
            }
            if (fleet->ready[2 + 2 * i].revents != 0) {
                take_end(fleet, i);
            }
        }
        if (n > 0 && fleet->ready[0].revents != 0) {
            take_signal(fleet);
        }
    }
}

/* ---- starting -------------------------------------------------------------------------------- */

/* Chooses where the machine of node rank 0 hosts the store, as the others reach it. */
static int choose_store(struct fleet *fleet, struct ct_err *err)
{
    const struct ct_fleet_job *job = fleet->job;
    const char *name = job->hosts->list[0].name;
    const char *at = strrchr(name, '@'); /* ssh takes user@host */
    const struct ct_fleet_spec spec = {.hosts = job->hosts, .agent = job->options->launch_agent};
    char known[CT_HOST_MAX];
    struct sockaddr_storage addr;
    socklen_t len;
    fleet->port = job->options->master_port > 0 ? (uint16_t)job->options->master_port
                                                : ct_scheduler_port(fleet->job_id);
    if (ct_fleet_is_here(name, job->machine->host)) {
        return ct_fleet_address(job, fleet->address, err);
    }
    int rc = ct_addr_resolve(at != NULL ? at + 1 : name, 0, &addr, &len, err);
    if (rc != 0 && ct_ssh_host_name(&spec, 0, job->env, known)) {
        rc = ct_addr_resolve(known, 0, &addr, &len, err);
    }
    if (rc != 0) {
        return ct_err_wrap(err, "the store of a detached job is on its first machine");
    }
    ct_addr_host((const struct sockaddr *)&addr, fleet->address, sizeof(fleet->address));
    return 0;
}

static int name_job(struct fleet *fleet, struct ct_err *err)
{
    unsigned char random[CT_DETACHED_RANDOM];
    if (getentropy(random, sizeof(random)) != 0) {
        return ct_err_sys(err, CT_EIO, errno, "cannot draw a random id");
    }
    if (fleet->job->options->run_id != NULL) {
        ct_detached_job_name(fleet->job->options->run_id, random, fleet->job_id);
    } else { /* ctrun-stat shows the random run id, so this begins it */
        (void)snprintf(fleet->job_id, sizeof(fleet->job_id), "%.8s", fleet->job->run_id);
    }
    return 0;
}

static int open_pipes(struct node *node, int child[2], struct ct_err *err)
{
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0) {
        return ct_err_sys(err, ct_code_from_errno(errno), errno, "cannot make a pipe");
    }
    node->in = in[1];
    child[0] = in[0];
    if (pipe2(out, O_CLOEXEC) != 0) {
        return ct_err_sys(err, ct_code_from_errno(errno), errno, "cannot make a pipe");
    }
    node->out = out[0];
    child[1] = out[1];
    (void)fcntl(node->in, F_SETFL, O_NONBLOCK); /* an ssh that does not read must not hold us up */
    (void)fcntl(node->out, F_SETFL, O_NONBLOCK);
    return 0;
}

static int start_node(struct fleet *fleet, const struct ct_fleet_spec *spec, int index,
                      struct ct_err *err)
{
    struct node *node = &fleet->nodes[index];
    struct ct_fleet_start start = {.command = CT_BUF_INIT};
    int child[2] = {-1, -1};
    char line[CT_TOKEN_MAX + 2];
    int rc = open_pipes(node, child, err);
    if (rc != 0) {
        goto out;
    }
    rc = ct_fleet_start_command(fleet->job, spec, index, &start, err);
    if (rc != 0) {
        goto out;
    }
    const struct ct_spawn_options options = {
        .path = start.path,
        .argv = start.argv.list,
        .envp = fleet->job->env,
        .stdio = {child[0], child[1], child[1]},
        .nofile = &fleet->job->nofile,
    };
    rc = ct_spawn(&options, &node->child, err);
    if (rc != 0) {
        node->child.pidfd = -1;
    }
out:
    ct_fleet_start_fini(&start);
    close_fd(&child[0]);
    close_fd(&child[1]);
    if (rc != 0) {
        return ct_err_wrap(err, "%s", fleet->job->hosts->list[index].name);
    }
    int len = snprintf(line, sizeof(line), "%.*s\n", (int)fleet->token.len, fleet->token.text);
    if (write(node->in, line, (size_t)len) != len) {
        close_fd(&node->in); /* it has ended, which its pidfd tells */
    }
    explicit_bzero(line, sizeof(line));
    return 0;
}

static int open_all(struct fleet *fleet, struct ct_err *err)
{
    size_t count = (size_t)fleet->job->hosts->count;
    sigset_t passed;
    fleet->nodes = ct_calloc(count, sizeof(*fleet->nodes));
    fleet->ready = ct_calloc(1 + 2 * count, sizeof(*fleet->ready));
    for (size_t i = 0; fleet->nodes != NULL && i < count; i++) {
        fleet->nodes[i].child.pidfd = fleet->nodes[i].in = fleet->nodes[i].out = -1;
    }
    if (fleet->nodes == NULL || fleet->ready == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory for %zu hosts", count);
    }
    int rc = ct_token_make(&fleet->token);
    if (rc != 0) {
        return ct_err_set(err, rc, "no random numbers for the job's token");
    }
    rc = name_job(fleet, err);
    if (rc != 0) {
        return rc;
    }
    rc = choose_store(fleet, err);
    if (rc != 0) {
        return rc;
    }
    sigemptyset(&passed);
    sigaddset(&passed, SIGINT);
    sigaddset(&passed, SIGTERM);
    sigaddset(&passed, SIGQUIT);
    (void)pthread_sigmask(SIG_BLOCK, &passed, NULL); /* this process ends with the start */
    fleet->signals = signalfd(-1, &passed, SFD_CLOEXEC | SFD_NONBLOCK);
    return fleet->signals >= 0
               ? 0
               : ct_err_sys(err, ct_code_from_errno(errno), errno, "cannot wait for signals");
}

static int start_nodes(struct fleet *fleet, struct ct_err *err)
{
    const struct ct_fleet_job *job = fleet->job;
    struct ct_fleet_paths paths;
    struct ct_fleet_spec spec;
    int rc = ct_fleet_start_spec(job, &paths, &spec, err);
    if (rc != 0) {
        return rc;
    }
    spec.address = fleet->address;
    spec.port = fleet->port;
    spec.job_id = fleet->job_id;
    rc = ct_fleet_start_find_agent(job, &spec, err);
    for (int i = 0; rc == 0 && i < job->hosts->count; i++) {
        rc = start_node(fleet, &spec, i, err);
    }
    return rc;
}

/* So that --attach on this machine leads to the job. */
static void note_job(const struct fleet *fleet, const char *endpoint)
{
    const struct ct_fleet_job *job = fleet->job;
    const char *ctrun = job->machine->own_dir;
    struct ct_detached_job note = {0};
    struct ct_err err = {0};
    (void)snprintf(note.id, sizeof(note.id), "%s", fleet->job_id);
    (void)snprintf(note.run_id, sizeof(note.run_id), "%s", job->run_id);
    (void)snprintf(note.address, sizeof(note.address), "%s", endpoint);
    (void)snprintf(note.via, sizeof(note.via), "%s", job->hosts->list[0].name);
    ct_options_program(job->options, note.program);
    int agent = snprintf(note.agent, sizeof(note.agent), "%s", job->options->launch_agent);
    int path = snprintf(note.ctrun, sizeof(note.ctrun), "%s%sctrun", ctrun, ctrun[0] ? "/" : "");
    bool fits = agent < (int)sizeof(note.agent) && path < (int)sizeof(note.ctrun);
    if (!fits || ct_detach_note(job->env, job->machine->host, &note, &err) != 0) {
        say(fleet->err_fd, "--attach finds the job on its machines only: %s",
            fits ? err.text : "the launch agent is too long to be kept");
    }
}

static void say_where(const struct fleet *fleet)
{
    char names[CT_HOST_LIST_MAX], endpoint[CT_ADDR_JOIN_MAX];
    int count = name_nodes(fleet, true, names);
    ct_addr_join(fleet->address, fleet->port, endpoint, sizeof(endpoint));
    note_job(fleet, endpoint);
    bool said =
        say(fleet->out_fd, "job %s runs on %d machine%s without this one: %s", fleet->job_id, count,
            count == 1 ? "" : "s", names) &&
        say(fleet->out_fd,
            "its output: ctrun --attach %s shows that of %s, and on each machine what is there",
            fleet->job_id, fleet->job->hosts->list[0].name) &&
        say(fleet->out_fd, "its status: ctrun-stat %s there, while the store is at that address",
            endpoint) &&
        say(fleet->out_fd, "to end it: kill the process that is named above, on one of them");
    if (!said) {
        struct ct_err err = {0};
        (void)ct_err_sys(&err, CT_EIO, errno, "cannot write to standard output");
        say(fleet->err_fd, "%s; job %s runs all the same: ctrun --attach %s shows it", err.text,
            fleet->job_id, fleet->job_id);
    }
}

static void close_all(struct fleet *fleet)
{
    for (int i = 0; fleet->nodes != NULL && i < fleet->job->hosts->count; i++) {
        close_fd(&fleet->nodes[i].in);
        close_fd(&fleet->nodes[i].out);
    }
    close_fd(&fleet->signals);
    ct_token_wipe(&fleet->token);
    ct_free(fleet->nodes);
    ct_free(fleet->ready);
}

int ct_fleet_detached_start(const struct ct_fleet_job *job, int out_fd, int err_fd, int *exit_code,
                            struct ct_err *err)
{
    struct fleet fleet = {.job = job, .out_fd = out_fd, .err_fd = err_fd, .signals = -1};
    int rc = open_all(&fleet, err);
    if (rc == 0) {
        fleet.deadline_ns = ct_deadline_in(NULL, job->options->rdzv_conf.join_ms + EXIT_MS);
        rc = start_nodes(&fleet, err);
        if (rc != 0) {
            end_all(&fleet);
        }
        wait_for_all(&fleet);
    }
    if (rc == 0 && count_started(&fleet) >= nodes_needed(&fleet)) {
        say_where(&fleet); /* perhaps without a machine that it does not need */
        *exit_code = CT_EXIT_OK;
    } else if (rc == 0) {
        *exit_code = fleet.exit_code != 0 ? fleet.exit_code : CT_EXIT_SETUP;
    }
    close_all(&fleet);
    return rc;
}
