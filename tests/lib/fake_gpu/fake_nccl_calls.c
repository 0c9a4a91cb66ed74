/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives of the fake GPU's NCCL. With real peers, a collective is two pieces of queued work:
 * the first copies this rank's data into its mail, and the second reads the mails of all ranks when
 * they are there.
 */
#include "tests/lib/fake_gpu/fake_nccl.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum kind { SUM, GATHER, BROADCAST, GROUP };

/* A message of a group. */
struct message {
    void *at;
    size_t bytes; /* 0 = none */
};

struct call {
    struct ncclComm *comm;
    enum kind kind;
    const void *from;
    void *to;
    size_t bytes;
    int root;
    float ranks;  /* with imaginary peers: how many ranks have the numbers of this one */
    bool counted; /* in `pending` */
    struct message send[RANKS_MAX], recv[RANKS_MAX];
};

static void leave(const struct call *c)
{
    c->comm->pending -= c->counted;
}

static struct fake_mail *mail_of(const struct ncclComm *comm, int rank)
{
    return &comm->rendezvous->mail[comm->round % 2][rank];
}

/* ---- with imaginary peers ---------------------------------------------------------------------
 */

/* The peers have the same numbers as this rank. So they send what it sends, and this rank receives
 * from each of them what it sends to itself. */
static void run_alone(const void *data)
{
    const struct call *c = data;
    const float *from = c->from;
    float *to = c->to;
    leave(c);
    switch (c->kind) {
    case SUM:
        for (size_t i = 0; i < c->bytes / sizeof *to; i++) {
            to[i] = from[i] * c->ranks;
        }
        break;
    case GATHER:
        for (size_t r = 0; r < (size_t)c->comm->size; r++) {
            memmove((char *)c->to + r * c->bytes, c->from, c->bytes);
        }
        break;
    case BROADCAST:
        break;
    case GROUP:
        for (int r = 0; r < c->comm->size; r++) {
            fake_rule(c->recv[r].bytes == c->send[c->comm->rank].bytes, "a message of a length");
            memmove(c->recv[r].at, c->send[c->comm->rank].at, c->recv[r].bytes);
        }
        break;
    }
}

/* ---- with real peers --------------------------------------------------------------------------
 */

static void put(struct fake_mail *mail, const void *bytes, size_t count)
{
    if (count > MAIL_MAX - mail->bytes) {
        fake_rule(false, "more bytes than the fake GPU can send");
        return;
    }
    if (count > 0) {
        memcpy(mail->content + mail->bytes, bytes, count);
    }
    mail->bytes += count;
}

static void run_arrive(const void *data)
{
    const struct call *c = data;
    if (c->comm->hold.aborted) {
        return;
    }
    struct fake_mail *mail = mail_of(c->comm, c->comm->rank);
    mail->bytes = 0;
    mail->recorded = !c->counted;
    if (c->kind != GROUP && (c->kind != BROADCAST || c->comm->rank == c->root)) {
        put(mail, c->from, c->bytes);
    }
    for (int r = 0; c->kind == GROUP && r < c->comm->size; r++) {
        mail->for_rank[r] = c->send[r].bytes;
        put(mail, c->send[r].at, c->send[r].bytes);
    }
    atomic_store(&mail->round, c->comm->round);
}

static bool all_came(const void *data)
{
    const struct call *c = data;
    for (int r = 0; r < c->comm->size && !c->comm->hold.aborted; r++) {
        if (atomic_load(&mail_of(c->comm, r)->round) != c->comm->round) {
            return false;
        }
    }
    return true;
}

/* Adds in the order of a ring, which depends on the number of ranks and on the place in the array:
 * the sum of segment s begins at the rank after s and ends at rank s. */
static void sum(const struct call *c)
{
    size_t size = (size_t)c->comm->size, count = c->bytes / sizeof(float);
    for (size_t i = 0; i < count; i++) {
        float total = 0;
        for (size_t k = 1; k <= size; k++) {
            size_t rank = (i * size / count + k) % size;
            float term;
            memcpy(&term, mail_of(c->comm, (int)rank)->content + i * sizeof term, sizeof term);
            total = k == 1 ? term : total + term;
        }
        ((float *)c->to)[i] = total;
    }
}

