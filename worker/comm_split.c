/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators of some of another one's ranks. In the host back end who belongs together is found
 * by one all-reduce in which each rank fills its own place with its color and key: small whole
 * numbers, which floats hold exactly.
 */
#include "worker/comm.h"

#include "common/alloc.h"
#include "worker/job.h"

#include <stdio.h>

/* Whole numbers up to here are floats. */
#define EXACT_MAX (1 << 24)

static int check(const struct ctw_comm *comm, int color, int key, struct ctw_comm **out,
                 struct ct_err *err)
{
    if (out == NULL || color > EXACT_MAX || color < -EXACT_MAX || key > EXACT_MAX ||
        key < -EXACT_MAX) {
        return ct_err_set(err, CT_EINVAL, "invalid argument");
    }
    if (comm->ops->split == NULL) {
        return ct_err_set(err, CT_EUNSUPPORTED, "NCCL communicators cannot be split");
    }
    return 0;
}

/* This rank's place in its group and the group's size, from everybody's color and key. */
static void find_place(const struct ctw_comm *comm, const float *all, int *rank, int *size)
{
    const float *mine = all + 2 * (size_t)comm->rank;
    *rank = 0;
    *size = 0;
    for (int r = 0; r < comm->size; r++) {
        const float *theirs = all + 2 * (size_t)r;
        if (theirs[0] == mine[0]) {
            *size += 1;
            *rank += theirs[1] < mine[1] || (theirs[1] == mine[1] && r < comm->rank);
        }
    }
}

static int open_group(int rank, int size, const struct comm_origin *from, struct ctw_comm **out,
                      struct ct_err *err)
{
    struct comm_origin origin = *from;
    const struct comm_setup setup = {
        .rank = rank,
        .size = size,
        .local_size = size,
        .crowd = origin.job->env.local_world_size,
        .handover = &origin.job->handover,
        .timeout_ms = origin.timeout_ms,
        .set = comm_store_set,
        .get = comm_store_get,
        .data = &origin,
    };
    return size == 1 ? comm_solo_open(&setup, out, err) : comm_host_open(&setup, out, err);
}

int comm_host_split(struct ctw_comm *comm, int color, int key, const struct comm_origin *origin,
                    struct ctw_comm **out, struct ct_err *err)
{
    const struct ctw_env *env = &origin->job->env;
    if (env->local_world_size < env->world_size) {
        return ct_err_set(err, CT_EUNSUPPORTED,
                          "the job spans machines, whose communicators cannot be split yet");
    }
    size_t count = 2 * (size_t)comm->size;
    float *all = ct_calloc(count, sizeof(*all));
    if (all == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    all[2 * comm->rank] = (float)color;
    all[2 * comm->rank + 1] = (float)key;
    int rc = comm->ops->all_reduce(comm, all, all, count, err);
    int rank, size;
    find_place(comm, all, &rank, &size);
    ct_free(all);
    return rc != 0 || color < 0 ? rc : open_group(rank, size, origin, out, err);
}

static int split(struct ctw_comm *comm, int color, int key, struct ctw_comm **out,
                 struct ct_err *err)
{
    int rc = check(comm, color, key, out, err);
    if (rc != 0) {
        return rc;
    }
    struct comm_origin origin = {.job = comm->origin.job, .timeout_ms = comm->origin.timeout_ms};
    int n = snprintf(origin.name, sizeof(origin.name), "%s/%u.%d", comm->origin.name,
                     comm->origin.splits++, color);
    if (n < 0 || (size_t)n >= sizeof(origin.name)) {
        return ct_err_set(err, CT_ELIMIT, "communicators are split too deep");
    }
    struct ctw_comm *group = NULL;
    comm_begin_wait(comm);
    rc = comm->ops->split(comm, color, key, &origin, &group, err);
    if (rc == 0 && group != NULL) {
        group->origin = origin;
        group->progress = comm->progress;
    }
    if (rc == 0) {
        *out = group;
    }
    return rc;
}

int ctw_comm_split(struct ctw_comm *comm, int color, int key, struct ctw_comm **out,
                   struct ct_err *err)
{
    if (comm->dead != 0) {
        return comm_refuse_dead(comm, "split", err);
    }
    return comm_settle(comm, split(comm, color, key, out, &comm->reason), "split", err);
}
