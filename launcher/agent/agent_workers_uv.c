/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: workers are started one by one, and their ends become events. A stop ends what is
 * left, waits for the output, has a failure's last words collected, and only then frees the workers
 * and tells the agent. So a new generation finds an empty table.
 *
 * Failure modes: a worker that cannot be started is an event like any other. A terminal or pipe
 * that takes no output delays the end of the job, but not a restart.
 *
 * Workers that outlive a generation: agent_keep_uv.c.
 *
 * Who frees: on_drained(), at the end of each generation.
 */
#include "launcher/agent/agent_run_uv.h"

#include "common/alloc.h"
#include "common/clock.h"

#include <signal.h>
#include <stdio.h>

int ct_agent_workers_rank_of(const struct ct_agent_workers *workers, const struct ct_proc *proc)
{
    int rank = 0;
    while (rank < workers->count && workers->list[rank].proc != proc) {
        rank++;
    }
    CT_ASSERT(rank < workers->count);
    return rank;
}

static void on_proc_exit(void *data, struct ct_proc *proc, const struct ct_exit *end)
{
    struct ct_agent_run *run = data;
    struct ct_agent_workers *workers = &run->workers;
    int rank = ct_agent_workers_rank_of(workers, proc);
    struct ct_worker *worker = &workers->list[rank];
    if (worker->ended_for.kind == CT_END_UNINTERRUPTIBLE) {
        return; /* the agent already counts it as ended */
    }
    if (worker->kept) {
        return; /* its generation is over; the agent will ask for this rank again in the next one */
    }
    ct_worker_ended(worker, end, workers->stopping,
                    ct_progress_reader_permanent(&workers->progress, rank), &workers->oom);
    ct_agent_trace_worker_end(run, rank);
    if (!workers->stopping) {
        ct_hang_monitor_take_end(&run->monitors.hang,
                                 ct_worker_end_is_success(&worker->report.end));
    }
    ct_agent_dispatch(run, (struct ct_agent_event){.type = CT_AGENT_EV_EXITED,
                                                   .local_rank = rank,
                                                   .end = worker->report.end});
}

/* Forgets the workers of the last generation, except those that go on. */
static void reset_workers(struct ct_agent_workers *workers, struct ct_file_timer_server *timers,
                          bool first)
{
    for (int i = 0; i < workers->count; i++) {
        if (workers->list[i].kept) {
            continue;
        }
        workers->list[i] = (struct ct_worker){0};
        ct_file_timer_server_reset(timers, i);
        if (!first) {
            ct_progress_reader_reset(&workers->progress, i, false);
        }
    }
    workers->kept = 0;
}

int ct_agent_workers_begin(struct ct_agent_run *run)
{
    bool first = run->report.story.worlds <= 1;
    ct_trace_job_begin(&run->trace.data, CT_TRACE_SPAWN, ct_clock_now(NULL));
    reset_workers(&run->workers, &run->monitors.timers, first);
    ct_failure_fini(&run->report.failure);
    run->report.stop_why[0] = '\0';
    ct_hang_monitor_reset(&run->monitors.hang);
    if (first) {
        ct_binder_report(&run->job->binder, run->worker_env.first_rank, &run->log);
    }
    return ct_logdir_make(run->job->logdir, run->worker_env.generation, run->job->resolved->workers,
                          &run->workers.start_err);
}

struct ct_agent_event ct_agent_workers_start(struct ct_agent_run *run, int local_rank)
{
    const struct ct_worker_options options = {
        .job = run->job,
        .worker_env = &run->worker_env,
        .output = run->output,
        .procs = run->workers.procs,
        .on_exit = on_proc_exit,
        .data = run,
        .take_spare = ct_agent_warm_take,
        .spares = run,
    };
    struct ct_agent_workers *workers = &run->workers;
    struct ct_worker *worker = &workers->list[local_rank];
    int rc = 0;
    workers->start_err = (struct ct_err){0};
    if (local_rank == 0) { /* the first of its generation */
        rc = ct_agent_workers_begin(run);
        worker->report.rank = run->worker_env.first_rank;
        worker->report.end.kind = CT_END_NOT_STARTED;
    }
    if (rc == 0 && run->job->options->preflight_only) {
        worker->report = (struct ct_report_worker){.rank = run->worker_env.first_rank + local_rank,
                                                   .end.kind = CT_END_EXITED};
    } else if (rc == 0 && !ct_agent_keep_resume(workers, &run->log, local_rank, &options)) {
        ct_order_writer_order(&workers->orders, local_rank, run->worker_env.generation,
                              CT_ORDER_NONE);
        rc = ct_worker_start(worker, local_rank, &options, &workers->start_err);
    }
    if (rc == 0) {
        ct_agent_trace_worker_begin(run, local_rank);
    }
    return (struct ct_agent_event){
        .type = rc == 0 ? CT_AGENT_EV_STARTED : CT_AGENT_EV_NOT_STARTED,
        .local_rank = local_rank,
        .end = worker->report.end,
    };
}

/* Frees the workers that have ended. Returns whether any worker goes on. */
static bool clear_workers(struct ct_agent_workers *workers)
{
    bool kept = false;
    for (int i = 0; i < workers->count; i++) {
        if (!workers->list[i].kept) {
            ct_worker_clear(&workers->list[i]);
        }
        kept = kept || workers->list[i].kept;
    }
    workers->stopping = workers->draining = false;
    return kept;
}

static void on_drained(void *data)
{
    struct ct_agent_run *run = data;
    if (run->agent.failure.known) {
        ct_agent_report_collect(run);
    }
    const struct ct_progress_reader *progress = &run->workers.progress;
    ct_job_story_stepped(&run->report.story,
                         ct_progress_reader_first_step_ns(progress, ct_clock_now(NULL)));
    ct_agent_trace_stopped(run);
    bool kept = clear_workers(&run->workers);
    bool spares = ct_agent_warm_stopped(run);
    ct_agent_dispatch(run,
                      (struct ct_agent_event){.type = CT_AGENT_EV_STOPPED, .kept = kept || spares});
}

static void on_stopped(void *data, const struct ct_procs_stopped *result)
{
    struct ct_agent_run *run = data;
    run->workers.stopped = *result;
    run->workers.draining = true;
    ct_agent_keep_parked(&run->workers);
    ct_output_drain(run->output, CT_AGENT_DRAIN_MS, on_drained, run);
}

void ct_agent_workers_stop(struct ct_agent_run *run, int signo, int64_t grace_ms)
{
    ct_agent_check_stop(run);
    if (!run->workers.draining) {
        run->workers.stopping = true;
        ct_trace_job_begin(&run->trace.data, CT_TRACE_STOP, ct_clock_now(NULL));
        ct_procs_stop(run->workers.procs, signo, grace_ms, on_stopped, run);
    }
}
