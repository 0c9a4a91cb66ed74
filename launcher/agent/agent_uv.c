/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: open output, store, processes and signals, then the link to the membership. Give the
 * state machine the event "begin", and carry out what it asks for until it asks to finish. Close
 * everything and let the loop end. A job of one machine takes the same way: its membership is in
 * this process.
 *
 * Failure modes: what cannot be opened ends the run before any worker starts.
 *
 * Who frees: everything lives in struct ct_agent_run on the stack of ct_agent_run(), and
 * close_all() closes it. No callback used here is called inside the call that asked for it.
 */
#include "launcher/agent/agent_run_uv.h"
#include "launcher/detach/detach.h"
#include "launcher/setup/misspelt_env.h"
#include "launcher/setup/no_effect.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "rendezvous/wire/json.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* The kernel's log is opened so long after the start, because that takes time (oom.h) and the
 * workers load their programs then. */
#define KERNEL_LOG_AFTER_MS 50

/* Called when no worker is left. */
static void close_all(struct ct_agent_run *run)
{
    ct_agent_signals_stop_stacks(run); /* its answer needs the output */
    run->store.end.lingers = ct_agent_page_lingers(run);
    if (run->store.end.lingers) {
        ct_agent_page_say(run, true);
    } else {
        /* From here on only output is left to write. */
        ct_agent_signals_close(run);
    }
    ct_agent_address_close(&run->address);
    ct_hang_monitor_close(&run->monitors.hang);
    ct_file_timer_server_close(&run->monitors.timers);
    ct_uninterruptible_monitor_close(&run->monitors.uninterruptible);
    ct_agent_trace_close(&run->trace);
    ct_live_line_close(&run->live);
    ct_agent_queries_close(run);
    ct_agent_warm_close(run);
    ct_procs_close(run->workers.procs, NULL, NULL);
    run->workers.procs = NULL;
    ct_agent_link_close(run);
    /* A slow reader gets all output, but after a signal that wait is limited. */
    ct_output_close(run->output, run->agent.signo != 0 ? CT_AGENT_DRAIN_MS : -1, NULL, NULL);
    run->output = NULL;
}

static int64_t grace_ms(const struct ct_agent_run *run)
{
    int64_t given_ms =
        run->agent.signo != 0 ? run->requests.deadline_ms : run->job->options->shutdown_timeout_ms;
    return ct_agent_failover_grace_ms(run, given_ms);
}

/* Returns the first signal that workers get. At a preemption the user may want another signal than
 * the one that ctrun has received. */
static int signal_for_workers(const struct ct_agent_run *run, int signo)
{
    int wanted = run->job->options->preempt_signal;
    bool preempted = signo == run->agent.signo && signo != SIGINT;
    return preempted && wanted != 0 ? wanted : signo;
}

/* Messages go out before anything that takes time. */
static void carry_out(struct ct_agent_run *run, const struct ct_agent_update *update)
{
    if (update->headline && run->agent.failure.known) {
        ct_agent_report_failure(run);
    }
    if (update->finish) {
        run->outcome.exit_code = update->exit_code;
    }
    if (update->say & CT_AGENT_SAY_STARTED) {
        char address[CT_ADDR_JOIN_MAX], others[CT_HOST_LIST_MAX];
        ct_agent_store_reached(run, address);
        ct_agent_failover_others(run, others);
        ct_detach_started(run->job->detach, address, others);
        ct_job_story_started(&run->report.story, ct_clock_now(NULL));
        ct_trace_job_end(&run->trace.data, CT_TRACE_SPAWN, NULL, ct_clock_now(NULL));
        ct_agent_keep_report(run);
        ct_agent_warm_report(run);
        ct_agent_warm_run(run);
    }
    if (update->finish && ct_agent_page_lingers(run)) {
        ct_server_page_sample(run->store.server); /* the workers leave the status with this node */
    }
    ct_agent_link_send(run, update->say);
    if (update->headline) {
        ct_agent_report_headline(run);
        ct_agent_link_beat(run);
    }
    if (update->preempt_notice) {
        ct_agent_signals_notify(run);
    }
    if (update->stop_signal != 0) {
        ct_agent_warm_stop(run);
        ct_agent_workers_stop(run, signal_for_workers(run, update->stop_signal), grace_ms(run));
    }
    if (update->kill) {
        ct_agent_workers_stop(run, SIGKILL, 0);
    }
    if (update->report) {
        ct_agent_report_generation(run);
        if (run->agent.will_restart) {
            ct_trace_job_begin(&run->trace.data, CT_TRACE_RENDEZVOUS, ct_clock_now(NULL));
        }
    }
    if (update->finish) {
        ct_agent_report_job(run);
        ct_agent_report_end(run);
        ct_agent_trace_write(run);
        close_all(run);
    }
}

