/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of jobs. A job begins with its first agent and is freed with its last. The number of
 * jobs is limited, so a search through the list is fast enough.
 */
#include "rendezvous/server/control_jobs.h"

#include "common/alloc.h"
#include "common/text.h"
#include "rendezvous/control/failure_history.h"
#include "rendezvous/wire/json.h"
#include "rendezvous/wire/limits.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static struct ct_control_job *job_at(const struct ct_list *at)
{
    return CT_CONTAINER_OF(at, struct ct_control_job, at_jobs);
}

void ct_control_jobs_init(struct ct_control_jobs *jobs, const struct ct_members_options *options,
                          const char *only)
{
    *jobs = (struct ct_control_jobs){.options = *options, .only = only};
    ct_list_init(&jobs->list);
}

static void forget(struct ct_control_jobs *jobs, struct ct_control_job *job)
{
    ct_list_remove(&job->at_jobs);
    jobs->count--;
    ct_members_free(job->members);
    ct_free(job);
}

void ct_control_jobs_fini(struct ct_control_jobs *jobs)
{
    while (!ct_list_empty(&jobs->list)) {
        forget(jobs, job_at(jobs->list.next));
    }
}

static struct ct_control_job *find(const struct ct_control_jobs *jobs, const char *run_id)
{
    for (const struct ct_list *at = jobs->list.next; at != &jobs->list; at = at->next) {
        if (strcmp(job_at(at)->run_id, run_id) == 0) {
            return job_at(at);
        }
    }
    return NULL;
}

static int begin(struct ct_control_jobs *jobs, const char *run_id, struct ct_control_job **out)
{
    struct ct_control_job *job = ct_calloc(1, sizeof(*job));
    if (job == NULL || ct_members_new(&jobs->options, &job->members) != 0) {
        ct_free(job);
        return CT_ENOMEM;
    }
    (void)snprintf(job->run_id, sizeof(job->run_id), "%s", run_id);
    job->number = jobs->begun;
    jobs->begun = jobs->begun < INT_MAX ? jobs->begun + 1 : 0;
    ct_list_append(&jobs->list, &job->at_jobs);
    jobs->count++;
    *out = job;
    return 0;
}

int ct_control_jobs_take(struct ct_control_jobs *jobs, const char *run_id,
                         struct ct_control_job **out, struct ct_err *err)
{
    if (jobs->only != NULL && strcmp(jobs->only, run_id) != 0) {
        return ct_err_set(err, CT_EINVAL, "this store belongs to job '%s', not to '%s' (--rdzv-id)",
                          jobs->only, run_id);
    }
    struct ct_control_job *job = find(jobs, run_id);
    if (job == NULL && jobs->count == CT_CONTROL_MAX_JOBS) {
        return ct_err_set(err, CT_ELIMIT, "%d jobs are served already", CT_CONTROL_MAX_JOBS);
    }
    if (job == NULL && begin(jobs, run_id, &job) != 0) {
        return ct_err_set(err, CT_ENOMEM, "the store is out of memory");
    }
    job->agents++;
    *out = job;
    return 0;
}

void ct_control_jobs_release(struct ct_control_jobs *jobs, struct ct_control_job *job)
{
    if (job->members == NULL) {
        if (--job->agents == 0) {
            ct_free(job);
        }
        return;
    }
    if (--job->agents == 0 && !jobs->keep) {
        forget(jobs, job);
    }
}

struct ct_control_job *ct_control_jobs_waiting(const struct ct_control_jobs *jobs,
                                               const char *run_id)
{
    struct ct_control_job *job = find(jobs, run_id);
    return job != NULL && ct_members_waits_first(job->members) ? job : NULL;
}

void ct_control_jobs_end_one(struct ct_control_jobs *jobs, struct ct_control_job *job)
{
    ct_list_remove(&job->at_jobs);
    jobs->count--;
    ct_members_free(job->members);
    job->members = NULL;
    if (job->agents == 0) {
        ct_free(job);
    }
}

void ct_control_jobs_end(struct ct_control_jobs *jobs)
{
    while (!ct_list_empty(&jobs->list)) {
        ct_control_jobs_end_one(jobs, job_at(jobs->list.next));
    }
}

