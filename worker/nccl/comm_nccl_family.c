/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting and ending with NCCL. NCCL can wait for ever: for a peer that never comes, or in a kernel
 * whose peer has died. So all calls are non-blocking, and every wait is a loop here that checks
 * NCCL's asynchronous error and the deadline. After a failure a communicator must be aborted,
 * because NCCL does not allow to destroy it then. The abort also ends kernels that are stuck on the
 * stream.
 */
#include "worker/nccl/comm_nccl_family.h"

#include "common/alloc.h"
#include "common/clock.h"

#include <sched.h>
#include <stdbool.h>
#include <time.h>

/* A wait yields so many times, which takes about a millisecond, before it begins to sleep. */
#define YIELD_TURNS 1000
#define NAP_NS (50 * 1000)

/* NCCL waits for ranks on the same machine that have not ended theirs. This limits the rest of it.
 */
#define CLOSE_MS (10 * 1000)

/* ---- errors ---------------------------------------------------------------------------------- */

static int code_of(ncclResult_t result)
{
    if (result == ncclRemoteError || result == ncclSystemError) {
        return CT_EPEER; /* NCCL reports a lost connection as either of these */
    }
    if (result == ncclInvalidArgument || result == ncclInvalidUsage) {
        return CT_EINVAL;
    }
    return CT_EIO;
}

int comm_nccl_fail(const struct comm_nccl_member *member, ncclResult_t result, const char *what,
                   struct ct_err *err)
{
    const char *more = ncclGetLastError(member != NULL ? member->handle : NULL);
    bool has_more = more != NULL && more[0] != '\0';
    return ct_err_set(err, code_of(result), "%s: %s%s%.200s", what, ncclGetErrorString(result),
                      has_more ? ": " : "", has_more ? more : "");
}

int comm_nccl_fail_cuda(cudaError_t result, const char *what, struct ct_err *err)
{
    /* Clears the error, because otherwise CUDA reports it again from the next call. */
    (void)cudaGetLastError();
    int code = CT_EIO;
    if (result == cudaErrorNoDevice || result == cudaErrorInsufficientDriver) {
        code = CT_EUNSUPPORTED;
    } else if (result == cudaErrorInvalidDevice || result == cudaErrorInvalidValue) {
        code = CT_EINVAL;
    } else if (result == cudaErrorMemoryAllocation) {
        code = CT_ENOMEM;
    }
    return ct_err_set(err, code, "%s: %s", what, cudaGetErrorString(result));
}

int comm_nccl_ready(const struct comm_nccl_member *member, struct ct_err *err)
{
    return member->handle != NULL
               ? 0
               : ct_err_set(err, CT_EABORTED, "it has ended together with others of its stream");
}

/* The event is recorded and waited for in one call. CUDA does not allow to wait for an event that
 * was recorded in a capture which has ended, and captured work must not wait for an event that was
 * recorded outside of its capture. */
int comm_nccl_await_sent(struct comm_nccl_member *link, struct ct_err *err)
{
    if (!link->sending) {
        return 0;
    }
    cudaError_t result = cudaEventRecord(link->sent, link->side);
    if (result == cudaSuccess) {
        result = cudaStreamWaitEvent(link->family->stream, link->sent, 0);
    }
    if (result != cudaSuccess) {
        return comm_nccl_fail_cuda(result, "waiting for what was sent", err);
    }
    link->sending = false;
    return 0;
}

