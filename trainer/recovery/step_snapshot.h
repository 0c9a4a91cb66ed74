/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of the training after every step, in a file in memory that the launcher holds. Whatever
 * kills a worker, the next generation continues from there, and no finished step is lost.
 *
 *     | header | marks of slot 0 | marks of slot 1 | slot 0: arrays | slot 1: arrays |
 *
 * Step n goes into slot n % 2, so the previous step stays complete meanwhile. Each rank copies the
 * share of every array that it has just updated, and then sets its mark. A slot is complete if the
 * marks of all ranks of one generation name the same step. Ranks meet after each step, so a slot is
 * overwritten only if the other one is complete. So at any moment one slot is, and it is at most
 * one step behind.
 *
 * There are no checksums: what a killed process has stored in shared memory stays stored, in the
 * order of its stores, and the file ends with the launcher, so no other run ever reads it.
 */
#ifndef CT_TRAINER_RECOVERY_STEP_SNAPSHOT_H
#define CT_TRAINER_RECOVERY_STEP_SNAPSHOT_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

#define CT_SNAPSHOT_ARRAYS_MAX 3
#define CT_SNAPSHOT_RANKS_MAX 1024

/* The position of the training. The sums over the epoch are kept, too, for the epoch's report. */
struct ct_snapshot_point {
    int64_t step;      /* updates done */
    int32_t epoch;     /* epochs done before this one */
    uint32_t batch;    /* batches done of this epoch, perhaps all of them */
    uint64_t samples;  /* number of samples in the sums, of all ranks */
    double loss, hits; /* of this rank when written; of all ranks when read */
};

/* A snapshot with another shape than the training's is not used. */
struct ct_snapshot_shape {
    uint64_t fingerprint; /* of everything that decides how training goes on */
    size_t floats;        /* of one array */
    size_t arrays;        /* parameters and the optimizer's states */
};

struct ct_step_snapshot {
    int fd; /* -1: none */
    struct ct_snapshot_shape shape;
    int rank, world, generation;
    unsigned char *map; /* NULL until ct_step_snapshot_map() or when nothing was found */
    size_t bytes;
    struct ct_snapshot_point found; /* the newest complete one at opening; step 0: none */
    int64_t told;                   /* epochs whose report was out at that time */
};

#define CT_STEP_SNAPSHOT_INIT \
    {                         \
        .fd = -1              \
    }

/* Opens the file and looks for a complete snapshot of this shape. Writes nothing, because peers may
 * still be reading. On failure *snapshot is CT_STEP_SNAPSHOT_INIT. */
CT_MUST_CHECK int ct_step_snapshot_open(struct ct_step_snapshot *snapshot, const char *path,
                                        const struct ct_snapshot_shape *shape, int rank, int world,
                                        int generation, struct ct_err *err);
void ct_step_snapshot_fini(struct ct_step_snapshot *snapshot); /* CT_STEP_SNAPSHOT_INIT, too */

/* Copies the snapshot that was found, if any, into arrays[0 .. shape.arrays). */
void ct_step_snapshot_load(const struct ct_step_snapshot *snapshot, float *const *arrays);

/* On one rank, when all have opened: prepares the file for this shape. The snapshot that was found
 * stays until two steps have been written. CT_ENOMEM if there is not enough memory. */
CT_MUST_CHECK int ct_step_snapshot_prepare(struct ct_step_snapshot *snapshot, struct ct_err *err);

/* On every rank, after that. Does nothing if the preparation has failed. */
CT_MUST_CHECK int ct_step_snapshot_map(struct ct_step_snapshot *snapshot, struct ct_err *err);

/* Writes this rank's share [begin, end) of every array as it is after step `point->step` > 0. All
 * ranks meet between two writes. Does nothing if there is no file. */
void ct_step_snapshot_write(struct ct_step_snapshot *snapshot,
                            const struct ct_snapshot_point *point, float *const *arrays,
                            size_t begin, size_t end);

/* On one rank: notes that the reports of so many epochs are out. */
void ct_step_snapshot_tell(struct ct_step_snapshot *snapshot, int64_t epochs);

#endif