void ct_control_jobs_dead(struct ct_control_jobs *jobs, uint64_t id, int64_t now_ns)
{
    for (const struct ct_list *at = jobs->list.next; at != &jobs->list; at = at->next) {
        ct_members_dead(job_at(at)->members, id, now_ns);
    }
}

void ct_control_jobs_arbiter(struct ct_control_jobs *jobs, const struct ct_arbiter_pledge *pledge,
                             int64_t now_ns)
{
    for (const struct ct_list *at = jobs->list.next; at != &jobs->list; at = at->next) {
        if (pledge != NULL) {
            ct_members_arbiter_pledged(job_at(at)->members, pledge->term, pledge->version,
                                       pledge->sent_ns, now_ns);
        } else {
            ct_members_arbiter_lost(job_at(at)->members, now_ns);
        }
    }
}

bool ct_control_jobs_stands_no_more(const struct ct_control_jobs *jobs, uint64_t id)
{
    for (const struct ct_list *at = jobs->list.next; at != &jobs->list; at = at->next) {
        if (ct_members_stands_no_more(job_at(at)->members, id)) {
            return true;
        }
    }
    return false;
}

struct ct_control_job *ct_control_jobs_numbered(const struct ct_control_jobs *jobs, int number)
{
    for (const struct ct_list *at = jobs->list.next; at != &jobs->list; at = at->next) {
        if (job_at(at)->number == number) {
            return job_at(at);
        }
    }
    return NULL;
}

void ct_control_jobs_tick(struct ct_control_jobs *jobs, int64_t now_ns)
{
    for (const struct ct_list *at = jobs->list.next; at != &jobs->list; at = at->next) {
        if (ct_members_next(job_at(at)->members) <= now_ns) {
            ct_members_tick(job_at(at)->members, now_ns);
        }
    }
}

int64_t ct_control_jobs_next(const struct ct_control_jobs *jobs)
{
    int64_t next_ns = INT64_MAX;
    for (const struct ct_list *at = jobs->list.next; at != &jobs->list; at = at->next) {
        int64_t job_ns = ct_members_next(job_at(at)->members);
        next_ns = job_ns < next_ns ? job_ns : next_ns;
    }
    return next_ns;
}

/* Puts the name of the job in front of its problems, which begin at number `first`. Needed only if
 * there are several jobs. */
static int sign_problems(struct cJSON *problems, int first, const char *run_id)
{
    for (int i = first; i < cJSON_GetArraySize(problems); i++) {
        char text[CT_RUN_ID_MAX + CT_FAILURE_WHAT_MAX + 16];
        (void)snprintf(text, sizeof(text), "job %s: %s", run_id,
                       cJSON_GetStringValue(cJSON_GetArrayItem(problems, i)));
        ct_text_clean(text);
        cJSON *item = cJSON_CreateString(text);
        if (item == NULL || !cJSON_ReplaceItemInArray(problems, i, item)) {
            cJSON_Delete(item);
            return CT_ENOMEM;
        }
    }
    return 0;
}

int ct_control_jobs_status(const struct ct_control_jobs *jobs, int64_t now_ns,
                           struct ct_status_rows *rows, struct cJSON *root, struct cJSON *problems)
{
    rows->job = 0;
    cJSON *array = jobs->count > 1 ? cJSON_AddArrayToObject(root, "jobs") : NULL;
    if (jobs->count > 1 && array == NULL) {
        return CT_ENOMEM;
    }
    for (const struct ct_list *at = jobs->list.next; at != &jobs->list; at = at->next) {
        int told = cJSON_GetArraySize(problems);
        int rc = ct_members_status(job_at(at)->members, now_ns, rows, root, problems);
        if (rc != 0) {
            return rc;
        }
        rows->job++;
        cJSON *item = cJSON_GetObjectItemCaseSensitive(root, "job");
        if (!ct_json_add_number(item, "number", job_at(at)->number)) {
            return CT_ENOMEM;
        }
        if (array == NULL) {
            continue;
        }
        (void)cJSON_DetachItemViaPointer(root, item);
        if (!cJSON_AddItemToArray(array, item)) {
            cJSON_Delete(item);
            return CT_ENOMEM;
        }
        rc = sign_problems(problems, told, job_at(at)->run_id);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}
