/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks of one machine and their shared memory: the base of the collectives on one machine
 * (comm_host.c) and on several (comm_net.c).
 *
 * Every operation starts with host_begin(): each rank publishes a description of what it calls
 * (struct sync_desc) and waits at a barrier. Then it checks that all ranks call the same, and knows
 * where their buffers are.
 *
 *     file: | page | staging 0 | ... | staging n-1 | staging of the sum | regions ...
 */
#ifndef CT_WORKER_SHM_HOST_H
#define CT_WORKER_SHM_HOST_H

#include "worker/comm/comm.h"
#include "worker/shm/arena.h"
#include "worker/shm/shm.h"
#include "worker/shm/sum.h"
#include "worker/shm/sync.h"

/* So small that a chunk and its sum stay in a core's L2 cache. */
#define HOST_STAGING_BYTES ((size_t)256 * 1024)

enum host_op {
    HOST_OP_NONE,
    HOST_OP_ALLOC,
    HOST_OP_ALL_REDUCE,
    HOST_OP_REDUCE_SCATTER,
    HOST_OP_BROADCAST,
    HOST_OP_BARRIER,
};

/* Here ranks are counted from 0. Messages add `first`, which gives the ranks of the job. */
struct host {
    struct ctw_comm comm;
    struct shm shm;
    struct sync sync;
    struct arena arena;
    int first;
    unsigned turn; /* number of operations so far; its lowest bit selects the description */
    unsigned char *staging; /* this rank's buffer */
    unsigned char *all_staging, *result;
    const float **sources; /* scratch, one per rank */
    sum_fn sum;            /* adds the sources in the order that the options chose */
};

/* host_open() creates the shared file or waits until another rank has created it. host_join() then
 * waits for all ranks; it frees the host when it fails. */
CT_MUST_CHECK int host_open(const struct comm_setup *setup, struct host **out, struct ct_err *err);
CT_MUST_CHECK int host_join(struct host *host, struct ct_err *err);
void host_free(struct host *host);

/* Returns for example "all_reduce". Has a text for every value, because peers write the values. */
const char *host_op_name(uint32_t op);

/* Returns the description of that rank's latest operation. */
const struct sync_desc *host_desc(const struct host *host, int rank);

/* Notes in `mine` where this rank's buffers are. */
CT_MUST_CHECK int host_locate(struct host *host, const void *send, const void *recv, size_t bytes,
                              struct sync_desc *mine, struct ct_err *err);

/* The same for one buffer that other ranks read or write: it must be CTW_MEMORY_OWN. */
CT_MUST_CHECK int host_locate_own(struct host *host, const void *buf, size_t bytes,
                                  struct sync_desc *mine, struct ct_err *err);

/* Publishes `mine`, waits for all ranks, and checks that all do the same operation. */
CT_MUST_CHECK int host_begin(struct host *host, const struct sync_desc *mine, struct ct_err *err);

/* Points host->sources at every rank's `send` buffer. For a private buffer it takes the rank's
 * staging memory. *all_shared gets whether there was none. */
CT_MUST_CHECK int host_find_sources(struct host *host, size_t bytes, bool *all_shared,
                                    struct ct_err *err);

/* host_begin() and host_find_sources(), for a sum of `bytes` bytes of each rank. */
CT_MUST_CHECK int host_begin_sum(struct host *host, const struct sync_desc *mine, size_t bytes,
                                 bool *all_shared, struct ct_err *err);

/* Do all ranks have the same `recv` buffer in shared memory? */
bool host_same_target(const struct host *host);

/* Collective. Allocates memory that the ranks of this machine share. */
CT_MUST_CHECK int host_alloc(struct ctw_comm *comm, enum ctw_memory kind, size_t bytes, void **out,
                             struct ct_err *err);

#endif
