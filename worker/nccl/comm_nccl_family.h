/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting, failing and ending of the communicators and links that share a stream.
 */
#ifndef CT_WORKER_NCCL_COMM_NCCL_FAMILY_H
#define CT_WORKER_NCCL_COMM_NCCL_FAMILY_H

#include "worker/comm/comm.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

/* The members that queue on one stream: a communicator, those split from it, and their links.
 * NCCL's kernels wait for earlier work on the stream, and ncclCommAbort() waits for the kernels. So
 * if one member is stuck, the whole family must end together. A family is used by one thread and
 * lives as long as it has a member. */
struct comm_nccl_family {
    cudaStream_t stream;
    int64_t timeout_ms;
    /* True when a rank of this crew has given up, which NCCL does not tell the other threads. NULL
     * if the ranks are processes. */
    atomic_bool *over;
    const struct order_reader *handover; /* NULL is allowed; NCCL may not notice a lost peer */
    /* As in struct comm_setup; `data` is the origin of a communicator. */
    int (*set)(void *data, const char *key, const void *value, size_t len, struct ct_err *err);
    int (*get)(void *data, const char *key, int64_t timeout_ms, struct ct_buf *out,
               struct ct_err *err);
    struct comm_nccl_member *members;
};

struct comm_nccl_member {
    struct comm_nccl_member *next;
    struct comm_nccl_family *family;
    ncclComm_t handle;     /* NULL after an abort */
    struct ctw_comm *comm; /* gets a notice before the handle is aborted; NULL for a link */

    /* For links only, which send their messages on a stream of their own. */
    cudaStream_t side;
    cudaEvent_t sent;
    bool sending; /* the family's stream does not wait for the last message yet */
};

/* Returns a family without members: let one join, or ct_free() it. NULL without memory. */
struct comm_nccl_family *comm_nccl_family_new(const struct comm_setup *setup);

/* A member joins and leaves without a handle. The last to leave frees the family. */
void comm_nccl_join(struct comm_nccl_family *family, struct comm_nccl_member *member);
void comm_nccl_leave(struct comm_nccl_member *member);

/* Aborts the member, and the whole family if anything is still queued. All communicators of the
 * family get a notice first, because a recording of one may hold work of another. May be called
 * twice. */
void comm_nccl_abort(struct comm_nccl_member *member);

/* To be called before anything of the family is freed, because cudaFree() waits for the device
 * without a deadline. Waits until the streams of the family are idle. If a peer is gone, or the
 * family's timeout has passed, it aborts the whole family, which ends the kernels. */
void comm_nccl_quiesce(const struct comm_nccl_family *family);

/* Destroys a healthy member, or aborts it. Does nothing after an abort. NCCL waits there until the
 * ranks of the same machine have ended theirs, too, so all ranks must end their communicators in
 * the same order. */
void comm_nccl_destroy(struct comm_nccl_member *member);

/* Turns a failed result into a code of ours with a message. Clears CUDA's error. */
int comm_nccl_fail(const struct comm_nccl_member *member, ncclResult_t result, const char *what,
                   struct ct_err *err);
int comm_nccl_fail_cuda(cudaError_t result, const char *what, struct ct_err *err);

/* Fails if the member was aborted together with its family. */
CT_MUST_CHECK int comm_nccl_ready(const struct comm_nccl_member *member, struct ct_err *err);

/* Call it before a collective. It does the same as comm_nccl_ready(). It also makes the family's
 * stream wait until all messages of its links have left. So messages and collectives come in the
 * same order on all ranks. And a step that ends with a collective can be captured, because no
 * message is under way when it begins or ends. */
CT_MUST_CHECK int comm_nccl_begin(const struct comm_nccl_member *member, struct ct_err *err);

/* Makes the family's stream wait for the messages of one link. The host does not wait. */
CT_MUST_CHECK int comm_nccl_await_sent(struct comm_nccl_member *link, struct ct_err *err);

/* Returns 0 as long as there is no error. *busy says whether NCCL still works on the last call. */
CT_MUST_CHECK int comm_nccl_check(const struct comm_nccl_member *member, const char *what,
                                  bool *busy, struct ct_err *err);

/* Takes the result of a non-blocking call and waits until it is final. */
CT_MUST_CHECK int comm_nccl_finish(const struct comm_nccl_member *member, ncclResult_t result,
                                   const char *what, struct ct_err *err);

/* Waits for all work on the family's stream, as long as no member has an error. */
CT_MUST_CHECK int comm_nccl_wait(const struct comm_nccl_member *member, const char *what,
                                 struct ct_err *err);

#endif
