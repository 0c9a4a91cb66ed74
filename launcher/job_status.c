/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/job_status.h"

#include "common/clock.h"
#include "rendezvous/json.h"

#include <math.h>
#include <signal.h>
#include <string.h>

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

static bool is_parked(const struct ct_job_facts *facts, int local_rank)
{
    return facts->pages != NULL &&
           ct_pages_stay(facts->pages, local_rank, facts->agent->generation) == CT_STAY_PARKED;
}

static const char *worker_state(const struct ct_job_facts *facts, int local_rank)
{
    const struct ct_report_worker *worker = &facts->workers[local_rank];
    switch ((enum ct_agent_worker)facts->agent->states[local_rank]) {
    case CT_WORKER_ABSENT:
        return "waiting";
    case CT_WORKER_SPAWNING:
        return "starting";
    case CT_WORKER_ALIVE:
        return is_parked(facts, local_rank) ? "parked" : "running";
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
           ct_json_add_text(item, "state", worker_state(facts, local_rank)) &&
           add_exit(item, known && worker->ended, &worker->end) &&
           ct_json_add_number(item, "restarts", facts->agent->generation) &&
           add_progress(item, facts, local_rank);
}

cJSON *ct_job_status_workers(const struct ct_job_facts *facts)
{
    cJSON *array = cJSON_CreateArray();
    bool ok = array != NULL;
    for (int i = 0; ok && i < facts->agent->workers; i++) {
        ok = add_worker(array, facts, i);
    }
    if (!ok) {
        cJSON_Delete(array);
        array = NULL;
    }
    return array;
}
