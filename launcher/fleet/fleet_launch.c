/* SPDX-License-Identifier: Apache-2.0
 *
 * `ctrun --hosts`: checks the options and the list of machines, and prepares what fleet_uv.c needs.
 * Everything that is made here is freed here.
 */
#include "launcher/fleet/fleet_launch.h"

#include "common/open_files.h"
#include "launcher/cli/option_table.h"
#include "launcher/fleet/fleet_detached.h"
#include "launcher/fleet/fleet_uv.h"
#include "launcher/process/cookie.h"
#include "launcher/setup/prepare.h"
#include "launcher/worker/arguments.h"

#include <unistd.h>

bool ct_fleet_wanted(const struct ct_options *options)
{
    /* A ctrun that was started by --hosts gets the same options, so it sees --hosts, too. */
    return !options->agent_stdin && (options->hosts != NULL || options->hostfile != NULL);
}

/* Descriptors for ctrun itself, with some to spare; an ssh needs a pidfd and three pipes. */
#define OPEN_FILES_BASE 40
#define OPEN_FILES_PER_HOST 7

/* Refuses options about the store and the order of the machines: this ctrun decides both. */
static int check_options(const struct ct_options *options, struct ct_err *err)
{
    static const struct {
        enum ct_option_id id;
        const char *name;
    } without_meaning[] = {
        {CT_OPT_STANDALONE, "--standalone"},     {CT_OPT_MASTER_ADDR, "--master-addr"},
        {CT_OPT_NODE_RANK, "--node-rank"},       {CT_OPT_RDZV_ENDPOINT, "--rdzv-endpoint"},
        {CT_OPT_PRINT_CONFIG, "--print-config"}, {CT_OPT_RDZV_BACKEND, "--rdzv-backend"},
    };
    for (size_t i = 0; i < sizeof(without_meaning) / sizeof(without_meaning[0]); i++) {
        if (ct_option_given(options, without_meaning[i].id) == CT_GIVEN_FLAG) {
            return ct_err_set(
                err, CT_EINVAL,
                "%s has no meaning with --hosts, because this ctrun chooses the store and "
                "the node ranks itself",
                without_meaning[i].name);
        }
    }
    /* Else each machine would say it. */
    struct ct_job_ports ports = {0};
    return ct_arguments_check(options->command, &ports, err);
}

static int read_hosts(const struct ct_options *options, struct ct_hosts *hosts, struct ct_err *err)
{
    if (options->hosts != NULL && ct_hosts_parse(hosts, options->hosts, err) != 0) {
        return ct_err_wrap(err, "--hosts");
    }
    int rc = options->hostfile != NULL ? ct_hosts_read(hosts, options->hostfile, err) : 0;
    if (rc != 0) {
        return rc;
    }
    if (options->min_nodes > hosts->count) {
        return ct_err_set(err, CT_EINVAL, "--nnodes asks for %d machines, %s names %d",
                          options->min_nodes, options->hostfile != NULL ? "--hostfile" : "--hosts",
                          hosts->count);
    }
    return 0;
}

/* What is started here must outlive this process, so there is no guard. */
static int start_detached(struct ct_fleet_job *job, int out_fd, int *exit_code, struct ct_err *err)
{
    size_t files = OPEN_FILES_BASE + OPEN_FILES_PER_HOST * (size_t)job->hosts->count;
    if (job->options->local_addr[0] != '\0') {
        return ct_err_set(
            err, CT_EINVAL,
            "--local-addr has no meaning with --hosts and --detach: the first machine "
            "of --hosts hosts the store");
    }
    int rc = ct_open_files_raise(files, &job->nofile, err);
    if (rc != 0) {
        return rc;
    }
    return ct_fleet_detached_start(job, out_fd, STDERR_FILENO, exit_code, err);
}

int ct_fleet_launch(const struct ct_options *options, const struct ct_machine *machine,
                    char *const *argv, char *const *env, int out_fd, int *exit_code,
                    struct ct_err *err)
{
    char uuid[CT_UUID_TEXT];
    struct ct_hosts hosts = {0};
    struct ct_cookie cookie;
    struct ct_fleet_job job = {
        .options = options,
        .hosts = &hosts,
        .machine = machine,
        .argv = argv,
        .env = env,
        .run_id = options->run_id != NULL ? options->run_id : uuid,
    };
    ct_prepare_wipe_token(env); /* this job gets one of its own */
    int rc = check_options(options, err);
    if (rc != 0) {
        return rc;
    }
    rc = read_hosts(options, &hosts, err);
    if (rc != 0) {
        goto out;
    }
    rc = ct_machine_uuid(uuid, err);
    if (rc != 0) {
        goto out;
    }
    if (options->detach) {
        rc = start_detached(&job, out_fd, exit_code, err);
        goto out;
    }
    size_t files = OPEN_FILES_BASE + OPEN_FILES_PER_HOST * (size_t)hosts.count;
    rc = ct_open_files_raise(files, &job.nofile, err);
    if (rc != 0) {
        goto out;
    }
    rc = ct_cookie_new(&cookie, err);
    if (rc != 0) {
        goto out;
    }
    rc = ct_guard_start(&cookie, NULL, &job.guard, err);
    if (rc != 0) {
        goto out;
    }
    rc = ct_fleet_run(&job, exit_code, err);
out:
    ct_guard_free(job.guard);
    ct_hosts_fini(&hosts);
    return rc;
}
