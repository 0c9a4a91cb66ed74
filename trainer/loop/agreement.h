/* SPDX-License-Identifier: Apache-2.0
 *
 * Do all ranks run the same training?
 */
#ifndef CT_TRAINER_LOOP_AGREEMENT_H
#define CT_TRAINER_LOOP_AGREEMENT_H

#include "trainer/loop/trainer.h"

/* Of everything that decides how training goes on, but for where it stands. */
uint64_t ct_agreement_of_job(const struct ct_trainer *t);

/* Collective. CT_EINVAL names a rank with other options or data, or that stands elsewhere. */
CT_MUST_CHECK int ct_agreement_check(struct ct_trainer *t, struct ct_err *err);

#endif
