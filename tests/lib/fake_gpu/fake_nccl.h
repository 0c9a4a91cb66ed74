/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the fake GPU's NCCL share: communicators, and the rendezvous, memory in which
 * ranks exchange the data of their collectives.
 */
#ifndef CT_TESTS_LIB_FAKE_GPU_FAKE_NCCL_H
#define CT_TESTS_LIB_FAKE_GPU_FAKE_NCCL_H

#include "tests/lib/fake_gpu/fake_gpu_engine.h"

#include <nccl.h>
#include <stdatomic.h>

#define RANKS_MAX 8

/* The most bytes that one rank can send in one collective. Pages that are not used take no memory.
 */
#define MAIL_MAX ((size_t)40 << 20)

struct fake_mail {
    atomic_int round; /* number of the collective; written last */
    size_t bytes;
    bool recorded; /* it was captured into a graph */
    size_t
        for_rank[RANKS_MAX]; /* in a group: how many of the bytes each rank gets, in this order */
    char content[MAIL_MAX];
};

/* The arguments of one rank in a split. */
struct fake_ballot {
    atomic_int number; /* number of the split; written last */
    int color, key;
};

enum { FAKE_GONE = -1, FAKE_LEFT = -2 };

/* Lies in memory that all ranks see. A rank can be one collective ahead of another, but not two, so
 * two mails of each rank are enough. */
struct fake_rendezvous {
    int size;
    char path[NCCL_UNIQUE_ID_BYTES];
    atomic_int came;              /* how many ranks have come */
    atomic_int pid[RANKS_MAX];    /* 0 = has not come */
    atomic_int called[RANKS_MAX]; /* has called its first collective, in which all connect */
    atomic_bool finalized[RANKS_MAX];
    struct fake_ballot ballot[2][RANKS_MAX];
    struct fake_mail mail[2][RANKS_MAX];
};

/* ncclComm_t points to one of these. */
struct ncclComm {
    int rank, size;
    int left; /* polls until the call in progress is done */
    bool alive;
    bool busy; /* a call is in progress */
    bool finalized;
    bool broken; /* an error was reported: only ncclCommAbort() is legal */
    struct fake_hold hold;
    int registrations;
    int pending; /* collectives that are queued, outside of graphs */
    bool connected;
    bool working;                       /* a thread of NCCL has not queued the last call yet */
    struct fake_rendezvous *rendezvous; /* NULL: the peers are imaginary */
    int round;                          /* number of the next collective */
    /* The split in progress. */
    struct ncclComm **split, *child;
    int color, splits;
};

/* Makes a communicator. Never returns NULL: aborts the program if there are too many. */
struct ncclComm *fake_comm_new(int rank, int size);
void fake_comm_end(struct ncclComm *comm, int how);

/* Continues a split. True when it is done. */
bool fake_split_is_done(struct ncclComm *comm);

/* Waits until the communicator's thread has queued its call. */
void fake_await_thread(const struct ncclComm *comm);

/* Makes `comm` busy for so many polls. */
ncclResult_t fake_begin_call(struct ncclComm *comm, int turns);
/* Checks that a collective may be called now. */
void fake_usable(const struct ncclComm *comm);

/* True in a group, which then aborts the communicator at its end. */
bool fake_group_takes_abort(struct ncclComm *comm);
void fake_abort_all(struct ncclComm **comms, int count);

/* Make a rendezvous in a file whose name is the id. fake_rendezvous_enter() returns NULL if there
 * is no such file. */
void fake_rendezvous_name(ncclUniqueId *id);
struct fake_rendezvous *fake_rendezvous_enter(const ncclUniqueId *id, int rank, int size);
/* Enters the rendezvous of the ranks that have the color of this one in a split. */
struct fake_rendezvous *fake_rendezvous_enter_part(const struct ncclComm *parent, int rank,
                                                   int size);
bool fake_rendezvous_is_full(const struct fake_rendezvous *rendezvous);
bool fake_rendezvous_lost_someone(const struct fake_rendezvous *rendezvous);

/* True if all ranks that are still there have finalised it. */
bool fake_rendezvous_is_final(const struct fake_rendezvous *rendezvous);
/* `how`: FAKE_GONE, which the other ranks see, or FAKE_LEFT. */
void fake_rendezvous_leave(struct fake_rendezvous *rendezvous, int rank, int how);

#endif
