/* SPDX-License-Identifier: Apache-2.0
 *
 * Workers that go on in the next generation instead of being ended with the others.
 *
 * Happy path: a worker says on its progress page that it can go on. When another generation may
 * follow, the stop orders it to park instead of ending it. When it has parked and another
 * generation is certain, the stop leaves it alone. Its process and its streams stay. When its local
 * rank is to be started, it gets the new environment instead.
 *
 * Failure modes: a worker that does not park in time is ended like any other, and so are all parked
 * workers if no generation follows. They also get an order to end, because a worker that waits for
 * orders may not notice a signal. A worker that dies while it waits, or that cannot be given the
 * new environment, is replaced by a new process.
 */
#include "launcher/agent/agent_run_uv.h"

/* Ends a worker, with an order to end if it may be waiting for orders. A worker waits for them when
 * it was told to park, or when it has lost a peer. After a signal that asks the job to end only the
 * first kind gets the order: the signal makes the others save what they have. */
static enum ct_proc_stay end(struct ct_agent_workers *workers, const struct ct_agent *agent,
                             int rank, enum ct_stay says)
{
    struct ct_worker *worker = &workers->list[rank];
    if (worker->told_to_park || (says != CT_STAY_NOT && agent->signo == 0)) {
        ct_order_writer_order(&workers->orders, rank, agent->generation, CT_ORDER_END);
    }
    worker->told_to_park = worker->parked = false;
    return CT_PROC_ENDS;
}

enum ct_proc_stay ct_agent_keep_may_stay(void *data, struct ct_proc *proc, bool late)
{
    struct ct_agent_run *run = data;
    enum ct_proc_stay answer;
    if (ct_agent_warm_may_stay(run, proc, &answer)) {
        return answer;
    }
    int rank = ct_agent_workers_rank_of(&run->workers, proc);
    struct ct_worker *worker = &run->workers.list[rank];
    bool decided;
    enum ct_stay says =
        ct_progress_reader_stay(&run->workers.progress, rank, run->agent.generation);
    if (says == CT_STAY_NOT || run->workers.orders.map == NULL ||
        !ct_agent_may_keep(&run->agent, &decided)) {
        return end(&run->workers, &run->agent, rank, says);
    }
    if (worker->kept && (decided || !late)) {
        /* It was not let into this generation, as after a failed check of the machine, so it is
         * parked since an earlier one. */
        worker->parked = true;
        return decided ? CT_PROC_STAYS : CT_PROC_WAITS;
    }
    worker->parked = worker->told_to_park && says == CT_STAY_PARKED;
    if (worker->parked && decided) {
        return CT_PROC_STAYS;
    }
    if (late) {
        return end(&run->workers, &run->agent, rank, says);
    }
    if (!worker->told_to_park) {
        worker->told_to_park = true;
        ct_order_writer_order(&run->workers.orders, rank, run->agent.generation, CT_ORDER_PARK);
    }
    return CT_PROC_WAITS;
}

void ct_agent_keep_parked(struct ct_agent_workers *workers)
{
    for (int i = 0; i < workers->count; i++) {
        struct ct_worker *worker = &workers->list[i];
        worker->kept = worker->parked && worker->proc != NULL && ct_proc_alive(worker->proc);
        if (worker->out != NULL) {
            ct_output_stream_stays(worker->out, worker->kept);
            ct_output_stream_stays(worker->err, worker->kept);
        }
    }
}

bool ct_agent_keep_resume(struct ct_agent_workers *workers, const struct ct_log *log,
                          int local_rank, const struct ct_worker_options *options)
{
    struct ct_worker *worker = &workers->list[local_rank];
    struct ct_err err = {0};
    if (!worker->kept) {
        return false;
    }
    if (!ct_proc_still_alive(worker->proc)) {
        ct_worker_clear(worker);
        return false;
    }
    ct_progress_reader_reset(&workers->progress, local_rank, true);
    if (ct_worker_go_on(worker, local_rank, options, &workers->orders, &err) != 0) {
        ct_log(log, CT_LOG_WARNING, "%s: another one is started", err.text);
        return false;
    }
    workers->kept++;
    return true;
}

void ct_agent_keep_report(struct ct_agent_run *run)
{
    if (run->workers.kept > 0 && ct_agent_report_speaks(run->job->resolved)) {
        int workers = run->job->resolved->workers;
        ct_agent_report_say(run->output,
                            workers == 1 ? "generation %d: the worker here goes on in its process"
                                         : "generation %d: %d of %d workers here go on in their "
                                           "processes",
                            run->agent.generation, run->workers.kept, workers);
    }
}
