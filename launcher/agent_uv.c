/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: open output, store, processes and signals; step the agent with "begin"; carry out
 * what it says until it says "finish"; close everything; the loop runs dry.
 *
 * Other paths: a worker's failure prints the headline at once. When everything of the generation is
 * gone (ct_procs_stop) and its output has arrived (ct_output_settle) the story is printed, the
 * workers are freed, and only then does the agent hear "stopped", so that a new generation finds
 * an empty table.
 *
 * Failure modes: what cannot be opened ends the run before any worker starts. A worker that cannot
 * be started is an event like any other. A sink that takes nothing delays the end, not a restart.
 *
 * Who frees: everything lives in struct run on ct_agent_run()'s stack and is closed by close_all().
 * None of the callbacks used here comes from inside the call that asked for it.
 */
#include "launcher/agent_uv.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "launcher/agent.h"
#include "launcher/environ.h"
#include "launcher/error_file.h"
#include "launcher/hang_guard_uv.h"
#include "launcher/job_status.h"
#include "launcher/pages.h"
#include "launcher/signals.h"
#include "launcher/snapshot.h"
#include "launcher/worker_uv.h"
#include "rendezvous/server_uv.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* How long a terminal that takes no output may delay a restart. */
#define SETTLE_MS 1000

struct run {
    const struct ct_job *job;
    struct ct_log log;
    uv_loop_t loop;
    uv_signal_t signals[CT_SIGNALS_MAX];
    size_t signal_count; /* handles that are initialised */
    struct ct_output *output;
    struct ct_server *server;
    struct ct_procs *procs;
    struct ct_agent agent;
    struct ct_plan plan;
    struct ct_worker *workers; /* by local rank */
    struct ct_snapshot snapshot;
    struct ct_hang_guard hang;
    struct ct_evidence evidence;
    struct ct_pages pages; /* what workers say of their progress */
    struct ct_procs_stopped stopped;
    struct ct_job_failures failures; /* of all generations */
    bool stopping;                   /* the processes of this generation have been told to end */
    bool settling;                   /* they have ended; their output is awaited */
    struct ct_err start_err;         /* why a worker could not be started */
    struct ct_outcome outcome;
};

/* ---- words ----------------------------------------------------------------------------------- */

static void say(struct run *run, const struct ct_buf *text)
{
    ct_output_say(run->output, CT_OUTPUT_ERR, (const char *)ct_buf_bytes(text), text->len);
}

static void emit_log(void *data, enum ct_log_level level, const char *line)
{
    struct run *run = data;
    struct ct_buf text = CT_BUF_INIT;
    if (run->output != NULL &&
        ct_buf_printf(&text, CT_REPORT_PREFIX "%s: %s\n", ct_log_level_name(level), line) == 0) {
        say(run, &text);
    }
    ct_buf_fini(&text);
}

static void say_signal(struct run *run, int signo)
{
    struct ct_buf text = CT_BUF_INIT;
    int alive = run->agent.alive;
    if (ct_buf_printf(&text, CT_REPORT_PREFIX "received SIG%s: stopping %d worker%s%s\n",
                      sigabbrev_np(signo), alive, alive == 1 ? "" : "s",
                      signo == SIGINT ? " (once more kills them)" : "") == 0) {
        say(run, &text);
    }
    ct_buf_fini(&text);
}

/* ---- the story of a failure ------------------------------------------------------------------ */

static void fill_report(const struct run *run, struct ct_report_worker *table,
                        struct ct_report *report)
{
    for (int i = 0; i < run->job->workers; i++) {
        table[i] = run->workers[i].story;
    }
    *report = (struct ct_report){
        .host = run->job->machine->host,
        .start_error =
            run->agent.failure.end.kind == CT_END_NOT_STARTED ? run->start_err.text : NULL,
        .workers = table,
        .count = run->job->workers,
        .failed = run->agent.failure.local_rank,
        .generation = run->agent.generation,
        .max_restarts = run->job->options->max_restarts,
        .will_restart = run->agent.failure.will_restart && run->agent.signo == 0,
        .shutdown_timeout_ms = run->job->options->shutdown_timeout_ms,
        .tail = "",
        .strays = run->stopped.strays,
        .killed = run->stopped.killed,
        .left = run->stopped.left,
    };
}

static void report_headline(struct run *run)
{
    struct ct_buf text = CT_BUF_INIT;
    struct ct_report report;
    struct ct_report_worker *table =
        ct_calloc((size_t)run->job->workers, sizeof(struct ct_report_worker));
    if (table != NULL) {
        fill_report(run, table, &report);
        if (ct_report_headline(&report, &text) == 0) {
            say(run, &text);
        }
    }
    ct_free(table);
    ct_buf_fini(&text);
}

