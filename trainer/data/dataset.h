/* SPDX-License-Identifier: Apache-2.0
 *
 * A labelled image set in memory, as bytes: a training and a test split of the same image size.
 */
#ifndef CT_TRAINER_DATA_DATASET_H
#define CT_TRAINER_DATA_DATASET_H

#include "common/buf.h"
#include "common/err.h"
#include "trainer/formats/mapping.h"

#include <stddef.h>
#include <stdint.h>

/* Where Debian's dataset-fashion-mnist puts its files. */
#define CT_DATASET_DEFAULT_DIR "/usr/share/datasets/fashion-mnist"
#define CT_DATASET_SYNTHETIC "synthetic"

/* Largest content of a file. Sets on which a multi-layer perceptron is trained are below 200 MB,
 * and a wrong file should not fill the memory before it is refused. */
#define CT_DATASET_BYTES_MAX ((size_t)1 << 30)

struct ct_split {
    size_t count;
    const uint8_t *images; /* [count, features], inside image_bytes or image_map */
    const uint8_t *labels; /* [count], each < classes; a copy, because mapped files may change */
    struct ct_buf image_bytes, label_bytes;
    struct ct_mapping image_map; /* mapping of a file that needs no conversion */
};

/* Shape of an image, in bytes: [planes, height, width, depth]. A grey image has one plane and depth
 * 1; colours are planes (CIFAR-10), or bytes of a pixel in depth. With height 1 and width 1 the
 * arrangement of the pixels is not known. */
struct ct_image_shape {
    size_t planes, height, width, depth;
};

struct ct_dataset {
    struct ct_split train, test;
    size_t features; /* bytes of an image */
    struct ct_image_shape shape;
    size_t classes;
    float mean, stddev;      /* of all training pixels, scaled to 0 .. 1 */
    struct ct_mapping cache; /* contains the splits if the workers of a host share them */
    int cache_fd;            /* descriptor of that memory in the worker that made it, else 0 */
};

/* `source` is a folder in one of the forms that train(1) lists, "synthetic", or NULL for the
 * default folder. The message names the file and what is wrong. ct_dataset_fini() frees the set. */
CT_MUST_CHECK int ct_dataset_load(const char *source, struct ct_dataset *out, struct ct_err *err);

/* Gives a number that is another one when a file of the data set has been written, replaced, added
 * or removed. CT_ENOENT and others if the folder cannot be opened. */
CT_MUST_CHECK int ct_dataset_stamp(const char *source, uint64_t *out, struct ct_err *err);

/* Checks the splits against each other (counts, sizes, range of labels) and sets features, classes,
 * mean and stddev. Every loader calls it after filling `train`, `test` and `shape`. */
CT_MUST_CHECK int ct_dataset_finish(struct ct_dataset *set, struct ct_err *err);

void ct_dataset_fini(struct ct_dataset *set); /* NULL and zeroed memory are allowed */

/* ---- loaders, one file each, which fill the splits and the shape ----------------------------- */

/* MNIST's four IDX files (train-images-idx3-ubyte and so on), plain or with .gz. */
CT_MUST_CHECK int ct_dataset_load_idx(const char *dir, struct ct_dataset *set, struct ct_err *err);

/* data_batch_1.bin .. data_batch_5.bin and test_batch.bin of CIFAR-10's binary version: records of
 * a label and 3 planes of 32 x 32 bytes. */
CT_MUST_CHECK int ct_dataset_load_cifar(const char *dir, struct ct_dataset *set,
                                        struct ct_err *err);

/* train-images.npy, train-labels.npy, test-images.npy, test-labels.npy. */
CT_MUST_CHECK int ct_dataset_load_npy(const char *dir, struct ct_dataset *set, struct ct_err *err);

#endif
