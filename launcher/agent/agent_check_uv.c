/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: before the first worker of a generation starts, the preflight and the command of
 * --health-check run, one after the other. When both have passed, the worker starts, or first the
 * spares get ready (agent_warm_uv.c).
 *
 * Other paths: a machine that is not fit reports this as a worker that was not started. If another
 * machine is not fit, this one waits for the end of the generation. With --preflight-only every
 * worker counts as having succeeded after the preflight.
 *
 * Failure modes: a check that cannot be started has failed.
 *
 * Who frees: ct_agent_check_stop() ends a check that runs, ct_agent_check_fini() frees the rest.
 */
#include "launcher/agent/agent_run_uv.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/env_names.h"
#include "common/host_list.h"
#include "launcher/preflight/preflight_probe.h"
#include "launcher/util/strlist.h"
#include "rendezvous/wire/json.h"

#include <stdio.h>
#include <string.h>

/* What a preflight of 10,000 machines writes, with its table and its report. */
#define OUTCOME_MAX ((size_t)64 << 20)
#define ITSELF "/proc/self/exe"

/* ---- how a check ends ------------------------------------------------------------------------ */

/* Makes the event for a machine on which no worker starts. */
static struct ct_agent_event fail(struct ct_agent_run *run, const struct ct_worker_end *end,
                                  const char *why, const char *tail, const char *advice)
{
    struct ct_agent_workers *workers = &run->workers;
    (void)snprintf(run->check.tail, sizeof(run->check.tail), "%s", tail);
    (void)snprintf(run->check.advice, sizeof(run->check.advice), "%s", advice);
    workers->start_err = (struct ct_err){0};
    if (ct_agent_workers_begin(run) == 0) {
        (void)ct_err_set(&workers->start_err, CT_EIO, "%s", why);
    }
    workers->list[0].report.rank = run->worker_env.first_rank;
    workers->list[0].report.end = *end;
    return (struct ct_agent_event){.type = CT_AGENT_EV_NOT_STARTED, .end = *end};
}

static const char *health_advice(const struct ct_agent_run *run,
                                 const struct ct_health_result *result)
{
    bool shared = run->job->resolved->shared;
    if (result->not_run == 0) {
        return shared         ? ""
               : result->late ? "look at this machine, or give its check more time"
               : result->tail[0] == '\0'
                   ? "look at this machine; the check has not written what is wrong with it"
                   : "look at this machine: the check says what is wrong with it";
    }
    return shared ? "look for a typing mistake in the command of --health-check; it has to be "
                    "installed on every machine"
                  : "look for a typing mistake in the command of --health-check";
}

/* All checks have passed. As ct_agent_check_and_start(): spares may have to get ready first. */
static bool start_first(struct ct_agent_run *run, struct ct_agent_event *event)
{
    if (ct_agent_warm_begin(run)) {
        return true;
    }
    *event = ct_agent_workers_start(run, 0);
    return false;
}

static void on_checked(void *data, const struct ct_health_result *result)
{
    struct ct_agent_run *run = data;
    struct ct_agent_event event;
    run->check.running = NULL;
    if (result->why[0] == '\0') {
        if (!start_first(run, &event)) {
            ct_agent_dispatch(run, event);
        }
        return;
    }
    const struct ct_worker_end end = {.kind = CT_END_UNFIT, .value = result->not_run};
    ct_agent_dispatch(run, fail(run, &end, result->why, result->tail, health_advice(run, result)));
}

/* ---- the command of --health-check ----------------------------------------------------------- */

/* Gives the environment of a check: ours, and the cookie by which its processes are found. */
static int make_env(const struct ct_agent_run *run, struct ct_strlist *env)
{
    for (char *const *entry = run->job->env; *entry != NULL; entry++) {
        int rc = ct_strlist_borrow(env, *entry);
        if (rc != 0) {
            return rc;
        }
    }
    int rc = ct_strlist_borrow(env, ct_cookie_env(run->job->cookie));
    if (rc != 0) {
        return rc;
    }
    rc = ct_strlist_printf(env, CT_GENERATION_ENV "=%d", run->worker_env.generation);
    if (rc != 0) {
        return rc;
    }
    return ct_strlist_close(env);
}

/* Starts a check; if that is not possible, *event says that this machine is not fit. */
static bool start(struct ct_agent_run *run, struct ct_health_options *check,
                  struct ct_agent_event *event)
{
    const struct ct_worker_end end = {.kind = CT_END_UNFIT};
    struct ct_strlist env = {0};
    struct ct_err err = {0};
    char why[CT_FAILURE_WHAT_MAX];
    int rc = make_env(run, &env);
    if (rc == 0) {
        check->env = env.list;
        check->data = run;
        rc =
            ct_health_check_start(&run->loop, run->workers.procs, check, &run->check.running, &err);
    }
    ct_strlist_fini(&env);
    if (rc != 0) {
        (void)snprintf(why, sizeof(why), "its %s could not be started: %.400s", check->name,
                       err.text[0] != '\0' ? err.text : "out of memory");
        *event = fail(run, &end, why, "",
                      "make room on it: memory, processes (ulimit -u, pids.max), open files");
    }
    return rc == 0;
}

