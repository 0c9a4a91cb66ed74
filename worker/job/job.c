/* SPDX-License-Identifier: Apache-2.0
 *
 * The job and its store. Opening reads the environment and connects, which may take up to the
 * timeout. Keys get a prefix of run and generation. A wait for a key ends early if the launcher
 * ends the generation. ctw_job_free() closes the connection and unmaps the pages.
 */
#include "worker/job/job.h"

#include "common/alloc.h"
#include "common/clock.h"

#include <stdlib.h>
#include <string.h>

/* PyTorch's default store timeout. */
#define DEFAULT_TIMEOUT_MS (300 * 1000)

/* How often a process that waits for a key looks whether its generation has ended. */
#define SLICE_MS 100

int job_connect(struct ctw_job *job, struct ct_err *err)
{
    const struct ctw_env *env = &job->env;
    struct ct_err why = {0};
    int rc =
        ct_client_open(env->master_addr, env->master_port, job->timeout_ms, &job->client, &why);
    if (rc != 0) {
        (void)ct_err_set(
            err, rc, "rank %d %.700s (%s)", env->rank, why.text,
            env->store_is_external
                ? "from MASTER_ADDR and MASTER_PORT: is this an address of node 0 that "
                  "this machine can go to, without a firewall in between?"
                : "TORCHELASTIC_USE_AGENT_STORE is not True, so perhaps nobody serves "
                  "it: start with ctrun");
    }
    return rc;
}

int job_need_store(struct ctw_job *job, struct ct_err *err)
{
    bool wanted = job->lazy && job->client == NULL && job->env.launched;
    return wanted ? job_connect(job, err) : 0;
}

int ctw_job_open(const struct ctw_job_options *options, struct ctw_job **out, struct ct_err *err)
{
    if (out == NULL) {
        return ct_err_set(err, CT_EINVAL, "ctw_job_open: out is NULL");
    }
    int64_t timeout_ms = options != NULL ? options->timeout_ms : 0;
    if (timeout_ms < 0) {
        return ct_err_set(err, CT_EINVAL, "ctw_job_open: negative timeout");
    }
    struct ctw_job *job = ct_calloc(1, sizeof(*job));
    if (job == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    job->timeout_ms = timeout_ms > 0 ? timeout_ms : DEFAULT_TIMEOUT_MS;
    int rc = ctw_env_read(&job->env, err);
    job->lazy = options != NULL && options->lazy;
    if (rc == 0 && job->env.launched && !job->lazy) {
        rc = job_connect(job, err);
    }
    if (rc != 0) {
        ctw_job_free(job);
        return rc;
    }
    progress_open(&job->progress, getenv(CT_PROGRESS_ENV));
    order_reader_open(&job->handover, getenv(CT_HANDOVER_ENV), job->env.generation);
    *out = job;
    return 0;
}

void ctw_job_free(struct ctw_job *job)
{
    if (job == NULL) {
        return;
    }
    progress_stay(&job->progress, 0);
    progress_close(&job->progress);
    order_reader_close(&job->handover);
    ct_client_free(job->client);
    ct_free(job);
}

const struct ctw_env *ctw_job_env(const struct ctw_job *job)
{
    return &job->env;
}

/* Checks the arguments of a store call and gives *out, "ctworker/<run id>/<generation>/<key>". */
static int full_key(struct ctw_job *job, const char *key, char **out, struct ct_err *err)
{
    if (job == NULL || key == NULL || key[0] == '\0') {
        return ct_err_set(err, CT_EINVAL, "a store call needs a job and a key");
    }
    int rc = job_need_store(job, err);
    if (rc != 0) {
        return rc;
    }
    if (job->client == NULL) {
        return ct_err_set(err, CT_EUNSUPPORTED, "there is no store: not started by a launcher");
    }
    char *full = ct_asprintf("ctworker/%s/%d/%s", job->env.run_id, job->env.generation, key);
    if (full == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    *out = full;
    return 0;
}

int ctw_job_set(struct ctw_job *job, const char *key, const void *value, size_t len,
                struct ct_err *err)
{
    if (value == NULL && len > 0) {
        return ct_err_set(err, CT_EINVAL, "ctw_job_set: value is NULL");
    }
    char *full = NULL;
    int rc = full_key(job, key, &full, err);
    if (rc == 0) {
        rc = ct_client_set(job->client, full, value, len, err);
        ct_free(full);
    }
    return rc;
}

/* Waits for a key; time in which this process did not run does not count. After a timeout the
 * connection is still usable. */
static int await_key(struct ctw_job *job, const char *full, int64_t timeout_ms, struct ct_buf *out,
                     struct ct_err *err)
{
    int64_t deadline = ct_deadline_in(NULL, timeout_ms);
    int64_t left = ct_deadline_left_ms(NULL, deadline);
    int rc;
    do {
        bool whole = left < 0 || left > SLICE_MS; /* negative: there is no deadline */
        int64_t began = ct_clock_now(NULL);
        rc = ct_client_get(job->client, full, whole ? SLICE_MS : left, out, err);
        ct_deadline_put_off(&deadline, began, ct_clock_now(NULL));
        left = ct_deadline_left_ms(NULL, deadline);
    } while (rc == CT_ETIMEDOUT && left != 0 && !order_reader_ended(&job->handover));
    if (rc == CT_ETIMEDOUT && left != 0) {
        return order_reader_check(&job->handover, err);
    }
    return rc == CT_ETIMEDOUT /* of the last slice */
               ? ct_err_set(err, rc, "'%.200s' did not come into the store within %lld ms", full,
                            (long long)timeout_ms)
               : rc;
}

int ctw_job_get_within(struct ctw_job *job, const char *key, int64_t timeout_ms, struct ct_buf *out,
                       struct ct_err *err)
{
    char *full = NULL;
    int rc = full_key(job, key, &full, err);
    if (rc == 0) {
        rc = job->handover.able ? await_key(job, full, timeout_ms, out, err)
                                : ct_client_get(job->client, full, timeout_ms, out, err);
        ct_free(full);
    }
    return rc;
}

int ctw_job_get(struct ctw_job *job, const char *key, void **out, size_t *len, struct ct_err *err)
{
    if (out == NULL || len == NULL) {
        return ct_err_set(err, CT_EINVAL, "ctw_job_get: out or len is NULL");
    }
    struct ct_buf value = CT_BUF_INIT;
    int rc = ctw_job_get_within(job, key, job != NULL ? job->timeout_ms : 0, &value, err);
    char *copy = NULL;
    if (rc == 0) {
        /* The value is copied, because the buffer's bytes may not start where its memory does. */
        copy = ct_malloc(value.len + 1);
        if (copy == NULL) {
            rc = ct_err_set(err, CT_ENOMEM, "out of memory");
        }
    }
    if (rc == 0) {
        if (value.len > 0) {
            memcpy(copy, ct_buf_bytes(&value), value.len);
        }
        copy[value.len] = '\0';
        *out = copy;
        *len = value.len;
    }
    ct_buf_fini(&value);
    return rc;
}

int ctw_job_add(struct ctw_job *job, const char *key, int64_t delta, int64_t *out,
                struct ct_err *err)
{
    char *full = NULL;
    int rc = full_key(job, key, &full, err);
    if (rc == 0) {
        int64_t sum;
        rc = ct_client_add(job->client, full, delta, &sum, err);
        if (rc == 0 && out != NULL) {
            *out = sum;
        }
        ct_free(full);
    }
    return rc;
}
