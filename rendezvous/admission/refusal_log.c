/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts refusals and says when the next line about them is due.
 */
#include "rendezvous/admission/refusal_log.h"

#include <inttypes.h>
#include <stdio.h>

uint64_t ct_refusal_log_add(struct ct_refusal_log *refusals, uint64_t now_ms)
{
    refusals->total++;
    if (now_ms < refusals->next_ms) {
        return 0;
    }
    uint64_t unreported = refusals->total - refusals->reported;
    refusals->reported = refusals->total;
    refusals->next_ms = now_ms + CT_REFUSAL_QUIET_MS;
    return unreported;
}

const char *ct_refusals_others(uint64_t unreported, char out[CT_REFUSALS_TEXT_MAX])
{
    out[0] = '\0';
    if (unreported > 1) {
        (void)snprintf(out, CT_REFUSALS_TEXT_MAX, " (and %" PRIu64 " other%s like it)",
                       unreported - 1, unreported == 2 ? "" : "s");
    }
    return out;
}