static bool check_health(struct ct_agent_run *run, struct ct_agent_event *event)
{
    const struct ct_options *options = run->job->options;
    struct ct_health_options health = {
        .name = "health check",
        .command = options->health_check,
        .nofile = &run->job->nofile,
        .keep = CT_HEALTH_TAIL_MAX,
        .timeout_ms = (int64_t)options->health_check_timeout * 1000,
        .timeout_option = "--health-check-timeout",
        .done = on_checked,
    };
    if (options->health_check == NULL) {
        return start_first(run, event);
    }
    return start(run, &health, event);
}

/* ---- the preflight --------------------------------------------------------------------------- */

static void say_lines(const struct ct_agent_run *run, const char *text)
{
    while (*text != '\0') {
        int len = (int)strcspn(text, "\n");
        ct_agent_report_say(run->output, "preflight: warning: %.*s", len, text);
        text += text[len] == '\n' ? len + 1 : len;
    }
}

/* Each machine that is not fit says so, but the first of them to do so ends the generation. */
static void say_unfit(const struct ct_agent_run *run, const cJSON *machines)
{
    int count = cJSON_GetArraySize(machines), num_unfit = 0;
    const char **names = ct_calloc((size_t)count + 1, sizeof(*names));
    const cJSON *machine;
    cJSON_ArrayForEach(machine, machines)
    {
        const char *host = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(machine, "host"));
        if (names != NULL && host != NULL &&
            cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(machine, "fit"))) {
            names[num_unfit++] = host;
        }
    }
    if (num_unfit > 1) {
        char hosts[CT_HOST_LIST_MAX];
        ct_host_list_text(names, num_unfit, hosts, sizeof(hosts));
        ct_agent_report_say(run->output, "preflight: %d of %d machines are not fit: %s", num_unfit,
                            count, hosts);
    }
    ct_free(names);
}

/* Node rank 0 tells what all machines together have found. */
static void say_result(const struct ct_agent_run *run, const struct ct_preflight_outcome *result)
{
    const cJSON *machines = cJSON_GetObjectItemCaseSensitive(result->report, "machines");
    int count = cJSON_GetArraySize(machines);
    if (result->report == NULL) {
        return;
    }
    if (run->job->options->preflight_only) {
        ct_output_say(run->output, CT_OUTPUT_OUT, result->table, strlen(result->table));
        return;
    }
    say_lines(run, result->warnings);
    if (result->unfit[0] != '\0' || result->others_unfit) {
        say_unfit(run, machines);
        return;
    }
    ct_agent_report_say(run->output,
                        count == 1 ? "preflight: this machine is fit"
                                   : "preflight: all %d machines are fit; %s",
                        count, result->summary);
}

/* There is nothing to run: all workers count as having succeeded. */
static void succeed(struct ct_agent_run *run)
{
    struct ct_agent_workers *workers = &run->workers;
    ct_agent_dispatch(run, ct_agent_workers_start(run, 0));
    for (int i = 0; i < workers->count && run->agent.states[i] == CT_WORKER_ALIVE; i++) {
        ct_agent_dispatch(run, (struct ct_agent_event){.type = CT_AGENT_EV_EXITED,
                                                       .local_rank = i,
                                                       .end = workers->list[i].report.end});
    }
}

static void go_on(struct ct_agent_run *run)
{
    struct ct_agent_event event;
    run->check.passed = true;
    if (run->job->options->preflight_only) {
        succeed(run);
    } else if (!check_health(run, &event)) {
        ct_agent_dispatch(run, event);
    }
}

/* Takes what was found for the report at the end. */
static void keep(struct ct_agent_run *run, struct ct_preflight_outcome *found)
{
    if (found->report != NULL) {
        ct_preflight_outcome_fini(&run->check.result);
        run->check.result = *found;
    } else {
        ct_preflight_outcome_fini(found);
    }
}

/* The generation ends while the preflight is on its last steps, mostly because another machine has
 * heard that it is not fit. What was found is written by then. */
static void take_written(struct ct_agent_run *run)
{
    struct ct_preflight_outcome found = {0};
    struct ct_err unused = {0};
    const char *written = ct_health_check_written(run->check.running);
    if (ct_preflight_outcome_read(written, &found, &unused) == 0) {
        say_result(run, &found);
        keep(run, &found);
    }
}