/* Has the memory that was sent stayed the same? NCCL may read it until the operation is done. */
static bool is_as_sent(const struct call *c, const struct fake_mail *mail)
{
    size_t at = 0;
    for (int r = 0; r < c->comm->size; r++) {
        if (c->send[r].bytes > 0 &&
            memcmp(mail->content + at, c->send[r].at, c->send[r].bytes) != 0) {
            return false;
        }
        at += c->send[r].bytes;
    }
    return true;
}

static void take_messages(const struct call *c)
{
    for (int r = 0; r < c->comm->size; r++) {
        const struct fake_mail *mail = mail_of(c->comm, r);
        size_t at = 0;
        for (int before = 0; before < c->comm->rank; before++) {
            at += mail->for_rank[before];
        }
        fake_rule(r != c->comm->rank || is_as_sent(c, mail),
                  "a message changed before it was sent");
        fake_rule(mail->for_rank[c->comm->rank] == c->recv[r].bytes,
                  "a message that is not as long as its receiver expects");
        if (c->recv[r].bytes > 0) {
            memcpy(c->recv[r].at, mail->content + at, c->recv[r].bytes);
        }
    }
}

static void run_leave(const void *data)
{
    const struct call *c = data;
    leave(c);
    if (c->comm->hold.aborted) {
        return;
    }
    for (int r = 0; r < c->comm->size; r++) {
        fake_rule(mail_of(c->comm, r)->recorded == !c->counted,
                  "a collective that only some of its ranks have recorded");
    }
    bool same = c->kind == SUM || c->kind == GATHER;
    for (int r = 0; same && r < c->comm->size; r++) {
        fake_rule(mail_of(c->comm, r)->bytes == c->bytes,
                  "ranks that pass arrays of different lengths");
    }
    switch (c->kind) {
    case SUM:
        sum(c);
        break;
    case GATHER:
        for (int r = 0; r < c->comm->size; r++) {
            memcpy((char *)c->to + (size_t)r * c->bytes, mail_of(c->comm, r)->content, c->bytes);
        }
        break;
    case BROADCAST:
        memcpy(c->to, mail_of(c->comm, c->root)->content, c->bytes);
        break;
    case GROUP:
        take_messages(c);
        break;
    }
    c->comm->round++;
}

static void queue_now(struct call *c, cudaStream_t stream)
{
    struct ncclComm *comm = c->comm;
    c->counted = !fake_is_capturing(stream);
    comm->pending += c->counted;
    if (comm->rendezvous == NULL) {
        fake_queue(stream, run_alone, c, sizeof *c);
    } else {
        fake_queue(stream, run_arrive, c, sizeof *c);
        fake_queue_when(stream, all_came, run_leave, c, sizeof *c);
        comm->rendezvous->called[comm->rank] = 1;
    }
    fake_count_collective(stream, &comm->hold);
}

/* A call that a thread of NCCL's own queues. */
struct errand {
    struct call call;
    cudaStream_t stream;
    int device;
};

static void *run_errand(void *data)
{
    struct errand *e = data;
    FAKE_ALONE;
    fake_be_on(e->device);
    /* This thread may allocate, even if the caller's thread captures. */
    (void)fake_may_block("NCCL's own thread allocates while another one captures");
    queue_now(&e->call, e->stream);
    e->call.comm->working = false;
    fake_tell_others();
    free(e);
    return NULL;
}

static void send_thread(const struct call *c, cudaStream_t stream)
{
    struct errand *e = malloc(sizeof *e);
    pthread_t thread;
    *e = (struct errand){*c, stream, fake_current_device()};
    c->comm->working = true;
    if (pthread_create(&thread, NULL, run_errand, e) != 0 || pthread_detach(thread) != 0) {
        abort();
    }
}

static ncclResult_t queue(struct call *c, cudaStream_t stream)
{
    struct ncclComm *comm = c->comm;
    if (fake.call_error != 0) {
        comm->broken = true;
        return (ncclResult_t)fake.call_error;
    }
    (void)fake_begin_call(comm, fake.call_turns);
    if (fake.nccl_threads) {
        comm->busy = true;
        send_thread(c, stream);
    } else {
        queue_now(c, stream);
    }
    comm->busy |= comm->rendezvous != NULL && !comm->connected;
    return comm->busy ? ncclInProgress : ncclSuccess;
}

