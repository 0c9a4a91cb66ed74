/* SPDX-License-Identifier: Apache-2.0
 *
 * ctrun: start, watch, restart and explain the workers of a distributed job. The life of the
 * program is the list of steps in ctrun(); what each does stands in the library behind it.
 */
#include "common/clock.h"
#include "common/file.h"
#include "launcher/agent/agent_uv.h"
#include "launcher/cli/help.h"
#include "launcher/fleet/fleet_launch.h"
#include "launcher/process/guard.h"
#include "launcher/report/report.h"
#include "launcher/report/worker_end.h"
#include "launcher/scheduler/pmi.h"
#include "launcher/setup/config.h"
#include "launcher/setup/prepare.h"
#include "launcher/setup/resolve.h"
#include "launcher/util/environ.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Everything that ctrun() builds, in the order of its steps; zeroed memory is "not built". */
struct launch {
    struct ct_options options;
    struct ct_scheduler where;
    struct ct_resolved resolved;
    struct ct_store_address place;
    struct ct_machine machine;
    struct ct_command command;
    struct ct_cookie cookie;
    struct ct_guard *guard;
    struct ct_logdir logdir;
    struct ct_token token;
    char uuid[CT_UUID_TEXT];
    struct ct_job_spec job;
};

static int fail(int exit_code, const struct ct_err *err)
{
    (void)fprintf(stderr, "%s%s\n", CT_REPORT_PREFIX, err->text);
    return exit_code;
}

/* A descriptor 0-2 that is closed would be reused for a socket and handed to workers as theirs. */
static void fill_standard_fds(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) {
            return;
        }
    }
}

/* What `rc` says was made; takes the text. */
static int print_made(int rc, struct ct_buf *text)
{
    rc = rc != 0 ? rc : ct_fd_write_all(STDOUT_FILENO, ct_buf_bytes(text), text->len);
    ct_buf_fini(text);
    return rc == 0 ? CT_EXIT_OK : CT_EXIT_SETUP;
}

static int print_about(const struct ct_options *options)
{
    struct ct_buf text = CT_BUF_INIT;
    int rc = options->help      ? ct_help_print(options->help_topic, &text)
             : options->version ? ct_buf_printf(&text, "ctrun %s\n", CT_VERSION)
                                : ct_completion_print(options->completion, &text);
    return print_made(rc, &text);
}

/* What the command line leaves open, from whoever started this process. */
static int resolve(struct launch *launch, char *const *env, struct ct_err *err)
{
    const struct ct_scheduler_input input = {.env = env,
                                             .host = launch->machine.host,
                                             .read = ct_scheduler_read_file,
                                             .pmi = ct_pmi_ask};
    return ct_resolve(&input, &launch->options, &launch->where, &launch->resolved, err);
}

static int print_config(const struct launch *launch)
{
    const struct ct_config config = {&launch->options, &launch->where, &launch->resolved,
                                     &launch->machine, &launch->place, launch->job.workers};
    struct ct_buf text = CT_BUF_INIT;
    int rc = ct_config_print(&config, environ, &text);
    return print_made(rc, &text);
}

static int start_guard(struct launch *launch, struct ct_err *err)
{
    bool removes = launch->logdir.temporary && !ct_prepare_wants_logs(&launch->options);
    const char *folder = removes ? launch->logdir.base : NULL;
    int rc = ct_cookie_new(&launch->cookie, err);
    return rc != 0 ? rc : ct_guard_start(&launch->cookie, folder, &launch->guard, err);
}

static int run(struct launch *launch, char *const *env, struct ct_outcome *outcome,
               struct ct_err *err)
{
    struct ct_job_spec *job = &launch->job;
    job->options = &launch->options;
    job->resolved = &launch->resolved;
    job->place = &launch->place;
    job->machine = &launch->machine;
    job->command = &launch->command;
    job->logdir = &launch->logdir;
    job->cookie = &launch->cookie;
    job->guard = launch->guard;
    job->token = launch->token.len > 0 ? &launch->token : NULL;
    job->env = env;
    job->expected = (const char *const *)launch->where.hosts.list;
    job->num_expected = (int)launch->where.hosts.count;
    job->log_level = ct_environ_log_level(env);
    const struct ct_options *options = job->options;
    int rc = ct_machine_gpus(job->machine, options, job->resolved, job->workers, &job->gpus, err);
    if (rc == 0 && job->gpus.note_level <= CT_LOG_WARNING && job->gpus.note[0] != '\0') {
        (void)fprintf(stderr, "%s%s\n", CT_REPORT_PREFIX, job->gpus.note);
    }
    rc = rc != 0 ? rc : ct_binder_open_here(options->bind, env, job->workers, &job->binder, err);
    return rc != 0 ? rc : ct_agent_run(job, outcome, err);
}

