/* SPDX-License-Identifier: Apache-2.0
 *
 * A labelled image set in memory, as bytes: a training and a test split of the same image size.
 */
#ifndef CT_TRAINER_DATASET_H
#define CT_TRAINER_DATASET_H

#include "common/buf.h"
#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

/* Where Debian's dataset-fashion-mnist puts its files. */
#define CT_DATASET_DEFAULT_DIR "/usr/share/datasets/fashion-mnist"
#define CT_DATASET_SYNTHETIC "synthetic"

struct ct_split {
    size_t count;
    const uint8_t *images; /* [count, features], inside image_bytes */
    const uint8_t *labels; /* [count], each < classes */
    struct ct_buf image_bytes, label_bytes;
};

struct ct_dataset {
    struct ct_split train, test;
    size_t features; /* height * width */
    size_t classes;
    float mean, stddev; /* of all training pixels, scaled to 0 .. 1 */
};

/* `source` is a folder with the four files of MNIST (train-images-idx3-ubyte and so on, plain or
 * with .gz), "synthetic", or NULL for the default folder. Text names the file and what is wrong.
 * End it with ct_dataset_fini(). */
CT_MUST_CHECK int ct_dataset_load(const char *source, struct ct_dataset *out, struct ct_err *err);

/* Checks the splits against each other (counts, sizes, label range) and fills what follows from
 * them: classes, mean, stddev. Used by every loader after it filled `train`, `test`, `features`. */
CT_MUST_CHECK int ct_dataset_finish(struct ct_dataset *set, struct ct_err *err);

void ct_dataset_fini(struct ct_dataset *set); /* NULL and zeroed memory are allowed */

#endif
