/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: the job is on this machine, and launcher/detach/attach.c shows it. Otherwise execute
 * the launch agent with a command line for the machine that has the job:
 *
 *     ssh HOST "'/usr/bin/ctrun' --attach 'ID-0'"
 *
 * Its exit code is that of the ctrun there, and so that of the job.
 *
 * Failure modes: a launch agent that is not found is named. What ssh cannot reach, it says itself.
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
#include <string.h>
#include <unistd.h>

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

/* Returns only if that fails. */
static int become_agent(const struct ct_detached_job *job, char *const *env, const char *host,
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
    (void)signal(SIGPIPE, SIG_DFL);
    (void)signal(SIGXFSZ, SIG_DFL);
    (void)execve(path, argv.list, env);
    rc = ct_err_sys(err, CT_EIO, errno, "cannot execute %s", path);
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
    if (become_agent(&job, env, host, &err) != 0) {
        (void)ct_err_wrap(&err, "the launch agent");
        say(err.text);
    }
    return CT_EXIT_SETUP;
}
