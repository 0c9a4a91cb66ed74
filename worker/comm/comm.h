/* SPDX-License-Identifier: Apache-2.0
 *
 * What the communicator back ends share. comm.c checks arguments, remembers that a communicator has
 * died, and dispatches; a back end does the work.
 *
 * Every failure of an operation kills the communicator: the ranks can no longer agree on where they
 * are. comm.c then calls abort(), which tells the peers.
 */
#ifndef CT_WORKER_COMM_COMM_H
#define CT_WORKER_COMM_COMM_H

#include "worker/ctworker.h"

#include "common/buf.h"
#include "worker/job/order_reader.h"
#include "worker/job/progress.h"

#include <stdatomic.h>

struct comm_origin;

struct ctw_comm_ops {
    void (*close)(struct ctw_comm *comm); /* frees the communicator itself, too */
    int (*alloc)(struct ctw_comm *comm, enum ctw_memory kind, size_t bytes, void **out,
                 struct ct_err *err);
    int (*all_reduce)(struct ctw_comm *comm, const float *send, float *recv, size_t count,
                      struct ct_err *err);
    int (*reduce_scatter)(struct ctw_comm *comm, float *buf, size_t count, size_t *begin,
                          size_t *end, struct ct_err *err);
    int (*broadcast)(struct ctw_comm *comm, void *buf, size_t bytes, int root, struct ct_err *err);
    int (*barrier)(struct ctw_comm *comm, struct ct_err *err);
    int (*poll)(struct ctw_comm *comm, struct ct_err *err);
    int (*sync)(struct ctw_comm *comm, struct ct_err *err);
    void (*abort)(struct ctw_comm *comm); /* at most once; only close() follows */
    /* ctw_comm_split() of checked arguments: *out stays NULL where the color is negative. `origin`
     * is what the group's will be. NULL in the back ends of the host, which comm_split.c splits by
     * their own all_reduce. */
    int (*split)(struct ctw_comm *comm, int color, int key, const struct comm_origin *origin,
                 struct ctw_comm **out, struct ct_err *err);
    /* ctw_link_open() of checked arguments, see worker/comm/link.h. NULL where the back end has
     * none. */
    int (*link)(struct ctw_comm *comm, int peer, size_t buffer, struct ctw_link **out,
                struct ct_err *err);
};

/* Where a communicator came from, which is what others are made of under it. */
#define COMM_NAME_MAX 64
struct comm_origin {
    struct ctw_job *job;      /* borrowed */
    char name[COMM_NAME_MAX]; /* what its keys in the store start with */
    int64_t timeout_ms;
    enum ctw_order order;
    unsigned splits; /* so far */
};

/* Each back end's communicator embeds this first. */
struct ctw_comm {
    const struct ctw_comm_ops *ops;
    int rank, size;
    int node; /* this rank's machine, of those that the communicator spans */
    enum ctw_backend backend;
    struct progress_page *progress; /* of the job; NULL in tests of a back end alone */
    bool waiting;                   /* an operation is under way, */
    uint64_t before;                /* ... and this stood on the page when it began */
    int dead;                       /* code of the failure that ended it, 0 while alive */
    struct ct_err reason;           /* of that failure */
    struct comm_origin origin;
    ctw_let_go_fn let_go; /* ctw_comm_on_end(); NULL once it was called */
    void *let_go_data;
};

/* Says on the progress page that this rank waits for others; comm_settle() ends that. */
void comm_begin_wait(struct ctw_comm *comm);

/* Passes 0 on. Any failure, whose reason the caller left in comm->reason, ends the communicator and
 * tells the peers. */
int comm_settle(struct ctw_comm *comm, int rc, const char *what, struct ct_err *err);

/* What every call on a dead communicator returns. */
int comm_refuse_dead(const struct ctw_comm *comm, const char *what, struct ct_err *err);

/* What a back end gets to open itself. The store is two functions, because the NCCL back end is a
 * module of its own that links neither the job nor the store client. */