/* The root cause also goes to whoever launched us, as torchrun does. */
static void pass_on_error_file(struct run *run, const char *path)
{
    const char *own = ct_environ_get(run->job->env, "TORCHELASTIC_ERROR_FILE");
    struct ct_err err = {0};
    if (own != NULL && own[0] != '\0' && !run->agent.failure.will_restart &&
        ct_error_file_copy(path, own, ct_end_python_code(&run->agent.failure.end), &err) != 0) {
        ct_log(&run->log, CT_LOG_WARNING, "%s", err.text);
    }
}

static void read_error_file(struct run *run, int local_rank, struct ct_error_file *out)
{
    struct ct_err err = {0};
    char *path = ct_logdir_path(run->job->logdir, run->agent.generation, local_rank, "error.json");
    if (path != NULL && path[0] != '\0') {
        int rc = ct_error_file_read(path, out, &err);
        if (rc == 0) {
            run->outcome.keep_files = true;
            pass_on_error_file(run, path);
        } else if (rc != CT_ENOENT) {
            ct_log(&run->log, CT_LOG_WARNING, "%s", err.text);
        }
    }
    ct_free(path);
}

static void report_story(struct run *run)
{
    const struct ct_job *job = run->job;
    int failed = run->agent.failure.local_rank;
    struct ct_buf text = CT_BUF_INIT, tail = CT_BUF_INIT;
    struct ct_error_file error_file = {0};
    struct ct_report report;
    struct ct_report_worker *table = ct_calloc((size_t)job->workers, sizeof(*table));
    char *folder = NULL;
    if (table == NULL) {
        return;
    }
    fill_report(run, table, &report);
    read_error_file(run, failed, &error_file);
    report.message = error_file.message;
    report.traceback = error_file.traceback;
    if (run->workers[failed].err != NULL &&
        ct_output_stream_tail(run->workers[failed].err, CT_REPORT_INDENT, &tail) == 0) {
        const char *lines = ct_buf_cstr(&tail);
        report.tail = lines != NULL ? lines : "";
    }
    report.tail_is_seen = ct_worker_err_is_seen(job, failed);
    if (job->logdir->base != NULL && (ct_redirects_of(&job->options->redirects, failed) != 0 ||
                                      ct_redirects_of(&job->options->tee, failed) != 0)) {
        folder = ct_logdir_path(job->logdir, run->agent.generation, failed, "");
        report.log_folder = folder;
    }
    if (ct_report_story(&report, &text) == 0) {
        say(run, &text);
    }
    ct_free(folder);
    ct_free(table);
    ct_error_file_fini(&error_file);
    ct_buf_fini(&tail);
    ct_buf_fini(&text);
}

/* ---- status ---------------------------------------------------------------------------------- */

static int add_status(void *data, struct cJSON *root, struct cJSON *problems)
{
    const struct run *run = data;
    const struct ct_job *job = run->job;
    struct ct_report_worker *table = ct_calloc((size_t)job->workers, sizeof(*table));
    if (table == NULL) {
        return CT_ENOMEM;
    }
    for (int i = 0; i < job->workers; i++) {
        table[i] = run->workers[i].story;
    }
    const struct ct_job_facts facts = {
        .host = job->machine->host,
        .agent = &run->agent,
        .plan = &run->plan,
        .workers = table,
        .failures = &run->failures,
        .pages = &run->pages,
        .now_ns = ct_clock_now(NULL),
    };
    int rc = ct_job_status_add(&facts, root, problems);
    ct_free(table);
    return rc;
}

static void note_failure(struct run *run)
{
    const struct ct_report_worker *story = &run->workers[run->agent.failure.local_rank].story;
    const struct ct_job_failure failure = {
        .generation = run->agent.generation,
        .rank = run->plan.first_rank + run->agent.failure.local_rank,
        .pid = story->pid,
        .end = run->agent.failure.end,
    };
    ct_job_failures_add(&run->failures, &failure);
}

/* ---- carrying out what the agent says -------------------------------------------------------- */

static void step(struct run *run, struct ct_agent_event event);
static void close_all(struct run *run);

static void on_proc_exit(void *data, struct ct_proc *proc, const struct ct_exit *end)
{
    struct run *run = data;
    int rank = 0;
    while (rank < run->job->workers && run->workers[rank].proc != proc) {
        rank++;
    }
    CT_ASSERT(rank < run->job->workers);
    ct_worker_ended(&run->workers[rank], end, run->stopping, &run->evidence);
    step(run, (struct ct_agent_event){CT_AGENT_EV_EXITED, rank, run->workers[rank].story.end, 0});
}

