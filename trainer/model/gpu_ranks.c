/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts one thread per GPU and joins all. The first thread that fails aborts the crew, which ends
 * the collectives of the others. The failure that caused the others is reported.
 */
#include "trainer/model/gpu_ranks.h"

#include "common/alloc.h"
#include "kernels/device/device.h"

#include <pthread.h>

struct rank {
    pthread_t thread;
    struct ctw_crew *crew;
    struct ctw_job *job;
    ct_rank_fn run;
    void *data;
    int rc;
    struct ct_err err;
};

static void *run_rank(void *arg)
{
    struct rank *rank = arg;
    rank->rc = rank->run(rank->job, rank->data, &rank->err);
    if (rank->rc != 0) {
        ctw_crew_abort(rank->crew);
    }
    return NULL;
}

static int check(int gpus, const struct ctw_job *job, struct ct_err *err)
{
    int workers = ctw_job_env(job)->world_size, count = ct_device_cuda_count();
    if (workers > 1) {
        return ct_err_set(err, CT_EINVAL,
                          "--gpus %d: this is one of %d workers, which have a GPU each already; "
                          "start one worker, or leave --gpus out",
                          gpus, workers);
    }
    /* If there is no device at all, opening one gives the better message. In a later generation a
     * device has been lost, and another machine may take the place of this one. */
    if (count > 0 && count < gpus) {
        int code = ctw_job_env(job)->generation > 0 ? CT_EIO : CT_EUNSUPPORTED;
        return ct_err_set(err, code, "--gpus %d: there %s only %d CUDA device%s here", gpus,
                          count == 1 ? "is" : "are", count, count == 1 ? "" : "s");
    }
    return 0;
}

/* Finds the cause: a rank that failed because another one did knows less than that one. */
static int first_failure(const struct rank *ranks, int gpus, struct ct_err *err)
{
    const struct rank *first = NULL;
    for (int i = 0; i < gpus; i++) {
        const struct rank *r = &ranks[i];
        if (r->rc != 0 && (first == NULL || (first->rc == CT_EPEER && r->rc != CT_EPEER))) {
            first = r;
        }
    }
    if (first == NULL) {
        return 0;
    }
    return ct_err_set(err, first->rc, "GPU %d: %s", (int)(first - ranks), first->err.text);
}

static int run_all(struct rank *ranks, int gpus, struct ct_err *err)
{
    int started = 1, failed = 0;
    while (started < gpus && failed == 0) {
        failed = pthread_create(&ranks[started].thread, NULL, run_rank, &ranks[started]);
        started += failed == 0;
    }
    if (failed != 0) {
        ctw_crew_abort(ranks->crew);
    } else {
        (void)run_rank(&ranks[0]);
    }
    for (int i = 1; i < started; i++) {
        (void)pthread_join(ranks[i].thread, NULL);
    }
    if (failed != 0) {
        return ct_err_sys(err, ct_code_from_errno(failed), failed,
                          "--gpus %d: cannot start thread %d", gpus, started);
    }
    return first_failure(ranks, gpus, err);
}

int ct_gpu_ranks_run(int gpus, struct ctw_job *job, ct_rank_fn run, void *data, struct ct_err *err)
{
    struct ctw_crew *crew = NULL;
    int rc = check(gpus, job, err);
    if (rc == 0) {
        rc = ctw_crew_open(job, gpus, &crew, err);
    }
    if (rc != 0) {
        return rc;
    }
    struct rank *ranks = ct_calloc((size_t)gpus, sizeof *ranks);
    if (ranks == NULL) {
        rc = ct_err_set(err, CT_ENOMEM, "out of memory");
    } else {
        for (int i = 0; i < gpus; i++) {
            ranks[i] =
                (struct rank){.crew = crew, .job = ctw_crew_job(crew, i), .run = run, .data = data};
        }
        rc = run_all(ranks, gpus, err);
    }
    ct_free(ranks);
    ctw_crew_free(crew);
    return rc;
}
