/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that are threads of one process. They open communicators as processes do, but the crew is
 * their store. It has room for one value, which rank 0 writes: the next one comes only after all
 * ranks have used this one to find each other. A wait for it ends when a rank gives up, or at a
 * deadline. The creator frees the crew after the last thread has ended.
 *
 * NCCL does not tell a rank that another one of its process has failed, and connects ranks at their
 * first collective. So their communicators are non-blocking, too: every wait looks at `over`.
 */
#include "worker/open/crew.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "worker/job/job.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* A communicator's name and the key that its back end adds. */
#define KEY_MAX (COMM_NAME_MAX + 32)

struct ctw_crew {
    int size;
    atomic_bool over; /* a rank has given up; the others read it while they wait */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* signals changes of the fields below */
    char key[KEY_MAX];      /* of the value; "" = there is none yet */
    unsigned char value[COMM_NCCL_ID_BYTES];
    size_t len;
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
        rank->env.launched = rank->env.device_own = rank->env.device_set = false;
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

/* ---- the store of a crew --------------------------------------------------------------------- */

static int crew_set(void *data, const char *key, const void *value, size_t len, struct ct_err *err)
{
    const struct comm_origin *origin = data;
    struct ctw_crew *crew = origin->job->crew;
    if (len > sizeof(crew->value)) {
        return ct_err_set(err, CT_ELIMIT, "%zu bytes are more than the %zu that a crew can store",
                          len, sizeof(crew->value));
    }
    (void)pthread_mutex_lock(&crew->lock);
    (void)snprintf(crew->key, sizeof(crew->key), "%s/%s", origin->name, key);
    memcpy(crew->value, value, len);
    crew->len = len;
    (void)pthread_cond_broadcast(&crew->changed);
    (void)pthread_mutex_unlock(&crew->lock);
    return 0;
}

/* Needs the lock. */
static int await_key(struct ctw_crew *crew, const char *key, int64_t timeout_ms, struct ct_err *err)
{
    int64_t deadline = ct_deadline_in(NULL, timeout_ms);
    const struct timespec until = {.tv_sec = (time_t)(deadline / CT_NS_PER_S),
                                   .tv_nsec = (long)(deadline % CT_NS_PER_S)};
    bool late = false;
    while (!late && strcmp(crew->key, key) != 0 && !atomic_load(&crew->over)) {
        late = pthread_cond_timedwait(&crew->changed, &crew->lock, &until) != 0;
    }
    if (atomic_load(&crew->over)) {
        return ct_err_set(err, CT_EPEER, "another rank of this process has given up");
    }
    return strcmp(crew->key, key) == 0
               ? 0
               : ct_err_set(err, CT_ETIMEDOUT, "gave up after %.1f s: rank 0 has not come",
                            (double)timeout_ms / 1000);
}

static int crew_get(void *data, const char *key, int64_t timeout_ms, struct ct_buf *out,
                    struct ct_err *err)
{
    const struct comm_origin *origin = data;
    struct ctw_crew *crew = origin->job->crew;
    char full[KEY_MAX];
    (void)snprintf(full, sizeof(full), "%s/%s", origin->name, key);
    (void)pthread_mutex_lock(&crew->lock);
    int rc = await_key(crew, full, timeout_ms, err);
    if (rc == 0 && ct_buf_append(out, crew->value, crew->len) != 0) {
        rc = ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    (void)pthread_mutex_unlock(&crew->lock);
    return rc;
}

void crew_setup(struct ctw_crew *crew, struct comm_setup *setup)
{
    setup->over = &crew->over;
    setup->set = crew_set;
    setup->get = crew_get;
}