struct comm_setup {
    int rank, size;
    int local_rank, local_size; /* among the ranks of this machine */
    int crowd; /* the job's, of whatever communicator: waiters spin only where all have a core */
    int node, nodes; /* this machine and how many there are */
    int first;       /* rank of this machine's first, and so of local rank 0 */
    int store_fd;    /* connection to the store, borrowed; -1 without one */
    enum ctw_order order;
    ctw_tree_sum_fn tree_sum; /* nccl: NULL unless the order is the tree's */
    void *tree_sum_data;
    int device;
    void *stream;
    void *ready;       /* of a crew: what comm_nccl_connect() gave this rank; NULL elsewhere */
    atomic_bool *over; /* of a crew: a rank has given up; NULL elsewhere */
    const struct order_reader *handover; /* of the job, borrowed: ends waits; NULL = none */
    int64_t timeout_ms;                  /* of every wait, opening included; > 0 */
    /* Values under the job's run, generation and this communicator's number. */
    int (*set)(void *data, const char *key, const void *value, size_t len, struct ct_err *err);
    int (*get)(void *data, const char *key, int64_t timeout_ms, struct ct_buf *out,
               struct ct_err *err);
    void *data;
};

/* For `set` and `get`; `data` is a struct comm_origin. */
int comm_store_set(void *data, const char *key, const void *value, size_t len, struct ct_err *err);
int comm_store_get(void *data, const char *key, int64_t timeout_ms, struct ct_buf *out,
                   struct ct_err *err);

/* What the job and the communicator's origin, which is borrowed, tell of a setup: all but its place
 * among others. */
struct comm_setup comm_setup_of(struct comm_origin *origin);

/* CT_EINVAL when so many ranks cannot add in that order. */
CT_MUST_CHECK int comm_check_order(enum ctw_order order, int size, struct ct_err *err);

/* Each gives *out. The host back end serves one machine, the net one several, the solo one a single
 * process. */
CT_MUST_CHECK int comm_net_open(const struct comm_setup *setup, struct ctw_comm **out,
                                struct ct_err *err);
CT_MUST_CHECK int comm_host_open(const struct comm_setup *setup, struct ctw_comm **out,
                                 struct ct_err *err);
CT_MUST_CHECK int comm_solo_open(const struct comm_setup *setup, struct ctw_comm **out,
                                 struct ct_err *err);
/* Loads the module; comm_nccl_fallback.c answers in a build without NCCL. */
CT_MUST_CHECK int comm_nccl_open(const struct comm_setup *setup, struct ctw_comm **out,
                                 struct ct_err *err);

/* Handles of communicators between the GPUs of this process, for open() of ranks 0 to n - 1, which
 * takes them over whatever becomes of it. */
CT_MUST_CHECK int comm_nccl_connect(int n, const int *devices, void **handles, struct ct_err *err);

/* What the module exports as COMM_NCCL_ENTRY. `version` guards against a stray old module. */
#define COMM_NCCL_MODULE "ctworker-nccl.so"
#define COMM_NCCL_ENTRY "ctworker_nccl_module"
#define COMM_NCCL_VERSION 7

struct comm_nccl_module {
    int version;
    int (*open)(const struct comm_setup *setup, struct ctw_comm **out, struct ct_err *err);
    int (*connect)(int n, const int *devices, void **handles, struct ct_err *err);
};

/* Gives *out, which stays for the life of the process. CT_EUNSUPPORTED with the linker's reason. */
CT_MUST_CHECK int comm_nccl_load(const char *path, const struct comm_nccl_module **out,
                                 struct ct_err *err);

/* Inside the module. Rank 0 makes NCCL's unique id and publishes it, the others fetch it; needs no
 * GPU. */
#define COMM_NCCL_ID_BYTES 128
CT_MUST_CHECK int comm_nccl_exchange_id(const struct comm_setup *setup,
                                        unsigned char id[COMM_NCCL_ID_BYTES], struct ct_err *err);

#endif
