/* SPDX-License-Identifier: Apache-2.0
 *
 * A generated image set: ten smooth patterns with noise, the same bits on every machine and rank.
 * An MLP learns it in one or two epochs, so tests and first tries need no download.
 */
#ifndef CT_TRAINER_DATA_SYNTHETIC_H
#define CT_TRAINER_DATA_SYNTHETIC_H

#include "common/err.h"
#include "trainer/data/dataset.h"

#define CT_SYNTHETIC_SIDE 28
#define CT_SYNTHETIC_CLASSES 10
#define CT_SYNTHETIC_TRAIN 12000
#define CT_SYNTHETIC_TEST 2000

/* Fills the splits and the image shape; ct_dataset_finish() does the rest. On CT_ENOMEM the caller
 * calls ct_dataset_fini(), as after success. */
CT_MUST_CHECK int ct_synthetic_make(struct ct_dataset *out, struct ct_err *err);

#endif