static struct ct_agent_event serve(struct ct_agent_run *run)
{
    struct ct_err err = {0};
    int rc = ct_agent_store_serve(run, &err);
    if (rc != 0) {
        ct_agent_report_say(run->output, "cannot open a store for the workers: %s", err.text);
    } else {
        rc = ct_port_reserve_choose(&run->reserve, &run->ports, &err);
        if (rc != 0) {
            ct_agent_report_say(run->output, "cannot reserve a port for the workers: %s", err.text);
        }
    }
    return (struct ct_agent_event){.type = rc == 0 ? CT_AGENT_EV_SERVING : CT_AGENT_EV_NOT_SERVING};
}

void ct_agent_dispatch(struct ct_agent_run *run, struct ct_agent_event event)
{
    for (;;) {
        struct ct_agent_update update;
        ct_agent_step(&run->agent, &event, ct_clock_now(NULL), &update);
        carry_out(run, &update);
        if (update.serve) {
            event = serve(run);
        } else if (update.spawn > 0) {
            event = ct_agent_workers_start(run, update.spawn);
        } else if (update.spawn < 0 || ct_agent_check_and_start(run, &event)) {
            break; /* while it is checked, or spares get ready, the end of that comes as an event */
        }
    }
    if (run->workers.stopping && run->workers.procs != NULL) {
        /* It may be known now whether a generation follows, and so which workers stay. */
        ct_procs_look_again(run->workers.procs);
    }
}

static void on_uninterruptible(void *data, int local_rank, const struct ct_worker_end *end)
{
    ct_agent_dispatch(data, (struct ct_agent_event){
                                .type = CT_AGENT_EV_EXITED, .local_rank = local_rank, .end = *end});
}

/* ---- opening --------------------------------------------------------------------------------- */

static void fill_worker_env(struct ct_agent_run *run)
{
    const struct ct_job_spec *job = run->job;
    run->worker_env = (struct ct_worker_env){
        .local_world_size = job->resolved->workers,
        .max_restarts = job->options->max_restarts,
        .cpus = ct_machine_cpus_to_share(job->machine, job->resolved),
        .role = job->options->role,
        .run_id = job->run_id,
        .virtual_local_rank = job->options->virtual_local_rank,
        .signals = job->options->signals,
        .cookie = ct_cookie_env(job->cookie),
        .ports = &run->ports,
        .dump_stack = job->options->hang_timeout_ns >= 0,
    };
    run->ports = job->command->ports;
    ct_oom_open(&run->workers.oom, &ct_oom_here);
    ct_progress_reader_open(&run->workers.progress, job->resolved->workers, &run->log);
    run->worker_env.progress = run->workers.progress.path;
    if (job->options->max_restarts > 0 || job->resolved->shared) {
        /* Only these jobs can have a later generation, which would read it. */
        ct_snapshot_open(&run->workers.snapshot, &run->log);
        run->worker_env.snapshot = ct_snapshot_env(&run->workers.snapshot);
        ct_order_writer_open(&run->workers.orders, job->resolved->workers, &run->log);
        run->worker_env.handover = run->workers.orders.path;
    }
    if (job->logdir->run != NULL) {
        run->requests.notice_file = ct_asprintf("%s/preempt.json", job->logdir->run);
        run->worker_env.preempt = run->requests.notice_file;
    }
}

