/* SPDX-License-Identifier: Apache-2.0
 *
 * --augment: training images are mirrored and shifted at random, differently in each epoch. The
 * change of a sample depends only on seed, epoch and sample. So it does not depend on the rank that
 * loads the sample, nor on where a training was interrupted.
 */
#ifndef CT_TRAINER_DATA_AUGMENT_H
#define CT_TRAINER_DATA_AUGMENT_H

#include "common/err.h"
#include "kernels/device/device.h"
#include "trainer/data/dataset.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The changes that --augment names. */
struct ct_augment_choice {
    bool flip;  /* mirrors left to right, with a chance of one half */
    bool shift; /* shifts each way by up to a fourteenth of the side (2 of 28 pixels) and fills with
                   zeros */
};

struct ct_augment {
    struct ct_augment_choice choice;
    struct ct_image_shape shape;
    uint64_t seed;
    unsigned epoch;
    const uint8_t *images, *labels; /* all samples, on the host; borrowed */
    struct ct_device *dev;          /* borrowed */
    size_t max_rows;
    uint8_t *rows;      /* [max_rows, features + 1]: images, then labels; on the host */
    void *device_rows;  /* the same on the device; NULL on the CPU */
    uint32_t *sequence; /* 0, 1, 2, ... */
};

/* Augments one image by the 64 random bits of its sample. Pure. */
void ct_augment_image(const struct ct_augment_choice *choice, const struct ct_image_shape *shape,
                      uint64_t random, const uint8_t *in, uint8_t *out);

/* CT_EINVAL if the images of the data set have no height and width. Borrows dev and set. */
CT_MUST_CHECK int ct_augment_init(struct ct_augment *augment,
                                  const struct ct_augment_choice *choice,
                                  const struct ct_dataset *set, struct ct_device *dev,
                                  size_t max_rows, uint64_t seed, struct ct_err *err);
void ct_augment_fini(struct ct_augment *augment); /* NULL and zeroed memory are allowed */

/* Does the gather `op` with augmented images of this epoch. op->index names the samples; op->batch
 * is at most max_rows. */
CT_MUST_CHECK int ct_augment_gather(const struct ct_augment *augment, const struct ct_gather *op,
                                    struct ct_err *err);

#endif
