/* SPDX-License-Identifier: Apache-2.0
 *
 * --predict: the model's class for each test image, as CSV.
 *
 *     index,class,probability
 *     0,9,0.998213
 */
#ifndef CT_TRAINER_LOOP_PREDICT_H
#define CT_TRAINER_LOOP_PREDICT_H

#include "trainer/session/trainer.h"

/* Not collective: called on one rank, which needs the whole model. The file is replaced whole or
 * not at all, by ct_file_replace(). */
CT_MUST_CHECK int ct_predict(struct ct_trainer *trainer, const char *path, struct ct_err *err);

#endif
