/* SPDX-License-Identifier: Apache-2.0
 *
 * Training state in a safetensors file: parameters layers.N.weight and layers.N.bias, optimizer
 * state optim.STATE.layers.N.weight and so on, and in the metadata how far training was, with
 * CRC-32 checksums (zlib's) of the tensors' bytes and of that metadata. A file is replaced whole
 * (write, fsync, rename, fsync of the folder) or not at all.
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
    int64_t step; /* optimizer updates done */
    int epoch;    /* epochs done */
    uint64_t seed;
    size_t batch;      /* batches done of the epoch that follows those */
    size_t batch_size; /* of all ranks; without it `batch` says nothing. 0 = not told */
};

/* Parameters and optimizer state in host memory, each layout->count floats. */
struct ct_state_view {
    const struct ct_layout *layout;
    enum ct_optimizer_kind optimizer;
    float *params;
    float *state[CT_OPTIMIZER_STATES_MAX]; /* NULL past the optimizer's last one */
};

/* Could a checkpoint be written there? Makes the temporary file once, so that a long training does
 * not end without one. Text names both. */
CT_MUST_CHECK int ct_checkpoint_probe(const char *path, struct ct_err *err);

CT_MUST_CHECK int ct_checkpoint_save(const char *path, const struct ct_state_view *state,
                                     const struct ct_progress_point *point, struct ct_err *err);

/* Opens a checkpoint and checks that it is whole, down to the checksum of its bytes, and belongs to
 * this layout and optimizer. CT_EFORMAT when it is damaged, CT_EINVAL when it is of another model.
 * A file that tells no checksum is taken as it is. */
CT_MUST_CHECK int ct_checkpoint_open(const char *path, const struct ct_layout *layout,
                                     enum ct_optimizer_kind optimizer, struct ct_safetensors *file,
                                     struct ct_progress_point *point, struct ct_err *err);

/* Reads what ct_checkpoint_open() found into `state`. */
CT_MUST_CHECK int ct_checkpoint_load(const struct ct_safetensors *file,
                                     const struct ct_state_view *state, struct ct_err *err);

#endif
