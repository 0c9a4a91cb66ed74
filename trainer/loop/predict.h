/* SPDX-License-Identifier: Apache-2.0
 *
 * --predict: what the model says of each test image, as CSV.
 *
 *     index,class,probability
 *     0,9,0.998213
 */
#ifndef CT_TRAINER_LOOP_PREDICT_H
#define CT_TRAINER_LOOP_PREDICT_H

#include "trainer/session/trainer.h"

/* Not collective: one rank does it, with the whole model. The file is replaced whole or not at all,
 * as by ct_file_replace(). */
CT_MUST_CHECK int ct_predict(struct ct_trainer *trainer, const char *path, struct ct_err *err);

#endif
