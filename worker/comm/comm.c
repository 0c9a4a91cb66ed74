/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations of a communicator: they check arguments, say on the progress page that this rank
 * waits, call the back end, and remember a failure, after which every call fails.
 */
#include "worker/comm/comm.h"

#include "worker/job/job.h"

#include <stdalign.h>
#include <stdio.h>

/* A communicator's name and the key that its back end adds. */
#define KEY_MAX (COMM_NAME_MAX + 32)

/* ---- what back ends need to open ------------------------------------------------------------- */

int comm_store_set(void *data, const char *key, const void *value, size_t len, struct ct_err *err)
{
    const struct comm_origin *origin = data;
    char full[KEY_MAX];
    (void)snprintf(full, sizeof(full), "%s/%s", origin->name, key);
    return ctw_job_set(origin->job, full, value, len, err);
}

int comm_store_get(void *data, const char *key, int64_t timeout_ms, struct ct_buf *out,
                   struct ct_err *err)
{
    const struct comm_origin *origin = data;
    char full[KEY_MAX];
    (void)snprintf(full, sizeof(full), "%s/%s", origin->name, key);
    return ctw_job_get_within(origin->job, full, timeout_ms, out, err);
}

int comm_check_order(enum ctw_order order, int size, struct ct_err *err)
{
    if (order == CTW_ORDER_TREE && (size & (size - 1)) != 0) {
        return ct_err_set(err, CT_EINVAL,
                          "%d ranks cannot add as a balanced tree: that needs a power of two",
                          size);
    }
    return 0;
}

struct comm_setup comm_setup_of(struct comm_origin *origin)
{
    const struct ctw_job *job = origin->job;
    return (struct comm_setup){
        .crowd = job->env.local_world_size,
        .nodes = 1,
        .store_fd = job->client != NULL ? ct_client_fd(job->client) : -1,
        .order = origin->order,
        .handover = &job->handover,
        .timeout_ms = origin->timeout_ms,
        .set = comm_store_set,
        .get = comm_store_get,
        .data = origin,
    };
}

void ctw_comm_on_end(struct ctw_comm *comm, ctw_let_go_fn let_go, void *data)
{
    comm->let_go = let_go;
    comm->let_go_data = data;
}

void ctw_comm_free(struct ctw_comm *comm)
{
    if (comm == NULL) {
        return;
    }
    if (comm->ops->quiesce != NULL) {
        comm->ops->quiesce(comm);
    }
    comm_let_go(comm);
    comm->ops->close(comm);
}

/* ---- the progress page, which shows who waits for whom --------------------------------------- */

void comm_begin_wait(struct ctw_comm *comm)
{
    comm->waiting = true;
    comm->before = progress_begin_wait(comm->progress);
}

static void end_wait(struct ctw_comm *comm)
{
    if (comm->waiting) {
        progress_end_wait(comm->progress, comm->before);
    }
    comm->waiting = false;
}

/* ---- failure and end ------------------------------------------------------------------------- */

int comm_end_call(struct ctw_comm *comm, int rc, const char *what, struct ct_err *err)
{
    if (rc == 0) {
        end_wait(comm);
        return 0;
    }
    comm->dead = rc;
    (void)ct_err_wrap(&comm->reason, "%s", what);
    /* Most back ends let go after their abort. NCCL's has already done so in the midst of its abort
     * (comm_nccl_family.c). */
    comm->ops->abort(comm);
    comm_let_go(comm);
    end_wait(comm); /* not earlier: NCCL's abort takes a second, and this rank holds up nobody */
    if (err != NULL) {
        *err = comm->reason;
    }
    return rc;
}

int comm_refuse_dead(const struct ctw_comm *comm, const char *what, struct ct_err *err)
{
    return ct_err_set(err, comm->dead, "%s: the communicator has ended: %s", what,
                      comm->reason.text);
}

void ctw_comm_abort(struct ctw_comm *comm)
{
    if (comm == NULL || comm->dead != 0) {
        return;
    }
    int rc = ct_err_set(&comm->reason, CT_EABORTED, "called on rank %d", comm->rank);
    (void)comm_end_call(comm, rc, "ctw_comm_abort", NULL);
}

int ctw_comm_poll(struct ctw_comm *comm, struct ct_err *err)
{
    if (comm->dead != 0) {
        return comm_refuse_dead(comm, "poll", err);
    }
    return comm_end_call(comm, comm->ops->poll(comm, &comm->reason), "poll", err);
}

/* ---- operations ------------------------------------------------------------------------------ */

