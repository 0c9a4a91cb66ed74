/* SPDX-License-Identifier: Apache-2.0
 *
 * Training state in a safetensors file: parameters layers.N.weight and layers.N.bias, optimizer
 * state optim.STATE.layers.N.weight and so on, and in the metadata the position of the training,
 * with CRC-32 checksums (zlib's) of the tensors' bytes and of the metadata. A file is replaced
 * whole (write, fsync, rename, fsync of the folder) or not at all.
 */
#ifndef CT_TRAINER_RECOVERY_CHECKPOINT_H
#define CT_TRAINER_RECOVERY_CHECKPOINT_H

#include "common/err.h"
#include "trainer/formats/safetensors.h"
#include "trainer/model/model.h"
#include "trainer/model/optimizer.h"

#include <stddef.h>
#include <stdint.h>

struct ct_progress_point {
    int64_t step; /* number of optimizer updates done */
    int epoch;    /* number of epochs done */
    uint64_t seed;
    size_t batch;      /* number of batches done of the next epoch */
    size_t batch_size; /* of all ranks; `batch` counts batches of this size. 0 = unknown */
};

/* Parameters and optimizer state in host memory, each layout->count floats. */
struct ct_state_view {
    const struct ct_layout *layout;
    enum ct_optimizer_kind optimizer;
    float *params;
    float *state[CT_OPTIMIZER_STATES_MAX]; /* NULL after the optimizer's last one */
};

/* Checks that a checkpoint can be written there, by creating a temporary file once, so that a long
 * training does not end without one. The message names both files. */
CT_MUST_CHECK int ct_checkpoint_probe(const char *path, struct ct_err *err);

/* CT_EBUSY if another process has begun to save to this path meanwhile. */
CT_MUST_CHECK int ct_checkpoint_save(const char *path, const struct ct_state_view *state,
                                     const struct ct_progress_point *point, struct ct_err *err);

/* Returns how much of this file name is that of the checkpoint whose temporary file has it; 0 = it
 * is no name of a temporary file. */
size_t ct_checkpoint_temporary_of(const char *name);

/* Opens a checkpoint and checks that it is complete, down to the checksum of its bytes, and fits
 * this layout and optimizer. CT_EFORMAT if it is damaged, CT_EINVAL if it is of another model. A
 * file without checksums is accepted. */
CT_MUST_CHECK int ct_checkpoint_open(const char *path, const struct ct_layout *layout,
                                     enum ct_optimizer_kind optimizer, struct ct_safetensors *file,
                                     struct ct_progress_point *point, struct ct_err *err);

/* Reads the file that ct_checkpoint_open() has checked into `state`. */
CT_MUST_CHECK int ct_checkpoint_load(const struct ct_safetensors *file,
                                     const struct ct_state_view *state, struct ct_err *err);

#endif
