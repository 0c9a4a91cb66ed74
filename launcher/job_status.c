/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/job_status.h"

#include "common/clock.h"
#include "rendezvous/json.h"

#include <math.h>
#include <signal.h>
#include <string.h>

void ct_job_failures_add(struct ct_job_failures *failures, const struct ct_job_failure *failure)
{
    failures->kept[failures->total++ % CT_JOB_FAILURES_KEPT] = *failure;
}

/* Names and ids come from the command line and may be any bytes. */
static bool add_name(cJSON *object, const char *name, const char *text)
{
    return ct_json_add_bytes(object, name,
                             (struct ct_bytes){(const unsigned char *)text, strlen(text)});
}

/* The exit code, minus the signal, or null. */
static bool add_exit(cJSON *object, bool ended, const struct ct_end *end)
{
    if (!ended || end->kind == CT_END_NOT_STARTED || end->kind == CT_END_HUNG) {
        return cJSON_AddNullToObject(object, "exit") != NULL;
    }
    return ct_json_add_number(object, "exit",
                              end->kind == CT_END_SIGNALED ? -end->value : end->value);
}

/* ---- nodes and workers ---------------------------------------------------------------------- */

static const char *worker_state(enum ct_agent_worker state, const struct ct_report_worker *worker)
{
    switch (state) {
    case CT_WORKER_ABSENT:
        return "waiting";
    case CT_WORKER_SPAWNING:
        return "starting";
    case CT_WORKER_ALIVE:
        return "running";
    case CT_WORKER_GONE:
        break;
    }
    if (worker->ended && ct_end_is_success(&worker->end)) {
        return "succeeded";
    }
    return worker->was_asked ? "stopped" : "failed";
}

static bool add_if_told(cJSON *object, const char *name, double value)
{
    return isfinite(value) ? ct_json_add_number(object, name, value)
                           : cJSON_AddNullToObject(object, name) != NULL;
}

static bool add_progress(cJSON *item, const struct ct_job_facts *facts, int local_rank)
{
    struct ct_progress progress;
    if (facts->pages == NULL ||
        !ct_progress_read(facts->pages, local_rank, facts->now_ns, &progress)) {
        return cJSON_AddNullToObject(item, "progress") != NULL;
    }
    cJSON *object = cJSON_AddObjectToObject(item, "progress");
    return object != NULL && ct_json_add_text(object, "phase", ct_phase_name(progress.phase)) &&
           ct_json_add_number(object, "step", (double)progress.step) &&
           ct_json_add_number(object, "age_s",
                              (double)(facts->now_ns - progress.stamp_ns) / (double)CT_NS_PER_S) &&
           add_if_told(object, "loss", progress.loss) &&
           add_if_told(object, "samples_per_s", progress.rate);
}

static bool add_worker(cJSON *array, const struct ct_job_facts *facts, int local_rank)
{
    enum ct_agent_worker state = facts->agent->states[local_rank];
    /* Before its start there is nothing but the story of the last generation. */
    bool known = state == CT_WORKER_ALIVE || state == CT_WORKER_GONE;
    const struct ct_report_worker *worker = &facts->workers[local_rank];
    cJSON *item = ct_json_append_object(array);
    return item != NULL && ct_json_add_number(item, "rank", facts->plan->first_rank + local_rank) &&
           ct_json_add_number(item, "local_rank", local_rank) &&
           ct_json_add_number(item, "pid", known ? worker->pid : 0) &&
           add_name(item, "host", facts->host) &&
           ct_json_add_text(item, "state", worker_state(state, worker)) &&
           add_exit(item, known && worker->ended, &worker->end) &&
           ct_json_add_number(item, "restarts", facts->agent->generation) &&
           add_progress(item, facts, local_rank);
}

static bool add_workers(cJSON *job, const struct ct_job_facts *facts)
{
    cJSON *array = cJSON_AddArrayToObject(job, "workers");
    bool ok = array != NULL;
    for (int i = 0; ok && i < facts->agent->workers; i++) {
        ok = add_worker(array, facts, i);
    }
    return ok;
}

