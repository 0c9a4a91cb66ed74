/* SPDX-License-Identifier: Apache-2.0
 *
 * What the process that makes a preflight has found, as the agent reads it.
 */
#ifndef CT_LAUNCHER_PREFLIGHT_PREFLIGHT_OUTCOME_H
#define CT_LAUNCHER_PREFLIGHT_PREFLIGHT_OUTCOME_H

#include "common/err.h"

#include <stdbool.h>

struct cJSON;

/* What a probe has found; texts are borrowed from `root`. */
struct ct_preflight_outcome {
    struct cJSON *root;
    const char *broken; /* why there is no result; "" = there is one */
    const char *unfit;  /* what is wrong with this machine; "" = nothing */
    const char *advice; /* what to do about it */
    bool others_unfit;  /* another machine is not fit, so this generation will not start */
    /* Of node rank 0, "" and NULL for all others. */
    const char *table, *summary, *warnings;
    const struct cJSON *report;
};

/* Gives *out, to be emptied by ct_preflight_outcome_fini(). CT_EFORMAT. */
CT_MUST_CHECK int ct_preflight_outcome_read(const char *text, struct ct_preflight_outcome *out,
                                            struct ct_err *err);
void ct_preflight_outcome_fini(struct ct_preflight_outcome *outcome);

#endif