static void on_preflight(void *data, const struct ct_health_result *result)
{
    struct ct_agent_run *run = data;
    struct ct_preflight_outcome found = {0};
    struct ct_err err = {0};
    bool only = run->job->options->preflight_only;
    run->check.running = NULL;
    run->check.is_preflight = false;
    if (result->why[0] != '\0' || ct_preflight_outcome_read(result->tail, &found, &err) != 0) {
        const struct ct_worker_end end = {.kind = CT_END_UNFIT, .final = only};
        char tail[CT_HEALTH_TAIL_MAX + 1];
        (void)snprintf(tail, sizeof(tail), "%s", result->tail);
        ct_agent_dispatch(run, fail(run, &end, result->why[0] != '\0' ? result->why : err.text,
                                    tail, "look at dmesg, and at what this machine waits for"));
        return;
    }
    say_result(run, &found);
    if (found.broken[0] != '\0') {
        const struct ct_worker_end end = {.kind = CT_END_NOT_STARTED, .value = CT_END_NO_LACK};
        char why[CT_FAILURE_WHAT_MAX];
        (void)snprintf(why, sizeof(why), "there was no preflight: %.400s", found.broken);
        ct_agent_dispatch(run, fail(run, &end, why, "", ""));
    } else if (found.unfit[0] != '\0') {
        const struct ct_worker_end end = {.kind = CT_END_UNFIT, .final = only};
        ct_agent_dispatch(run, fail(run, &end, found.unfit, "", found.advice));
    } else if (found.others_unfit) {
        run->check.passed = true; /* the other machine ends this generation */
    } else {
        go_on(run);
    }
    keep(run, &found);
}

static bool is_due(const struct ct_agent_run *run)
{
    const struct ct_options *options = run->job->options;
    return options->preflight == CT_PREFLIGHT_EACH ||
           (options->preflight == CT_PREFLIGHT_FIRST && !run->check.passed);
}

/* Do all machines of the world take part in this preflight? They do with --preflight=each, and in
 * the first generation. A machine that comes later checks itself alone, because the others have
 * passed already. */
static bool concerns_all(const struct ct_agent_run *run)
{
    return run->membership.node_count > 1 &&
           (run->job->options->preflight == CT_PREFLIGHT_EACH || run->agent.generation == 0);
}

/* Makes the words of the preflight, in the order of enum ct_preflight_word. Returns false if there
 * is no memory for them. */
static bool make_words(const struct ct_agent_run *run, struct ct_strlist *argv)
{
    const struct ct_job_spec *job = run->job;
    const struct ct_worker_env *env = &run->worker_env;
    bool shim = job->resolved->mode == CT_MODE_SHIM;
    int workers = shim ? job->resolved->local_size : job->resolved->workers;
    const char *limits = job->options->preflight_limits;
    const char *folder = job->logdir->run;
    const char *master = env->master_addr;
    return ct_strlist_borrow(argv, CT_PREFLIGHT_PROGRAM) == 0 &&
           ct_strlist_printf(argv, "%d", env->generation) == 0 &&
           ct_strlist_printf(argv, "%d", run->membership.node_rank) == 0 &&
           ct_strlist_printf(argv, "%d", concerns_all(run) ? run->membership.node_count : 0) == 0 &&
           ct_strlist_borrow(argv, job->machine->host) == 0 &&
           ct_strlist_borrow(argv, ct_agent_address_here(run)) == 0 &&
           ct_strlist_borrow(argv, master != NULL ? master : "") == 0 &&
           ct_strlist_printf(argv, "%u", (unsigned)env->master_port) == 0 &&
           ct_strlist_printf(argv, "%d", workers > 0 ? workers : 1) == 0 &&
           ct_strlist_borrow(argv, ct_agent_report_speaks(job->resolved) ? "1" : "0") == 0 &&
           ct_strlist_borrow(argv, limits != NULL ? limits : "") == 0 &&
           ct_strlist_borrow(argv, folder != NULL ? folder : "") == 0 &&
           ct_strlist_close(argv) == 0;
}

static bool start_preflight(struct ct_agent_run *run, struct ct_agent_event *event)
{
    struct ct_strlist argv = {0};
    bool begun = false;
    if (make_words(run, &argv)) {
        struct ct_health_options probe = {
            .name = "preflight",
            .path = ITSELF,
            .argv = argv.list,
            .keep = OUTCOME_MAX,
            .timeout_ms = CT_PREFLIGHT_TIMEOUT_MS,
            .done = on_preflight,
        };
        begun = run->check.is_preflight = start(run, &probe, event);
    } else {
        const struct ct_worker_end end = {.kind = CT_END_UNFIT};
        *event = fail(run, &end, "its preflight could not be started: out of memory", "", "");
    }
    ct_strlist_fini(&argv);
    return begun;
}

bool ct_agent_check_and_start(struct ct_agent_run *run, struct ct_agent_event *event)
{
    if (!is_due(run)) {
        return check_health(run, event);
    }
    ct_agent_warm_end_import(run); /* it would disturb what the preflight measures */
    return start_preflight(run, event);
}

void ct_agent_check_stop(struct ct_agent_run *run)
{
    if (run->check.running != NULL && run->check.is_preflight) {
        take_written(run);
    }
    ct_health_check_cancel(run->check.running);
    run->check.running = NULL;
    run->check.is_preflight = false;
}

void ct_agent_check_fini(struct ct_agent_check *check)
{
    ct_preflight_outcome_fini(&check->result);
}