/* Opens what finds workers that make no progress. */
static int open_monitors(struct ct_agent_run *run, struct ct_err *err)
{
    const struct ct_job_spec *job = run->job;
    struct ct_agent_workers *workers = &run->workers;
    struct ct_agent_monitors *monitors = &run->monitors;
    run->asker = (struct ct_stack_asker){
        .loop = &run->loop, .job = job, .worker_env = &run->worker_env, .workers = workers->list};
    monitors->hang = (struct ct_hang_monitor){.job = job,
                                              .worker_env = &run->worker_env,
                                              .progress = &workers->progress,
                                              .output = run->output,
                                              .workers = workers->list,
                                              .stopping = &workers->stopping,
                                              .asker = &run->asker,
                                              .log = &run->report.story.hangs,
                                              .on_stands = ct_agent_tell_stands,
                                              .on_report = ct_agent_tell_hang,
                                              .data = run};
    int rc = ct_hang_monitor_open(&monitors->hang, &run->loop, err);
    if (rc != 0) {
        return rc;
    }
    monitors->timers = (struct ct_file_timer_server){.job = job,
                                                     .output = run->output,
                                                     .workers = workers->list,
                                                     .stopping = &workers->stopping,
                                                     .first_rank = &run->worker_env.first_rank};
    rc = ct_file_timer_server_open(&monitors->timers, &run->loop, err);
    if (rc != 0) {
        return rc;
    }
    run->worker_env.timer_file = monitors->timers.path;
    monitors->uninterruptible = (struct ct_uninterruptible_monitor){.workers = workers->list,
                                                                    .count = workers->count,
                                                                    .states = run->agent.states,
                                                                    .stopping = &workers->stopping,
                                                                    .on_failed = on_uninterruptible,
                                                                    .data = run};
    return ct_uninterruptible_monitor_open(&monitors->uninterruptible, &run->loop, job->env, err);
}

/* Opens the ways by which somebody can ask for the end of the job. */
static int open_requests(struct ct_agent_run *run, struct ct_err *err)
{
    int rc = ct_agent_signals_open(run, err);
    if (rc != 0 || !run->job->options->agent_stdin || run->job->options->detach) {
        return rc;
    }
    return ct_agent_stdin_open(&run->requests.input, &run->loop, ct_agent_signals_receive, run,
                               err);
}

static enum ct_join_preflight preflight_of(const struct ct_options *options)
{
    switch (options->preflight) {
    case CT_PREFLIGHT_OFF:
        return CT_JOIN_PREFLIGHT_NONE;
    case CT_PREFLIGHT_FIRST:
        return options->preflight_only ? CT_JOIN_PREFLIGHT_ONLY : CT_JOIN_PREFLIGHT_FIRST;
    case CT_PREFLIGHT_EACH:
        return options->preflight_only ? CT_JOIN_PREFLIGHT_ONLY : CT_JOIN_PREFLIGHT_EACH;
    }
    return CT_JOIN_PREFLIGHT_NONE;
}

static void fill_join(struct ct_agent_run *run)
{
    const struct ct_options *options = run->job->options;
    const struct ct_resolved *resolved = run->job->resolved;
    struct ct_msg_join *join = &run->membership.join;
    (void)snprintf(join->run_id, sizeof(join->run_id), "%s", run->job->run_id);
    (void)snprintf(join->host, sizeof(join->host), "%s", run->job->machine->host);
    (void)snprintf(join->role, sizeof(join->role), "%.*s", CT_ROLE_MAX - 1, options->role);
    join->node_rank = resolved->node_rank;
    join->workers = resolved->workers;
    join->queries = true;
    join->stands = true;
    join->pid = uv_os_getpid();
    join->min_nodes = resolved->min_nodes;
    join->max_nodes = resolved->max_nodes;
    join->spares = options->spares;
    join->max_restarts = options->max_restarts;
    join->preflight = preflight_of(options);
    join->limits = options->limits;
    join->settle_ms = options->rdzv_conf.settle_ms;
    join->join_ms = options->rdzv_conf.join_ms;
    join->heartbeat_ms = options->rdzv_conf.heartbeat_ms;
}

