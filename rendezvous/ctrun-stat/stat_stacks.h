/* SPDX-License-Identifier: Apache-2.0
 *
 * ctrun-stat --stacks: asks each machine of a job where its workers stand.
 */
#ifndef CT_RENDEZVOUS_CTRUN_STAT_STAT_STACKS_H
#define CT_RENDEZVOUS_CTRUN_STAT_STAT_STACKS_H

#include "common/buf.h"
#include "common/err.h"
#include "rendezvous/ctrun-stat/stat_options.h"

struct cJSON;

enum { CT_STAT_STACKS_E_NONE = 1 };

/* Asks the machines in `status`, one after the other, and appends their answers below a line with
 * the machine's name. A machine that does not answer has a line that says why.
 * CT_STAT_STACKS_E_NONE if no machine has told where any worker stands, or no workers run: *err
 * says why, and what was appended may be shown. CT_ENOMEM. */
CT_MUST_CHECK int ct_stat_stacks(const struct ct_stat_options *options, const struct cJSON *status,
                                 struct ct_buf *out, struct ct_err *err);

#endif
