/* SPDX-License-Identifier: Apache-2.0
 *
 * A generated image set: ten smooth patterns under noise, the same bits on every machine and rank.
 * An MLP learns it within an epoch or two, so tests and first tries need no download.
 */
#ifndef CT_TRAINER_DATA_SYNTHETIC_H
#define CT_TRAINER_DATA_SYNTHETIC_H

#include "common/err.h"
#include "trainer/data/dataset.h"

#define CT_SYNTHETIC_SIDE 28
#define CT_SYNTHETIC_CLASSES 10
#define CT_SYNTHETIC_TRAIN 12000
#define CT_SYNTHETIC_TEST 2000

/* Fills the splits and the image shape; ct_dataset_finish() does the rest. CT_ENOMEM leaves what
 * was made so far for ct_dataset_fini(). */
CT_MUST_CHECK int ct_synthetic_make(struct ct_dataset *out, struct ct_err *err);

#endif
