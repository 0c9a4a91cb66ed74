/* SPDX-License-Identifier: Apache-2.0
 *
 * What a spare of `ctrun --warm` makes ready before it is a worker: the data set and, if training
 * will be on the CPU, the device with its matrix products. Nothing of it depends on the rank.
 */
#ifndef CT_TRAINER_SESSION_WARM_PARTS_H
#define CT_TRAINER_SESSION_WARM_PARTS_H

#include "trainer/data/dataset.h"
#include "trainer/session/train_options.h"

#include <stdbool.h>
#include <stdint.h>

struct ct_device;

/* Zeroed memory has no parts. */
struct ct_warm_parts {
    bool loaded; /* the data set is there */
    struct ct_dataset set;
    const char *source; /* borrowed from the options */
    uint64_t stamp;
    struct ct_device *dev; /* NULL = it is opened later */
};

/* Reads the data set, and makes a step of the size that `rows` says, whose result is dropped. The
 * errors of ct_dataset_load(), CT_ENOMEM, CT_EUNSUPPORTED. */
CT_MUST_CHECK int ct_warm_parts_make(struct ct_warm_parts *parts,
                                     const struct ct_train_options *options, int rank, int world,
                                     struct ct_err *err);

/* A ctw_spare_check_fn; `data` is a struct ct_warm_parts. */
const char *ct_warm_parts_check(void *data);

void ct_warm_parts_fini(struct ct_warm_parts *parts);

#endif
