/* SPDX-License-Identifier: Apache-2.0
 *
 * A hang in words: which rank holds the job up, on which line it stands, and where the others are.
 * Pure: the answers of the workers (probe.h) go in, lines come out.
 *
 * Whom the verdict of hang.h names is not questioned. Where it names nobody, and all ranks of the
 * job were asked, rendezvous/control/stands.h decides.
 */
#ifndef CT_LAUNCHER_STACKS_EXPLAIN_H
#define CT_LAUNCHER_STACKS_EXPLAIN_H

#include "common/buf.h"
#include "launcher/stacks/probe.h"
#include "rendezvous/control/stands.h"

#include <stdbool.h>

struct ct_explain {
    const struct ct_probe *probe; /* by local rank; it has run */
    int first_rank;               /* global rank of local rank 0 */
    bool whole_job;               /* all ranks of the job were asked, as far as they live */
    int suspect; /* local rank of the one that the verdict names; -1 = it names nobody */
};

/* Gives where the workers stand, in the form in which machines tell each other; *out is to be freed
 * by ct_stands_fini(), also after an error. CT_ENOMEM. */
CT_MUST_CHECK int ct_explain_stands(const struct ct_probe *probe, struct ct_stands *out);

/* Returns the local rank that holds the job up, -1 = nobody stands out. Appends the reason in a
 * clause, or nothing without memory, or if the verdict has named the rank for a reason of its own.
 */
int ct_explain_suspect(const struct ct_explain *explain, struct ct_buf *reason);

/* Appends the names of the collectives in which workers wait, "all_reduce, broadcast"; nothing if
 * none is known. Returns ct_buf_status(out). */
int ct_explain_operations(const struct ct_probe *probe, struct ct_buf *out);

/* Appends what was found, in lines that begin with `prefix`. CT_ENOMEM. */
CT_MUST_CHECK int ct_explain_print(const struct ct_explain *explain, const char *prefix,
                                   struct ct_buf *out);

#endif
