/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting, failing and ending, for communicators and links that share a stream.
 */
#ifndef CT_WORKER_NCCL_COMM_NCCL_FAMILY_H
#define CT_WORKER_NCCL_COMM_NCCL_FAMILY_H

#include "worker/comm/comm.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

/* What queues on one stream: a communicator, those that were split from it, and their links. NCCL's
 * kernels wait for what is before them on the stream, whoever put it there, and ncclCommAbort()
 * waits for the kernels. So where something is stuck, a family ends as one. Of one thread; there as
 * long as it has a member. */
struct comm_nccl_family {
    cudaStream_t stream;
    int64_t timeout_ms;
    atomic_bool *over; /* of a crew, whose threads NCCL does not tell of each other; else NULL */
    const struct order_reader *handover; /* NCCL may not notice that a peer is gone; may be NULL */
    /* As in struct comm_setup; `data` is a communicator's origin. */
    int (*set)(void *data, const char *key, const void *value, size_t len, struct ct_err *err);
    int (*get)(void *data, const char *key, int64_t timeout_ms, struct ct_buf *out,
               struct ct_err *err);
    struct comm_nccl_member *members;
};

struct comm_nccl_member {
    struct comm_nccl_member *next;
    struct comm_nccl_family *family;
    ncclComm_t handle;     /* NULL after an abort */
    struct ctw_comm *comm; /* whose end is told before the handle's; NULL of a link */
};

/* Without a member: ct_free() it, or let one join. NULL when there is no memory. */
struct comm_nccl_family *comm_nccl_family_new(const struct comm_setup *setup);

/* A member comes without a handle, and leaves without one. The last takes the family with it. */
void comm_nccl_join(struct comm_nccl_family *family, struct comm_nccl_member *member);
void comm_nccl_leave(struct comm_nccl_member *member);

/* Ends the member, and the whole family if anything is still queued. Twice is allowed. */
void comm_nccl_abort(struct comm_nccl_member *member);

/* Ends a healthy one without its peers' help, or aborts it. Does nothing after an abort. */
void comm_nccl_destroy(struct comm_nccl_member *member);

/* A result that is a failure, as one of ours. CUDA's is cleared. */
int comm_nccl_fail(const struct comm_nccl_member *member, ncclResult_t result, const char *what,
                   struct ct_err *err);
int comm_nccl_fail_cuda(cudaError_t result, const char *what, struct ct_err *err);

/* A failure if the member has ended, as part of its family. */
CT_MUST_CHECK int comm_nccl_ready(const struct comm_nccl_member *member, struct ct_err *err);

/* 0 while NCCL is well; *busy says whether it is still at work on the last call. */
CT_MUST_CHECK int comm_nccl_check(const struct comm_nccl_member *member, const char *what,
                                  bool *busy, struct ct_err *err);

/* Takes the result of a non-blocking call and waits until it is final. */
CT_MUST_CHECK int comm_nccl_finish(const struct comm_nccl_member *member, ncclResult_t result,
                                   const char *what, struct ct_err *err);

/* Waits for what is queued on the family's stream while all members are well. */
CT_MUST_CHECK int comm_nccl_wait(const struct comm_nccl_member *member, const char *what,
                                 struct ct_err *err);

#endif
