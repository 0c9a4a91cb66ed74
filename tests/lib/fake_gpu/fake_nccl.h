/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the stand-in's NCCL share: communicators, and the room in which ranks meet for
 * their collectives.
 */
#ifndef CT_TESTS_LIB_FAKE_GPU_FAKE_NCCL_H
#define CT_TESTS_LIB_FAKE_GPU_FAKE_NCCL_H

#include "tests/lib/fake_gpu/fake_gpu_engine.h"

#include <nccl.h>
#include <stdatomic.h>

#define RANKS_MAX 8

/* What one rank can bring to one collective. Only what is used of it becomes memory. */
#define MAIL_MAX ((size_t)40 << 20)

struct fake_mail {
    atomic_int round; /* that it is for; written last */
    size_t bytes;
    size_t for_rank[RANKS_MAX]; /* of a group: how much of it is for whom, in their order */
    char content[MAIL_MAX];
};

/* What one rank says in a split. */
struct fake_ballot {
    atomic_int number; /* of the split; written last */
    int color, key;
};

enum { FAKE_GONE = -1, FAKE_LEFT = -2 };

/* In memory that all ranks see. A rank can be one collective ahead of another, not two, so that two
 * mails of each are enough. */
struct fake_room {
    int size;
    char path[NCCL_UNIQUE_ID_BYTES]; /* of processes */
    atomic_int came, alive;
    atomic_int pid[RANKS_MAX];    /* 0 = has not come; of processes only */
    atomic_int called[RANKS_MAX]; /* has called its first collective, for which all connect */
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
    bool broken;  /* an error was reported: only ncclCommAbort() is legal */
    bool aborted; /* its kernels end, whatever they wait for */
    int holding;  /* graphs with its collectives */
    int registrations;
    int pending; /* collectives that are queued, outside of graphs */
    bool blocking, connected;
    bool working;           /* a thread of its own has yet to queue the last call */
    struct fake_room *room; /* NULL: the peers are imaginary */
    int round;              /* collectives done */
    /* Of the split in progress. */
    struct ncclComm **split, *child;
    int color, splits;
};

/* One that does not exist yet; the program never ends without one. */
struct ncclComm *fake_comm_new(int rank, int size);
void fake_comm_end(struct ncclComm *comm, int how);

/* Goes on with a split; true when it is done. */
bool fake_split_is_done(struct ncclComm *comm);

/* Waits for the thread of a communicator that ends. */
void fake_await_thread(const struct ncclComm *comm);

/* Counts `comm` as having something to do for so many polls. */
ncclResult_t fake_begin_call(struct ncclComm *comm, int turns);
/* Sees that a collective may be called now. */
void fake_usable(const struct ncclComm *comm);

/* True in a group, which then does the abort at its end. */
bool fake_group_takes_abort(struct ncclComm *comm);
void fake_abort_all(struct ncclComm **comms, int count);

/* A room for threads of this process, and one in a file for processes, whose name is the id. NULL
 * when there is none of that name. */
struct fake_room *fake_room_new(int size);
void fake_room_name(ncclUniqueId *id);
struct fake_room *fake_room_enter(const ncclUniqueId *id, int rank, int size);
/* The one of the ranks that gave this color. */
struct fake_room *fake_room_enter_part(const struct ncclComm *parent, int rank, int size);
bool fake_room_is_full(const struct fake_room *room);
bool fake_room_lost_someone(const struct fake_room *room);
/* The last to leave takes it away. `how`: FAKE_GONE or FAKE_LEFT. */
void fake_room_leave(struct fake_room *room, int rank, int how);

#endif
