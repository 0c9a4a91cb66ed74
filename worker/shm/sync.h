/* SPDX-License-Identifier: Apache-2.0
 *
 * How the ranks of one machine wait for each other: a page that all of them map.
 *
 * A barrier is an arrival counter and an epoch. The last to arrive resets the counter and raises
 * the epoch, on which the others spin for a bounded number of turns and then sleep (futex). They
 * sleep in slices; between slices they look for what would make them wait forever: a peer that
 * died (pidfd) or left, a communicator that was aborted, the deadline.
 *
 * What ended a communicator is written once into `verdict`, so that all ranks tell the same story.
 */
#ifndef CT_WORKER_SHM_SYNC_H
#define CT_WORKER_SHM_SYNC_H

#include "common/err.h"
#include "worker/job/order_reader.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* More ranks than any machine has cores today; bounds the shared page and the descriptors. */
#define SYNC_RANKS_MAX 1024

/* Fields written by different ranks lie this far apart: a cache line and its prefetched twin. */
#define SYNC_ALIGN 128

/* What a rank is about to do, so that peers find its buffers and notice when they disagree. */
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
    uint64_t start_time;      /* of the process, in clock ticks since boot: pids are used again */
    _Atomic uint64_t arrived; /* barriers this rank has come to */
    /* Two, used in turn: a slow peer may still read the last one when the next is written. Each
     * operation has at least one barrier, so nobody can be two operations ahead. */
    struct sync_desc desc[2];
    /* Two counts of what this rank has got ready in the operation at hand
     * (worker/net/leader_sum.h). */
    _Atomic uint32_t progress[2];
} __attribute__((aligned(SYNC_ALIGN)));

struct sync_page {
    uint8_t token[32]; /* proves that this is the file rank 0 made */
    uint32_t version, size;
    uint32_t order; /* enum ctw_order, as rank 0 has it */
    /* Why it ended, where that came from another machine; written before the verdict that says so,
     * by local rank 0 alone. */
    char story[CT_ERR_TEXT_MAX];
    _Atomic uint32_t verdict __attribute__((aligned(SYNC_ALIGN)));
    _Atomic uint32_t sleepers;
    _Atomic uint32_t present __attribute__((aligned(SYNC_ALIGN))); /* ranks that have joined */
    _Atomic uint32_t arrived __attribute__((aligned(SYNC_ALIGN)));
    _Atomic uint32_t epoch __attribute__((aligned(SYNC_ALIGN)));
    struct sync_slot slots[];
};

/* One rank's view. */
struct sync {
    struct sync_page *page; /* borrowed */
    int rank, size;
    int spin;           /* turns before sleeping */
    bool crowded;       /* ranks outnumber the cores */
    int64_t timeout_ms; /* longest wait */
    uint64_t arrived;
    int epoll;        /* holds the peers' pidfds; readable when one has ended */
    int *pidfds;      /* negative until the peer has come and after it has ended */
    int unwatched;    /* peers without a pidfd */
    const int *names; /* what messages call the ranks; NULL: by numbers from `first` on */
    int first;
    /* What else may end a wait, asked between two slices of it; NULL: nothing. */
    int (*look)(void *data, struct ct_err *err);
    void *look_data;
    const struct order_reader *handover; /* likewise; borrowed, NULL: nothing */
};

/* `page` has been checked by the caller and holds `size` slots; `crowd` ranks share the machine. */
CT_MUST_CHECK int sync_init(struct sync *sync, struct sync_page *page, int rank, int size,
                            int crowd, int64_t timeout_ms, struct ct_err *err);

/* Tells the peers that this rank has left. Legal on zeroed memory and twice. */
void sync_fini(struct sync *sync);

/* Takes this rank's slot and waits until every rank has done so. CT_ETIMEDOUT names who is
 * missing. */
CT_MUST_CHECK int sync_join(struct sync *sync, struct ct_err *err);

/* CT_EPEER, CT_ETIMEDOUT, CT_EIO. */
CT_MUST_CHECK int sync_barrier(struct sync *sync, struct ct_err *err);

/* Waits until *word is no longer `old`, which a peer changes and then calls sync_wake(). The word
 * is in shared memory. CT_EPEER also when a peer has left. */
CT_MUST_CHECK int sync_wait(struct sync *sync, _Atomic uint32_t *word, uint32_t old,
                            struct ct_err *err);
void sync_wake(struct sync *sync, _Atomic uint32_t *word);

/* Without blocking: 0, or CT_EPEER when a peer has died, left or aborted. */
CT_MUST_CHECK int sync_poll(struct sync *sync, struct ct_err *err);

/* Ends the communicator for all. */
void sync_abort(struct sync *sync);

/* The same for a reason that came from another machine, which all ranks of this one will give. Only
 * for rank 0. */
void sync_tell(struct sync *sync, const char *story);

#endif