static int open_live_line(struct ct_agent_run *run, struct ct_err *err)
{
    run->live = (struct ct_live_line_timer){.job = run->job,
                                            .agent = &run->agent,
                                            .progress = &run->workers.progress,
                                            .story = &run->report.story,
                                            .output = run->output};
    return ct_live_line_open(&run->live, &run->loop, err);
}

static int open_all(struct ct_agent_run *run, struct ct_err *err)
{
    const struct ct_job_spec *job = run->job;
    const struct ct_output_options output = {
        .out_fd = 1, .err_fd = 2, .apart = job->options->detach, .log = &run->log};
    run->workers.list = ct_calloc((size_t)job->resolved->workers, sizeof(*run->workers.list));
    run->membership.msg = ct_calloc(1, sizeof(*run->membership.msg));
    if (run->workers.list == NULL || run->membership.msg == NULL ||
        ct_agent_init(&run->agent, job->resolved->workers, &run->log) != 0) {
        return ct_err_set(err, CT_ENOMEM, "out of memory for %d workers", job->resolved->workers);
    }
    fill_worker_env(run);
    fill_join(run);
    ct_agent_address_open(run);
    int rc = ct_output_open(&run->loop, &output, &run->output, err);
    if (rc != 0) {
        return rc;
    }
    rc = ct_agent_failover_open(run, err);
    if (rc != 0) {
        return rc;
    }
    rc = ct_agent_store_open(run, err);
    if (rc != 0) {
        return rc;
    }
    rc = ct_procs_open(&run->loop, job->guard, &run->log, &run->workers.procs, err);
    if (rc != 0) {
        return rc;
    }
    ct_procs_set_stay_fn(run->workers.procs, ct_agent_keep_may_stay, run);
    rc = open_monitors(run, err);
    if (rc != 0) {
        return rc;
    }
    rc = ct_agent_warm_open(run, err);
    if (rc != 0) {
        return rc;
    }
    rc = open_requests(run, err);
    if (rc != 0) {
        return rc;
    }
    rc = ct_agent_trace_open(run, err);
    if (rc != 0) {
        return rc;
    }
    rc = open_live_line(run, err);
    if (rc != 0) {
        return rc;
    }
    return job->resolved->etcd != NULL ? ct_agent_failover_seek(run, err)
                                       : ct_agent_link_open(run, err);
}

static void free_all(struct ct_agent_run *run)
{
    ct_stack_asker_fini(&run->asker);
    ct_agent_check_fini(&run->check);
    ct_agent_fini(&run->agent);
    ct_port_reserve_fini(&run->reserve);
    ct_snapshot_fini(&run->workers.snapshot);
    ct_progress_reader_fini(&run->workers.progress);
    ct_order_writer_fini(&run->workers.orders);
    ct_oom_fini(&run->workers.oom);
    ct_job_story_fini(&run->report.story);
    ct_failure_fini(&run->report.failure);
    ct_error_file_fini(&run->report.error_file);
    ct_buf_fini(&run->report.tail);
    ct_free(run->report.kernel_stack);
    ct_free(run->requests.notice_file);
    ct_free(run->membership.msg);
    ct_free(run->workers.list);
}

