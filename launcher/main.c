/* SPDX-License-Identifier: Apache-2.0
 *
 * ctrun: start, watch, restart and explain the workers of a distributed job. The life of the
 * program is the list of steps in ctrun(); what each does stands in the library behind it.
 */
#include "common/clock.h"
#include "common/file.h"
#include "launcher/agent/agent_uv.h"
#include "launcher/cli/help.h"
#include "launcher/detach/detach.h"
#include "launcher/fleet/fleet_attach.h"
#include "launcher/fleet/fleet_launch.h"
#include "launcher/preflight/preflight_probe.h"
#include "launcher/process/guard.h"
#include "launcher/report/report.h"
#include "launcher/report/report_file.h"
#include "launcher/setup/config.h"
#include "launcher/setup/prepare.h"
#include "launcher/setup/resolve.h"
#include "launcher/util/environ.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Everything that ctrun() builds, in the order of its steps; zeroed memory is "not built". */
struct launch {
    struct ct_options options;
    struct ct_scheduler scheduler;
    struct ct_resolved resolved;
    struct ct_machine machine;
    struct ct_command command;
    struct ct_cookie cookie;
    struct ct_guard *guard;
    struct ct_logdir logdir;
    struct ct_token token;
    char uuid[CT_UUID_TEXT];
    struct ct_detach detach;
    int out; /* where --detach tells of the job; -1 = standard output was closed */
    struct ct_job_spec job;
};

static int fail(int exit_code, const struct ct_err *err)
{
    (void)fprintf(stderr, "%s%s\n", CT_REPORT_PREFIX, err->text);
    return exit_code;
}

/* Prints the text if it could be made, and frees it. */
static int print_text(int made, struct ct_buf *text)
{
    struct ct_err err = {0};
    int rc = made;
    if (rc != 0) {
        (void)ct_err_set(&err, rc, "out of memory");
    } else if (ct_fd_write_all(STDOUT_FILENO, ct_buf_bytes(text), text->len) != 0) {
        rc = ct_err_sys(&err, CT_EIO, errno, "cannot write to standard output");
    }
    ct_buf_fini(text);
    return rc == 0 ? CT_EXIT_OK : fail(CT_EXIT_SETUP, &err);
}

static int print_config(const struct launch *launch)
{
    const struct ct_config config = {&launch->options, &launch->scheduler, &launch->resolved,
                                     &launch->machine, NULL};
    struct ct_buf text = CT_BUF_INIT;
    int job_exit_code = CT_EXIT_OK, made = ct_config_print(&config, environ, &job_exit_code, &text);
    return print_text(made, &text) == CT_EXIT_OK ? job_exit_code : CT_EXIT_SETUP;
}

static int run(struct launch *launch, char *const *env, struct ct_outcome *outcome,
               struct ct_err *err)
{
    struct ct_job_spec *job = &launch->job;
    job->options = &launch->options;
    job->resolved = &launch->resolved;
    job->machine = &launch->machine;
    job->command = &launch->command;
    job->logdir = &launch->logdir;
    job->cookie = &launch->cookie;
    job->guard = launch->guard;
    job->detach = &launch->detach;
    job->token = launch->token.len > 0 ? &launch->token : NULL;
    job->env = env;
    job->expected = (const char *const *)launch->scheduler.hosts.list;
    job->num_expected = (int)launch->scheduler.hosts.count;
    job->log_level = ct_environ_log_level(env);
    int rc = ct_machine_gpus(job->machine, job->options, job->resolved, &job->gpus, err);
    if (rc != 0) {
        return rc;
    }
    if (job->gpus.note_level <= CT_LOG_WARNING && job->gpus.note[0] != '\0') {
        (void)fprintf(stderr, "%s%s\n", CT_REPORT_PREFIX, job->gpus.note);
    }
    rc = ct_binder_open_here(job->options->bind, env, job->resolved->workers, &job->binder, err);
    return rc != 0 ? rc : ct_agent_run(job, outcome, err);
}

static int end_job(struct launch *launch, const struct ct_outcome *outcome)
{
    ct_guard_dismiss(launch->guard);
    bool keep = outcome->keep_files || ct_prepare_wants_logs(&launch->resolved);
    if (launch->logdir.temporary && keep && launch->logdir.run != NULL) {
        (void)fprintf(stderr, "%sfiles of this run: %s\n", CT_REPORT_PREFIX, launch->logdir.run);
    }
    ct_logdir_fini(&launch->logdir, keep);
    ct_command_fini(&launch->command);
    ct_guard_free(launch->guard);
    ct_binder_fini(&launch->job.binder);
    ct_token_wipe(&launch->token);
    ct_detach_end(&launch->detach, outcome->exit_code);
    return outcome->exit_code;
}

