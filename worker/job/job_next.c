/* SPDX-License-Identifier: Apache-2.0
 *
 * Moves a job to the next generation: the worker's half of common/handover.h. A failure leaves the
 * job able to report an error and to be freed.
 */
#include "worker/job/job.h"

#include "common/alloc.h"
#include "worker/job/env.h"

/* The launcher learns at once that a process has ended, and after a few heartbeats that a machine
 * is silent. This allows for both. */
#define DEFAULT_END_MS (30 * 1000)

/* An order has only this many bits for the generation. */
#define GENERATION_MASK (UINT32_MAX >> 2)

static void say(struct ctw_job *job, enum ct_stay stay)
{
    progress_stay(&job->progress, ct_generation_word(job->handover.generation, stay));
}

int ctw_job_stay(struct ctw_job *job, bool able, struct ct_err *err)
{
    if (job == NULL) {
        return ct_err_set(err, CT_EINVAL, "ctw_job_stay: job is NULL");
    }
    if (job->handover.slot == NULL || job->progress.slot == NULL) {
        return ct_err_set(err, CT_EUNSUPPORTED, "no launcher keeps workers for another generation");
    }
    job->handover.able = able;
    say(job, able ? CT_STAY_ABLE : CT_STAY_NOT);
    return 0;
}

bool ctw_job_ended(const struct ctw_job *job)
{
    return job != NULL && order_reader_ended(&job->handover);
}

/* Waits as a parked worker for the next generation, and takes over its environment. */
static int park(struct ctw_job *job, struct ct_err *err)
{
    char *text;
    size_t bytes;
    uint32_t generation;
    say(job, CT_STAY_PARKED);
    int rc = order_reader_await_next(&job->handover, &text, &bytes, &generation, err);
    if (rc != 0) {
        return rc;
    }
    const struct env_source source = {text, bytes};
    struct ctw_env env;
    rc = env_read_from(&source, &env, err);
    ct_free(text);
    if (rc == 0 && (!env.launched || ((uint32_t)env.generation & GENERATION_MASK) != generation)) {
        rc =
            ct_err_set(err, CT_EPROTO, "it is of another generation than %u", (unsigned)generation);
    }
    if (rc != 0) {
        (void)ct_err_wrap(err, "the next generation's environment");
        return rc;
    }
    job->env = env;
    job->comms = 0;
    job->handover.generation = env.generation;
    return 0;
}

static int begin(struct ctw_job *job, struct ct_err *err)
{
    progress_renew(&job->progress);
    say(job, CT_STAY_ABLE);
    return job_connect(job, err);
}

int ctw_job_next(struct ctw_job *job, int64_t timeout_ms, struct ct_err *err)
{
    if (job == NULL || timeout_ms < 0) {
        return ct_err_set(err, CT_EINVAL, "ctw_job_next: invalid argument");
    }
    if (!job->handover.able) {
        return ct_err_set(err, CT_EUNSUPPORTED, "ctw_job_next: ctw_job_stay() has not been called");
    }
    ct_client_free(job->client);
    job->client = NULL;
    int rc =
        order_reader_await_end(&job->handover, timeout_ms > 0 ? timeout_ms : DEFAULT_END_MS, err);
    while (rc == 0) {
        rc = park(job, err);
        if (rc == 0 && !order_reader_ended(&job->handover)) {
            rc = begin(job, err);
            if (rc == 0 || !order_reader_ended(&job->handover)) {
                break;
            }
            rc = 0; /* the store is gone, because that generation has already ended, too */
        }
    }
    return rc;
}