static void log_no_effect(const struct ct_agent_run *run)
{
    char lines[CT_NO_EFFECT_LINES][CT_NO_EFFECT_MAX];
    int count = ct_no_effect(run->job->options, run->job->resolved, lines);
    for (int i = 0; i < count; i++) {
        ct_log(&run->log, CT_LOG_WARNING, "%s", lines[i]);
    }
    char names[CT_MISSPELT_ENV_LINES][CT_MISSPELT_ENV_MAX];
    count = ct_misspelt_env(run->job->env, names);
    for (int i = 0; i < count; i++) {
        ct_log(&run->log, CT_LOG_WARNING, "%s", names[i]);
    }
}

static void log_start(struct ct_agent_run *run)
{
    const struct ct_job_spec *job = run->job;
    const struct ct_resolved *resolved = job->resolved;
    if (resolved->warning[0] != '\0' && !resolved->warning_can_wait &&
        ct_agent_report_speaks(run->job->resolved)) {
        ct_log(&run->log, CT_LOG_WARNING, "%s", resolved->warning);
    }
    if (ct_agent_report_speaks(resolved)) {
        log_no_effect(run);
    }
    if (run->store.server != NULL && !ct_addr_loopback_up()) {
        ct_log(
            &run->log, CT_LOG_WARNING,
            "the loopback interface is down here: workers do not reach the store on this machine "
            "(%s) before `ip link set lo up`",
            resolved->store_address.master);
    }
    char store[CT_ADDR_JOIN_MAX] = "a machine that etcd names";
    if (resolved->etcd == NULL) {
        ct_addr_join(resolved->store_address.master,
                     run->store.server != NULL ? ct_server_port(run->store.server)
                                               : resolved->store_address.port,
                     store, sizeof(store));
    }
    ct_log(&run->log, CT_LOG_INFO, "job %s: %d worker%s of %s, store on %s, files in %s",
           job->run_id, resolved->workers, resolved->workers == 1 ? "" : "s", job->command->path,
           store, job->logdir->run != NULL ? job->logdir->run : "no folder");
}

static void on_kernel_log_due(uv_timer_t *timer)
{
    struct ct_agent_store *store = timer->data;
    struct ct_agent_run *run = CT_CONTAINER_OF(store, struct ct_agent_run, store);
    ct_oom_follow_log(&run->workers.oom, &ct_oom_here);
}

int ct_agent_run(const struct ct_job_spec *job, struct ct_outcome *out, struct ct_err *err)
{
    struct ct_agent_run run = {.job = job,
                               .store.address = job->resolved->store_address,
                               .workers.count = job->resolved->workers,
                               .workers.snapshot = CT_SNAPSHOT_INIT,
                               .workers.progress = CT_PROGRESS_READER_INIT,
                               .workers.orders = CT_ORDER_WRITER_INIT,
                               .workers.oom = CT_OOM_INIT,
                               .report.tail = CT_BUF_INIT,
                               .log = {ct_agent_report_log, NULL, job->log_level}};
    run.log.data = &run.output;
    int rc = uv_loop_init(&run.loop);
    if (rc != 0) {
        return ct_err_set(err, CT_EIO, "cannot make an event loop: %s", uv_strerror(rc));
    }
    ct_json_use_our_memory();
    ct_job_story_init(&run.report.story, job->resolved->workers, job->begun_ns);
    CT_ASSERT(uv_timer_init(&run.loop, &run.store.timer) == 0); /* cannot fail */
    run.store.timer.data = &run.store;
    rc = open_all(&run, err);
    if (rc == 0) {
        log_start(&run);
        ct_agent_page_say(&run, false);
        (void)uv_timer_start(&run.store.timer, on_kernel_log_due, KERNEL_LOG_AFTER_MS, 0);
        ct_agent_warm_wait(&run);
        ct_agent_dispatch(&run, (struct ct_agent_event){.type = CT_AGENT_EV_BEGIN});
    } else {
        close_all(&run);
    }
    (void)uv_run(&run.loop, UV_RUN_DEFAULT);
    CT_ASSERT(uv_loop_close(&run.loop) == 0);
    free_all(&run);
    if (rc == 0) {
        *out = run.outcome;
    }
    return rc;
}
