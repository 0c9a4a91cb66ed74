/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: the job is on this machine, and launcher/detach/attach.c shows it. Otherwise start
 * the launch agent with a command line for the machine that has the job, and wait for it:
 *
 *     ssh HOST "exec '/usr/bin/ctrun' --attach 'ID-0'"
 *
 * Its exit code is that of the ctrun there, and so that of the job. It stays in this process group,
 * so that it can ask for a password on the terminal.
 *
 * Other paths: Ctrl-C ends ssh without a word and with code 255, so this process says that the job
 * goes on.
 *
 * Failure modes: a launch agent that is not found is named. What ssh cannot reach, it says itself.
 * When this process is killed, the launch agent gets SIGHUP.
 */
#include "launcher/fleet/fleet_attach.h"

#include "common/alloc.h"
#include "common/exit_code.h"
#include "common/file.h"
#include "launcher/detach/attach.h"
#include "launcher/fleet/fleet.h"
#include "launcher/report/report.h"
#include "launcher/worker/command.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* What ssh ends with if it was interrupted, or could not reach the machine. */
#define SSH_FAILED 255

static void say(const char *text)
{
    char line[CT_ERR_TEXT_MAX + 16];
    int len = snprintf(line, sizeof(line), "%s%s\n", CT_REPORT_PREFIX, text);
    size_t size = (size_t)len < sizeof(line) ? (size_t)len : sizeof(line) - 1;
    int rc = ct_fd_write_all(STDERR_FILENO, line, size); /* there is nobody else to tell */
    (void)rc;
}

/* Writes the command line for the shell there. The first machine has the number 0. */
static int fill_command(const struct ct_detached_job *job, struct ct_buf *out)
{
    char id[CT_DETACHED_ID_MAX + 4];
    (void)snprintf(id, sizeof(id), "%s-0", job->id);
    ct_buf_addf(out, "exec ");
    ct_fleet_quote(out, job->ctrun);
    ct_buf_addf(out, " --attach ");
    ct_fleet_quote(out, id);
    return ct_buf_cstr(out) != NULL ? 0 : CT_ENOMEM;
}

/* Ends in the launch agent, or with the code of a shell that cannot execute it. */
static _Noreturn void become_agent(const char *path, char **argv, char *const *env,
                                   const sigset_t *mask)
{
    struct ct_err err = {0};
    (void)prctl(PR_SET_PDEATHSIG, SIGHUP);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)signal(SIGXFSZ, SIG_DFL);
    (void)pthread_sigmask(SIG_SETMASK, mask, NULL);
    (void)execve(path, argv, env);
    (void)ct_err_sys(&err, CT_EIO, errno, "the launch agent: cannot execute %s", path);
    say(err.text);
    _exit(CT_EXIT_SETUP);
}

/* Waits until it has ended. Returns its status, and whether Ctrl-C was pressed meanwhile. */
static int wait_for_agent(pid_t agent, const sigset_t *awaited, bool *interrupted)
{
    int status = 0;
    *interrupted = false;
    while (waitpid(agent, &status, WNOHANG) != agent) {
        if (sigwaitinfo(awaited, NULL) == SIGINT) {
            *interrupted = true;
            (void)kill(agent, SIGINT); /* the signal may have come to this process alone */
        }
    }
    const struct timespec now = {0};
    *interrupted = *interrupted || sigtimedwait(awaited, NULL, &now) == SIGINT;
    return status;
}

/* Returns the exit code, or an error. A viewer that was interrupted has said so itself, and has
 * ended with the code for that; a launch agent has not. */
static int run_agent(const struct ct_detached_job *job, const char *path, char **argv,
                     char *const *env, struct ct_err *err)
{
    char text[CT_ERR_TEXT_MAX];
    sigset_t awaited, before;
    bool interrupted = false;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGINT);
    sigaddset(&awaited, SIGCHLD);
    (void)pthread_sigmask(SIG_BLOCK, &awaited, &before);
    (void)signal(SIGCHLD, SIG_DFL); /* if it is ignored, nobody can be waited for */
    pid_t agent = fork();
    if (agent == 0) {
        become_agent(path, argv, env, &before);
    }
    int saved = errno, status = agent > 0 ? wait_for_agent(agent, &awaited, &interrupted) : 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (agent < 0) {
        return ct_err_sys(err, CT_EIO, saved, "cannot make a process");
    }
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : CT_EXIT_SIGNAL_BASE + WTERMSIG(status);
    bool silent = WIFEXITED(status) ? code == SSH_FAILED : WTERMSIG(status) == SIGINT;
    if (interrupted && silent) {
        (void)snprintf(text, sizeof(text), "the job goes on; ctrun --attach %s shows it again",
                       job->id);
        say(text);
        return CT_EXIT_SIGNAL_BASE + SIGINT;
    }
    return code;
}

/* Shows the job by the launch agent. Returns the exit code, or an error. */
static int show_there(const struct ct_detached_job *job, char *const *env, const char *host,
                      struct ct_err *err)
{
    struct ct_host machine = {0};
    const struct ct_hosts hosts = {&machine, 1};
    const struct ct_fleet_spec spec = {.hosts = &hosts, .agent = job->agent};
    struct ct_buf command = CT_BUF_INIT;
    struct ct_strlist argv = {0};
    char *path = NULL;
    (void)snprintf(machine.name, sizeof(machine.name), "%s", job->via);
    int rc = fill_command(job, &command);
    if (rc != 0) {
        rc = ct_err_set(err, rc, "out of memory for the launch agent");
        goto out;
    }
    rc = ct_fleet_argv(&spec, 0, ct_fleet_is_here(job->via, host), ct_buf_cstr(&command), &argv,
                       err);
    if (rc != 0) {
        goto out;
    }
    rc = ct_command_find(argv.list[0], env, &path, err);
    if (rc != 0) {
        goto out;
    }
    rc = run_agent(job, path, argv.list, env, err);
out:
    ct_free(path);
    ct_strlist_fini(&argv);
    ct_buf_fini(&command);
    return rc;
}

int ct_fleet_attach(const char *word, char *const *env, const char *host)
{
    struct ct_detached_job job;
    struct ct_err err = {0};
    char text[CT_ERR_TEXT_MAX];
    int exit_code = ct_attach(word, env, host, STDOUT_FILENO, STDERR_FILENO, &job);
    if (exit_code != CT_ATTACH_VIA) {
        return exit_code;
    }
    (void)snprintf(text, sizeof(text), "job %s was started from here, and %s shows it", job.id,
                   job.via);
    say(text);
    exit_code = show_there(&job, env, host, &err);
    if (exit_code < 0) {
        (void)ct_err_wrap(&err, "the launch agent");
        say(err.text);
        return CT_EXIT_SETUP;
    }
    return exit_code;
}
