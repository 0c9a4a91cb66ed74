/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the command line of each machine from the job, and says why a machine was not started.
 */
#include "launcher/fleet/fleet_start.h"

#include "common/alloc.h"
#include "common/exit_code.h"
#include "launcher/cli/option_table.h"
#include "launcher/report/report.h"
#include "launcher/worker/command.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The exit code of ssh when it has no connection. */
#define AGENT_FAILED 255

int ct_fleet_start_spec(const struct ct_fleet_job *job, struct ct_fleet_paths *paths,
                        struct ct_fleet_spec *out, struct ct_err *err)
{
    if (getcwd(paths->folder, sizeof(paths->folder)) == NULL) {
        return ct_err_sys(err, CT_EIO, errno, "cannot tell the working directory");
    }
    (void)snprintf(paths->ctrun, sizeof(paths->ctrun), "%s/ctrun", job->machine->own_dir);
    int words = 0;
    while (&job->argv[1 + words] != job->options->command) {
        words++;
    }
    if (words > 0 && strcmp(job->argv[words], "--") == 0) {
        words--;
    }
    *out = (struct ct_fleet_spec){
        .hosts = job->hosts,
        .agent = job->options->launch_agent,
        .ctrun = job->machine->own_dir[0] != '\0' ? paths->ctrun : "ctrun",
        .folder = paths->folder,
        .options = &job->argv[1],
        .num_options = words,
        .command = job->options->command,
        .env = job->env,
        .run_id = job->run_id,
        .nnodes_given = ct_option_given(job->options, CT_OPT_NNODES) != CT_GIVEN_NOT,
    };
    return 0;
}

int ct_fleet_start_find_agent(const struct ct_fleet_job *job, const struct ct_fleet_spec *spec,
                              struct ct_err *err)
{
    struct ct_strlist argv = {0};
    char *path = NULL;
    int first = 0, rc = 0;
    while (first < job->hosts->count &&
           ct_fleet_is_here(job->hosts->list[first].name, job->machine->host)) {
        first++;
    }
    if (first == job->hosts->count) {
        return 0;
    }
    rc = ct_fleet_argv(spec, first, false, "", &argv, err);
    if (rc != 0) {
        goto out;
    }
    rc = ct_command_find(argv.list[0], job->env, &path, err);
    if (rc != 0) {
        (void)ct_err_wrap(err, "the launch agent");
    }
out:
    ct_free(path);
    ct_strlist_fini(&argv);
    return rc;
}

int ct_fleet_start_command(const struct ct_fleet_job *job, const struct ct_fleet_spec *spec,
                           int index, struct ct_fleet_start *out, struct ct_err *err)
{
    bool here = ct_fleet_is_here(job->hosts->list[index].name, job->machine->host);
    *out = (struct ct_fleet_start){.command = CT_BUF_INIT};
    int rc = ct_fleet_command(spec, index, &out->command);
    const char *text = rc == 0 ? ct_buf_cstr(&out->command) : NULL;
    if (text == NULL) {
        rc = ct_err_set(err, CT_ENOMEM, "out of memory for the launch agents");
        goto out;
    }
    rc = ct_fleet_argv(spec, index, here, text, &out->argv, err);
    if (rc != 0) {
        goto out;
    }
    rc = ct_command_find(out->argv.list[0], job->env, &out->path, err);
out:
    if (rc != 0) {
        ct_fleet_start_fini(out);
    }
    return rc;
}

void ct_fleet_start_fini(struct ct_fleet_start *start)
{
    ct_free(start->path);
    ct_strlist_fini(&start->argv);
    ct_buf_fini(&start->command);
    *start = (struct ct_fleet_start){.command = CT_BUF_INIT};
}

int ct_fleet_start_failed(const struct ct_fleet_job *job, int index, int code, bool spoke,
                          char why[CT_FLEET_WHY_MAX])
{
    const char *name = job->hosts->list[index].name;
    const char *agent = job->options->launch_agent;
    if (code != AGENT_FAILED && code != 0 && spoke) {
        (void)snprintf(why, CT_FLEET_WHY_MAX,
                       CT_REPORT_PREFIX "%s: ctrun there ended with code %d\n", name, code);
        return code;
    }
    bool here = ct_fleet_is_here(name, job->machine->host);
    if (code == 0) {
        (void)snprintf(why, CT_FLEET_WHY_MAX,
                       CT_REPORT_PREFIX "%s: no ctrun runs there: the launch agent (%.200s) exited "
                                        "with code 0\n" CT_REPORT_PREFIX
                                        "what to do: the launch agent must last as long as the "
                                        "ctrun there, and pass on its exit code\n",
                       name, here ? "/bin/sh" : agent);
        return CT_EXIT_SETUP;
    }
    int len = snprintf(
        why, CT_FLEET_WHY_MAX,
        CT_REPORT_PREFIX "%s: ctrun could not be started there: %s%.200s%s exited with code %d\n",
        name, here ? "the shell" : "the launch agent (", here ? "" : agent, here ? "" : ")", code);
    if (code == AGENT_FAILED && !here) {
        (void)snprintf(why + len, CT_FLEET_WHY_MAX - (size_t)len,
                       CT_REPORT_PREFIX
                       "what to do: \"%.200s %s true\" must work without a question\n",
                       agent, name);
    }
    return CT_EXIT_SETUP;
}
