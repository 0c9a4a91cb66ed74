/* SPDX-License-Identifier: Apache-2.0
 *
 * What a preflight tells a person. Pure.
 */
#ifndef CT_LAUNCHER_PREFLIGHT_PREFLIGHT_TABLE_H
#define CT_LAUNCHER_PREFLIGHT_PREFLIGHT_TABLE_H

#include "common/buf.h"
#include "launcher/preflight/preflight.h"

/* One row for each machine, a line for each finding, the pairs. CT_ENOMEM. */
CT_MUST_CHECK int ct_preflight_table(const struct ct_preflight_machine *machines, int count,
                                     const struct ct_preflight_verdict *verdict,
                                     struct ct_buf *out);

/* "3 pairs, half of them with 1.2 GB/s or more ...": one line without its end. "" for a single
 * machine. */
CT_MUST_CHECK int ct_preflight_pairs_text(const struct ct_preflight_machine *machines, int count,
                                          const struct ct_preflight_verdict *verdict,
                                          struct ct_buf *out);

#endif
