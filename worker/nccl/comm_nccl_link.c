/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between two GPUs. NCCL completes a message of more than a few kilobytes only when both
 * ends have reached it on their streams. A rank that first sends and then receives must not wait
 * for that, because its peer may do the same. So each direction has its own communicator, and a
 * message is sent from a copy, on a second stream:
 *
 *     stream         ... compute | copy | compute ...... compute | receive | compute ...
 *                                     \                            (the peer's message)
 *     side                             send ..........
 *
 * The copy waits until the previous message has left, and so does every collective of the family.
 * Receiving needs no second stream, because what follows on the stream waits for the message
 * anyway. A failure ends the whole family; close() frees the copy and the streams.
 */
#include "worker/comm/link.h"
#include "worker/nccl/comm_nccl.h"

#include "common/alloc.h"

#include <stdio.h>
#include <string.h>

/* The lower rank publishes two ids for the higher one: of the communicator by which the lower rank
 * sends, and of the one by which it receives. */
#define IDS_BYTES (2 * COMM_NCCL_ID_BYTES)

struct nccl_link {
    struct ctw_link link;
    struct comm_nccl_member out, in;
    cudaStream_t stream; /* that of the family */
    cudaEvent_t copied;  /* event of the last message */
    int rank;            /* in both communicators; the lower rank is 0 */
    size_t buffer;
    unsigned char *staging; /* device memory for the copy of a message */
    uint64_t *greeting;     /* device memory: the sizes that this end and its peer buffer */
};

/* ---- messages -------------------------------------------------------------------------------- */

static int fail_if(cudaError_t result, const char *what, struct ct_err *err)
{
    return result == cudaSuccess ? 0 : comm_nccl_fail_cuda(result, what, err);
}

/* Queues a send on the side stream, after the work that is queued on the main stream. */
static int queue_send(struct nccl_link *link, const void *from, size_t bytes, struct ct_err *err)
{
    cudaError_t status = cudaEventRecord(link->copied, link->stream);
    if (status == cudaSuccess) {
        status = cudaStreamWaitEvent(link->out.side, link->copied, 0);
    }
    if (status != cudaSuccess) {
        return comm_nccl_fail_cuda(status, "cudaStreamWaitEvent", err);
    }
    ncclResult_t result =
        ncclSend(from, bytes, ncclUint8, 1 - link->rank, link->out.handle, link->out.side);
    link->out.sending = true;
    return comm_nccl_finish(&link->out, result, "ncclSend", err);
}

static int queue_receive(struct nccl_link *link, void *to, size_t bytes, struct ct_err *err)
{
    ncclResult_t result =
        ncclRecv(to, bytes, ncclUint8, 1 - link->rank, link->in.handle, link->stream);
    return comm_nccl_finish(&link->in, result, "ncclRecv", err);
}

static int check(const struct nccl_link *link, const struct comm_nccl_member *member, size_t bytes,
                 struct ct_err *err)
{
    if (bytes > link->buffer) {
        return ct_err_set(err, CT_ELIMIT, "%zu bytes are more than the %zu that the link buffers",
                          bytes, link->buffer);
    }
    return comm_nccl_ready(member, err);
}

static int nccl_link_send(struct ctw_link *base, const void *buf, size_t bytes, int tag,
                          struct ct_err *err)
{
    (void)tag;
    struct nccl_link *link = (struct nccl_link *)base;
    int rc = check(link, &link->out, bytes, err);
    if (rc != 0 || bytes == 0) {
        return rc;
    }
    rc = comm_nccl_await_sent(&link->out, err);
    if (rc == 0) {
        rc = fail_if(
            cudaMemcpyAsync(link->staging, buf, bytes, cudaMemcpyDeviceToDevice, link->stream),
            "cudaMemcpyAsync", err);
    }
    return rc == 0 ? queue_send(link, link->staging, bytes, err) : rc;
}

static int nccl_link_recv(struct ctw_link *base, void *buf, size_t bytes, int tag,
                          struct ct_err *err)
{
    (void)tag;
    struct nccl_link *link = (struct nccl_link *)base;
    int rc = check(link, &link->in, bytes, err);
    return rc != 0 || bytes == 0 ? rc : queue_receive(link, buf, bytes, err);
}

/* ---- ending ---------------------------------------------------------------------------------- */

/* The communicator by which the lower rank sends, and the one by which it receives. Where both ends
 * are on one machine, the end of each waits for the other end of the same one, so both ends end
 * them in this order. */
static struct comm_nccl_member *up_of(struct nccl_link *link)
{
    return link->rank == 0 ? &link->out : &link->in;
}

static struct comm_nccl_member *down_of(struct nccl_link *link)
{
    return link->rank == 0 ? &link->in : &link->out;
}

static void nccl_link_abort(struct ctw_link *base)
{
    struct nccl_link *link = (struct nccl_link *)base;
    comm_nccl_abort(up_of(link));
    comm_nccl_abort(down_of(link));
}

static void nccl_link_close(struct ctw_link *base)
{
    struct nccl_link *link = (struct nccl_link *)base;
    comm_nccl_quiesce(link->out.family);
    comm_nccl_destroy(up_of(link));
    comm_nccl_destroy(down_of(link));
    comm_nccl_leave(&link->out);
    comm_nccl_leave(&link->in);
    if (link->out.side != NULL) {
        (void)cudaStreamDestroy(link->out.side);
    }
    if (link->copied != NULL) {
        (void)cudaEventDestroy(link->copied);
    }
    if (link->out.sent != NULL) {
        (void)cudaEventDestroy(link->out.sent);
    }
    (void)cudaFree(link->staging);
    (void)cudaFree(link->greeting);
    ct_free(link);
}

static const struct ctw_link_ops link_ops = {
    .send = nccl_link_send,
    .recv = nccl_link_recv,
    .abort = nccl_link_abort,
    .close = nccl_link_close,
};

/* ---- opening --------------------------------------------------------------------------------- */

static int equip(struct nccl_link *link, struct ct_err *err)
{
    void *staging = NULL, *greeting = NULL;
    cudaError_t status = cudaMalloc(&staging, link->buffer > 0 ? link->buffer : 1);
    link->staging = staging;
    if (status == cudaSuccess) {
        status = cudaMalloc(&greeting, 2 * sizeof(*link->greeting));
        link->greeting = greeting;
    }
    int least = 0, greatest = 0; /* the greatest, because a message that waits delays the peer */
    if (status == cudaSuccess) {
        status = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    }
    if (status == cudaSuccess) {
        status = cudaStreamCreateWithPriority(&link->out.side, cudaStreamNonBlocking, greatest);
    }
    if (status == cudaSuccess) {
        status = cudaEventCreateWithFlags(&link->copied, cudaEventDisableTiming);
    }
    if (status == cudaSuccess) {
        status = cudaEventCreateWithFlags(&link->out.sent, cudaEventDisableTiming);
    }
    return fail_if(status, "allocating for a link", err);
}

static int make_ids(struct ctw_comm *comm, const char *key, ncclUniqueId ids[2], struct ct_err *err)
{
    const struct comm_nccl_family *family = ((struct nccl *)comm)->own.family;
    unsigned char bytes[IDS_BYTES];
    for (int i = 0; i < 2; i++) {
        ncclResult_t result = ncclGetUniqueId(&ids[i]);
        if (result != ncclSuccess) {
            return comm_nccl_fail(NULL, result, "ncclGetUniqueId", err);
        }
        memcpy(bytes + (size_t)i * COMM_NCCL_ID_BYTES, ids[i].internal, COMM_NCCL_ID_BYTES);
    }
    return family->set(&comm->origin, key, bytes, sizeof(bytes), err);
}

static int find_ids(struct ctw_comm *comm, const char *key, ncclUniqueId ids[2], struct ct_err *err)
{
    const struct comm_nccl_family *family = ((struct nccl *)comm)->own.family;
    struct ct_buf value = CT_BUF_INIT;
    int rc = family->get(&comm->origin, key, family->timeout_ms, &value, err);
    if (rc == 0 && value.len != IDS_BYTES) {
        rc = ct_err_set(err, CT_EPROTO, "the peer's NCCL ids have %zu bytes, not %d", value.len,
                        IDS_BYTES);
    }
    for (int i = 0; rc == 0 && i < 2; i++) {
        memcpy(ids[i].internal, ct_buf_bytes(&value) + (size_t)i * COMM_NCCL_ID_BYTES,
               COMM_NCCL_ID_BYTES);
    }
    ct_buf_fini(&value);
    return rc;
}

static int connect_ends(struct nccl_link *link, struct ctw_comm *comm, int peer, struct ct_err *err)
{
    struct comm_nccl_member *up = up_of(link), *down = down_of(link);
    ncclUniqueId ids[2];
    char key[32];
    (void)snprintf(key, sizeof(key), "link/%d/%d", link->rank == 0 ? comm->rank : peer,
                   link->rank == 0 ? peer : comm->rank);
    int rc = link->rank == 0 ? make_ids(comm, key, ids, err) : find_ids(comm, key, ids, err);
    for (int i = 0; rc == 0 && i < 2; i++) {
        struct comm_nccl_member *member = i == 0 ? up : down;
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        ncclResult_t result =
            ncclCommInitRankConfig(&member->handle, 2, ids[i], link->rank, &config);
        rc = comm_nccl_finish(member, result, "ncclCommInitRankConfig", err);
    }
    return rc;
}

static int say(struct nccl_link *link, struct ct_err *err)
{
    const uint64_t mine = link->buffer;
    int rc = fail_if(cudaMemcpyAsync(&link->greeting[0], &mine, sizeof(mine),
                                     cudaMemcpyHostToDevice, link->stream),
                     "cudaMemcpyAsync", err);
    return rc == 0 ? queue_send(link, &link->greeting[0], sizeof(mine), err) : rc;
}

/* Exchanges a first message in each direction, always in the same order on both ends. NCCL connects
 * on the first message and needs both ends for that, so it must not be one of the user's, which the
 * peer may receive later. The message also tells what each end buffers. */
static int greet(struct nccl_link *link, struct ct_err *err)
{
    uint64_t theirs = 0;
    int rc = 0;
    for (int from = 0; rc == 0 && from < 2; from++) {
        rc = from == link->rank ? say(link, err)
                                : queue_receive(link, &link->greeting[1], sizeof(theirs), err);
    }
    if (rc != 0) {
        return rc;
    }
    /* Both ends must have the other's message before either may end the communicators. */
    rc = comm_nccl_await_sent(&link->out, err);
    if (rc == 0) {
        rc = comm_nccl_wait(&link->in, "greeting", err);
    }
    if (rc == 0) { /* not earlier, because such a copy waits for the stream without a deadline */
        rc = fail_if(cudaMemcpyAsync(&theirs, &link->greeting[1], sizeof(theirs),
                                     cudaMemcpyDeviceToHost, link->stream),
                     "cudaMemcpyAsync", err);
    }
    if (rc == 0) {
        rc = comm_nccl_wait(&link->in, "greeting", err);
    }
    if (rc == 0 && theirs != link->buffer) {
        rc = ct_err_set(err, CT_EPROTO, "its end buffers %llu bytes, this one %zu",
                        (unsigned long long)theirs, link->buffer);
    }
    return rc;
}

int comm_nccl_link(struct ctw_comm *comm, int peer, size_t buffer, struct ctw_link **out,
                   struct ct_err *err)
{
    struct comm_nccl_member *own = &((struct nccl *)comm)->own;
    int rc = comm_nccl_ready(own, err);
    if (rc == 0 && own->family->over != NULL) {
        rc = ct_err_set(err, CT_EUNSUPPORTED, "ranks of one process have no links");
    }
    if (rc != 0) {
        return rc;
    }
    struct nccl_link *link = ct_calloc(1, sizeof(*link));
    if (link == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    link->link.ops = &link_ops;
    link->stream = own->family->stream;
    link->rank = comm->rank < peer ? 0 : 1;
    link->buffer = buffer;
    comm_nccl_join(own->family, &link->out);
    comm_nccl_join(own->family, &link->in);
    rc = equip(link, err);
    if (rc == 0) {
        rc = connect_ends(link, comm, peer, err);
    }
    if (rc == 0) {
        rc = greet(link, err);
    }
    if (rc != 0 && rc != CT_EPROTO) { /* after CT_EPROTO the peer fails by itself */
        nccl_link_abort(&link->link);
    }
    if (rc != 0) {
        nccl_link_close(&link->link);
        return rc;
    }
    *out = &link->link;
    return 0;
}
