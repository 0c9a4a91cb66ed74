/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of the status document that only this machine's agent knows: one row for each worker,
 * from the agent's state, the worker's report and its progress page.
 */
#include "launcher/agent/job_status.h"

#include "common/clock.h"
#include "rendezvous/control/control.h"
#include "rendezvous/wire/json_fields.h"

#include <math.h>

static bool is_parked(const struct ct_job_facts *facts, int local_rank)
{
    return facts->progress != NULL &&
           ct_progress_reader_stay(facts->progress, local_rank, facts->agent->generation) ==
               CT_STAY_PARKED;
}

static enum ct_row_state worker_state(const struct ct_job_facts *facts, int local_rank)
{
    const struct ct_report_worker *worker = &facts->workers[local_rank];
    switch ((enum ct_agent_worker)facts->agent->states[local_rank]) {
    case CT_WORKER_ABSENT:
        return CT_ROW_WAITING;
    case CT_WORKER_SPAWNING:
        return CT_ROW_STARTING;
    case CT_WORKER_ALIVE:
        return worker->stopped                ? CT_ROW_STOPPED
               : is_parked(facts, local_rank) ? CT_ROW_PARKED
                                              : CT_ROW_RUNNING;
    case CT_WORKER_GONE:
        break;
    }
    if (worker->ended && ct_worker_end_is_success(&worker->end)) {
        return CT_ROW_SUCCEEDED;
    }
    return worker->was_asked ? CT_ROW_STOPPED : CT_ROW_FAILED;
}

static void fill_end(const struct ct_worker_end *end, struct ct_worker_row *row)
{
    row->ended =
        end->kind == CT_END_EXITED || end->kind == CT_END_SIGNALED || end->kind == CT_END_EXPIRED;
    if (row->ended) {
        row->exit_code = end->kind == CT_END_EXITED ? end->value : -end->value;
    }
}

static int64_t at_most(int64_t value, int64_t max)
{
    return value < max ? value : max;
}

static void fill_progress(const struct ct_job_facts *facts, int local_rank,
                          struct ct_worker_row *row)
{
    struct ct_progress progress;
    row->phase = CT_ROW_UNTOLD;
    row->loss = row->rate = NAN;
    if (facts->progress != NULL &&
        ct_progress_reader_read(facts->progress, local_rank, facts->now_ns, &progress)) {
        row->phase = (int)progress.phase;
        row->step = at_most(progress.step, CT_JSON_INT_MAX);
        row->age_ms =
            at_most((facts->now_ns - progress.stamp_ns) / CT_NS_PER_MS, CT_CONTROL_MAX_MS);
        row->loss = progress.loss;
        row->rate = progress.rate;
    }
}

void ct_job_status_rows(const struct ct_job_facts *facts, struct ct_worker_row *rows)
{
    for (int i = 0; i < facts->agent->workers; i++) {
        enum ct_agent_worker state = facts->agent->states[i];
        /* Before the start of a worker its report is that of the last generation. */
        bool known = state == CT_WORKER_ALIVE || state == CT_WORKER_GONE;
        const struct ct_report_worker *worker = &facts->workers[i];
        rows[i] = (struct ct_worker_row){
            .rank = facts->worker_env->first_rank + i,
            .local_rank = i,
            .generation = facts->agent->generation,
            .state = worker_state(facts, i),
            .pid = known ? worker->pid : 0,
        };
        if (known && worker->ended) {
            fill_end(&worker->end, &rows[i]);
        }
        fill_progress(facts, i, &rows[i]);
    }
}
