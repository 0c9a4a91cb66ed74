/* SPDX-License-Identifier: Apache-2.0
 *
 * ctrun: start, watch, restart and explain the workers of a distributed job. The life of the
 * program is the list of steps in main(); what each does stands in the library behind it.
 */
#include "common/alloc.h"
#include "common/file.h"
#include "launcher/agent_uv.h"
#include "launcher/environ.h"
#include "launcher/guard.h"
#include "launcher/policy.h"
#include "launcher/report.h"
#include "launcher/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Everything that main() builds, in the order of its steps; zeroed memory is "not built". */
struct launch {
    struct ct_options options;
    struct ct_place place;
    struct ct_machine machine;
    struct ct_command command;
    struct ct_cookie cookie;
    struct ct_guard *guard;
    struct ct_logdir logdir;
    char uuid[CT_UUID_TEXT];
    struct ct_job job;
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

static int print(const char *text, size_t len)
{
    return ct_fd_write_all(STDOUT_FILENO, text, len) == 0 ? CT_EXIT_OK : CT_EXIT_SETUP;
}

static int print_made(enum ct_shell completion)
{
    struct ct_buf text = CT_BUF_INIT;
    int exit_code = CT_EXIT_SETUP;
    int rc = completion == CT_SHELL_NONE ? ct_options_help(&text)
                                         : ct_completion_print(completion, &text);
    if (rc == 0) {
        exit_code = print((const char *)ct_buf_bytes(&text), text.len);
    }
    ct_buf_fini(&text);
    return exit_code;
}

static enum ct_log_level log_level(char *const *env)
{
    const char *name = ct_environ_get(env, "LOGLEVEL");
    enum ct_log_level level = CT_LOG_WARNING;
    if (name != NULL && ct_log_level_parse(name, &level) != 0) {
        return CT_LOG_WARNING;
    }
    return level;
}

static int start_guard(struct launch *launch, struct ct_err *err)
{
    int rc = ct_cookie_new(&launch->cookie, err);
    return rc != 0 ? rc : ct_guard_start(&launch->cookie, &launch->guard, err);
}

static bool wants_logs(const struct ct_options *options)
{
    return ct_redirects_any(&options->redirects) || ct_redirects_any(&options->tee);
}

static int open_logdir(struct launch *launch, char *const *env, struct ct_err *err)
{
    launch->job.run_id = launch->options.run_id;
    if (launch->job.run_id == NULL) {
        int rc = ct_uuid_random(launch->uuid, err);
        if (rc != 0) {
            return rc;
        }
        launch->job.run_id = launch->uuid;
    }
    const char *tmp_dir = ct_environ_get(env, "TMPDIR");
    /* Making and removing a folder for each worker costs milliseconds on a disk. */
    if (launch->options.log_dir == NULL && tmp_dir == NULL && !wants_logs(&launch->options) &&
        ct_logdir_init(NULL, "/dev/shm", launch->job.run_id, &launch->logdir, NULL) == 0) {
        return 0;
    }
    return ct_logdir_init(launch->options.log_dir, tmp_dir, launch->job.run_id, &launch->logdir,
                          err);
}

static int run(struct launch *launch, char *const *env, struct ct_outcome *outcome,
               struct ct_err *err)
{
    struct ct_job *job = &launch->job;
    job->options = &launch->options;
    job->place = &launch->place;
    job->machine = &launch->machine;
    job->command = &launch->command;
    job->logdir = &launch->logdir;
    job->cookie = &launch->cookie;
    job->guard = launch->guard;
    job->env = env;
    job->log_level = log_level(env);
    ct_spawn_raise_nofile(&job->nofile);
    return ct_agent_run(job, outcome, err);
}

static void clean_up(struct launch *launch, const struct ct_outcome *outcome)
{
    bool keep = outcome->keep_files || wants_logs(&launch->options);
    if (launch->logdir.temporary && keep && launch->logdir.run != NULL) {
        (void)fprintf(stderr, "%sfiles of this run: %s\n", CT_REPORT_PREFIX, launch->logdir.run);
    }
    ct_logdir_fini(&launch->logdir, keep);
    ct_command_fini(&launch->command);
    ct_guard_free(launch->guard);
}

static int launch_job(struct launch *launch, char *const *env)
{
    struct ct_outcome outcome = {.exit_code = CT_EXIT_SETUP};
    struct ct_err err = {0};
    const char *own_dir = launch->machine.own_dir;
    int rc = ct_command_resolve(&launch->options, env, own_dir[0] != '\0' ? own_dir : NULL,
                                &launch->command, &err);
    if (rc != 0) {
        outcome.exit_code = ct_policy_command_exit_code(rc);
    }
    rc = rc != 0 ? rc : start_guard(launch, &err);
    rc = rc != 0 ? rc : open_logdir(launch, env, &err);
    rc = rc != 0 ? rc : run(launch, env, &outcome, &err);
    if (rc != 0) {
        (void)fail(outcome.exit_code, &err);
    }
    clean_up(launch, &outcome);
    return outcome.exit_code;
}

int main(int argc, char **argv)
{
    struct launch launch = {0};
    struct ct_err err = {0};
    (void)argc;

    fill_standard_fds();
    /* A reader that goes away (ctrun | head) must not take the job with it. */
    (void)signal(SIGPIPE, SIG_IGN);

    if (ct_options_parse(argv, environ, &launch.options, &err) != 0) {
        return fail(CT_EXIT_USAGE, &err);
    }
    if (launch.options.help || launch.options.completion != CT_SHELL_NONE) {
        return print_made(launch.options.help ? CT_SHELL_NONE : launch.options.completion);
    }
    if (launch.options.version) {
        return print("ctrun " CT_VERSION "\n", strlen("ctrun " CT_VERSION "\n"));
    }
    ct_place_decide(&launch.options, &launch.place);
    int rc = ct_place_check(&launch.place, &err);
    if (rc != 0) {
        return fail(rc == CT_EUNSUPPORTED ? CT_EXIT_USAGE : CT_EXIT_SETUP, &err);
    }
    ct_machine_read(environ, &launch.machine);
    if (ct_machine_workers(&launch.machine, &launch.options, &launch.job.workers, &err) != 0 ||
        ct_machine_check_devices(&launch.options, launch.job.workers,
                                 ct_environ_get(environ, "CUDA_VISIBLE_DEVICES"), &err) != 0) {
        return fail(CT_EXIT_SETUP, &err);
    }
    return launch_job(&launch, environ);
}
