/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that all ranks run the same training.
 */
#ifndef CT_TRAINER_SESSION_CONFIG_CHECK_H
#define CT_TRAINER_SESSION_CONFIG_CHECK_H

#include "trainer/session/trainer.h"

/* Hashes everything that decides how training continues, except its position. */
uint64_t ct_config_check_fingerprint(const struct ct_trainer *t);

/* Collective. CT_EINVAL names a rank with other options, data or position than rank 0. */
CT_MUST_CHECK int ct_config_check(struct ct_trainer *t, struct ct_err *err);

#endif