static void on_settled(void *data)
{
    struct run *run = data;
    if (run->agent.failure.known) {
        report_story(run);
    }
    for (int i = 0; i < run->job->workers; i++) {
        ct_worker_clear(&run->workers[i]);
    }
    run->stopping = false;
    run->settling = false;
    step(run, (struct ct_agent_event){.type = CT_AGENT_EV_STOPPED});
}

static void on_stopped(void *data, const struct ct_procs_stopped *result)
{
    struct run *run = data;
    run->stopped = *result;
    run->settling = true;
    ct_output_settle(run->output, SETTLE_MS, on_settled, run);
}

static void stop(struct run *run, int signo, int64_t grace_ms)
{
    run->stopping = true;
    ct_procs_stop(run->procs, signo, grace_ms, on_stopped, run);
}

/* Clients of the old generation lose their connections here: whatever has escaped the stop must not
 * write into the store of the new one. */
static void begin_generation(struct run *run)
{
    run->plan.generation = run->agent.generation;
    ct_pages_reset(&run->pages);
    ct_hang_guard_reset(&run->hang);
    ct_server_reset(run->server);
}

/* Starts the worker and returns what the agent has to hear. */
static struct ct_agent_event start_worker(struct run *run, int rank)
{
    const struct ct_worker_options options = {
        .job = run->job,
        .plan = &run->plan,
        .output = run->output,
        .procs = run->procs,
        .on_exit = on_proc_exit,
        .data = run,
    };
    struct ct_worker *worker = &run->workers[rank];
    int rc = 0;
    run->start_err = (struct ct_err){0};
    if (rank == 0) { /* the first of its generation */
        memset(run->workers, 0, (size_t)run->job->workers * sizeof(*run->workers));
        rc = ct_logdir_make(run->job->logdir, run->plan.generation, run->job->workers,
                            &run->start_err);
        worker->story.end.kind = CT_END_NOT_STARTED;
    }
    if (rc == 0) {
        rc = ct_worker_start(worker, rank, &options, &run->start_err);
    }
    return (struct ct_agent_event){
        .type = rc == 0 ? CT_AGENT_EV_STARTED : CT_AGENT_EV_NOT_STARTED,
        .local_rank = rank,
        .end = worker->story.end,
    };
}

static void step(struct run *run, struct ct_agent_event event)
{
    for (;;) {
        struct ct_agent_update update;
        ct_agent_step(&run->agent, &event, ct_clock_now(NULL), &update);
        if (update.report) {
            note_failure(run);
            report_headline(run);
        }
        if (update.stop_signal != 0) {
            stop(run, update.stop_signal, run->job->options->shutdown_timeout_ms);
        }
        if (update.kill && !run->settling) {
            stop(run, SIGKILL, 0);
        }
        if (update.restart) {
            begin_generation(run);
        }
        if (update.finish) {
            run->outcome.exit_code = update.exit_code;
            close_all(run);
        }
        if (update.spawn < 0) {
            return;
        }
        event = start_worker(run, update.spawn);
    }
}

static void on_signal(uv_signal_t *handle, int signo)
{
    struct run *run = handle->data;
    say_signal(run, signo);
    step(run, (struct ct_agent_event){.type = CT_AGENT_EV_SIGNAL, .signo = signo});
}

/* ---- opening and closing --------------------------------------------------------------------- */