static int check_floats(const void *send, const void *recv, size_t count, struct ct_err *err)
{
    if (count > SIZE_MAX / sizeof(float)) {
        return ct_err_set(err, CT_ELIMIT, "%zu numbers do not fit in memory", count);
    }
    if (count > 0 && (send == NULL || recv == NULL)) {
        return ct_err_set(err, CT_EINVAL, "a buffer is NULL");
    }
    uintptr_t from = (uintptr_t)send, to = (uintptr_t)recv;
    if (from % alignof(float) != 0 || to % alignof(float) != 0) {
        return ct_err_set(err, CT_EINVAL, "a buffer is not aligned for float");
    }
    size_t apart = from > to ? from - to : to - from;
    if (apart != 0 && apart < count * sizeof(float)) {
        return ct_err_set(err, CT_EINVAL, "send and recv overlap");
    }
    return 0;
}

int ctw_comm_alloc(struct ctw_comm *comm, enum ctw_memory kind, size_t bytes, void **out,
                   struct ct_err *err)
{
    if (comm->dead != 0) {
        return comm_refuse_dead(comm, "alloc", err);
    }
    int rc;
    if (out == NULL || bytes == 0 || (kind != CTW_MEMORY_OWN && kind != CTW_MEMORY_SHARED)) {
        rc = ct_err_set(&comm->reason, CT_EINVAL, "invalid argument");
    } else {
        comm_begin_wait(comm);
        rc = comm->ops->alloc(comm, kind, bytes, out, &comm->reason);
    }
    return comm_end_call(comm, rc, "alloc", err);
}

int ctw_comm_all_reduce(struct ctw_comm *comm, const float *send, float *recv, size_t count,
                        struct ct_err *err)
{
    if (comm->dead != 0) {
        return comm_refuse_dead(comm, "all_reduce", err);
    }
    int rc = check_floats(send, recv, count, &comm->reason);
    if (rc == 0) {
        comm_begin_wait(comm);
        rc = comm->ops->all_reduce(comm, send, recv, count, &comm->reason);
    }
    return comm_end_call(comm, rc, "all_reduce", err);
}

int ctw_comm_reduce_scatter(struct ctw_comm *comm, float *buf, size_t count, size_t *begin,
                            size_t *end, struct ct_err *err)
{
    if (comm->dead != 0) {
        return comm_refuse_dead(comm, "reduce_scatter", err);
    }
    int rc = check_floats(buf, buf, count, &comm->reason);
    if (rc == 0 && (begin == NULL || end == NULL)) {
        rc = ct_err_set(&comm->reason, CT_EINVAL, "begin or end is NULL");
    }
    if (rc == 0) {
        comm_begin_wait(comm);
        rc = comm->ops->reduce_scatter(comm, buf, count, begin, end, &comm->reason);
    }
    return comm_end_call(comm, rc, "reduce_scatter", err);
}

int ctw_comm_broadcast(struct ctw_comm *comm, void *buf, size_t bytes, int root, struct ct_err *err)
{
    if (comm->dead != 0) {
        return comm_refuse_dead(comm, "broadcast", err);
    }
    int rc;
    if (root < 0 || root >= comm->size) {
        rc = ct_err_set(&comm->reason, CT_EINVAL, "root %d is not a rank of 0 to %d", root,
                        comm->size - 1);
    } else if (buf == NULL && bytes > 0) {
        rc = ct_err_set(&comm->reason, CT_EINVAL, "the buffer is NULL");
    } else {
        comm_begin_wait(comm);
        rc = comm->ops->broadcast(comm, buf, bytes, root, &comm->reason);
    }
    return comm_end_call(comm, rc, "broadcast", err);
}

int ctw_comm_barrier(struct ctw_comm *comm, struct ct_err *err)
{
    if (comm->dead != 0) {
        return comm_refuse_dead(comm, "barrier", err);
    }
    comm_begin_wait(comm);
    return comm_end_call(comm, comm->ops->barrier(comm, &comm->reason), "barrier", err);
}

int ctw_comm_sync(struct ctw_comm *comm, struct ct_err *err)
{
    if (comm->dead != 0) {
        return comm_refuse_dead(comm, "sync", err);
    }
    comm_begin_wait(comm);
    return comm_end_call(comm, comm->ops->sync(comm, &comm->reason), "sync", err);
}

/* ---- facts ----------------------------------------------------------------------------------- */

int ctw_comm_rank(const struct ctw_comm *comm)
{
    return comm->rank;
}

int ctw_comm_size(const struct ctw_comm *comm)
{
    return comm->size;
}

enum ctw_backend ctw_comm_backend(const struct ctw_comm *comm)
{
    return comm->backend;
}