void fake_await_thread(const struct ncclComm *comm)
{
    while (comm->working) {
        fake_await_told();
    }
}

/* ---- calls ----------------------------------------------------------------------------------- */

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    FAKE_ALONE;
    fake_usable(comm);
    fake_rule(type == ncclFloat && op == ncclSum, "not a sum of floats");
    struct call c = {.comm = comm,
                     .kind = SUM,
                     .from = send,
                     .to = recv,
                     .bytes = count * sizeof(float),
                     .ranks = (float)(comm->size - fake.refusing_peers)};
    return queue(&c, stream);
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    FAKE_ALONE;
    fake_usable(comm);
    fake_rule(type == ncclFloat, "a gathering of other things than floats");
    struct call c = {
        .comm = comm, .kind = GATHER, .from = send, .to = recv, .bytes = count * sizeof(float)};
    return queue(&c, stream);
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream)
{
    FAKE_ALONE;
    fake_usable(comm);
    fake_rule(type == ncclUint8, "a broadcast of other things than bytes");
    fake_rule(root >= 0 && root < comm->size, "no such root");
    fake_rule(send == recv, "a broadcast from one place to another");
    struct call c = {
        .comm = comm, .kind = BROADCAST, .from = send, .to = recv, .bytes = count, .root = root};
    return queue(&c, stream);
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* Each thread has a group of its own. Here all ranks must take part in each group. */
static _Thread_local struct {
    bool open;
    struct call call;
    cudaStream_t stream;
    struct ncclComm *aborts[RANKS_MAX];
    int abort_count;
} group;

/* nccl.h declares these without a prototype. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclGroupStart(void)
{
    fake_rule(!group.open, "a group within a group");
    group.open = true;
    group.call = (struct call){.kind = GROUP};
    group.abort_count = 0;
    return ncclSuccess;
}

bool fake_group_takes_abort(struct ncclComm *comm)
{
    bool takes = group.open && group.abort_count < RANKS_MAX;
    if (takes) {
        group.aborts[group.abort_count++] = comm;
    }
    return takes;
}

static void add(struct message *to, void *at, size_t bytes, ncclComm_t comm, cudaStream_t stream)
{
    fake_usable(comm);
    fake_rule(to->bytes == 0, "two messages between the same ranks");
    fake_rule(group.call.comm == NULL || (group.call.comm == comm && group.stream == stream),
              "a group of two communicators or streams");
    group.call.comm = comm;
    group.stream = stream;
    *to = (struct message){at, bytes};
}

static size_t bytes_of(size_t count, ncclDataType_t type)
{
    fake_rule(type == ncclFloat || type == ncclUint8, "a message of neither floats nor bytes");
    return type == ncclFloat ? count * sizeof(float) : count;
}

/* Outside of a group a message is alone. Then it must be between two ranks, of which the other one
 * calls the matching function. */
static ncclResult_t message(bool sends, void *at, size_t bytes, int peer, ncclComm_t comm,
                            cudaStream_t stream)
{
    if (group.open) {
        add(sends ? &group.call.send[peer] : &group.call.recv[peer], at, bytes, comm, stream);
        return ncclSuccess;
    }
    fake_usable(comm);
    fake_rule(comm->size == 2 && peer == 1 - comm->rank && comm->rendezvous != NULL,
              "a message outside of a group that is not between two ranks");
    struct call c = {.kind = GROUP, .comm = comm};
    *(sends ? &c.send[peer] : &c.recv[peer]) = (struct message){at, bytes};
    return queue(&c, stream);
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    FAKE_ALONE;
    return message(true, (void *)(uintptr_t)send, bytes_of(count, type), peer, comm, stream);
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    FAKE_ALONE;
    return message(false, recv, bytes_of(count, type), peer, comm, stream);
}

ncclResult_t ncclGroupEnd(void)
{
    FAKE_ALONE;
    fake_rule(group.open, "the end of a group that was not begun");
    group.open = false;
    if (group.abort_count > 0) {
        fake_abort_all(group.aborts, group.abort_count);
    }
    return group.call.comm != NULL ? queue(&group.call, group.stream) : ncclSuccess;
}
