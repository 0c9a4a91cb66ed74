/* SPDX-License-Identifier: Apache-2.0
 *
 * How the ranks of one machine wait for each other: with a page that all of them map.
 *
 * A barrier is an arrival counter and an epoch. The last rank to arrive resets the counter and
 * raises the epoch. The others spin on it for a bounded number of turns, then sleep (futex). They
 * sleep in slices; between slices they look for what would make them wait forever: a peer that has
 * died (pidfd) or left, a communicator that was aborted, the deadline.
 *
 * The reason why a communicator ended is written once, to `verdict`, so that all ranks give one
 * reason.
 */
#ifndef CT_WORKER_SHM_SYNC_H
#define CT_WORKER_SHM_SYNC_H

#include "common/err.h"
#include "worker/job/order_reader.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* More than any machine has cores. It bounds the shared page and the descriptors. */
#define SYNC_RANKS_MAX 1024

/* The distance between fields that different ranks write: two cache lines, because the processor
 * fetches them in pairs. */
#define SYNC_ALIGN 128

/* A rank's operation, by which peers find its buffers and notice a disagreement. */
struct sync_desc {
    uint32_t op;        /* the back end's own code */
    int32_t arg;        /* root or kind of memory */
    uint64_t size;      /* count or bytes */
    int64_t send, recv; /* offsets in the shared file, -1 when private */
};

enum sync_presence { SYNC_ABSENT, SYNC_COMING, SYNC_PRESENT, SYNC_LEFT };

struct sync_slot {
    _Atomic uint32_t presence;
    int32_t pid;
    uint64_t start_time; /* of the process, in clock ticks since boot, because pids are reused */
    _Atomic uint64_t arrived; /* number of barriers that this rank has reached */
    /* Used in turn: a slow peer may still read the last one while the next is written. Each
     * operation has at least one barrier, so no rank is ever two operations ahead. */
    struct sync_desc desc[2];
    /* Two counters of what this rank has finished in the current operation
     * (worker/net/leader_sum.h). */
    _Atomic uint32_t progress[2];
} __attribute__((aligned(SYNC_ALIGN)));

struct sync_page {
    uint8_t token[32]; /* proves that rank 0 created this file */
    uint32_t version, size;
    uint32_t order; /* enum ctw_order of rank 0 */
    /* Why the communicator ended, if that was learnt from another machine. Written only by local
     * rank 0, before the verdict that refers to it. */
    char story[CT_ERR_TEXT_MAX];
    _Atomic uint32_t verdict __attribute__((aligned(SYNC_ALIGN)));
    _Atomic uint32_t sleepers;
    _Atomic uint32_t present __attribute__((aligned(SYNC_ALIGN))); /* ranks that have joined */
    _Atomic uint32_t arrived __attribute__((aligned(SYNC_ALIGN)));
    _Atomic uint32_t epoch __attribute__((aligned(SYNC_ALIGN)));
    struct sync_slot slots[];
};

/* One rank's state. */
struct sync {
    struct sync_page *page; /* borrowed */
    int rank, size;
    int spin;           /* turns before sleeping */
    bool crowded;       /* there are more ranks than cores */
    int64_t timeout_ms; /* longest wait */
    uint64_t arrived;
    int epoll;        /* holds the peers' pidfds; readable when one has ended */
    int *pidfds;      /* negative before the peer has come and after it has ended */
    int unwatched;    /* number of peers without a pidfd */
    const int *names; /* the ranks' numbers in messages; NULL: counted from `first` */
    int first;
    /* Called between two slices of a wait; an error ends the wait. NULL: not called. */
    int (*look)(void *data, struct ct_err *err);
    void *look_data;
    const struct order_reader *handover; /* also ends waits; borrowed; NULL: none */
};

/* The caller has checked that `page` holds `size` slots. `crowd` ranks share the machine. */
CT_MUST_CHECK int sync_init(struct sync *sync, struct sync_page *page, int rank, int size,
                            int crowd, int64_t timeout_ms, struct ct_err *err);

/* Tells the peers that this rank has left. Legal on zeroed memory and twice. */
void sync_fini(struct sync *sync);

/* Takes this rank's slot and waits until every rank has done so. The message of CT_ETIMEDOUT names
 * the missing ranks. */
CT_MUST_CHECK int sync_join(struct sync *sync, struct ct_err *err);

/* CT_EPEER, CT_ETIMEDOUT, CT_EIO. */
CT_MUST_CHECK int sync_barrier(struct sync *sync, struct ct_err *err);

/* Waits until *word, in shared memory, is not `old` any more. The peer that changes it must then
 * call sync_wake(). CT_EPEER also if a peer has left. */
CT_MUST_CHECK int sync_wait(struct sync *sync, _Atomic uint32_t *word, uint32_t old,
                            struct ct_err *err);
void sync_wake(struct sync *sync, _Atomic uint32_t *word);

/* Returns without blocking: 0, or CT_EPEER if a peer has died, left or aborted. */
CT_MUST_CHECK int sync_poll(struct sync *sync, struct ct_err *err);

/* Ends the communicator for all ranks. */
void sync_abort(struct sync *sync);

/* The same with a reason from another machine, which all ranks of this machine then report. Only
 * for rank 0. */
void sync_tell(struct sync *sync, const char *story);

#endif
