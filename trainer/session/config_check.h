/* SPDX-License-Identifier: Apache-2.0
 *
 * Do all ranks run the same training?
 */
#ifndef CT_TRAINER_SESSION_CONFIG_CHECK_H
#define CT_TRAINER_SESSION_CONFIG_CHECK_H

#include "trainer/session/trainer.h"

/* Of everything that decides how training goes on, but for where it stands. */
uint64_t ct_config_check_fingerprint(const struct ct_trainer *t);

/* Collective. CT_EINVAL names a rank with other options or data, or that stands elsewhere. */
CT_MUST_CHECK int ct_config_check(struct ct_trainer *t, struct ct_err *err);

#endif
