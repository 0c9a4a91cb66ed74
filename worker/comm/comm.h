/* SPDX-License-Identifier: Apache-2.0
 *
 * What the communicator back ends share. comm.c checks arguments, remembers failures and
 * dispatches; a back end does the work.
 *
 * Every failure of an operation ends the communicator, because the ranks can no longer agree on how
 * far they are. comm.c then calls abort(), which tells the peers.
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
    /* Before close(): waits until no collective is under way, and ends the communicator if they
     * are stuck. NULL if none can be after its call has returned. */
    void (*quiesce)(struct ctw_comm *comm);
    void (*close)(struct ctw_comm *comm); /* frees the communicator, too */
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
    void (*abort)(struct ctw_comm *comm); /* at most once; only quiesce() and close() follow */
    /* ctw_comm_split() with checked arguments: *out stays NULL if the color is negative. `origin`
     * is that of the new communicator. NULL in the host back ends: comm_split.c splits those with
     * their own all_reduce. */
    int (*split)(struct ctw_comm *comm, int color, int key, const struct comm_origin *origin,
                 struct ctw_comm **out, struct ct_err *err);
    /* ctw_link_open() with checked arguments (worker/comm/link.h). NULL if it has no links. */
    int (*link)(struct ctw_comm *comm, int peer, size_t buffer, struct ctw_link **out,
                struct ct_err *err);
};

/* What a communicator passes on to those that are split from it, and to its links. */
#define COMM_NAME_MAX 64
struct comm_origin {
    struct ctw_job *job;      /* borrowed */
    char name[COMM_NAME_MAX]; /* prefix of its keys in the store */
    int64_t timeout_ms;
    enum ctw_order order;
    unsigned splits; /* number of splits so far; gives each its name */
};

/* Each back end's communicator embeds this first. */
struct ctw_comm {
    const struct ctw_comm_ops *ops;
    int rank, size;
    int node; /* this rank's machine, numbered among those of the communicator */
    enum ctw_backend backend;
    struct progress_page *progress; /* of the job; NULL in tests of a back end alone */
    bool waiting;                   /* an operation is under way */
    uint64_t before;                /* the phase on the page when that operation began */
    int dead;                       /* code of the failure that ended it, 0 while alive */
    struct ct_err reason;           /* of that failure */
    struct comm_origin origin;
    ctw_let_go_fn let_go; /* set by ctw_comm_on_end(); NULL once it was called */
    void *let_go_data;
};

/* Calls what ctw_comm_on_end() has set, once. */
static inline void comm_let_go(struct ctw_comm *comm)
{
    ctw_let_go_fn let_go = comm->let_go;
    comm->let_go = NULL;
    if (let_go != NULL) {
        let_go(comm->let_go_data);
    }
}

/* Says on the progress page that this rank waits for others, until comm_end_call() is called. */
void comm_begin_wait(struct ctw_comm *comm);

/* Ends an operation and returns `rc`. On failure, whose reason the caller has put in comm->reason,
 * it ends the communicator and tells the peers. */
int comm_end_call(struct ctw_comm *comm, int rc, const char *what, struct ct_err *err);

/* Returns the stored failure. Every call on a communicator that has ended gives it. */
int comm_refuse_dead(const struct ctw_comm *comm, const char *what, struct ct_err *err);

/* Longest wait of a communicator whose options say nothing: the default of the NCCL watchdog in
 * PyTorch. */
#define COMM_TIMEOUT_MS (600 * 1000)

/* What a back end gets to open itself. The store is passed as two functions, because the NCCL back
 * end is a module that links neither the job nor the store client. */
struct comm_setup {
    int rank, size;
    int local_rank, local_size; /* its place among the ranks of this machine */
    int crowd;       /* ranks of the job on this machine; waiters spin only if each has a core */
    int node, nodes; /* this machine's number, and how many there are */
    int first;       /* rank of this machine's local rank 0 */
    int store_fd;    /* connection to the store, borrowed; -1 without one */
    enum ctw_order order;
    ctw_tree_sum_fn tree_sum; /* nccl: NULL unless the order is CTW_ORDER_TREE */
    void *tree_sum_data;
    int device;
    void *stream;
    atomic_bool *over;                   /* in a crew: set when a rank has given up; else NULL */
    const struct order_reader *handover; /* the job's, borrowed; ends waits; NULL = none */
    int64_t timeout_ms;                  /* of every wait, also while opening; > 0 */
    /* Set and get keys under the prefix of the run, the generation and this communicator; in a crew
     * worker/open/crew.h has them. */
    int (*set)(void *data, const char *key, const void *value, size_t len, struct ct_err *err);
    int (*get)(void *data, const char *key, int64_t timeout_ms, struct ct_buf *out,
               struct ct_err *err);
    void *data;
};

/* The store functions of a setup; `data` is a struct comm_origin. */
int comm_store_set(void *data, const char *key, const void *value, size_t len, struct ct_err *err);
int comm_store_get(void *data, const char *key, int64_t timeout_ms, struct ct_buf *out,
                   struct ct_err *err);

/* Returns a setup with all that follows from the job and the communicator's origin. The caller
 * fills in the ranks and machines. The origin is borrowed. */
struct comm_setup comm_setup_of(struct comm_origin *origin);

/* CT_EINVAL if that number of ranks cannot add in that order. */
CT_MUST_CHECK int comm_check_order(enum ctw_order order, int size, struct ct_err *err);

/* Each gives *out. comm_host_open() serves one machine, comm_net_open() several, comm_solo_open() a
 * single process. */
CT_MUST_CHECK int comm_net_open(const struct comm_setup *setup, struct ctw_comm **out,
                                struct ct_err *err);
CT_MUST_CHECK int comm_host_open(const struct comm_setup *setup, struct ctw_comm **out,
                                 struct ct_err *err);
CT_MUST_CHECK int comm_solo_open(const struct comm_setup *setup, struct ctw_comm **out,
                                 struct ct_err *err);
/* Loads the NCCL module and opens. A build without NCCL has comm_nccl_fallback.c instead. */
CT_MUST_CHECK int comm_nccl_open(const struct comm_setup *setup, struct ctw_comm **out,
                                 struct ct_err *err);

/* What the module exports as COMM_NCCL_ENTRY. `version` refuses a module of another version. */
#define COMM_NCCL_MODULE "ctworker-nccl.so"
#define COMM_NCCL_ENTRY "ctworker_nccl_module"
#define COMM_NCCL_VERSION 9

struct comm_nccl_module {
    int version;
    int (*open)(const struct comm_setup *setup, struct ctw_comm **out, struct ct_err *err);
};

/* Gives *out, which is never unloaded. CT_EUNSUPPORTED with the reason of the dynamic linker. */
CT_MUST_CHECK int comm_nccl_load(const char *path, const struct comm_nccl_module **out,
                                 struct ct_err *err);

/* Used inside the module. Rank 0 makes and publishes NCCL's id, the others fetch it. No GPU. */
#define COMM_NCCL_ID_BYTES 128
CT_MUST_CHECK int comm_nccl_exchange_id(const struct comm_setup *setup,
                                        unsigned char id[COMM_NCCL_ID_BYTES], struct ct_err *err);

#endif