static void clean_up(struct launch *launch, const struct ct_outcome *outcome)
{
    ct_guard_dismiss(launch->guard);
    bool keep = outcome->keep_files || ct_prepare_wants_logs(&launch->options);
    if (launch->logdir.temporary && keep && launch->logdir.run != NULL) {
        (void)fprintf(stderr, "%sfiles of this run: %s\n", CT_REPORT_PREFIX, launch->logdir.run);
    }
    ct_logdir_fini(&launch->logdir, keep);
    ct_command_fini(&launch->command);
    ct_guard_free(launch->guard);
    ct_binder_fini(&launch->job.binder);
    ct_token_wipe(&launch->token);
}

static int launch_job(struct launch *launch, char *const *env)
{
    struct ct_outcome outcome = {.exit_code = CT_EXIT_SETUP};
    struct ct_err err = {0};
    const char *own_dir = launch->machine.own_dir;
    int rc = ct_command_resolve(&launch->options, env, own_dir[0] != '\0' ? own_dir : NULL,
                                &launch->command, &err);
    if (rc != 0) {
        outcome.exit_code = ct_worker_end_of_command(rc);
    }
    const char **id = &launch->job.run_id;
    rc = rc != 0 ? rc : ct_prepare_run_id(&launch->options, launch->uuid, id, &err);
    rc = rc != 0 ? rc : ct_prepare_logdir(&launch->options, env, *id, &launch->logdir, &err);
    /* Before anything is started, since the environment holds it no more then. */
    rc = rc != 0 ? rc : ct_prepare_token(&launch->options, env, &launch->token, &err);
    rc = rc != 0 ? rc : ct_prepare_open_files(launch->job.workers, &launch->job.nofile, &err);
    rc = rc != 0 ? rc : start_guard(launch, &err);
    rc = rc != 0 ? rc : run(launch, env, &outcome, &err);
    if (rc != 0) {
        (void)fail(outcome.exit_code, &err);
    }
    clean_up(launch, &outcome);
    return outcome.exit_code;
}

static int launch_fleet(const struct launch *launch, char *const *argv)
{
    int exit_code = CT_EXIT_SETUP;
    struct ct_err err = {0};
    int rc = ct_fleet_launch(&launch->options, &launch->machine, argv, environ, &exit_code, &err);
    bool usage = rc == CT_EINVAL || rc == CT_EFORMAT;
    return rc == 0 ? exit_code : fail(usage ? CT_EXIT_USAGE : CT_EXIT_SETUP, &err);
}

static int ctrun(struct launch *launch, char **argv)
{
    struct ct_err err = {0};
    launch->job.begun_ns = ct_clock_now(NULL);
    fill_standard_fds();
    /* Neither a reader that goes away (ctrun | head) nor `ulimit -f` must take the job with it. */
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);

    if (ct_options_parse(argv, environ, &launch->options, &err) != 0) {
        return fail(CT_EXIT_USAGE, &err);
    }
    if (ct_options_only_print(&launch->options)) {
        return print_about(&launch->options);
    }
    ct_machine_read(environ, &launch->machine);
    if (ct_fleet_wanted(&launch->options)) {
        return launch_fleet(launch, argv);
    }
    if (resolve(launch, environ, &err) != 0) {
        return fail(CT_EXIT_USAGE, &err);
    }
    ct_store_address_decide(&launch->options, &launch->place);
    if (ct_machine_workers(&launch->machine, &launch->options, &launch->job.workers, &err) != 0) {
        return fail(CT_EXIT_SETUP, &err);
    }
    if (launch->options.print_config) {
        return print_config(launch);
    }
    int rc = ct_store_address_check(&launch->place, &err);
    if (rc != 0) {
        return fail(rc == CT_EINVAL ? CT_EXIT_USAGE : CT_EXIT_SETUP, &err);
    }
    return launch_job(launch, environ);
}

int main(int argc, char **argv)
{
    struct launch launch = {0};
    (void)argc;
    int exit_code = ctrun(&launch, argv);
    ct_scheduler_fini(&launch.where);
    return exit_code;
}