static bool add_nodes(cJSON *job, const struct ct_job_facts *facts)
{
    cJSON *array = cJSON_AddArrayToObject(job, "nodes");
    cJSON *item = array != NULL ? ct_json_append_object(array) : NULL;
    return item != NULL && ct_json_add_number(item, "index", facts->plan->node_rank) &&
           add_name(item, "host", facts->host) &&
           ct_json_add_number(item, "workers", facts->agent->workers) &&
           cJSON_AddArrayToObject(job, "missing_nodes") != NULL;
}

/* ---- failures ------------------------------------------------------------------------------- */

static bool add_reason(cJSON *item, const struct ct_end *end)
{
    struct ct_buf text = CT_BUF_INIT;
    bool ok = ct_end_describe(end, &text) == 0 && ct_buf_cstr(&text) != NULL &&
              ct_json_add_text(item, "reason", ct_buf_cstr(&text));
    ct_buf_fini(&text);
    return ok;
}

static bool add_failure(cJSON *array, const struct ct_job_facts *facts,
                        const struct ct_job_failure *failure)
{
    cJSON *item = ct_json_append_object(array);
    return item != NULL && ct_json_add_number(item, "generation", failure->generation) &&
           ct_json_add_number(item, "rank", failure->rank) &&
           ct_json_add_number(item, "pid", failure->pid) && add_name(item, "host", facts->host) &&
           add_exit(item, true, &failure->end) && add_reason(item, &failure->end);
}

static bool add_failures(cJSON *job, const struct ct_job_facts *facts)
{
    const struct ct_job_failures *failures = facts->failures;
    uint64_t first =
        failures->total > CT_JOB_FAILURES_KEPT ? failures->total - CT_JOB_FAILURES_KEPT : 0;
    cJSON *array = cJSON_AddArrayToObject(job, "failures");
    bool ok = array != NULL;
    for (uint64_t i = first; ok && i < failures->total; i++) {
        ok = add_failure(array, facts, &failures->kept[i % CT_JOB_FAILURES_KEPT]);
    }
    return ok && ct_json_add_number(job, "failure_count", (double)failures->total);
}

static bool add_problem(cJSON *problems, struct ct_buf *text)
{
    const char *line = ct_buf_cstr(text);
    cJSON *item = line != NULL ? cJSON_CreateString(line) : NULL;
    if (item == NULL || !cJSON_AddItemToArray(problems, item)) {
        cJSON_Delete(item);
        return false;
    }
    return true;
}

/* What failed in earlier generations was answered by a restart and is no problem any more. */
static bool add_problems(cJSON *problems, const struct ct_job_facts *facts)
{
    const struct ct_agent *agent = facts->agent;
    struct ct_buf text = CT_BUF_INIT;
    bool ok = true;
    if (agent->failure.known) {
        ok = ct_buf_printf(&text, "rank %d failed: it ",
                           facts->plan->first_rank + agent->failure.local_rank) == 0 &&
             ct_end_describe(&agent->failure.end, &text) == 0 && add_problem(problems, &text);
        ct_buf_reset(&text);
    }
    if (ok && agent->signo != 0) {
        ok = ct_buf_printf(&text, "ctrun was asked to end by SIG%s", sigabbrev_np(agent->signo)) ==
                 0 &&
             add_problem(problems, &text);
    }
    ct_buf_fini(&text);
    return ok;
}

int ct_job_status_add(const struct ct_job_facts *facts, struct cJSON *root, struct cJSON *problems)
{
    const struct ct_plan *plan = facts->plan;
    cJSON *job = cJSON_AddObjectToObject(root, "job");
    bool ok = job != NULL && add_name(job, "run_id", plan->run_id) &&
              ct_json_add_text(job, "state", ct_sm_name(&facts->agent->sm)) &&
              ct_json_add_number(job, "generation", facts->agent->generation) &&
              ct_json_add_number(job, "max_restarts", plan->max_restarts) &&
              ct_json_add_number(job, "world_size", plan->world_size) && add_nodes(job, facts) &&
              add_workers(job, facts) && add_failures(job, facts) && add_problems(problems, facts);
    return ok ? 0 : CT_ENOMEM;
}
