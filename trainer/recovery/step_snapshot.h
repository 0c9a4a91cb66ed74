/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of the training after every step, in a file in memory that the launcher holds: whatever
 * kills a worker, the next generation goes on from there and no finished step is lost.
 *
 *     | header | marks of slot 0 | marks of slot 1 | slot 0: arrays | slot 1: arrays |
 *
 * Step n goes into slot n % 2, so that the step before stays whole meanwhile. Each rank copies the
 * share of every array that it has just updated, and then sets its mark. A slot is whole when the
 * marks of all ranks of one generation name the same step. Ranks meet after each step, so
 * a whole slot is overwritten only when the other one is whole: at any moment one of them is, and
 * it is at most one step behind what is being computed.
 *
 * Nothing is checksummed: what a killed process has stored in shared memory stays stored, in the
 * order of its stores, and the file dies with the launcher, so no other run ever reads it.
 */
#ifndef CT_TRAINER_RECOVERY_STEP_SNAPSHOT_H
#define CT_TRAINER_RECOVERY_STEP_SNAPSHOT_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

#define CT_SNAPSHOT_ARRAYS_MAX 3
#define CT_SNAPSHOT_RANKS_MAX 1024

/* How far training was. The sums over the epoch so far let its report survive, too. */
struct ct_snapshot_point {
    int64_t step;      /* updates done */
    int32_t epoch;     /* epochs done before this one */
    uint32_t batch;    /* batches done of this one, maybe all of them */
    uint64_t samples;  /* behind the sums, of all ranks */
    double loss, hits; /* of this rank when written, of all ranks when found */
};

/* What a snapshot must be of to be of use. */
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
    struct ct_snapshot_point found; /* the newest whole one when opened; step 0: none */
    int64_t told;                   /* epochs whose report was out by then */
};

#define CT_STEP_SNAPSHOT_INIT \
    {                         \
        .fd = -1              \
    }

/* Opens the file and looks for a whole snapshot of this shape. Nothing is written: peers may still
 * be looking. On failure *snapshot is as CT_STEP_SNAPSHOT_INIT. */
CT_MUST_CHECK int ct_step_snapshot_open(struct ct_step_snapshot *snapshot, const char *path,
                                        const struct ct_snapshot_shape *shape, int rank, int world,
                                        int generation, struct ct_err *err);
void ct_step_snapshot_fini(struct ct_step_snapshot *snapshot); /* CT_STEP_SNAPSHOT_INIT, too */

/* Copies what was found, if anything was, into arrays[0 .. shape.arrays). */
void ct_step_snapshot_load(const struct ct_step_snapshot *snapshot, float *const *arrays);

/* On one rank, when all have opened: makes the file ready for this shape. What was found stays
 * until two steps have been written. CT_ENOMEM when there is not as much memory. */
CT_MUST_CHECK int ct_step_snapshot_prepare(struct ct_step_snapshot *snapshot, struct ct_err *err);

/* On every rank, when that is done. Does nothing when it has failed. */
CT_MUST_CHECK int ct_step_snapshot_map(struct ct_step_snapshot *snapshot, struct ct_err *err);

/* Writes this rank's share [begin, end) of every array as it is after step `point->step`, > 0.
 * All ranks meet between two writes. Nothing when there is no file. */
void ct_step_snapshot_write(struct ct_step_snapshot *snapshot,
                            const struct ct_snapshot_point *point, float *const *arrays,
                            size_t begin, size_t end);

/* On one rank: reports of that many epochs are out. */
void ct_step_snapshot_tell(struct ct_step_snapshot *snapshot, int64_t epochs);

#endif