int comm_nccl_begin(const struct comm_nccl_member *member, struct ct_err *err)
{
    int rc = comm_nccl_ready(member, err);
    for (struct comm_nccl_member *m = member->family->members; rc == 0 && m != NULL; m = m->next) {
        rc = comm_nccl_await_sent(m, err);
    }
    return rc;
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void pause_turn(int turn)
{
    if (turn < YIELD_TURNS) {
        (void)sched_yield();
        return;
    }
    const struct timespec nap = {.tv_nsec = NAP_NS};
    (void)nanosleep(&nap, NULL);
}

static int give_up(int64_t timeout_ms, const char *what, struct ct_err *err)
{
    return ct_err_set(err, CT_ETIMEDOUT, "%s: gave up after %.1f s: a peer has not come", what,
                      (double)timeout_ms / 1000);
}

/* Has the deadline passed? `looked` is when it was last asked. */
static bool is_late(int64_t *deadline, int64_t *looked)
{
    int64_t now = ct_clock_now(NULL);
    ct_deadline_put_off(deadline, *looked, now);
    *looked = now;
    return now >= *deadline;
}

int comm_nccl_check(const struct comm_nccl_member *member, const char *what, bool *busy,
                    struct ct_err *err)
{
    const struct comm_nccl_family *family = member->family;
    ncclResult_t state = ncclSuccess;
    ncclResult_t result = ncclCommGetAsyncError(member->handle, &state);
    if (result != ncclSuccess) {
        return comm_nccl_fail(member, result, what, err);
    }
    *busy = state == ncclInProgress;
    if (family->over != NULL && atomic_load(family->over)) {
        return ct_err_set(err, CT_EPEER, "%s: another rank of this process has given up", what);
    }
    if (order_reader_ended(family->handover)) {
        return ct_err_set(err, CT_EPEER, "%s: the launcher has ended this generation", what);
    }
    return state == ncclSuccess || *busy ? 0 : comm_nccl_fail(member, state, what, err);
}

static int finish_within(const struct comm_nccl_member *member, ncclResult_t result,
                         int64_t timeout_ms, const char *what, struct ct_err *err)
{
    if (result != ncclSuccess && result != ncclInProgress) {
        return comm_nccl_fail(member, result, what, err);
    }
    bool busy = result == ncclInProgress;
    int64_t deadline = ct_deadline_in(NULL, timeout_ms), looked = ct_clock_now(NULL);
    for (int turn = 0; busy; turn++) {
        int rc = comm_nccl_check(member, what, &busy, err);
        if (rc != 0) {
            return rc;
        }
        if (busy && is_late(&deadline, &looked)) {
            return give_up(timeout_ms, what, err);
        }
        if (busy) {
            pause_turn(turn);
        }
    }
    return 0;
}

int comm_nccl_finish(const struct comm_nccl_member *member, ncclResult_t result, const char *what,
                     struct ct_err *err)
{
    return finish_within(member, result, member->family->timeout_ms, what, err);
}

/* Fails if any member has an error, because the kernel that is stuck may belong to any of them. */
static int check_family(const struct comm_nccl_family *family, const char *what, struct ct_err *err)
{
    int rc = 0;
    const struct comm_nccl_member *member = family->members;
    for (; rc == 0 && member != NULL; member = member->next) {
        bool busy;
        rc = member->handle != NULL ? comm_nccl_check(member, what, &busy, err) : 0;
    }
    return rc;
}

/* Returns cudaSuccess if the family's stream is idle; with `sides`, those of its links, too. */
static cudaError_t query(const struct comm_nccl_family *family, bool sides)
{
    cudaError_t state = cudaStreamQuery(family->stream);
    for (const struct comm_nccl_member *m = family->members;
         sides && state == cudaSuccess && m != NULL; m = m->next) {
        state = m->side != NULL ? cudaStreamQuery(m->side) : cudaSuccess;
    }
    return state;
}

static int wait_idle(const struct comm_nccl_family *family, bool sides, const char *what,
                     struct ct_err *err)
{
    int rc = 0;
    int64_t deadline = ct_deadline_in(NULL, family->timeout_ms), looked = ct_clock_now(NULL);
    for (int turn = 0; rc == 0; turn++) {
        cudaError_t state = query(family, sides);
        if (state == cudaSuccess) {
            return 0;
        }
        if (state != cudaErrorNotReady) {
            return comm_nccl_fail_cuda(state, what, err);
        }
        rc = check_family(family, what, err);
        if (rc == 0 && is_late(&deadline, &looked)) {
            rc = give_up(family->timeout_ms, what, err);
        }
        if (rc == 0) {
            pause_turn(turn);
        }
    }
    return rc;
}

int comm_nccl_wait(const struct comm_nccl_member *member, const char *what, struct ct_err *err)
{
    int rc = comm_nccl_ready(member, err);
    return rc == 0 ? wait_idle(member->family, false, what, err) : rc;
}

/* ---- families -------------------------------------------------------------------------------- */

struct comm_nccl_family *comm_nccl_family_new(const struct comm_setup *setup)
{
    struct comm_nccl_family *family = ct_calloc(1, sizeof(*family));
    if (family != NULL) {
        family->stream = setup->stream;
        family->timeout_ms = setup->timeout_ms;
        family->over = setup->over;
        family->handover = setup->handover;
        family->set = setup->set;
        family->get = setup->get;
    }
    return family;
}

void comm_nccl_join(struct comm_nccl_family *family, struct comm_nccl_member *member)
{
    member->family = family;
    member->next = family->members;
    family->members = member;
}

void comm_nccl_leave(struct comm_nccl_member *member)
{
    struct comm_nccl_family *family = member->family;
    struct comm_nccl_member **at = &family->members;
    while (*at != member) {
        at = &(*at)->next;
    }
    *at = member->next;
    if (family->members == NULL) {
        ct_free(family);
    }
}

/* May there be recordings with collectives of the family? */
static bool is_recorded(const struct comm_nccl_family *family)
{
    for (const struct comm_nccl_member *m = family->members; m != NULL; m = m->next) {
        if (m->comm != NULL && m->comm->let_go != NULL) {
            return true;
        }
    }
    return false;
}

/* Aborts `member`, or with `all` the whole family, in one group, because otherwise one would wait
 * for another. Each call to ncclCommAbort() makes kernels that are stuck end, at once, and what
 * else the abort does is done at the end of the group. The recordings are dropped between the two:
 * CUDA waits for the replays of a graph that it destroys, so their kernels must not be stuck any
 * more; and NCCL waits at the end of the group until no graph holds its collectives. */
static void abort_together(struct comm_nccl_family *family, const struct comm_nccl_member *member,
                           bool all)
{
    (void)ncclGroupStart();
    for (struct comm_nccl_member *m = family->members; m != NULL; m = m->next) {
        if (m->handle != NULL && (m == member || all)) {
            (void)ncclCommAbort(m->handle);
            m->handle = NULL;
        }
    }
    for (struct comm_nccl_member *m = family->members; m != NULL; m = m->next) {
        if (m->comm != NULL) {
            comm_let_go(m->comm);
        }
    }
    (void)ncclGroupEnd();
}

void comm_nccl_abort(struct comm_nccl_member *member)
{
    struct comm_nccl_family *family = member->family;
    if (family->over != NULL) {
        atomic_store(family->over, true);
    }
    if (member->handle == NULL) {
        return;
    }
    /* A replay is queued on another stream, and stands still if any of its communicators does. */
    bool all = is_recorded(family) || query(family, true) != cudaSuccess;
    (void)cudaGetLastError();
    abort_together(family, member, all);
}

void comm_nccl_quiesce(const struct comm_nccl_family *family)
{
    if (wait_idle(family, true, "closing", NULL) == 0) {
        return;
    }
    for (struct comm_nccl_member *m = family->members; m != NULL; m = m->next) {
        comm_nccl_abort(m);
    }
}

void comm_nccl_destroy(struct comm_nccl_member *member)
{
    if (member->handle == NULL) {
        return;
    }
    ncclResult_t result = ncclCommFinalize(member->handle);
    if (finish_within(member, result, CLOSE_MS, "ncclCommFinalize", NULL) == 0) {
        (void)ncclCommDestroy(member->handle);
        member->handle = NULL;
    } else {
        comm_nccl_abort(member);
    }
}
