/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that are threads of one process. Opening a communicator is a barrier, a counter under a
 * lock: the last rank to arrive makes the communicators of all ranks and wakes the others. A rank
 * that gives up, or a deadline, ends the barrier for all. The creator frees the crew after the last
 * thread has ended.
 */
#include "worker/open/crew.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "worker/job/job.h"

#include <pthread.h>
#include <time.h>

struct ctw_crew {
    int size;
    atomic_bool over; /* a rank has given up; the others read it while they wait */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* signals changes of the fields below */
    int arrived;            /* ranks that wait at the barrier */
    unsigned barriers;      /* number of barriers that are over */
    int devices[CTW_CREW_MAX];
    void *handles[CTW_CREW_MAX];
    int rc; /* result of the last barrier */
    struct ct_err reason;
    struct ctw_job jobs[];
};

static int init_lock(struct ctw_crew *crew)
{
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    if (rc != 0) {
        return rc;
    }
    rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    if (rc == 0) {
        rc = pthread_cond_init(&crew->changed, &attr);
    }
    (void)pthread_condattr_destroy(&attr);
    if (rc != 0) {
        return rc;
    }
    rc = pthread_mutex_init(&crew->lock, NULL);
    if (rc != 0) {
        (void)pthread_cond_destroy(&crew->changed);
    }
    return rc;
}

int ctw_crew_open(struct ctw_job *job, int size, struct ctw_crew **out, struct ct_err *err)
{
    if (job == NULL || out == NULL || size < 1 || size > CTW_CREW_MAX) {
        return ct_err_set(err, CT_EINVAL, "ctw_crew_open: invalid argument");
    }
    if (job->env.world_size != 1) {
        return ct_err_set(err, CT_EINVAL, "one of %d workers cannot open ranks of its own",
                          job->env.world_size);
    }
    struct ctw_crew *crew = ct_calloc(1, sizeof(*crew) + (size_t)size * sizeof(crew->jobs[0]));
    if (crew == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    if (init_lock(crew) != 0) {
        ct_free(crew);
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    crew->size = size;
    for (int i = 0; i < size; i++) {
        struct ctw_job *rank = &crew->jobs[i];
        rank->env = job->env;
        rank->env.rank = rank->env.local_rank = rank->env.device_index = i;
        rank->env.world_size = rank->env.local_world_size = size;
        /* What a launcher provides for a worker is for one rank only. */
        rank->env.launched = rank->env.device_own = false;
        rank->env.snapshot[0] = '\0';
        rank->timeout_ms = job->timeout_ms;
        rank->crew = crew;
    }
    crew->jobs[0].progress = job->progress;
    *out = crew;
    return 0;
}

void ctw_crew_free(struct ctw_crew *crew)
{
    if (crew != NULL) {
        (void)pthread_mutex_destroy(&crew->lock);
        (void)pthread_cond_destroy(&crew->changed);
        ct_free(crew);
    }
}

struct ctw_job *ctw_crew_job(struct ctw_crew *crew, int rank)
{
    return rank >= 0 && rank < crew->size ? &crew->jobs[rank] : NULL;
}

void ctw_crew_abort(struct ctw_crew *crew)
{
    (void)pthread_mutex_lock(&crew->lock);
    atomic_store(&crew->over, true);
    (void)pthread_cond_broadcast(&crew->changed);
    (void)pthread_mutex_unlock(&crew->lock);
}

/* Needs the lock. */
static int await_others(struct ctw_crew *crew, int64_t timeout_ms, struct ct_err *err)
{
    int64_t deadline = ct_deadline_in(NULL, timeout_ms);
    const struct timespec until = {.tv_sec = (time_t)(deadline / CT_NS_PER_S),
                                   .tv_nsec = (long)(deadline % CT_NS_PER_S)};
    unsigned barrier = crew->barriers;
    int rc = 0;
    while (rc == 0 && barrier == crew->barriers && !atomic_load(&crew->over)) {
        rc = pthread_cond_timedwait(&crew->changed, &crew->lock, &until);
    }
    if (barrier != crew->barriers) {
        return 0;
    }
    if (atomic_load(&crew->over)) {
        return ct_err_set(err, CT_EPEER, "another rank of this process has given up");
    }
    return ct_err_set(err, CT_ETIMEDOUT, "gave up after %.1f s: %d of %d ranks have come",
                      (double)timeout_ms / 1000, crew->arrived, crew->size);
}

int crew_connect(struct ctw_crew *crew, const struct comm_setup *setup, void **ready,
                 atomic_bool **over, struct ct_err *err)
{
    (void)pthread_mutex_lock(&crew->lock);
    crew->devices[setup->rank] = setup->device;
    int rc = 0;
    if (atomic_load(&crew->over)) {
        rc = ct_err_set(err, CT_EPEER, "another rank of this process has given up");
    } else if (++crew->arrived < crew->size) {
        rc = await_others(crew, setup->timeout_ms, err);
    } else {
        crew->reason = (struct ct_err){0};
        crew->rc = comm_nccl_connect(crew->size, crew->devices, crew->handles, &crew->reason);
        crew->arrived = 0;
        crew->barriers++;
        (void)pthread_cond_broadcast(&crew->changed);
    }
    if (rc == 0 && crew->rc != 0) {
        rc = ct_err_set(err, crew->rc, "%s", crew->reason.text);
    }
    if (rc == 0) {
        *ready = crew->handles[setup->rank];
        *over = &crew->over;
    }
    (void)pthread_mutex_unlock(&crew->lock);
    if (rc != 0) {
        ctw_crew_abort(crew); /* no rank waits for this one any more */
    }
    return rc;
}