/* The job ends before its first worker: says why on the screen and in the file of --report. */
static void fail_job(const struct launch *launch, int exit_code, const struct ct_err *err)
{
    const struct ct_job_end end = {launch->job.run_id, launch->machine.host, exit_code,
                                   launch->options.max_restarts, 0};
    struct ct_err unwritten = {0};
    (void)fail(exit_code, err);
    if (ct_report_file_not_started(launch->options.report, &end, err->text, &unwritten) != 0 &&
        strcmp(unwritten.text, err->text) != 0) { /* else that is why it ends */
        (void)fail(exit_code, &unwritten);
    }
}

static int launch_job(struct launch *launch, char *const *env)
{
    struct ct_outcome outcome = {.exit_code = CT_EXIT_SETUP};
    struct ct_err err = {0};
    /* The token is taken before anything is started: the environment no longer holds it then. */
    if (ct_prepare_run_id(&launch->resolved, launch->uuid, &launch->job.run_id, &err) != 0 ||
        ct_prepare_token(&launch->options, env, &launch->token, &err) != 0) {
        fail_job(launch, outcome.exit_code, &err);
        return end_job(launch, &outcome);
    }
    bool given = launch->resolved.run_id_given, is_random = launch->resolved.run_id == NULL;
    const struct ct_detach_spec spec = {&launch->options,   env,   launch->machine.host,
                                        launch->job.run_id, given, is_random};
    int rc = ct_detach_begin(&launch->detach, &spec, launch->out, STDERR_FILENO, &outcome.exit_code,
                             &err);
    if (rc == CT_DETACH_LEFT) { /* another process goes on with the job */
        ct_token_wipe(&launch->token);
        return outcome.exit_code;
    }
    if (rc != 0 ||
        ct_prepare_command(&launch->options, launch->machine.own_dir, env, &launch->command,
                           &outcome.exit_code, &err) != 0 ||
        ct_prepare_logdir(&launch->options, &launch->resolved, env, launch->job.run_id,
                          &launch->logdir, &err) != 0 ||
        ct_prepare_open_files(launch->resolved.workers, &launch->job.nofile, &err) != 0 ||
        ct_cookie_new(&launch->cookie, &err) != 0 ||
        ct_prepare_guard(&launch->resolved, &launch->logdir, &launch->cookie, &launch->guard,
                         &err) != 0 ||
        run(launch, env, &outcome, &err) != 0) {
        fail_job(launch, outcome.exit_code, &err);
    }
    return end_job(launch, &outcome);
}

static int launch_fleet(const struct launch *launch, char *const *argv)
{
    int exit_code = CT_EXIT_SETUP;
    struct ct_err err = {0};
    int rc = ct_fleet_launch(&launch->options, &launch->machine, argv, environ, launch->out,
                             &exit_code, &err);
    bool usage = rc == CT_EINVAL || rc == CT_EFORMAT;
    return rc == 0 ? exit_code : fail(usage ? CT_EXIT_USAGE : CT_EXIT_SETUP, &err);
}

static int ctrun(struct launch *launch, char **argv)
{
    struct ct_err err = {0};
    launch->job.begun_ns = ct_clock_now(NULL);
    launch->out = ct_prepare_standard_fds() ? STDOUT_FILENO : -1;
    ct_prepare_signals();
    if (ct_options_parse(argv, environ, &launch->options, &err) != 0 ||
        ct_prepare_outputs(&launch->options, &err) != 0) {
        return fail(CT_EXIT_USAGE, &err);
    }
    if (ct_options_only_print(&launch->options)) {
        struct ct_buf text = CT_BUF_INIT;
        return print_text(ct_help_about(&launch->options, &text), &text);
    }
    ct_machine_read(environ, &launch->machine);
    if (launch->options.attach) {
        return ct_fleet_attach(launch->options.attach_job, environ, launch->machine.host);
    }
    if (ct_fleet_wanted(&launch->options)) {
        return launch_fleet(launch, argv);
    }
    int exit_code = ct_resolve_here(&launch->options, &launch->machine, environ, &launch->scheduler,
                                    &launch->resolved, &err);
    if (exit_code != CT_EXIT_OK) {
        return fail(exit_code, &err);
    }
    if (launch->options.print_config) {
        return print_config(launch);
    }
    int rc = launch->resolved.etcd != NULL
                 ? ct_prepare_etcd_check(&launch->options, &launch->resolved, environ, &err)
                 : ct_store_address_check(&launch->resolved.store_address, launch->resolved.shared,
                                          &err);
    if (rc != 0 && !(rc == CT_ENOENT && launch->resolved.shared)) { /* known later, perhaps */
        return fail(rc == CT_EINVAL ? CT_EXIT_USAGE : CT_EXIT_SETUP, &err);
    }
    return launch_job(launch, environ);
}

int main(int argc, char **argv)
{
    struct launch launch = {0};
    (void)argc;
    int exit_code = ct_preflight_is_probe(argv) ? ct_preflight_probe(argv) : ctrun(&launch, argv);
    ct_scheduler_fini(&launch.scheduler);
    return exit_code;
}