/* nohup(1) and a shell's "&" ignore signals on the user's behalf; that stays. */
static bool is_ignored(int signo)
{
    struct sigaction action;
    return sigaction(signo, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

static int open_signals(struct run *run, struct ct_err *err)
{
    struct ct_signals wanted;
    ct_signals_parse(run->job->options->signals, &run->log, &wanted);
    for (size_t i = 0; i < wanted.count; i++) {
        if (is_ignored(wanted.signo[i])) {
            continue;
        }
        uv_signal_t *handle = &run->signals[run->signal_count];
        int rc = uv_signal_init(&run->loop, handle);
        if (rc == 0) {
            run->signal_count++;
            handle->data = run;
            rc = uv_signal_start(handle, on_signal, wanted.signo[i]);
        }
        if (rc != 0) {
            return ct_err_set(err, CT_EIO, "cannot watch signals: %s", uv_strerror(rc));
        }
    }
    return 0;
}

/* Bound before any worker starts and held to the end, so the port in MASTER_PORT is never anybody
 * else's. */
static int open_store(struct run *run, struct ct_err *err)
{
    const struct ct_place *place = run->job->place;
    const char *const hosts[] = {place->host};
    const struct ct_server_options server = {
        .hosts = hosts,
        .num_hosts = 1,
        .port = place->port,
        .log = &run->log,
    };
    int rc = ct_server_open(&run->loop, &server, &run->server, err);
    if (rc == 0) {
        run->plan.master_addr = place->host;
        run->plan.master_port = ct_server_port(run->server);
        ct_server_set_status(run->server, add_status, run);
    }
    return rc;
}

static int open_all(struct run *run, struct ct_err *err)
{
    const struct ct_job *job = run->job;
    const struct ct_output_options output = {.out_fd = 1, .err_fd = 2, .log = &run->log};
    run->workers = ct_calloc((size_t)job->workers, sizeof(*run->workers));
    if (run->workers == NULL ||
        ct_agent_init(&run->agent, job->workers, job->options->max_restarts, &run->log) != 0) {
        return ct_err_set(err, CT_ENOMEM, "out of memory for %d workers", job->workers);
    }
    run->plan = (struct ct_plan){
        .local_world_size = job->workers,
        .world_size = job->workers,
        .node_count = 1,
        .max_restarts = job->options->max_restarts,
        .cpus = job->machine->cpus,
        .role = job->options->role,
        .run_id = job->run_id,
        .virtual_local_rank = job->options->virtual_local_rank,
        .signals = job->options->signals,
        .cookie = ct_cookie_env(job->cookie),
    };
    ct_evidence_open(&run->evidence, &ct_evidence_here);
    ct_pages_open(&run->pages, job->workers, &run->log);
    run->plan.progress = run->pages.path;
    if (job->options->max_restarts > 0) { /* else no later generation could read it */
        ct_snapshot_open(&run->snapshot, &run->log);
        run->plan.snapshot = ct_snapshot_env(&run->snapshot);
    }
    int rc = ct_output_open(&run->loop, &output, &run->output, err);
    rc = rc != 0 ? rc : open_store(run, err);
    rc = rc != 0 ? rc : ct_procs_open(&run->loop, job->guard, &run->log, &run->procs, err);
    run->hang = (struct ct_hang_guard){job,          &run->plan,     &run->pages, run->output,
                                       run->workers, &run->stopping, NULL};
    rc = rc != 0 ? rc : ct_hang_guard_open(&run->hang, &run->loop, err);
    return rc != 0 ? rc : open_signals(run, err);
}

/* No worker is left. */
static void close_all(struct run *run)
{
    for (size_t i = 0; i < run->signal_count; i++) {
        /* From here on a signal ends ctrun in the usual way: only output is left to write. */
        uv_close((uv_handle_t *)&run->signals[i], NULL);
    }
    ct_hang_guard_close(&run->hang);
    ct_procs_close(run->procs, NULL, NULL);
    if (run->server != NULL) {
        ct_server_close(run->server, NULL, NULL);
    }
    /* A reader that is slow gets everything; after a signal one that stands still is not waited for
     * beyond measure. */
    ct_output_close(run->output, run->agent.signo != 0 ? SETTLE_MS : -1, NULL, NULL);
    run->output = NULL;
}

int ct_agent_run(const struct ct_job *job, struct ct_outcome *out, struct ct_err *err)
{
    struct run run = {.job = job,
                      .snapshot = CT_SNAPSHOT_INIT,
                      .pages = CT_PAGES_INIT,
                      .evidence = CT_EVIDENCE_INIT,
                      .log = {emit_log, NULL, job->log_level}};
    run.log.data = &run;
    int rc = uv_loop_init(&run.loop);
    if (rc != 0) {
        return ct_err_set(err, CT_EIO, "cannot make an event loop: %s", uv_strerror(rc));
    }
    rc = open_all(&run, err);
    if (rc == 0) {
        ct_log(&run.log, CT_LOG_INFO, "job %s: %d workers of %s, store on %s:%d, files in %s",
               job->run_id, job->workers, job->command->path, run.plan.master_addr,
               run.plan.master_port, job->logdir->run != NULL ? job->logdir->run : "no folder");
        ct_binder_report(&job->binder, run.plan.first_rank, &run.log);
        step(&run, (struct ct_agent_event){.type = CT_AGENT_EV_BEGIN});
    } else {
        close_all(&run);
    }
    (void)uv_run(&run.loop, UV_RUN_DEFAULT);
    CT_ASSERT(uv_loop_close(&run.loop) == 0);
    ct_agent_fini(&run.agent);
    ct_snapshot_fini(&run.snapshot);
    ct_pages_fini(&run.pages);
    ct_evidence_fini(&run.evidence);
    ct_free(run.workers);
    if (rc == 0) {
        *out = run.outcome;
    }
    return rc;
}
